"""Hand-written runs: their batches, events and operations. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from linkflap.harness.model.history import (
    Bounds,
    EventRow,
    Fetched,
    Operation,
    Poll,
    SendGroup,
    Watermark,
)
from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.harness.model.scenario import (
    Budgets,
    FaultSpec,
    MirrorSpec,
    Scenario,
    TopicSpec,
    WorkloadSpec,
)
from linkflap.harness.model.topology import Topology
from tests.faithful import clusters as faithful
from tests.faithful.made import Captured, LogKey, end_of
from tests.faithful.made import Made as Run

TOPIC = "A.t"
SIZE = 3
SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One batch: the records of operation `number`, or (`ends`) the marker that ends one."""

    offset: int
    pid: int
    leader_epoch: int
    number: int = 0
    sequence: int = 0
    ends: int | None = None

    def made(self) -> faithful.Entry:
        common = {
            "offset": self.offset,
            "pid": self.pid,
            "epoch": 0,
            "leader_epoch": self.leader_epoch,
            "transactional": True,
        }
        if self.ends is not None:
            return faithful.Entry(ends=self.ends, **common)  # type: ignore[arg-type]
        records = tuple(
            faithful.Rec(i, uid, self.number, i, 1_700_000_000_000, None, b"v%d" % uid)
            for i, uid in enumerate(uids(self.number))
        )
        return faithful.Entry(records=records, span=len(records), sequence=self.sequence, **common)  # type: ignore[arg-type]


def uids(number: int) -> range:
    """The payload ids of an operation. Operations of one process have `number`s with the same
    hundreds."""
    first = ((number // 100) << PROCESS_SHIFT) + SIZE * (number % 100)
    return range(first, first + SIZE)


def data_batch(offset: int, number: int, pid: int, epoch: int, sequence: int = 0) -> Entry:
    return Entry(offset=offset, number=number, pid=pid, leader_epoch=epoch, sequence=sequence)


def end_marker(offset: int, ends: int, pid: int, epoch: int) -> Entry:
    return Entry(offset=offset, ends=ends, pid=pid, leader_epoch=epoch)


@dataclass(slots=True)
class Made:
    """A run that is not written to disk yet. `logs` are by moment and cluster; `reads` are (second,
    cluster, operation, offset)."""

    topology: Topology
    schedule: tuple[FaultSpec, ...]
    logs: dict[tuple[str, str], list[Entry]]
    events: list[EventRow]
    operations: list[Operation]
    reads: list[tuple[float, str, int, int]]
    marks: list[tuple[float, str, int, int]]
    budgets: Budgets = field(default_factory=Budgets)

    def change(self, moment: str, cluster: str, offset: int, **fields: object) -> None:
        """Changes fields of the batch at an offset."""
        log = self.logs[moment, cluster]
        at = next(i for i, entry in enumerate(log) if entry.offset == offset)
        log[at] = replace(log[at], **fields)  # type: ignore[arg-type]

    def remove(self, moment: str, cluster: str, offset: int) -> None:
        self.logs[moment, cluster] = [e for e in self.logs[moment, cluster] if e.offset != offset]

    def write(self, root: Path) -> Path:
        scenario = Scenario(
            name="rounds", about="made up", seed=1, topology=self.topology,
            mirror=MirrorSpec(kind="shadow"),
            workloads=(WorkloadSpec(kind="transactional", home="A"),), schedule=self.schedule,
            budgets=self.budgets,
            topics=TopicSpec(partitions=1),
        )  # fmt: skip
        run = Run(scenario=scenario, started=1, ended=1000 * SECOND, events=self.events)
        for row in self.operations:
            asked = tuple(replace(g, acks=()) for g in row.sends)
            run.operations.append(replace(row, phase="invoke", outcome="info", sends=asked))
            run.operations.append(replace(row, phase="return", time=row.time + SECOND // 2))
        run.polls = [_poll(f"r{index}", *read) for index, read in enumerate(self.reads)]
        run.marks = [_mark(*mark) for mark in self.marks]
        for (moment, cluster), log in self.logs.items():
            entries = [entry.made() for entry in log]
            captured = Captured(entries=entries, bounds=_bounds(cluster, end_of(entries)))
            run.logs[LogKey(moment, cluster, 1, TOPIC, 0)] = captured
        return run.write(root)


def event_row(second: float, kind: str, subject: str, /, **data: object) -> EventRow:
    return EventRow(time=int(second * SECOND), kind=kind, subject=subject, data=data)


def fault_rows(
    start: float, end: float, name: str, fault: str, target: str, *, restores: bool
) -> list[EventRow]:
    return [
        event_row(
            start, "fault-start", target, id=name, fault=fault, options={}, restores=restores
        ),
        event_row(
            start + 0.1,
            "fault-bite",
            target,
            id=name,
            bit=True,
            observable="it",
            measured=1,
            expected=1,
        ),
        event_row(end - 0.1, "fault-heal", target, id=name, healed=True, checked=[]),
        event_row(end, "fault-end", target, id=name),
    ]


def failover_rows(
    second: float, link: str, kind: str, fault: float, offset: int, appended: list[tuple[int, str]]
) -> list[EventRow]:
    """The events of a mirror's end, its promotion, and the kind of the failover."""
    promoted = offset + len(appended)
    reported = {
        "topic": TOPIC,
        "partition": 0,
        "mirrored": offset,
        "promoted": promoted,
        "truncated": [],
        "appended": appended,
    }
    return [
        event_row(second, "mirror-stopped", link, drained=kind == "planned", partitions=[reported]),
        event_row(
            second + 0.1,
            "promotion",
            link,
            cluster=link.partition("->")[2],
            topic=TOPIC,
            partition=0,
            offset=offset,
        ),
        event_row(
            second + 0.2,
            "failover",
            link,
            kind=kind,
            fault_time=int(fault * SECOND),
            open_transactions=1,
        ),
    ]


def operation(
    number: int, cluster: str, second: float, offset: int, *, pid: int, ending: str = "commit"
) -> Operation:
    """An acknowledged transaction that was requested at `second`."""
    at = int(second * SECOND)
    group = SendGroup(
        topic=TOPIC, partition=0, first_uid=uids(number)[0], count=SIZE, acks=((0, SIZE, offset),)
    )
    return Operation(
        number=number, phase="return", time=at, client="p", process=number // 100, cluster=cluster,
        kind="transaction",
        ending=ending, outcome="ok", transactional_id=f"t{number // 100}", # type: ignore[arg-type]
        ended_at=at + 1000, producer_id=pid,
        producer_epoch=0, sends=(group,),
    )  # fmt: skip


def _poll(reader: str, second: float, cluster: str, number: int, offset: int) -> Poll:
    at = int(second * SECOND)
    fetched = Fetched(
        topic=TOPIC, partition=0, runs=((uids(number)[0], offset, SIZE),), position=offset + SIZE
    )
    return Poll(
        time=at, returned=at + 5, reader=reader, process=9, cluster=cluster,
        isolation="read_committed", kind="poll",
        fetched=(fetched,),
    )  # fmt: skip


def _mark(second: float, cluster: str, offset: int, epoch: int) -> Watermark:
    at = int(second * SECOND)
    return Watermark(
        time=at, returned=at + 1, cluster=cluster, leader=1, topic=TOPIC, partition=0, log_start=0,
        last_stable=offset,
        high_watermark=offset, leader_epoch=epoch,
    )  # fmt: skip


def _bounds(cluster: str, end: int) -> Bounds:
    return Bounds(
        cluster=cluster, broker=1, topic=TOPIC, partition=0, leader=True, alive=True, log_start=0,
        high_watermark=end,
        high_watermark_from="sampled",
    )  # fmt: skip
