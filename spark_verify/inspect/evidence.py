"""The bytes at an offset, as plain values for people: batch headers with their file and position,
and records.

For a handful of batches: the slow decoder reads the records, because it reads control records too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from linkflap.harness.log import batches, codecs, layout, old_messages, reference
from linkflap.harness.log.codecs import CannotInflate
from linkflap.harness.log.reference import MalformedBatch
from linkflap.spark_verify.read.captures import CapturedReplica

Shown = Mapping[str, object]
"""One header or record: plain JSON values."""
NO_RECORDS: Final = -1
_CONTROL: Final = {0: "ABORT", 1: "COMMIT", 7: "MIRROR_PID_RESET"}


def log_of(captured: CapturedReplica) -> batches.ReplicaLog:
    """The headers of one captured replica."""
    return batches.scan([Path(path) for path in captured.paths])


def header(log: batches.ReplicaLog, row: int, of: str = "") -> Shown:
    """One batch header as stored; `kind` is in words, `of` names the log."""
    h = log.headers
    file, position = log.where(row)
    return {
        "log": of,
        "file": file,
        "position": position,
        "base_offset": int(h.base_offset[row]),
        "last_offset": int(h.last_offset[row]),
        "records": int(h.count[row]),
        "kind": _kind(log, row),
        "producer_id": int(h.producer_id[row]),
        "producer_epoch": int(h.producer_epoch[row]),
        "base_sequence": int(h.base_sequence[row]),
        "leader_epoch": int(h.leader_epoch[row]),
        "length": int(h.length[row]),
        "crc": f"{int(h.crc[row]):08x}",
        "crc_ok": bool(h.crc_ok[row]),
        "codec": codecs.NAMES.get(int(h.codec[row]), str(int(h.codec[row]))),
        "timestamp": int(h.max_timestamp[row]),
    }


def _kind(log: batches.ReplicaLog, row: int) -> str:
    if int(log.headers.control[row]) == layout.DATA:
        return "transactional" if log.headers.transactional[row] else "data"
    key = next((r.key for r in _decoded(log, row)), None)
    if not log.headers.crc_ok[row] or key is None or len(key) < 4:
        return "control"
    number: int = struct.unpack_from(">h", key, 2)[0]
    return _CONTROL.get(number, f"control {number}")


def nearby(log: batches.ReplicaLog, offset: int, *, each_way: int = 2) -> list[int]:
    """Rows of every batch that holds an offset, or of the one that would come next, and of their
    neighbours."""
    reach = log.headers.last_offset >= offset
    # Where base offsets are in disorder, several batches hold one offset: each is shown.
    indexes = [
        *np.flatnonzero(reach & (log.headers.base_offset <= offset)),
        np.argmax(reach) if reach.any() else len(reach),
    ]
    return once(row for index in indexes for row in _around(int(index), each_way, len(reach)))


def _around(index: int, each_way: int, end: int) -> range:
    return range(max(0, index - each_way), min(end, index + each_way + 1))


def of_producer(log: batches.ReplicaLog, offset: int, *, before: int = 2) -> list[int]:
    """Rows of the last batches of the same producer id before the one with an offset, that one, and
    its next."""
    at = np.flatnonzero((log.headers.base_offset <= offset) & (log.headers.last_offset >= offset))
    if not len(at) or log.headers.producer_id[at[0]] == -1:
        return []
    same = np.flatnonzero(log.headers.producer_id == log.headers.producer_id[at[0]])
    index = int(np.searchsorted(same, at[0]))
    return [int(row) for row in same[max(0, index - before) : index + 2]]


def holding(log: batches.ReplicaLog, offset: int) -> int | None:
    """The row of the batch that holds an offset."""
    h = log.headers
    at = np.flatnonzero((h.base_offset <= offset) & (h.last_offset >= offset))
    return int(at[0]) if len(at) else None


def records(log: batches.ReplicaLog, row: int, *, near: int, most: int = 10) -> Sequence[Shown]:
    """Records of one batch, those next to offset `near`; none where they cannot be read."""
    found = sorted(_decoded(log, row), key=lambda r: abs(r.offset - near))[:most]
    return [_record(r) for r in sorted(found, key=lambda r: r.offset)]


def _record(record: reference.Record) -> Shown:
    uid, operation = reference.identity(record)
    return {
        "offset": record.offset,
        "uid": uid,
        "operation": operation,
        "timestamp": record.timestamp,
        "key_bytes": NO_RECORDS if record.key is None else len(record.key),
        "value_bytes": NO_RECORDS if record.value is None else len(record.value),
        "headers": len(record.headers),
        "digest": f"{reference.digest(record) & (2**64 - 1):016x}",
    }


def _decoded(log: batches.ReplicaLog, row: int) -> list[reference.Record]:
    try:
        return old_messages.records_of(log.bytes_of(row))
    except (MalformedBatch, CannotInflate):
        return []


def once(rows: Iterable[int]) -> list[int]:
    """Rows in the order of the log, each once."""
    return sorted(set(rows))
