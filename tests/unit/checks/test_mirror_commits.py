"""group-offsets: which commits a mirror may make for a group, commit by commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linkflap.spark_verify.facts.partition_facts import Truncation
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.clients import poll
from tests.unit.checks.group_coordinators import (
    BYTES,
    READ_ON_A,
    beside,
    coordinator,
    coordinators,
    together,
)
from tests.unit.checks.histories import view
from tests.unit.checks.logs import SECOND, Log

MOVED = view(
    [Log("A").data(1, 2).data(3, 4), Log("B").data(-1, 1, 2).data(3, 4)],
    reads=READ_ON_A,
)
"""MirrorMaker 2 has shifted every record by one."""


def truncated(offset: int) -> PartitionView:
    """The same, and B's log was truncated there once."""
    note = Truncation(link="A->B", cluster="B", offset=offset, end=9, time=SECOND)
    return replace(BYTES, partition_facts=replace(BYTES.partition_facts, truncations=[note]))


@pytest.mark.parametrize(
    ("seen", "internal"),
    [
        (BYTES, beside(1, 3, 3)),
        (BYTES, beside(0, 1, 2, 3)),
        (BYTES, beside(3, 1, source=("members", 1, 3, 1))),
        (BYTES, beside(3, 1, source=("members", 1, 3), disturbed="A")),
        (BYTES, beside(3, "members", 4, 5, "empty", 1)),
        (BYTES, beside("members", 4, 3)),
        (BYTES, beside((4, 3))),
        (BYTES, beside(4, 1, source=(1, 3))),
        (BYTES, coordinators(coordinator("A", "members", 1, 3), coordinator("B", 4, 1, group="h"))),
        (truncated(2), beside(3, 2)),
        (truncated(1), beside(1, source=("members", 3))),
        (MOVED, beside(2, 4)),
        (MOVED, beside(2, 1, source=("members", 3, 1))),
        (replace(BYTES, reads=[]), beside(4)),
        (
            replace(BYTES, reads=[*BYTES.reads, poll(kind="commit", group="g", position=4)]),
            beside(4),
        ),
    ],
    ids=[
        "as on the source",
        "taken back to where the log ends",
        "the group went back on the source",
        "the source's coordinator answered late",
        "the group itself was there in between",
        "the group itself",
        "in a transaction",
        "a group without members commits like a mirror",
        "another group",
        "the destination was truncated",
        "taken back to where the destination was truncated",
        "translated",
        "translated, and the group went back",
        "no group was seen",
        "acknowledged on the source, whose log has lost it",
    ],
)
def test_what_a_mirror_may_commit_for_a_group(seen: PartitionView, internal: PartitionView) -> None:
    assert together(seen, internal) == ([], [])


@pytest.mark.parametrize(
    ("seen", "internal", "found"),
    [
        (BYTES, beside(3, 1), ("checkpoint-regression", 1)),
        (BYTES, beside(3, 2), ("checkpoint-regression", 2)),
        (
            BYTES,
            beside(3, 1, source=("members", 1, 3), disturbed="B"),
            ("checkpoint-regression", 1),
        ),
        (BYTES, beside("members", 9, "empty", 4), ("checkpoint-beyond-commit", 4)),
        (truncated(2), beside(3, 1, source=("members", 3)), ("checkpoint-stranger", 1)),
        (MOVED, beside(4, 2), ("checkpoint-regression", 2)),
        (MOVED, beside(5), ("checkpoint-beyond-commit", 5)),
    ],
    ids=[
        "back",
        "back to where the log ended",
        "back, and only the destination's coordinator may have answered late",
        "beyond, after the group was there",
        "what was never committed, in a log that was truncated behind it",
        "translated, and back",
        "translated too far",
    ],
)
def test_what_a_mirror_may_not_commit_for_a_group(
    seen: PartitionView, internal: PartitionView, found: tuple[str, int]
) -> None:
    assert together(seen, internal) == ([found], [])


def test_a_translated_offset_may_be_that_of_the_first_copy() -> None:
    """B has 3 and 4 twice: a group that continues at the second 3 skips nothing."""
    twice = view(
        [Log("A").data(1, 2).data(3, 4), Log("B").data(1, 2).data(3, 4).data(3, 4)], reads=READ_ON_A
    )
    assert together(twice, beside(4, source=("members", 2))) == ([], [])
    assert together(twice, beside(5, source=("members", 2))) == (
        [("checkpoint-beyond-commit", 5)],
        [],
    )


@pytest.mark.parametrize(
    "internal",
    [
        beside(4, start=3),
        beside(4, source=("members", 3), start=3),
        coordinators(coordinator("A", "members", 1, start=2), coordinator("B", 4)),
    ],
    ids=["the destination's", "both", "the source's"],
)
def test_where_a_coordinators_log_has_lost_its_beginning_nothing_is_proven(
    internal: PartitionView,
) -> None:
    why = (
        "what the mirror committed for group g in A.t-0 on B looks wrong, and not all of "
        "__consumer_offsets is there to say so"
    )
    assert together(BYTES, internal) == ([], [why])


def test_a_step_back_of_a_translating_mirror_is_unknown_after_a_fault_on_the_destination() -> None:
    why = (
        "the mirror took the offset of group g on B back from 4 to 2; after a fault on its "
        "brokers, "
    )
    why += "its coordinator may have answered late"
    assert together(MOVED, beside(4, 2, disturbed="B")) == ([], [why])
