"""One mirrored partition as the shadow leads it: a bounded window of a log whose whole is the
source's.

The log's bytes are the source's, stamped; so it ends where the source ends (`end`), whatever of it
is in the window. What is not in it is read again. Nothing is served before `end` is known: a
follower that has more would be truncated to it.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from linkflap.harness.mirrors.shadow.journal import PartitionNote
from linkflap.harness.mirrors.shadow.log.batches import Stamped, end_of, within
from linkflap.harness.mirrors.shadow.log.leader_epochs import Lineage
from linkflap.harness.wire.bulk import Pieces

LIVE_SECONDS = 3.0
"""A follower that has not fetched for so long holds nobody up (replica.lag.time.max.ms)."""


@dataclass(slots=True, kw_only=True)
class Follower:
    """What a broker said in its last fetch: its log end offset, in which leader epoch, when; and
    the high watermark it knows.

    `last_epoch` is the leader epoch of the last batch that it has, -1 when it has none.
    """

    offset: int
    leader_epoch: int
    asked: float
    high_watermark_sent: int = -1
    last_epoch: int = -1


@dataclass(slots=True, kw_only=True, eq=False)
class Partition:
    """State of one partition. `end` is -1 until known. `start` is the source's log start offset.

    `leader_epoch` is -1 while the shadow does not lead. `position` is where the source is read
    next, -1 while it is not known; `sealed` is why it is not mirrored any more, or empty; `taking`
    is True until it was taken over.
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
        """Whether followers may be answered with what the log is."""
        return self.leader_epoch >= 0 and self.end >= 0 and self.raise_to < 0

    @property
    def window_start(self) -> int:
        """The first offset that is in the window; `position` when nothing is."""
        return self.window[0].base if self.window else self.position

    def keep(self, stamped: Stamped) -> None:
        """Adds what was read at `position`."""
        self.position = stamped.end
        if len(stamped.data):
            self.window.append(stamped)
            self.held += len(stamped.data)

    def release(self) -> bool:
        """Drops from the window what every live follower has; whether there was anything."""
        live, held = self.live(), self.held
        if live:
            lowest = min(follower.offset for follower in live.values())
            while self.window and self.window[0].end <= lowest:
                self.held -= len(self.window.popleft().data)
        return self.held < held

    def drop_window(self, position: int) -> None:
        """Forgets the window; the source is read from `position` on."""
        self.window.clear()
        self.held, self.position = 0, position

    def read(self, offset: int, limit: int) -> tuple[Pieces, int] | None:
        """Whole batches from `offset` on, about `limit` bytes, at least one batch, and the offset
        after them.

        None when they are not in the window any more; no bytes when there is nothing after `offset`
        yet.
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
        """The followers that fetched lately in this leader epoch."""
        since = time.monotonic() - LIVE_SECONDS
        return {
            n: f
            for n, f in self.followers.items()
            if f.asked >= since and f.leader_epoch == self.leader_epoch
        }

    def agreed(self, follower: Follower | None) -> int:
        """Up to where a follower's log is this one, as far as leader epochs tell; -1 for none."""
        if follower is None:
            return -1
        split = self.epochs.diverges(follower.last_epoch, follower.offset, follower.offset)
        return follower.offset if split is None else min(follower.offset, split[1])

    def heard(self, broker: int, offset: int, leader_epoch: int, last_epoch: int = -1) -> Follower:
        """Takes in a follower's fetch."""
        follower = self.followers.get(broker)
        if follower is None:
            follower = self.followers[broker] = Follower(
                offset=offset, leader_epoch=leader_epoch, asked=0
            )
        if follower.leader_epoch != leader_epoch:
            follower.high_watermark_sent = -1
        follower.offset, follower.leader_epoch, follower.asked = (
            offset,
            leader_epoch,
            time.monotonic(),
        )
        follower.last_epoch = last_epoch
        return follower

    def advance(self) -> bool:
        """Moves the high watermark to what every live follower has, as a leader does; whether it
        moved."""
        live = self.live()
        if not live or self.end < 0:
            return False
        reached = min(self.end, *(follower.offset for follower in live.values()))
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def truncate(self, end: int) -> None:
        """Ends the log at `end`: followers that have more truncate at their next fetch."""
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
