"""Which replica a shadow reads from, and when the answers of replicas under another shadow mean
that a log was truncated."""

from __future__ import annotations

import pytest

from linkflap.harness.mirrors.shadow.destination.client import Led, MetadataSnapshot, Topic
from linkflap.harness.mirrors.shadow.source import (
    LogDivergence,
    Reading,
    ReplicaReaders,
    truncation_point,
)

PARTITION = ("A.records", 0)
BROKERS = {1: "one:1", 2: "two:2", 3: "three:3", 1000: "shadow:0"}


def picture(
    leader: int,
    *,
    live: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, int, int, int] = (1000, 1, 2, 3),
) -> MetadataSnapshot:
    led = Led(leader=leader, epoch=7, replicas=replicas, in_sync=(1000,))
    brokers = {broker: BROKERS[broker] for broker in (*live, 1000)}
    return MetadataSnapshot(
        brokers=brokers, topics={PARTITION[0]: Topic(id=None, partitions={0: led})}
    )


def chosen(readers: ReplicaReaders) -> Reading:
    found = readers.get(PARTITION)
    assert found is not None
    return found


def test_a_real_leader_is_asked_in_its_epoch_and_a_shadow_never() -> None:
    readers = ReplicaReaders()
    readers.look(picture(2), {})
    assert (chosen(readers).address, chosen(readers).epoch) == ("two:2", 7)
    for leader in (1000, -1):
        readers.look(picture(leader), {})
        assert chosen(readers).address in chosen(readers).replicas == ("one:1", "two:2", "three:3")
        assert not chosen(readers).led
    readers.look(picture(2, live=(1, 3)), {})
    assert readers.get(PARTITION) is None
    readers.look(picture(1000, live=()), {})
    assert readers.get(PARTITION) is None


def test_a_replica_is_kept_while_it_gives_and_left_when_it_is_stuck_or_dead() -> None:
    readers = ReplicaReaders()
    asked = []
    for position in (5, 6, 6, 6, 7):
        readers.look(picture(1000), {PARTITION: position})
        asked.append(chosen(readers).address)
    assert asked == ["one:1", "one:1", "two:2", "three:3", "three:3"]
    readers.turn(PARTITION, "two:2")
    readers.look(picture(1000, live=(1, 3)), {PARTITION: 8})
    assert (chosen(readers).address, chosen(readers).all_live) == ("one:1", False)
    readers.look(picture(1), {PARTITION: 9})
    # the answer of a replica that came when there was a leader again
    readers.turn(PARTITION, "three:3")
    assert chosen(readers).address == "one:1"
    readers.leave(PARTITION)
    assert readers.addresses() == set()


@pytest.mark.parametrize(
    ("words", "all_live", "end"),
    [
        ([LogDivergence(end=50), LogDivergence(end=75)], True, 75),  # all end there: truncated
        ([LogDivergence(end=50), LogDivergence(end=75)], False, -1),  # a dead one may have more
        # written again in a later epoch
        ([LogDivergence(end=50), LogDivergence(end=75, epoch=8)], False, 75),
        ([LogDivergence(end=50, epoch=7), LogDivergence(end=40, epoch=8)], True, 40),
        ([LogDivergence(end=-1), LogDivergence(end=50)], True, -1),
        ([], True, -1),
    ],
)
def test_replicas_that_end_earlier_are_behind_unless_that_is_all_or_a_later_epoch_has_begun(
    words: list[LogDivergence], all_live: bool, end: int
) -> None:
    assert truncation_point(words, all_live=all_live) == end
