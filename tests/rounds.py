"""Run directories made up for tests, with several eras: a round trip A->B->A, and a chain A->B->C.
Valid until changed.

    offset   0-2   3       4-6   7      8-10   11            12-14  15      16-18  19      20-22  23
    A then   one   COMMIT  two   ABORT  three  COMMIT        four   COMMIT
             A dies
    B        one   COMMIT  two   ABORT  three  ABORT (known) five   COMMIT  six    COMMIT
    A now    one   COMMIT  two   ABORT  three  ABORT         five   COMMIT  six    COMMIT  seven
             COMMIT   B follows nobody

What A had acknowledged from offset 8 on (three and four, 6 records) was lost: the marker of three
had not arrived. C has what B has. Written down by hand, so that every offset is known; seeds give
others (`tests.faithful`, which writes these too). Change `logs`, `events` or `operations` of what
`round_trip` and `chain` give, then `write` it. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

from linkflap.harness.model.history import EventRow, Operation
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from tests.faithful.clusters import ABORT, COMMIT
from tests.hand_written import (
    TOPIC,
    Made,
    data_batch,
    end_marker,
    event_row,
    failover_rows,
    fault_rows,
    operation,
)

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
