"""The payload of a record: its id, which is unique in a run and names its writer, and its content.

    header "linkflap" = big-endian: uid i64 | operation i64 | counter i32
    uid = process << 40 | n       process: one producer incarnation, numbered from 1 within a run
    operation = process << 40 | m the transaction, or the send of an idempotent producer
    counter                       the index of the record within this process and partition, from 0
A record without that header is not linkflap's: its uid is FOREIGN.

The content is a pure function of (seed, uid), so that a replayed run writes the same bytes. A
tombstone is a record with a key and no value, which deletes its key from a compacted topic.
"""

from __future__ import annotations

import random
import secrets
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

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


def drawn_seed(seed: int | None) -> int:
    """The seed that was given, or one drawn now."""
    return secrets.randbits(32) if seed is None else seed


_Uid = TypeVar("_Uid", bound=Any)
"""A uid, or a numpy array of them as unsigned numbers of 64 bits."""
_BITS: Final = 16
_POOL: Final = 1 << _BITS
_HASHED: Final = 0xFFFF_FFFF_FFFF_FFFF
# Knuth's multiplicative hash, of 64 bits: its high bits depend on all of the uid
_MULTIPLIER: Final = 0x9E3779B97F4A7C15
_OTHER: Final = 0xC2B2_AE3D_27D4_EB4F
"""Odd, like the other factor. Whether a record is a tombstone is thus independent of where in the
pool its value begins."""
KEYS: Final = 64
VALUE_SIZE: Final = 200
LARGEST_VALUE: Final = 8 << 20


class Values:
    """Keys and values of one run. `size` is bytes per value (1 to `LARGEST_VALUE`); values come
    from a pool of random bytes, so they are incompressible. There are `keys` keys, used in
    turn; with a `skew` above 1, the first ones are used more often, so that some keys are
    written all the time and some once. `tombstones` is the share of records without a value.
    Two of the same arguments are equal, and only the arguments are pickled."""

    __slots__ = ("_keys", "_made_of", "_skew", "_tombstones", "size")

    def __init__(
        self, seed: int, size: int, *, keys: int = KEYS, skew: float = 1.0, tombstones: float = 0.0
    ) -> None:
        self._made_of = (seed, size, keys, skew, tombstones)
        self.size = size
        self._keys = keys
        self._skew = skew
        self._tombstones = int(tombstones * (_HASHED + 1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Values) and self._made_of == other._made_of

    def __hash__(self) -> int:
        return hash(self._made_of)

    def __reduce__(self) -> tuple[object, ...]:
        return _again, self._made_of

    @property
    def pool(self) -> bytes:
        """The random bytes, made when they are first used."""
        return _pool(self._made_of[0], self.size)

    def value(self, uid: int) -> bytes | None:
        """The `size` bytes of this uid, or None if its record is a tombstone."""
        if self._tombstones and self.deletes(uid):
            return None
        start = self.start(uid)
        return self.pool[start : start + self.size]

    def deletes(self, uid: _Uid) -> _Uid:
        """Whether the record of a uid is a tombstone."""
        return (uid * _OTHER & _HASHED) < self._tombstones  # type: ignore[no-any-return]

    def start(self, uid: _Uid) -> _Uid:
        """Where in the pool the value of a uid begins."""
        return (uid * _MULTIPLIER & _HASHED) >> 64 - _BITS  # type: ignore[no-any-return]

    def key(self, uid: int) -> bytes:
        """One of the keys."""
        return b"key-%d-%d" % (self._made_of[0] % 1000, self.number(uid))

    def number(self, uid: int) -> int:
        """The number of a uid's key, from 0."""
        if self._skew == 1.0:
            return uid % self._keys
        evenly = (uid * _MULTIPLIER & _HASHED) / (_HASHED + 1)
        return min(int(self._keys * evenly**self._skew), self._keys - 1)


@lru_cache(maxsize=2)
def _pool(seed: int, size: int) -> bytes:
    """The pool of values of one size. Few are kept: a run may have hundreds of workloads, each with
    values of another size, of some MiB."""
    pool = random.Random(f"linkflap values {seed}").randbytes(max(_POOL, size))
    return pool + pool[: min(size, _POOL)]


def _again(seed: int, size: int, keys: int, skew: float, tombstones: float) -> Values:
    return Values(seed, size, keys=keys, skew=skew, tombstones=tombstones)
