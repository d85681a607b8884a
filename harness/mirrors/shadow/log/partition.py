"""One mirrored partition that the shadow leads, with a bounded window of its log.

The log has the source's bytes, stamped. Batches outside the window are fetched from the source
again. `end` does not depend on the window. Nothing is served before `end` is known: a follower with
a longer log would truncate to it.
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
        follower.offset, follower.leader_epoch, follower.asked = (
            offset,
            leader_epoch,
            time.monotonic(),
        )
        follower.last_epoch = last_epoch
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
