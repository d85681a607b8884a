"""Records as one Java object, so that one call passes many to the JVM (Java Object Serialization
Specification, chapter 6)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

Record = tuple[bytes | None, ...]
"""Key, value, and one value for each header."""
_MAGIC: Final = struct.pack(">HH", 0xACED, 5)
_NULL, _REFERENCE, _CLASS, _ARRAY, _END = b"\x70", b"\x71", b"\x72", b"\x75", b"\x78"
_FIRST_HANDLE: Final = 0x7E0000


def _class(name: str) -> bytes:
    """An array class: no fields, Serializable. Java does not compare the version of array
    classes."""
    text = name.encode()
    return (
        _CLASS + struct.pack(">H", len(text)) + text + struct.pack(">qBH", 0, 2, 0) + _END + _NULL
    )


def serialized(records: Sequence[Record]) -> bytes:
    """Records as a `byte[][][]` in Java's serialization."""
    # Handle numbers for back references: a class, then the array of it, in the order of their first
    # bytes.
    parts = [_MAGIC, _ARRAY, _class("[[[B"), struct.pack(">i", len(records))]
    next_handle = _FIRST_HANDLE + 2
    of_record = of_bytes = b""
    for record in records:
        if of_record:
            parts += [_ARRAY, of_record]
        else:
            parts += [_ARRAY, _class("[[B")]
            of_record, next_handle = _REFERENCE + struct.pack(">i", next_handle), next_handle + 1
        parts.append(struct.pack(">i", len(record)))
        next_handle += 1
        for value in record:
            if value is None:
                parts.append(_NULL)
                continue
            if of_bytes:
                parts += [_ARRAY, of_bytes]
            else:
                parts += [_ARRAY, _class("[B")]
                of_bytes, next_handle = _REFERENCE + struct.pack(">i", next_handle), next_handle + 1
            next_handle += 1
            parts += [struct.pack(">i", len(value)), value]
    return b"".join(parts)
