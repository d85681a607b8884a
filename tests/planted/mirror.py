"""The planted bugs of the shadow mirror, as patches of its logs, failover, takeover and group
offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

from linkflap.harness.mirrors.shadow import group_offsets, open_transactions, shadow
from linkflap.harness.mirrors.shadow.batches import Stamped
from linkflap.harness.mirrors.shadow.destination.client import Destination, MetadataSnapshot
from linkflap.harness.mirrors.shadow.failback import Takeover
from linkflap.harness.mirrors.shadow.open_transactions import OpenTransaction, Settling
from linkflap.harness.mirrors.shadow.partition import MirroredLog, Partition
from linkflap.harness.mirrors.shadow.source import Source
from linkflap.harness.wire.connection import Connection
from tests.planted import struck
from tests.planted.mirrored_batches import CHANGES, STATE, Change


def _change(change: Change) -> None:
    right = MirroredLog.stamped

    def stamped(self: MirroredLog, partition: Partition, raw: memoryview, position: int) -> Stamped:
        made = right(self, partition, raw, position)
        # Canary records, which prove the path, stay unchanged.
        return made if partition.topic == self.config.canary else change(self, partition, made)

    MirroredLog.stamped = stamped  # type: ignore[method-assign] # here the bug is planted


def _look() -> None:
    """Counts outages, starts and added partitions.

    An outage is counted at each new connection to the source: a mirror that was suspended while its
    link was cut may not have seen a refused connection.
    """
    poll_once, once, add, begin = (
        Source._poll_once,
        Connection._once,
        MirroredLog.add,
        shadow.Shadow.__init__,
    )
    polling, connected = WeakSet[Connection](), WeakSet[Connection]()

    async def noted(self: Source, connection: Connection) -> None:
        polling.add(connection)
        await poll_once(self, connection)

    async def asked(self: Connection, framed: Any) -> memoryview:
        if self._stream is None and self in connected:
            STATE.outages += 1
        answer = await once(self, framed)
        if self in polling:
            connected.add(self)
        return answer

    def added(self: MirroredLog, topic: str, number: int) -> Partition:
        new = (topic, number) not in self.partitions
        grown = any(p.topic == topic and p.position > 0 for p in self.partitions.values())
        partition = add(self, topic, number)
        if new and grown and partition.position < 0:
            STATE.added.add(partition.name)
        return partition

    def begun(self: shadow.Shadow, config: Any, folder: Any) -> None:
        count = folder / "planted-starts"
        STATE.starts = int(count.read_text()) + 1 if count.exists() else 1
        count.write_text(str(STATE.starts))
        begin(self, config, folder)

    Source._poll_once = noted  # type: ignore[method-assign] # outages are counted here
    Connection._once = asked  # type: ignore[method-assign] # and here
    MirroredLog.add = added  # type: ignore[method-assign] # and partitions here
    shadow.Shadow.__init__ = begun  # type: ignore[method-assign] # and starts here


def _rewinds_groups() -> None:
    right = group_offsets.clamped

    def clamped(committed: int, partition: Partition, end: int) -> int:
        offset = right(committed, partition, end)
        if STATE.starts <= 2 or offset // 2 <= partition.start:
            return offset
        struck(f"{partition.name} from {offset}")
        return offset // 2

    group_offsets.clamped = clamped


def _leaves_one_open() -> None:
    right = open_transactions._open

    async def opened(
        failover: Settling, mirrored: MirroredLog, destination: Destination
    ) -> dict[Partition, list[OpenTransaction]]:
        found = await right(failover, mirrored, destination)
        return {
            partition: list(_all_but_one(transactions)) for partition, transactions in found.items()
        }

    open_transactions._open = opened


def _all_but_one(found: list[OpenTransaction]) -> Iterator[OpenTransaction]:
    """The first of several open transactions stays open, and is skipped when the others are
    ended."""
    if len(found) > 1:
        LEFT.add(found[0])
        struck(f"producer {found[0][0]}")
    yield from (one for one in found if one not in LEFT)


LEFT: set[OpenTransaction] = set()


def _truncates_short() -> None:
    right = Takeover._truncate

    async def truncate(self: Takeover, _: MetadataSnapshot) -> list[str]:
        for partition in self._partitions():
            ends = [follower.offset for follower in partition.live().values()]
            if (
                partition.note.truncated_from < 0
                and ends
                and max(ends) > partition.note.truncated_to
            ):
                partition.note.truncated_to = min(max(ends), partition.note.truncated_to + 10)
                struck(f"{partition.name} at {partition.note.truncated_to}")
        return await right(self, _)

    Takeover._truncate = truncate  # type: ignore[method-assign] # here the bug is planted


def _keeps_settings() -> None:
    right = Destination.configure

    async def configure(self: Destination, topic: str, values: Any) -> None:
        # a failover alone takes back or gives a retention; the mirror never does
        kept = {name: value for name, value in values.items() if not name.startswith("retention.")}
        if kept != dict(values) and "cleanup.policy" in values:
            struck(f"{topic}: retention")
        await right(self, topic, kept)

    Destination.configure = configure  # type: ignore[method-assign] # here the bug is planted


def _shows_the_fastest() -> None:
    def advance(self: Partition) -> bool:
        live = self.live()
        ends = [follower.offset for follower in live.values()]
        reached = min(self.end, max(ends)) if live and self.end >= 0 else -1
        if reached <= self.high_watermark:
            return False
        if reached > min(ends):
            struck(f"{self.name} at {reached}, and a follower at {min(ends)}")
        self.high_watermark = reached
        return True

    Partition.advance = advance  # type: ignore[method-assign] # here the bug is planted


PLANTED: dict[str, Callable[[], None]] = {
    "second-restart-rewinds-groups": _rewinds_groups,
    "one-of-two-left-open": _leaves_one_open,
    "failback-truncates-short": _truncates_short,
    "failover-keeps-settings": _keeps_settings,
    "high-watermark-of-the-fastest": _shows_the_fastest,
}


def plant(bug: str) -> None:
    """Plants a bug, if it is one of the mirror."""
    if bug in CHANGES:
        _look()
        _change(CHANGES[bug])
    elif bug in PLANTED:
        _look()
        PLANTED[bug]()
