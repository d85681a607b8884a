"""How planted bugs of the shadow mirror change the source's batches, depending on the state of the
process.

Each change is a pure function of a fetch response of the source and of the process state. None
depends on the number of batches in a response, which is random: a dropped batch stays dropped, also
when it is read again for a follower.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from crc32c import crc32c

from linkflap.harness.log import layout
from linkflap.harness.log.layout import walk
from linkflap.harness.mirrors.shadow.batches import Stamped
from linkflap.harness.mirrors.shadow.partition import MirroredLog, Partition
from tests.planted import struck

LONG_BACKLOG = 12
_TYPE_AT = layout.HEADER_SIZE + 7


@dataclass
class State:
    """The history of the process. `fresh` are partitions without a batch since the last outage."""

    outages: int = 0
    starts: int = 1
    seen: dict[str, int] = field(default_factory=dict)
    last: dict[str, bytes] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)
    lent: tuple[int, str, bytes] | None = None
    gone: dict[str, set[int]] = field(default_factory=dict)

    def first_after_outage(self, partition: Partition) -> bool:
        """Whether no batch came for the partition since the last outage. Call it once per
        response."""
        before = self.seen.get(partition.name, 0)
        self.seen[partition.name] = self.outages
        return before < self.outages

    def first_after_start(self, partition: Partition) -> bool:
        """Whether no batch came for the partition since the start of this process."""
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
    """The batches without those that were dropped. If none is left, the response is read again
    later, with the batches after it."""
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
