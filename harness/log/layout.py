"""The v2 record batch (KIP-98, KIP-32, KIP-35; Kafka's DefaultRecordBatch), the only format since
Kafka 0.11.

    offset  size  field
    0       8     base offset               not covered by the CRC
    8       4     length of what follows    not covered
    12      4     partition leader epoch    not covered
    16      1     magic = 2                 not covered
    17      4     CRC-32C of everything from attributes on
    21      2     attributes: 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete
            horizon
    23      4     last offset delta
    27      8     base timestamp
    35      8     max timestamp
    43      8     producer id
    51      2     producer epoch
    53      4     base sequence
    57      4     record count
    61            records, compressed as one where there is a codec

A record is: varint length | attributes i8 | varlong timestamp delta | varint offset delta | varint
key length, key | varint value length, value | varint header count | (varint key length, key, varint
value length, value)*; varints are zigzag, length -1 is null.
"""

from __future__ import annotations

from typing import Final

LENGTH_AT: Final = 8
LENGTH_ENDS: Final = 12
EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CRC_FROM: Final = 21
LAST_DELTA_AT: Final = 23
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
HEADER_SIZE: Final = 61
MAGIC: Final = 2
SMALLEST_LENGTH: Final = HEADER_SIZE - LENGTH_ENDS
SMALLEST_OLD_LENGTH: Final = 14
"""Of a v0 message: CRC, magic, attributes, key length, value length."""
LARGEST_LENGTH: Final = 1 << 30
"""Kafka's largest segment.bytes is 2 GiB, and a batch is bounded by message.max.bytes: more than
this is no length."""
SMALLEST_RECORD: Final = 7
MOST_RECORDS: Final = 1 << 21
"""Of one batch: message.max.bytes, by default 1 MiB, holds 150,000 of the smallest."""
LARGEST_OFFSET: Final = 1 << 62
"""No log gets there: at a billion records a second it takes a century. Sums of any two offsets
below it fit 64 bits."""
NO_EPOCH: Final = -2
"""The leader epoch of messages of formats 0 and 1, which have none."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

DATA: Final = -1
ABORT: Final = 0
COMMIT: Final = 1
OTHER_CONTROL: Final = 2
"""MIRROR_PID_RESET (KIP-1279), type 7."""
EMPTIED: Final = 3
"""A control batch without a record: compaction took the marker away, and kept the batch for the
producer's last sequence."""
SKIPPED_CONTROL: Final = 4
"""A control batch of another type, which consumers skip: KRaft's (2 to 6), or a later release's."""
RESET_TYPE: Final = 7
