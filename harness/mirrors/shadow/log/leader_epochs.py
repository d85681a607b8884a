"""Leader epochs of a log: which epoch wrote which offsets (KIP-101, KIP-320).

A mirror keeps three rules. No (epoch, offset) names two batches. No batch has an epoch above its
partition's, because brokers skip such batches for ever (KAFKA-18723). Epochs never decrease along a
log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Entry = tuple[int, int]
NONE = -1


class Lineage:
    """The leader epochs of a log, like a broker's leader epoch cache: entries (epoch, first offset)
    that increase in both."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries:
            self.begin(epoch, start)

    @property
    def entries(self) -> list[Entry]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The newest epoch, or NONE."""
        return self._epochs[-1] if self._epochs else NONE

    def begin(self, epoch: int, start: int) -> bool:
        """Adds an epoch that starts at offset `start`. Returns False, and changes nothing, unless
        it is newer than all known epochs."""
        if epoch <= self.latest:
            return False
        self.truncate(start)
        self._epochs.append(epoch)
        self._starts.append(start)
        return True

    def truncate(self, end: int) -> None:
        """Removes the epochs that begin at or after `end`."""
        while self._starts and self._starts[-1] >= end:
            self._epochs.pop()
            self._starts.pop()

    def at(self, offset: int) -> int:
        """The epoch that wrote `offset`, or NONE when the offset is before the first known
        epoch."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else NONE

    def floor(self, epoch: int) -> int:
        """The largest known epoch at or below `epoch`, or NONE."""
        index = bisect_right(self._epochs, epoch) - 1
        return self._epochs[index] if index >= 0 else NONE

    def end_of(self, epoch: int, log_end: int) -> Entry:
        """The largest epoch at or below `epoch`, and its end offset, as OffsetForLeaderEpoch
        returns them (KIP-101). (NONE, NONE) when `epoch` is newer than all known epochs."""
        index = bisect_right(self._epochs, epoch) - 1
        if not self._epochs or epoch > self._epochs[-1]:
            return NONE, NONE
        end = self._starts[index + 1] if index + 1 < len(self._starts) else log_end
        return (self._epochs[index] if index >= 0 else epoch), end

    def diverges(self, epoch: int, offset: int, log_end: int) -> Entry | None:
        """Compares with a follower that asks for `offset`, and whose last fetched batch has
        `epoch`. Returns None when the logs agree, else the diverging epoch and its end offset
        (KIP-595)."""
        if epoch < 0:
            return None
        # The follower fetched it before this log was truncated: its log diverges at the end of this
        # one.
        if epoch > self.latest:
            return (epoch if self.latest == NONE else self.latest), log_end
        known, end = self.end_of(epoch, log_end)
        return (known, end) if known < epoch or end < offset else None


def parting(one: Lineage, one_end: int, other: Lineage, other_end: int) -> int:
    """Where two logs with a common beginning part: in the newest epoch that both know, the lower of
    its two end offsets. 0 when they share no epoch.

    Compares both ways, like leader and follower in turn (KIP-101, KIP-279): an epoch that only one
    of them knows is no evidence.
    """
    epoch = other.latest
    while epoch != NONE:
        shared = one.floor(epoch)
        if shared == epoch:
            return min(one.end_of(epoch, one_end)[1], other.end_of(epoch, other_end)[1])
        epoch = NONE if shared == NONE else other.floor(shared)
    return 0
