"""Leader epochs of a log: which epoch wrote which offsets (KIP-101, KIP-320), and what a mirror's
batches carry.

No (epoch, offset) may name two batches, a batch's epoch may not exceed the partition's (brokers
skip such batches for ever, KAFKA-18723), and epochs may not fall along a log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Entry = tuple[int, int]
NONE = -1


class Lineage:
    """As a broker's leader epoch cache: (epoch, first offset) rising in both."""

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
        """Offsets from `start` on are `epoch`'s; False when that was known. An older or equal epoch
        changes nothing."""
        if epoch <= self.latest:
            return False
        self.truncate(start)
        self._epochs.append(epoch)
        self._starts.append(start)
        return True

    def truncate(self, end: int) -> None:
        """Forgets the epochs that begin at or after `end`."""
        while self._starts and self._starts[-1] >= end:
            self._epochs.pop()
            self._starts.pop()

    def at(self, offset: int) -> int:
        """The epoch that wrote `offset`, or NONE when it is before all that is known."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else NONE

    def floor(self, epoch: int) -> int:
        """The largest known epoch that is not above `epoch`, or NONE."""
        index = bisect_right(self._epochs, epoch) - 1
        return self._epochs[index] if index >= 0 else NONE

    def end_of(self, epoch: int, log_end: int) -> Entry:
        """The largest epoch that is not above `epoch`, and where it ends (KIP-101); (NONE, NONE) if
        there is none."""
        index = bisect_right(self._epochs, epoch) - 1
        if not self._epochs or epoch > self._epochs[-1]:
            return NONE, NONE
        end = self._starts[index + 1] if index + 1 < len(self._starts) else log_end
        return (self._epochs[index] if index >= 0 else epoch), end

    def diverges(self, epoch: int, offset: int, log_end: int) -> Entry | None:
        """What a leader tells a follower whose last fetched batch has `epoch` and that asks for
        `offset`: None when it agrees."""
        if epoch < 0:
            return None
        # of a log that was truncated since: everything after what is left of it
        if epoch > self.latest:
            return (epoch if self.latest == NONE else self.latest), log_end
        known, end = self.end_of(epoch, log_end)
        return (known, end) if known < epoch or end < offset else None


def parting(one: Lineage, one_end: int, other: Lineage, other_end: int) -> int:
    """Where two logs part that were one: the end of the newest epoch that both know, in the one
    that has less of it; 0 for none.

    Both are asked, as leader and follower do one after the other (KIP-101, KIP-279: an epoch that
    one of them does not know says nothing).
    """
    epoch = other.latest
    while epoch != NONE:
        shared = one.floor(epoch)
        if shared == epoch:
            return min(one.end_of(epoch, one_end)[1], other.end_of(epoch, other_end)[1])
        epoch = NONE if shared == NONE else other.floor(shared)
    return 0
