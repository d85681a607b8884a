"""One mirrored partition that the shadow leads, with a bounded window of its log.

The log has the source's bytes, stamped. Batches outside the window are fetched from the source
again. `end` does not depend on the window. Nothing is served before `end` is known: a follower with
a longer log would truncate to it.
"""

from __future__ import annotations

import asyncio
import os
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from linkflap.harness.mirrors.shadow.batches import Stamped, end_of, mapping, stamp, within
from linkflap.harness.mirrors.shadow.journal import Journal, PartitionNote, Steps
from linkflap.harness.mirrors.shadow.settings import Config
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire.messages import Message, Pieces

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


LIVE_SECONDS = 3.0
"""A follower that has not fetched for this long delays nobody (like replica.lag.time.max.ms)."""


@dataclass(slots=True, kw_only=True)
class Follower:
    """A follower's last fetch: its log end offset, the leader epoch, and the time; and the high
    watermark that it was last sent.

    `last_epoch` is the leader epoch of its last batch, -1 when its log is empty.
    """

    offset: int
    leader_epoch: int
    asked: float
    high_watermark_sent: int = -1
    last_epoch: int = -1


@dataclass(slots=True, kw_only=True, eq=False)
class Partition:
    """The state of one partition. `start` is the source's log start offset. `end` is the log end
    offset, -1 while it is unknown.

    `leader_epoch` is -1 while the shadow does not lead. `position` is the offset from which the
    source is read next, -1 while it is unknown. `served` is the offset after the last batch that
    was served. `raise_to` is the leader epoch that the partition needs next, or -1. `sealed` is why
    it is no longer mirrored, or empty. `taking`: a takeover is not complete.
    """

    topic: str
    number: int
    note: PartitionNote
    epochs: Lineage
    source_epochs: Lineage
    leader_epoch: int = -1
    partition_epoch: int = 0
    start: int = 0
    end: int = -1
    high_watermark: int = 0
    position: int = -1
    served: int = 0
    raise_to: int = -1
    limit: int = -1
    followers: dict[int, Follower] = field(default_factory=dict)
    sealed: str = ""
    taking: bool = False
    window: deque[Stamped] = field(default_factory=deque)
    held: int = 0

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def ready(self) -> bool:
        """Whether the shadow may answer followers."""
        return self.leader_epoch >= 0 and self.end >= 0 and self.raise_to < 0

    @property
    def window_start(self) -> int:
        """The first offset in the window; `position` when it is empty."""
        return self.window[0].base if self.window else self.position

    def keep(self, stamped: Stamped) -> None:
        """Adds batches that were read at `position`."""
        self.position = stamped.end
        if len(stamped.data):
            self.window.append(stamped)
            self.held += len(stamped.data)

    def release(self) -> bool:
        """Drops the batches that every live follower has. Returns whether there were any."""
        live, held = self.live(), self.held
        if live:
            lowest = min(follower.offset for follower in live.values())
            while self.window and self.window[0].end <= lowest:
                self.held -= len(self.window.popleft().data)
        return self.held < held

    def drop_window(self, position: int) -> None:
        """Empties the window; the source is read again from `position`."""
        self.window.clear()
        self.held, self.position = 0, position

    def read(self, offset: int, limit: int) -> tuple[Pieces, int] | None:
        """Complete batches from `offset` on, about `limit` bytes but at least one batch, and the
        offset after them.

        None when the window no longer has them; no bytes when nothing follows `offset` yet.
        """
        if offset < self.window_start:
            return None
        parts: list[memoryview] = []
        size, end = 0, offset
        for stamped in self.window:
            if stamped.end <= offset:
                continue
            part = stamped.data if stamped.base >= offset else stamped.from_offset(offset)
            if size + len(part) > limit:
                parts.append(within(part, limit - size, at_least_one=not size))
                end = max(end, end_of(parts[-1]))
                break
            parts.append(part)
            size, end = size + len(part), stamped.end
        return Pieces(parts), end

    def live(self) -> dict[int, Follower]:
        """The followers that have fetched within LIVE_SECONDS in the current leader epoch."""
        since = time.monotonic() - LIVE_SECONDS
        return {
            n: f
            for n, f in self.followers.items()
            if f.asked >= since and f.leader_epoch == self.leader_epoch
        }

    def agreed(self, follower: Follower | None) -> int:
        """The offset up to which a follower's log equals this one, according to its leader epochs;
        -1 for None."""
        if follower is None:
            return -1
        split = self.epochs.diverges(follower.last_epoch, follower.offset, follower.offset)
        return follower.offset if split is None else min(follower.offset, split[1])

    def heard(self, broker: int, offset: int, leader_epoch: int, last_epoch: int = -1) -> Follower:
        """Records a follower's fetch."""
        follower = self.followers.get(broker)
        if follower is None:
            follower = self.followers[broker] = Follower(
                offset=offset, leader_epoch=leader_epoch, asked=0
            )
        if follower.leader_epoch != leader_epoch:
            follower.high_watermark_sent = -1
        follower.offset, follower.asked = offset, time.monotonic()
        follower.leader_epoch, follower.last_epoch = leader_epoch, last_epoch
        return follower

    def advance(self) -> bool:
        """Raises the high watermark to the offset that every live follower has, as a leader does.
        Returns whether it rose."""
        live = self.live()
        if not live or self.end < 0:
            return False
        reached = min(self.end, *(follower.offset for follower in live.values()))
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def truncate(self, end: int) -> None:
        """Truncates the log to `end`. Followers with longer logs truncate at their next fetch."""
        self.end = end
        self.high_watermark = min(self.high_watermark, end)
        self.served = min(self.served, end)
        self.epochs.truncate(end)
        while self.window and self.window[-1].end > end:
            last = self.window.pop()
            self.held -= len(last.data)
            if last.base < end:
                self.position = last.base
                self.keep(last.below(end))
                break
        self.position = min(self.position, end)


WINDOW_BYTES: Final = 4 << 20
"""Limit of one partition's window. A single larger batch may exceed it."""
BUDGET_BYTES: Final = 48 << 20
"""Limit of all windows together."""
_NEVER: Final = (1 << 63) - 1


class Bell:
    """Wakes all tasks that wait for `next`. A task takes `next` before it checks its condition, so
    that it misses no change."""

    def __init__(self) -> None:
        self.next = asyncio.Event()

    def ring(self) -> None:
        self.next.set()
        self.next = asyncio.Event()


class MirroredLog:
    """Partitions by name, and topic names by id on either side."""

    def __init__(self, config: Config, journal: Journal) -> None:
        self.config, self.journal = config, journal
        self.steps = Steps.of(os.environ)
        self.partitions: dict[TopicPartition, Partition] = {}
        self.lost: set[TopicPartition] = set()
        """Partitions that a real broker leads although nothing was handed over. They are not in
        `partitions`."""
        self.names: dict[Message, str] = {}
        """Topic id on the destination -> name."""
        self.source_names: dict[Message, str] = {}
        self.brokers: frozenset[int] = frozenset()
        """The live real brokers of the destination."""
        self._ids = mapping(config.options, config.source_cluster_id)
        self._bell = Bell()
        self.room = Bell()
        """Rung when a window has released data."""

    @property
    def bell(self) -> asyncio.Event:
        """An event that is set once, at the next change that may concern a waiting follower."""
        return self._bell.next

    def ring(self) -> None:
        self._bell.ring()

    def has(self, partition: Partition) -> bool:
        """Whether the partition is still mirrored: its topic may have been deleted during an
        await."""
        return self.partitions.get((partition.topic, partition.number)) is partition

    @property
    def held(self) -> int:
        """Bytes in all windows."""
        return sum(partition.held for partition in self.partitions.values())

    def memory(self) -> int:
        """Bytes of memory that the windows use.

        Any view of a frame keeps the whole frame in memory. So when the budget is used up, data
        that uses less than half of its frame is copied out.
        """
        pieces = [piece for partition in self.partitions.values() for piece in partition.window]
        if (size := _memory(pieces)) < BUDGET_BYTES:
            return size
        used = Counter[int]()
        for piece in pieces:
            used[id(piece.frame)] += len(piece.data)
        for piece in pieces:
            if used[id(piece.frame)] * 2 < len(piece.frame):
                piece.data = memoryview(bytearray(piece.data))
        return _memory(pieces)

    def add(self, topic: str, number: int) -> Partition:
        """The partition, with its state from the journal."""
        tp = topic, number
        if tp not in self.partitions:
            note = self.journal.partition(topic, number)
            self.partitions[tp] = Partition(
                topic=topic,
                number=number,
                note=note,
                epochs=Lineage(note.epochs),
                source_epochs=Lineage(note.source_epochs),
            )
        return self.partitions[tp]

    def stamped(self, partition: Partition, raw: memoryview, position: int) -> Stamped:
        """The source's answer to a fetch at `position`, stamped for the destination. Journals new
        leader epochs first.

        With leader_epochs=keep, the log has the source's epochs. Then batches above the partition's
        leader epoch are held back until that is raised (`raise_to`).
        """
        keep = self.config.options.leader_epochs == "keep"
        at: Callable[[int, int], int] = (
            (lambda _, epoch: epoch) if keep else (lambda base, _: partition.epochs.at(base))
        )
        known = partition.source_epochs.at(position - 1)
        made = stamp(
            raw, position=position, below=_NEVER, source_epoch=known, epoch_at=at, ids=self._ids
        )
        changed = [partition.source_epochs.begin(epoch, start) for epoch, start in made.epochs]
        if keep:
            changed += [partition.epochs.begin(epoch, start) for epoch, start in made.epochs]
            newest = max((epoch for epoch, _ in made.epochs), default=-1)
            if newest > partition.leader_epoch:
                partition.raise_to = newest
        if made.top_producer > self.journal.notes.top_producer:
            # In steps of 100, so that not every new producer writes the journal. The option `jump`
            # adds a margin of its own.
            self.journal.notes.top_producer = made.top_producer + 100
            changed.append(True)
        if any(changed):
            self.remember([partition])
        return made

    def remember(self, partitions: Iterable[Partition]) -> None:
        """Writes the partitions' epochs to the journal."""
        for partition in partitions:
            partition.note.epochs = partition.epochs.entries
            partition.note.source_epochs = partition.source_epochs.entries
        self.journal.save()

    def lead(self, partition: Partition, epoch: int) -> None:
        """The shadow leads the partition in `epoch`: offsets that were not served before belong to
        that epoch. While the read position is unknown, only the leader epoch is set."""
        partition.leader_epoch = epoch
        if partition.raise_to <= epoch:
            partition.raise_to = -1
        if partition.position < 0:
            return
        if self.config.options.leader_epochs == "rewrite" and partition.epochs.begin(
            epoch, partition.served
        ):
            # Batches in the window beyond `served` carry the previous epoch.
            partition.drop_window(min(partition.position, partition.served))
        self.remember([partition])


def _memory(pieces: Iterable[Stamped]) -> int:
    return sum({id(piece.frame): len(piece.frame) for piece in pieces}.values())
