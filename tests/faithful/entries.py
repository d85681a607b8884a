"""One batch of a log as a value, and its bytes (`tests.kafka_log`, which is not `harness.log`)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from tests.kafka_log import Plain, batch, mirror_pid_reset, ours
from tests.kafka_log import record as foreign

ABORT, COMMIT, RESET = 0, 1, 7
WRAP = 2**31
"""Sequence numbers are 0 to 2^31 - 1; the next one is 0 again."""


class Rec(NamedTuple):
    """A record: its index in its batch, its payload id (uid; -1: no client sent it), its timestamp
    (milliseconds) and its content."""

    delta: int
    uid: int
    operation: int
    counter: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    relayed: bytes | None = None

    def plain(self) -> Plain:
        if self.uid < 0:
            return foreign(self.value, key=self.key, timestamp=self.timestamp, delta=self.delta)
        made = ours(
            self.uid,
            self.operation,
            self.counter,
            value=self.value,
            key=self.key,
            timestamp=self.timestamp,
            delta=self.delta,
        )
        if self.value is None:
            made = Plain(**{**_fields(made), "value": None, "headers": made.headers})
        if self.relayed is None:
            return made
        return Plain(
            **{**_fields(made), "headers": (*made.headers, ("linkflap-input", self.relayed))}
        )


def _fields(plain: Plain) -> dict[str, Any]:
    return {
        "value": plain.value,
        "key": plain.key,
        "timestamp": plain.timestamp,
        "delta": plain.delta,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One batch: records of one producer, or a control record (`ends`: ABORT, COMMIT, RESET).

    `span` is the number of offsets that it takes; it is higher than the number of records if the
    log was compacted. `crc_flip` makes its CRC wrong. `horizon` is the delete horizon that a
    cleaner wrote into a marker. `coordinator` is the epoch of the coordinator that wrote a marker.
    """

    offset: int
    records: tuple[Rec, ...] = ()
    span: int = 1
    pid: int = -1
    epoch: int = -1
    sequence: int = -1
    leader_epoch: int = 0
    transactional: bool = False
    ends: int | None = None
    codec: str = "none"
    appended: int | None = None
    timestamp: int = 0
    crc_flip: int = 0
    horizon: int | None = None
    coordinator: int = 0

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.offset + self.span

    @property
    def uids(self) -> list[int]:
        return [r.uid for r in self.records]

    def offset_of(self, uid: int) -> int:
        return self.offset + next(r.delta for r in self.records if r.uid == uid)

    def encoded(self) -> bytes:
        """The batch as bytes. Offset and leader epoch are not covered by the CRC, so a mirrored
        batch is encoded only once."""
        out = bytearray(
            _encoded(
                self.records,
                self.span,
                self.pid,
                self.epoch,
                self.sequence,
                self.transactional,
                self.ends,
                self.codec,
                self.appended,
                self.timestamp,
                self.horizon,
                self.coordinator,
            )
        )
        struct.pack_into(">q", out, 0, self.offset)
        struct.pack_into(">i", out, 12, self.leader_epoch)
        if self.crc_flip:
            (crc,) = struct.unpack_from(">I", out, 17)
            struct.pack_into(">I", out, 17, crc ^ self.crc_flip)
        return bytes(out)


@lru_cache(maxsize=8192)
def _encoded(
    records: tuple[Rec, ...],
    span: int,
    pid: int,
    epoch: int,
    sequence: int,
    transactional: bool,
    ends: int | None,
    codec: str,
    appended: int | None,
    timestamp: int,
    horizon: int | None,
    coordinator: int,
) -> bytes:
    if ends == RESET:
        return mirror_pid_reset(0)
    if ends is not None:
        control = Plain(
            key=struct.pack(">hh", 0, ends),
            value=struct.pack(">hi", 0, coordinator),
            timestamp=timestamp,
        )
        return batch(
            0, [control], pid=pid, epoch=epoch, transactional=True, control=True, horizon=horizon
        )
    return batch(
        0,
        [r.plain() for r in records],
        pid=pid,
        epoch=epoch,
        seq=sequence,
        transactional=transactional,
        codec=codec,
        last_delta=span - 1,
        log_append_time=appended,
    )


def uids_of(entries: Iterable[Entry]) -> list[int]:
    """Every payload id, in log order."""
    return [uid for entry in entries for uid in entry.uids]
