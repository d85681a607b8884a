"""The replica that each partition of the source is read from: its leader, or a real replica where
another shadow leads (a chain).

A leader is authoritative. Fetches carry its epoch (KIP-320), so that a deposed leader refuses them.
Replicas under a shadow may lag behind each other: a restarted one can have less than another
returned before, which is no truncation. `truncation_point` decides from the answers of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from linkflap.harness.mirrors.shadow.destination.picture import Led, MetadataSnapshot
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID
from linkflap.harness.model.topology import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How one partition is read: from `address`, which leads it in `epoch`, or is a replica under a
    shadow (epoch -1).

    `replicas` are the addresses of all live real replicas. `all_live`: none of its real replicas is
    dead.
    """

    address: str
    epoch: int = -1
    replicas: tuple[str, ...] = ()
    all_live: bool = True

    @property
    def led(self) -> bool:
        return self.epoch >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDivergence:
    """How one replica's log compares with the log that was read up to some offset. `end` is where
    it diverges, -1 when it does not. `epoch` is the leader epoch of its batch there, -1 when its
    log ends there."""

    end: int
    epoch: int = -1


class ReplicaReaders:
    """How each partition is read now."""

    def __init__(self) -> None:
        self._readings: dict[TopicPartition, Reading] = {}
        self._positions: dict[TopicPartition, int] = {}

    def get(self, tp: TopicPartition) -> Reading | None:
        return self._readings.get(tp)

    def addresses(self) -> set[str]:
        return {reading.address for reading in self._readings.values()}

    def leave(self, tp: TopicPartition) -> None:
        """Stops reading a partition until the next metadata shows where to read it."""
        self._readings.pop(tp, None)

    def turn(self, tp: TopicPartition, address: str) -> None:
        """Reads a partition from another replica."""
        if (reading := self._readings.get(tp)) is not None and not reading.led:
            self._readings[tp] = Reading(
                address=address, replicas=reading.replicas, all_live=reading.all_live
            )

    def look(self, found: MetadataSnapshot, positions: Mapping[TopicPartition, int]) -> None:
        """Takes in the source's metadata; `positions` is how far each partition was read."""
        known, self._readings = self._readings, {}
        for name, topic in found.topics.items():
            for number, led in topic.partitions.items():
                tp = name, number
                stuck = positions.get(tp, -1) == self._positions.get(tp, -2)
                reading = _reading(led, found.brokers, known.get(tp), stuck=stuck)
                if reading is not None:
                    self._readings[tp] = reading
        self._positions = dict(positions)


def _reading(
    led: Led, brokers: Mapping[int, str], before: Reading | None, *, stuck: bool
) -> Reading | None:
    if 0 <= led.leader < FIRST_BROKER_ID:
        return (
            Reading(address=brokers[led.leader], epoch=led.epoch) if led.leader in brokers else None
        )
    real = [broker for broker in led.replicas if broker < FIRST_BROKER_ID]
    live = tuple(brokers[broker] for broker in real if broker in brokers)
    if not live:
        return None
    index = live.index(before.address) if before is not None and before.address in live else 0
    # A replica that no longer fetches looks the same as one without new records, so the replicas
    # take turns.
    return Reading(
        address=live[(index + stuck) % len(live)], replicas=live, all_live=len(live) == len(real)
    )


def truncation_point(words: Sequence[LogDivergence], *, all_live: bool) -> int:
    """Where a log under a shadow was truncated, according to its replicas; -1 when it was not, or
    that is unknown yet.

    A batch in a later epoch was written after the truncation. Replicas that only end earlier may
    lag, unless all of them end earlier.
    """
    newest = max((word.epoch for word in words), default=-1)
    if newest >= 0:
        return max(word.end for word in words if word.epoch == newest)
    if all_live and words and all(word.end >= 0 for word in words):
        return max(word.end for word in words)
    return -1
