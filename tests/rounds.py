"""Run directories of several eras (rounds), written by hand without a run. Times are in seconds."""

from __future__ import annotations

from collections.abc import Mapping
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
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from tests.faithful import clusters as faithful
from tests.faithful.clusters import ABORT, COMMIT
from tests.faithful.made import Captured, LogKey, end_of
from tests.faithful.made import Made as Run

# Hand-written runs: their batches, events and operations. Times are in seconds.


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


LOST, PARTED, HOME = 6, 11, 20
"""Records that the forced failover lost; B's first own offset; A's first own offset after the
failback."""
ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN = 101, 102, 103, 104, 205, 206, 307
COMMON = (
    data_batch(0, ONE, 1, 0), end_marker(3, COMMIT, 1, 0),
    data_batch(4, TWO, 1, 0, 3), end_marker(7, ABORT, 1, 0),
    data_batch(8, THREE, 1, 0, 6),
)  # fmt: skip
TAIL = (end_marker(11, COMMIT, 1, 0), data_batch(12, FOUR, 1, 0, 9), end_marker(15, COMMIT, 1, 0))
OF_B = (
    end_marker(11, ABORT, 1, 2), data_batch(12, FIVE, 1001, 2), end_marker(15, COMMIT, 1001, 2),
    data_batch(16, SIX, 1001, 2, 3),
    end_marker(19, COMMIT, 1001, 2),
)  # fmt: skip
OF_A_AGAIN = (data_batch(20, SEVEN, 2, 4), end_marker(23, COMMIT, 2, 4))


def _spec(name: str, fault: str, target: str) -> FaultSpec:
    return FaultSpec(id=name, fault=fault, target=target, at=1.0, duration=0.0)


AWAY = _spec("away", "failover-forced", "A->B")
SAID: list[tuple[int, str]] = [(11, "ABORT of producer 1, epoch 0")]
TAIL_LOG, BEFORE, END = "1-away", "1-reverse", "2-end"


def _gone() -> tuple[list[EventRow], list[Operation], list[tuple[float, str, int, int]]]:
    """A dies at second 10 and B continues; the same in every story."""
    events = [
        *fault_rows(10, 16, "away", "failover-forced", "A->B", restores=False),
        *failover_rows(11, "A->B", "forced", 10, PARTED, SAID),
        event_row(15, "captured", "A", moment=TAIL_LOG, replicas=1),
    ]
    operations = [
        operation(ONE, "A", 1, 0, pid=1), operation(TWO, "A", 2, 4, pid=1, ending="abort"),
        operation(THREE, "A", 3, 8, pid=1),
        operation(FOUR, "A", 4, 12, pid=1), operation(FIVE, "B", 13, 12, pid=1001),
        operation(SIX, "B", 14, 16, pid=1001),
    ]  # fmt: skip
    return (
        events,
        operations,
        [
            (5, "A", ONE, 0),
            (6, "A", FOUR, 12),
            (7, "B", ONE, 0),
            (17, "B", FIVE, 12),
            (18, "B", SIX, 16),
        ],
    )


def _clusters(*names: str) -> tuple[ClusterSpec, ...]:
    return tuple(ClusterSpec(name=name) for name in names)


def round_trip() -> Made:
    """Forced failover A->B, A follows B, and planned failover back."""
    events, operations, reads = _gone()
    truncation: Mapping[str, object] = {
        "cluster": "A",
        "topic": TOPIC,
        "partition": 0,
        "offset": PARTED,
        "end": 16,
    }
    events += [
        *fault_rows(20, 30, "reverse", "mirror-reverse", "A->B", restores=True),
        event_row(22, "captured", "A", moment=BEFORE, replicas=1),
        event_row(25, "truncation", "B->A", **truncation),
        event_row(26, "mirror-started", "B->A", mirror="shadow", options={}, seconds=1.0),
        *fault_rows(40, 45, "home", "failover-planned", "B->A", restores=False),
        *failover_rows(41, "B->A", "planned", 40, HOME, []),
        event_row(90, "captured", "A", moment=END, replicas=1),
        event_row(91, "captured", "B", moment=END, replicas=1),
    ]
    return Made(
        topology=Topology(
            clusters=_clusters("A", "B"), links=(LinkSpec(source="A", destination="B"),)
        ),
        schedule=(
            AWAY,
            _spec("reverse", "mirror-reverse", "A->B"),
            _spec("home", "failover-planned", "B->A"),
        ),
        logs={
            (TAIL_LOG, "A"): [*COMMON, *TAIL],
            (BEFORE, "A"): [*COMMON, *TAIL],
            (END, "A"): [*COMMON, *OF_B, *OF_A_AGAIN],
            (END, "B"): [*COMMON, *OF_B],
        },
        events=events,
        operations=[*operations, operation(SEVEN, "A", 43, 20, pid=2)],
        reads=[*reads, (35, "A", FIVE, 12), (36, "A", SIX, 16), (60, "A", SEVEN, 20)],
        marks=[
            (5, "A", 4, 0),
            (8, "B", 4, 0),
            (18, "B", 20, 2),
            (35, "A", 20, 3),
            (60, "A", 24, 4),
        ],
    )


def chain() -> Made:
    """A->B->C: A dies, B continues, and C follows B all the time."""
    events, operations, reads = _gone()
    links = (LinkSpec(source="A", destination="B"), LinkSpec(source="B", destination="C"))
    return Made(
        topology=Topology(clusters=_clusters("A", "B", "C"), links=links),
        schedule=(AWAY,),
        logs={
            (TAIL_LOG, "A"): [*COMMON, *TAIL],
            (END, "B"): [*COMMON, *OF_B],
            (END, "C"): [*COMMON, *OF_B],
        },
        events=[
            *events,
            *(event_row(90, "captured", name, moment=END, replicas=1) for name in "BC"),
        ],
        operations=operations,
        reads=[*reads, (19, "C", ONE, 0), (19.5, "C", FIVE, 12)],
        marks=[(5, "A", 4, 0), (8, "B", 4, 0), (18, "B", 20, 2), (9, "C", 4, 0), (19, "C", 20, 2)],
    )
