"""Payload ids: a unique number for every record of a run, which also identifies its writer.

    header "linkflap" = big-endian: uid i64 | operation i64 | counter i32
    uid = process << 40 | n       process: one producer incarnation, numbered from 1 within a run
    operation = process << 40 | m the transaction, or the send of an idempotent producer
    counter                       the index of the record within this process and partition, from 0
A record without that header is not linkflap's: its uid is FOREIGN.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

HEADER = "linkflap"
FOREIGN = -1
PROCESS_SHIFT = 40
LAYOUT = struct.Struct(">qqi")


def process_of(number: int) -> int:
    """The producer incarnation that made a uid or an operation number."""
    return number >> PROCESS_SHIFT


def encode(uid: int, operation: int, counter: int) -> bytes:
    """The value of the `linkflap` header."""
    return LAYOUT.pack(uid, operation, counter)


def uid_in(headers: Sequence[tuple[str, bytes | None]] | None) -> int:
    """The uid in a consumed record's headers, or FOREIGN."""
    for name, value in headers or ():
        if name == HEADER and value is not None and len(value) == LAYOUT.size:
            return int(LAYOUT.unpack(value)[0])
    return FOREIGN
