"""Decodes a marker, or another control batch, one byte at a time."""

from __future__ import annotations

import struct

from linkflap.harness.log import layout
from linkflap.harness.log.codecs import CannotInflate, inflate
from linkflap.harness.log.reference_cursor import Cursor, MalformedBatch


def control_type(codec: int, body: bytes) -> tuple[int, str]:
    """The type of a control batch by its first record: ABORT, COMMIT, OTHER_CONTROL or
    SKIPPED_CONTROL, and what is wrong with it or "".

    KIP-98: the key is version i16 | type i16; later versions may add fields behind. As Kafka's
    consumers do (ControlRecordType), any version from 0 on is read as version 0, and types that are
    not known are skipped; a lower version or a shorter key is an error to them.
    """
    try:
        key, _ = _control_record(codec, body)
    except (MalformedBatch, CannotInflate) as error:
        return layout.SKIPPED_CONTROL, f"a control record that cannot be read: {error}"
    if key is None or len(key) < 4:
        return layout.SKIPPED_CONTROL, f"a control record with the key {key!r}"
    version, kind = struct.unpack_from(">hh", key)
    if version < 0:
        return layout.SKIPPED_CONTROL, f"a control record of version {version}, type {kind}"
    if kind in (layout.ABORT, layout.COMMIT):
        return kind, ""
    return layout.OTHER_CONTROL if kind == layout.RESET_TYPE else layout.SKIPPED_CONTROL, ""


def coordinator_epoch(codec: int, body: bytes) -> int:
    """The epoch of the coordinator that wrote a marker; -1 where it cannot be read, or has none.

    KIP-98, EndTxnMarker: the value is version i16 | coordinator epoch i32; later versions may add
    fields behind.
    """
    try:
        _, value = _control_record(codec, body)
    except (MalformedBatch, CannotInflate):
        return -1
    if value is None or len(value) < 6:
        return -1
    return int(struct.unpack_from(">hi", value)[1])


def _control_record(codec: int, body: bytes) -> tuple[bytes | None, bytes | None]:
    """Key and value of the first record of a batch."""
    cursor = Cursor(inflate(codec, body))
    cursor.varint()
    cursor.take(1)
    cursor.varint(bits=64)
    cursor.varint()
    key = cursor.nullable()
    return key, None if cursor.at_end() else cursor.nullable()
