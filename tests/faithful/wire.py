"""The same run, with its writers as a program of the user's that was recorded on the wire.

The recorder's own `WireHistory` writes the rows, from the requests and answers of the story's
clients, in their order: what they asked to be written as the story has it, and what they were
answered by the rows of their own history, which a mutation may have changed. A batch without an
acknowledgement had no answer. Readers stay linkflap's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, cast
from unittest import mock

from msgspec.structs import asdict

from linkflap.harness.model.history import EventRow, Operation, Poll
from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.rundir import Appender
from linkflap.harness.wire.messages import Error
from linkflap.harness.wire.recorder import history
from linkflap.harness.wire.recorder.history import ALL_REPLICAS
from linkflap.harness.wire.recorder.settings import Report, Settings
from tests.faithful.clusters import Entry, Rec
from tests.faithful.made import Made
from tests.faithful.observers import Written
from tests.faithful.spec import TOPIC, Spec

Step = tuple[int, Callable[[], None]]
"""A time, and the function that makes the requests or answers of that time."""
PROGRAM: Final = WorkloadSpec(
    kind="command",
    home="A",
    command=("python3", "program.py"),
    writes=(TOPIC.partition(".")[2],),
    record="wire",
)
_WRITERS: Final = ("transactional", "idempotent")
_UNUSED: Final = 9_000
"""The sequence of a batch that no client of the story wrote."""
_ANSWER: Final = 1_000
"""Nanoseconds from a request to its answer: less than any step of the story takes."""


def recordable(spec: Spec) -> bool:
    """Whether a story has a history, and nothing but programs write what readers read."""
    return spec.shape != "copied" and not spec.relay


@dataclass(slots=True)
class _Asked:
    """An operation of the story: its first row and its last one, and what the recorder has of
    it."""

    first: Operation
    last: Operation
    batches: dict[int, history.AskedBatch] = field(default_factory=dict)
    epoch: int = -1
    transaction: history.AskedOperation | None = None

    def acknowledged(self, uid: int) -> int:
        """The offset at which its client has an acknowledgement of a record; -1: it has none."""
        for group in self.last.sends if self.last.phase == "return" else ():
            for index, count, offset in group.acks:
                if 0 <= (at := uid - group.first_uid - index) < count:
                    return offset + at
        return -1

    def refused(self, uid: int) -> bool:
        return any(
            0 <= uid - group.first_uid - index < count
            for group in self.last.sends
            for index, count in group.refused
        )


class _Recorder:
    """The recorder of one cluster; a client without a producer id has one connection."""

    def __init__(self, cluster: str, number: int, rows: Appender[Operation], acks: int) -> None:
        settings = Settings(
            cluster=cluster, number=number, root="", topics=frozenset({TOPIC}), listens={}
        )
        self.report, self._acks = Report(), acks
        self._history = history.WireHistory(settings, rows, cast(Appender[Poll], None), self.report)
        self._unnamed: dict[int, history.WireProducer] = {}

    def write(self, written: Written, operation: _Asked) -> None:
        row, batch = operation.first, written.batch

        def unnamed() -> history.WireProducer:
            if row.process not in self._unnamed:
                self._unnamed[row.process] = self._history.producer(-1, row.client)
            return self._unnamed[row.process]

        (asked,) = self._history.write(*written.spot, batch.encoded(), row.client, unnamed)
        operation.batches[batch.records[0].uid] = asked
        operation.epoch = batch.epoch

    def answer(self, operation: _Asked, uid: int) -> None:
        batch, offset = operation.batches[uid], operation.acknowledged(uid)
        if operation.refused(uid):
            self._history.written(batch, self._acks, Error.message_too_large, -1)
        elif offset >= 0:
            self._history.written(batch, self._acks, Error.none, offset)

    def identified(self, row: Operation) -> None:
        self._history.identified(row.transactional_id, row.producer_id, row.client)

    def end(self, operation: _Asked) -> None:
        batches = list(operation.batches.values())
        if batches:
            producer, commit = batches[-1].operation.producer, operation.last.ending == "commit"
            operation.transaction = self._history.end(producer.id, operation.epoch, commit=commit)

    def ended(self, operation: _Asked) -> None:
        if operation.transaction is not None:
            fenced = operation.last.outcome == "fail"
            error = Error.producer_fenced if fenced else Error.none
            commit = operation.last.ending == "commit"
            self._history.ended(operation.transaction, error, commit=commit)


def on_the_wire(made: Made, acks: int = ALL_REPLICAS) -> Made:
    """Turns a run's own history of writes into one that was recorded on the wire, with these acks
    in all of its requests."""
    operations: dict[int, _Asked] = {}
    for row in made.operations:
        operations.setdefault(row.number, _Asked(row, row)).last = row
    made.operations = []
    rows = cast(Appender[Operation], _Rows(made.operations))
    names = [cluster.name for cluster in made.scenario.topology.clusters]
    recorders = {name: _Recorder(name, number, rows, acks) for number, name in enumerate(names)}
    steps = [
        *_of_batches([*made.written, *_unwritten(made, operations)], operations, recorders),
        *_of_transactions(made, operations, recorders),
    ]
    with mock.patch.object(history, "now") as now:
        for now.return_value, step in sorted(steps, key=lambda step: step[0]):
            step()
    made.events += [
        EventRow(
            time=made.events[-1].time, kind="wire-recorded", subject=name, data=asdict(each.report)
        )
        for name, each in recorders.items()
    ]
    others = tuple(w for w in made.scenario.workloads if w.kind not in _WRITERS)
    made.scenario = replace(made.scenario, workloads=(PROGRAM, *others))
    return made


class _Rows:
    """Takes the rows of recorders."""

    def __init__(self, rows: list[Operation]) -> None:
        self.write = rows.append


def _of_batches(
    written: Iterable[Written],
    operations: Mapping[int, _Asked],
    recorders: Mapping[str, _Recorder],
) -> Iterator[Step]:
    by_uid = {
        uid: operation
        for operation in operations.values()
        for group in operation.first.sends
        for uid in range(group.first_uid, group.first_uid + group.count)
    }
    for each in written:
        first = each.batch.records[0]
        # a mutation may have lost its rows, or given it to another operation
        operation = by_uid.get(first.uid, operations.get(first.operation))
        if operation is None:
            continue
        recorder = recorders[operation.first.cluster]
        asked = each._replace(batch=_as_asked(each.batch, operation))
        yield each.time, partial(recorder.write, asked, operation)
        yield each.time + _ANSWER, partial(recorder.answer, operation, first.uid)


def _as_asked(batch: Entry, operation: _Asked) -> Entry:
    """The batch as its client sent it: brokers set its time, and a mutation may give the client
    another producer id."""
    other = operation.last.producer_id if operation.last.phase == "return" else -1
    return replace(batch, appended=None, pid=other if other >= 0 else batch.pid)


def _unwritten(made: Made, operations: Mapping[int, _Asked]) -> Iterator[Written]:
    """Records that a mutation lets clients have acknowledged although they never wrote them."""
    known = {record.uid for each in made.written for record in each.batch.records}
    for operation in operations.values():
        for group in operation.last.sends if operation.last.phase == "return" else ():
            for index, count, _ in group.acks:
                uids = range(group.first_uid + index, group.first_uid + index + count)
                if not known.intersection(uids):
                    records = tuple(
                        Rec(n, uid, operation.last.number, n, 0, None, b"x")
                        for n, uid in enumerate(uids)
                    )
                    batch = Entry(
                        offset=0,
                        records=records,
                        span=count,
                        pid=operation.last.producer_id,
                        epoch=operation.last.producer_epoch,
                        sequence=_UNUSED,
                        transactional=operation.last.kind == "transaction",
                    )
                    spot = group.topic, group.partition
                    yield Written(operation.first.time + _ANSWER, spot, batch)


def _of_transactions(
    made: Made, operations: Mapping[int, _Asked], recorders: Mapping[str, _Recorder]
) -> Iterator[Step]:
    for number, operation in operations.items():
        last, recorder = operation.last, recorders[operation.first.cluster]
        returned = last.phase == "return"
        if last.kind == "init" and returned and last.transactional_id:
            yield last.time, partial(recorder.identified, last)
        ended_at = last.ended_at if returned else made.endings.get(number, 0)
        if last.kind == "transaction" and ended_at:
            yield ended_at, partial(recorder.end, operation)
            if returned and last.outcome != "info":
                yield max(last.time, ended_at + _ANSWER), partial(recorder.ended, operation)
