"""Data records of all segments of a log as numpy columns, decoded in place by compiled loops,
without a Python object per record.

Compressed batches are decompressed into buffers of some MiB and decoded in the same way. Records of
a batch with a wrong CRC are not read. A batch that cannot be decompressed or parsed yields no
record, and a Damage.

The loops are imported where they are called: the process that only plans a verdict must not import
numba.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log import layout, reference
from linkflap.harness.log.batch_headers import Headers, Records, possible_offsets
from linkflap.harness.log.batches import ReplicaLog
from linkflap.harness.log.codecs import NAMES, NONE, CannotInflate
from linkflap.harness.log.segments import WINDOW, BatchRun, Bytes, Ints, Kind, SegmentDamage
from linkflap.harness.model.payload import FOREIGN, Values

_PARCEL: Final = 32 << 20
_RECORDS: Final = 1 << 20
_RECORDS_FOR_NOTHING: Final = 1 << 21
_RECORDS_EACH_BYTE: Final = 8
"""How many records a log may have by its size. Alike records compress to almost nothing, so that a
few KiB could hold more than there is memory for their columns; ours have a number of their own."""
_ASKED_FIRST: Final = 16
_ASKED_EACH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parcel:
    """Bytes that hold the inflated records of some batches, from `starts` to `ends`."""

    data: Bytes
    batches: Ints
    starts: Ints
    ends: Ints


def decode(
    log: ReplicaLog, first: int = 0, after: int | None = None
) -> tuple[Records, list[SegmentDamage]]:
    """Every data record of a log, or of its batches [first, after). Damage is listed in the order
    of the bytes."""
    damage: list[SegmentDamage] = []
    chosen = np.zeros(len(log.headers), np.bool_)
    chosen[first:after] = True
    if chosen[(most := readable_batches(log)) :].any():
        why = "from here on the log has more records than its size allows"
        damage.append(log.damage_of(max(first, most), "unreadable-records", why))
        chosen[most:] = False
    new = chosen & (log.headers.magic == layout.MAGIC)
    parts = [_decode(log, parcel, damage) for parcel in _parcels(log, new, damage)]
    parts.append(_decode_old(log, np.flatnonzero(chosen & ~new)))
    _let_go(log, np.flatnonzero(chosen))
    nothing = np.zeros((7, 0), np.int64)
    table = np.concatenate([nothing, *parts], axis=1)
    # Parcels hold plain batches first: back to the order of the file.
    table = table[:, np.argsort(table[5], kind="stable")]
    offset, uid, operation, digest, timestamp, batch, content = table
    columns = Records(
        offset=offset,
        uid=uid,
        operation=operation,
        digest=digest,
        content=content,
        timestamp=timestamp,
        batch=batch,
    )
    order = {segment.name: index for index, segment in enumerate(log.segments)}
    damage.sort(key=lambda d: (order[d.file], d.position))
    return columns, damage


def spans(log: ReplicaLog) -> Iterator[tuple[int, int]]:
    """All batches, [first, after) each, so many at a time as take a bounded number of bytes, and
    have a bounded number of records: what to decode at once."""
    window = np.cumsum(log.headers.length) // WINDOW
    claimed = np.where(log.headers.count <= layout.MOST_RECORDS, log.headers.count, 0)
    records = np.cumsum(np.maximum(claimed, 0)) // _RECORDS
    turns = (np.diff(window) != 0) | (np.diff(records) != 0)
    edges = [0, *(np.flatnonzero(turns) + 1).tolist(), len(log.headers)]
    yield from ((first, after) for first, after in pairwise(edges) if after > first)


def unknown_codecs(log: ReplicaLog) -> list[SegmentDamage]:
    """Batches of unknown codecs, found by their headers: the damage that `decode` would report of
    them."""
    headers = log.headers
    wanted = (
        (headers.control == layout.DATA)
        & headers.crc_ok
        & (headers.magic == layout.MAGIC)
        & ~np.isin(headers.codec, list(NAMES))
    )
    return [
        log.damage_of(i, "unknown-codec", f"compression codec {headers.codec[i]} is unknown")
        for i in np.flatnonzero(wanted).tolist()
    ]


def readable_batches(log: ReplicaLog) -> int:
    """How many batches of a log, from its first on, have no more records by their headers than a
    log of their size can have."""
    return batches_of_at_most(log, _RECORDS_FOR_NOTHING, _RECORDS_EACH_BYTE)


def batches_of_at_most(log: ReplicaLog, free: int, each_byte: float) -> int:
    """How many batches of a log, from its first on, have by their headers no more records than
    these, and for each byte these."""
    headers = log.headers
    possible = headers.crc_ok & (headers.control == layout.DATA)
    possible &= (headers.count > 0) & (headers.count <= layout.MOST_RECORDS)
    claimed = np.cumsum(np.where(possible, headers.count, 0))
    able = free + each_byte * np.cumsum(log.headers.length)
    return int(np.argmax(claimed > able)) if (claimed > able).any() else len(claimed)


def contents_written(values: Values, uids: Ints) -> Ints:
    """`Records.content` of the records with these payload ids, as linkflap's clients write them."""
    from linkflap.harness.log.record_loops import contents

    numbers = np.array([values.number(uid) for uid in uids.tolist()], np.int64)
    _, first, key = np.unique(numbers, return_index=True, return_inverse=True)
    keys = [values.key(uid) for uid in uids[first].tolist()]
    unsigned = uids.astype(np.uint64)
    starts = np.where(values.deletes(unsigned), -1, values.start(unsigned).astype(np.int64))
    return contents(
        np.frombuffer(b"".join(keys), np.uint8),
        np.cumsum([len(each) for each in keys], dtype=np.int64),
        key,
        np.frombuffer(values.pool, np.uint8),
        starts,
        values.size,
    )


def _let_go(log: ReplicaLog, batches: Ints) -> None:
    for index in np.unique(log.headers.segment[batches]).tolist():
        mine = batches[log.headers.segment[batches] == index]
        log.segments[index].let_go(
            int(log.headers.position[mine[0]]),
            int(log.headers.position[mine[-1]] + log.headers.length[mine[-1]]),
        )


class FirstRecords:
    """Looks, while a log is scanned, whether the first record of any uncompressed batch is ours."""

    def __init__(self) -> None:
        self.ours = False

    def __call__(self, run: BatchRun, rows: NDArray[np.void], sums: Ints) -> None:
        from linkflap.harness.log.record_loops import any_ours

        if self.ours:
            return
        plain = (rows["attributes"] & (layout.CONTROL | layout.CODEC_MASK)) == NONE
        wanted = plain & (rows["crc"] == sums) & (rows["count"] > 0) & possible_offsets(rows)
        starts = run.positions[wanted]
        self.ours = any_ours(
            run.data,
            starts + layout.HEADER_SIZE,
            starts + layout.LENGTH_ENDS + rows["length"][wanted],
        )


def holds_ours(log: ReplicaLog, first: FirstRecords) -> bool:
    """Whether any record of a log is linkflap's; `first` was read during the scan.

    A batch is one producer's, so its first record represents all. Compressed batches must be
    decompressed for that, so only the first 16 of each segment and every 64th are: by segment, so
    that the result is the same for a log read as one or in pieces.
    """
    from linkflap.harness.log.record_loops import any_ours

    if first.ours:
        return True
    headers = log.headers
    packed = np.flatnonzero(
        (headers.control == layout.DATA)
        & headers.crc_ok
        & (headers.count > 0)
        & (headers.codec != NONE)
        & (headers.magic == layout.MAGIC)
    )
    position = np.arange(len(packed)) - np.searchsorted(
        headers.segment[packed], headers.segment[packed]
    )
    asked = packed[(position < _ASKED_FIRST) | (position % _ASKED_EACH == 0)]
    return any(any_ours(p.data, p.starts, p.ends) for p in _inflated(log, asked, []))


def _decode_old(log: ReplicaLog, rows: Ints) -> Ints:
    """Records of messages of formats 0 and 1, whose headers say nothing of ours; those that cannot
    be read were reported by the scan."""
    from linkflap.harness.log.record_loops import folded

    found: list[tuple[int, ...]] = []
    unread = {(d.file, d.position) for d in log.damage if d.kind == "unreadable-records"}
    for row in rows[log.headers.crc_ok[rows]].tolist():
        for record in log.records_of(row) if log.where(row) not in unread else ():
            content, every = (
                folded(np.frombuffer(part, np.uint8))
                for part in (
                    reference.content_bytes(record.key, record.value),
                    reference.digest_bytes(record),
                )
            )
            found.append((record.offset, FOREIGN, FOREIGN, every, record.timestamp, row, content))
    return np.array(found, np.int64).reshape(-1, 7).T


def _parcels(
    log: ReplicaLog, chosen: NDArray[np.bool_], damage: list[SegmentDamage]
) -> Iterator[_Parcel]:
    headers = log.headers
    wanted = (headers.control == layout.DATA) & headers.crc_ok & chosen
    for index, segment in enumerate(log.segments):
        plain = np.flatnonzero(wanted & (headers.segment == index) & (headers.codec == NONE))
        starts = headers.position[plain] + layout.HEADER_SIZE
        ends = headers.position[plain] + headers.length[plain]
        yield _Parcel(data=segment.data, batches=plain, starts=starts, ends=ends)
    yield from _inflated(log, np.flatnonzero(wanted & (headers.codec != NONE)), damage)


def _inflated(log: ReplicaLog, packed: Ints, damage: list[SegmentDamage]) -> Iterator[_Parcel]:
    headers = log.headers
    bodies: list[bytes] = []
    held: list[int] = []
    size = 0
    for i in packed.tolist():
        try:
            packed_records = log.bytes_of(i)[layout.HEADER_SIZE :]
            body = log.decoding_limit.inflate(int(headers.codec[i]), packed_records)
        except CannotInflate as error:
            kind: Kind = "unreadable-records" if int(headers.codec[i]) in NAMES else "unknown-codec"
            damage.append(log.damage_of(i, kind, str(error)))
            continue
        bodies.append(body)
        held.append(i)
        size += len(body)
        if size >= _PARCEL:
            yield _parcel(bodies, held)
            bodies, held, size = [], [], 0
    if held:
        yield _parcel(bodies, held)


def _parcel(bodies: Sequence[bytes], held: Sequence[int]) -> _Parcel:
    ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    return _Parcel(
        data=np.frombuffer(b"".join(bodies), np.uint8),
        batches=np.array(held, np.int64),
        starts=starts,
        ends=ends,
    )


def _decode(log: ReplicaLog, parcel: _Parcel, damage: list[SegmentDamage]) -> Ints:
    from linkflap.harness.log.record_loops import decode_batches

    headers: Headers = log.headers
    b = parcel.batches
    counts = headers.count[b].copy()
    # A count that its bytes cannot hold must not size the columns.
    counts[
        (counts > layout.MOST_RECORDS)
        | (counts * layout.SMALLEST_RECORD > parcel.ends - parcel.starts)
    ] = -1
    firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(counts, 0))])
    out = np.zeros((7, int(firsts[-1])), np.int64)
    readable = np.zeros(len(b), np.bool_)
    base_timestamp, fixed = headers.base_timestamp[b], headers.log_append_time[b]
    decode_batches(
        parcel.data, parcel.starts, parcel.ends, counts, firsts, headers.base_offset[b],
        headers.last_offset[b],
        base_timestamp, headers.max_timestamp[b], fixed, out, readable,
    )  # fmt: skip
    out[5] = np.repeat(b, np.maximum(counts, 0))
    for row in b[~readable].tolist():
        why = f"not the {headers.count[row]} records that its header counts"
        damage.append(log.damage_of(row, "unreadable-records", why))
    return out if readable.all() else out[:, np.repeat(readable, np.maximum(counts, 0))]
