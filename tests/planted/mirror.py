"""The planted bugs of the shadow mirror: what it makes of the source's batches, by the state that
it is in.

Each change is a pure function of an answer of the source and of what the process has been through.
None depends on how many batches an answer has, which is a matter of luck: what was dropped once
stays dropped, also when a follower is read for again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any
from weakref import WeakSet

from crc32c import crc32c

from linkflap.harness.log import layout
from linkflap.harness.log.walk import walk
from linkflap.harness.mirrors.shadow import group_offsets, shadow
from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.destination.picture import Picture
from linkflap.harness.mirrors.shadow.failback.takeover import Takeover
from linkflap.harness.mirrors.shadow.failover import open_transactions
from linkflap.harness.mirrors.shadow.failover.markers import Open
from linkflap.harness.mirrors.shadow.failover.open_transactions import Settling
from linkflap.harness.mirrors.shadow.log.batches import Stamped
from linkflap.harness.mirrors.shadow.log.mirrored_log import MirroredLog
from linkflap.harness.mirrors.shadow.log.partition import Partition
from linkflap.harness.mirrors.shadow.source.fetch import Source
from linkflap.harness.wire.connection import Connection
from tests.planted import struck

LONG_BACKLOG = 12
_TYPE_AT = layout.HEADER_SIZE + 7


@dataclass
class State:
    """What the process has been through. `fresh` are partitions that got nothing yet since the last
    outage."""

    outages: int = 0
    starts: int = 1
    seen: dict[str, int] = field(default_factory=dict)
    last: dict[str, bytes] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)
    lent: tuple[int, str, bytes] | None = None
    gone: dict[str, set[int]] = field(default_factory=dict)

    def first_after_outage(self, partition: Partition) -> bool:
        """Whether nothing came for it since the source did not answer; asked once per answer."""
        before = self.seen.get(partition.name, 0)
        self.seen[partition.name] = self.outages
        return before < self.outages

    def first_after_start(self, partition: Partition) -> bool:
        """Whether nothing came for it since this process was started."""
        new = partition.name not in self.seen
        self.seen[partition.name] = self.outages
        return new


STATE = State()
Change = Callable[[MirroredLog, Partition, Stamped], Stamped]


def _batches(made: Stamped) -> list[bytearray]:
    return [bytearray(made.data[batch.start : batch.stop]) for batch in walk(made.data)]


def _made_of(made: Stamped, batches: list[bytearray]) -> Stamped:
    return replace(made, data=memoryview(bytearray(b"".join(batches))))


def _attributes(batch: bytearray) -> int:
    return int(struct.unpack_from(">h", batch, layout.CRC_FROM)[0])


def _count(batch: bytearray | bytes) -> int:
    return int(struct.unpack_from(">i", batch, layout.LAST_DELTA_AT)[0]) + 1


def _moved(batch: bytes | bytearray, base: int) -> bytearray:
    moved = bytearray(batch)
    struct.pack_into(">q", moved, 0, base)
    return moved


def _base(batch: bytes | bytearray) -> int:
    return int(struct.unpack_from(">q", batch, 0)[0])


def _signed(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, layout.CRC_AT, crc32c(bytes(batch[layout.CRC_FROM :])))
    return batch


def _is_data(batch: bytearray) -> bool:
    return _attributes(batch) & (layout.TRANSACTIONAL | layout.CONTROL) == layout.TRANSACTIONAL


def _drop(partition: Partition, batch: bytearray) -> None:
    STATE.gone.setdefault(partition.name, set()).add(_base(batch))
    struck(f"{partition.name} at {_base(batch)}")


def _left(partition: Partition, made: Stamped) -> Stamped:
    """Without what was dropped. An answer of which nothing is left is read again, by then with what
    comes behind it."""
    gone = STATE.gone.get(partition.name)
    return _made_of(made, [b for b in _batches(made) if _base(b) not in gone]) if gone else made


def _reconnect_drops(log: MirroredLog, partition: Partition, made: Stamped) -> Stamped:
    first = next((batch for batch in _batches(made) if _is_data(batch)), None)
    if first is not None and STATE.first_after_outage(partition):
        _drop(partition, first)
    return _left(partition, made)


def _reconnect_repeats(log: MirroredLog, partition: Partition, made: Stamped) -> Stamped:
    batches = _batches(made)
    if not batches:
        return made
    last = STATE.last.get(partition.name)
    STATE.last[partition.name] = bytes(batches[-1])
    if (
        STATE.first_after_outage(partition)
        and last is not None
        and _count(last) == _count(batches[0])
    ):
        struck(f"{partition.name} at {_base(batches[0])}")
        return _made_of(made, [_moved(last, _base(batches[0])), *batches[1:]])
    return made


def _reconnect_old_epoch(log: MirroredLog, partition: Partition, made: Stamped) -> Stamped:
    batches = _batches(made)
    if batches and STATE.first_after_outage(partition):
        (epoch,) = struct.unpack_from(">h", batches[0], layout.PRODUCER_EPOCH_AT)
        if epoch > 0:
            struck(f"{partition.name} at {_base(batches[0])}")
            struct.pack_into(">h", batches[0], layout.PRODUCER_EPOCH_AT, epoch - 1)
            return _made_of(made, [_signed(batches[0]), *batches[1:]])
    return made


def _outage_mixes(log: MirroredLog, partition: Partition, made: Stamped) -> Stamped:
    batches = _batches(made)
    if not batches or not STATE.first_after_outage(partition):
        return made
    lent, STATE.lent = STATE.lent, (STATE.outages, partition.name, bytes(batches[0]))
    if (
        lent
        and lent[0] == STATE.outages
        and lent[1] != partition.name
        and _count(lent[2]) == _count(batches[0])
    ):
        struck(f"{partition.name} at {_base(batches[0])}")
        return _made_of(made, [_moved(lent[2], _base(batches[0])), *batches[1:]])
    return made


def _backlog_marker_first(log: MirroredLog, partition: Partition, made: Stamped) -> Stamped:
    batches = _batches(made)
    if len(batches) < LONG_BACKLOG:
        return made
    for n, (data, marker) in enumerate(pairwise(batches)):
        own = data[layout.PRODUCER_ID_AT :][:8] == marker[layout.PRODUCER_ID_AT :][:8]
        if _is_data(data) and _attributes(marker) & layout.CONTROL and own:
            base = _base(data)
            struck(f"{partition.name} at {base}")
            swapped = [_moved(marker, base), _moved(data, base + _count(marker))]
            return _made_of(made, [*batches[:n], *swapped, *batches[n + 2 :]])
    return made


def _restart_drops(log: MirroredLog, partition: Partition, made: Stamped) -> Stamped:
    batches = _batches(made)
    if len(batches) > 2 and STATE.starts > 1 and STATE.first_after_start(partition):
        _drop(partition, batches[0])
    return _left(partition, made)


def _lowers_epochs(log: MirroredLog, partition: Partition, made: Stamped) -> Stamped:
    batches = _batches(made)
    for batch in batches if log.config.takes_over else []:
        (epoch,) = struct.unpack_from(">i", batch, layout.EPOCH_AT)
        if epoch > 0:  # below the first there is none
            struct.pack_into(">i", batch, layout.EPOCH_AT, epoch - 1)
            struck(f"{partition.name} at {_base(batch)}")
    return _made_of(made, batches)


def _new_partition_late(log: MirroredLog, partition: Partition, made: Stamped) -> Stamped:
    batches = _batches(made)
    if batches and partition.name in STATE.added:
        STATE.added.discard(partition.name)
        _drop(partition, batches[0])
    return _left(partition, made)


def _second_hop_commits(log: MirroredLog, partition: Partition, made: Stamped) -> Stamped:
    batches = _batches(made)
    if not log.config.source_notes or STATE.seen.get(partition.name, 0) >= STATE.outages:
        return made
    for n, batch in enumerate(batches):
        if (
            _attributes(batch) & layout.CONTROL
            and struct.unpack_from(">h", batch, _TYPE_AT)[0] == layout.ABORT
        ):
            STATE.seen[partition.name] = STATE.outages
            struct.pack_into(">h", batch, _TYPE_AT, layout.COMMIT)
            struck(f"{partition.name} at {_base(batch)}")
            return _made_of(made, [*batches[:n], _signed(batch), *batches[n + 1 :]])
    return made


CHANGES: dict[str, Change] = {
    "reconnect-drops-batch": _reconnect_drops,
    "reconnect-repeats-batch": _reconnect_repeats,
    "reconnect-old-producer-epoch": _reconnect_old_epoch,
    "outage-mixes-partitions": _outage_mixes,
    "backlog-marker-before-data": _backlog_marker_first,
    "restart-drops-backlog": _restart_drops,
    "failback-lowers-epochs": _lowers_epochs,
    "new-partition-begins-late": _new_partition_late,
    "second-hop-commits-aborted": _second_hop_commits,
}


def _change(change: Change) -> None:
    right = MirroredLog.stamped

    def stamped(self: MirroredLog, partition: Partition, raw: memoryview, position: int) -> Stamped:
        made = right(self, partition, raw, position)
        # What proves the path is nobody's data.
        return made if partition.topic == self.config.canary else change(self, partition, made)

    MirroredLog.stamped = stamped  # type: ignore[method-assign] # here the bug is planted


def _look() -> None:
    """Notes outages, starts and partitions that were added.

    An outage is when the source is connected to again: a mirror that stood still while its link was
    cut may have met no refusal.
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
    ) -> dict[Partition, list[Open]]:
        found = await right(failover, mirrored, destination)
        return {
            partition: list(_all_but_one(transactions)) for partition, transactions in found.items()
        }

    open_transactions._open = opened


def _all_but_one(found: list[Open]) -> Iterator[Open]:
    """Of several the first stays open; it is not known again when the others are ended."""
    if len(found) > 1:
        LEFT.add(found[0])
        struck(f"producer {found[0][0]}")
    yield from (one for one in found if one not in LEFT)


LEFT: set[Open] = set()


def _truncates_short() -> None:
    right = Takeover._truncate

    async def truncate(self: Takeover, _: Picture) -> list[str]:
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


PLANTED: dict[str, Callable[[], None]] = {
    "second-restart-rewinds-groups": _rewinds_groups,
    "one-of-two-left-open": _leaves_one_open,
    "failback-truncates-short": _truncates_short,
}


def plant(bug: str) -> None:
    """Puts a bug in, where it is one of the mirror."""
    if bug in CHANGES:
        _look()
        _change(CHANGES[bug])
    elif bug in PLANTED:
        _look()
        PLANTED[bug]()
