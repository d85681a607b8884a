"""The seed of a run, and its payloads: the content of a record is a pure function of (seed, uid),
so that a replayed run writes the same bytes.

A tombstone is a record with a key and no value, which deletes its key from a compacted topic. Like
every record it has its payload id in its headers.
"""

from __future__ import annotations

import random
import secrets
from typing import Final


def drawn_seed(seed: int | None) -> int:
    """The seed that was given, or one drawn now."""
    return secrets.randbits(32) if seed is None else seed


_BITS: Final = 16
_POOL: Final = 1 << _BITS
_HASHED: Final = 0xFFFF_FFFF_FFFF_FFFF
# Knuth's multiplicative hash, of 64 bits: its high bits depend on all of the uid
_MULTIPLIER: Final = 0x9E3779B97F4A7C15
_OTHER: Final = 0xC2B2_AE3D_27D4_EB4F
"""Odd, like the other factor. Whether a record is a tombstone is thus independent of where in the
pool its value begins."""
KEYS: Final = 64
LARGEST: Final = 8 << 20


class Values:
    """Keys and values of one run. `size` is bytes per value (1 to `LARGEST`); values come from a
    pool of random bytes, so they are incompressible. There are `keys` keys, used in turn; with a
    `skew` above 1, the first ones are used more often, so that some keys are written all the time
    and some once. `tombstones` is the share of records without a value. Two of the same arguments
    are equal, and only the arguments are pickled."""

    __slots__ = ("_keys", "_made_of", "_pool", "_skew", "_tombstones", "size")

    def __init__(
        self, seed: int, size: int, *, keys: int = KEYS, skew: float = 1.0, tombstones: float = 0.0
    ) -> None:
        self._made_of = (seed, size, keys, skew, tombstones)
        rng = random.Random(f"linkflap values {seed}")
        pool = rng.randbytes(max(_POOL, size))
        self.size = size
        self._pool = pool + pool[: min(size, _POOL)]
        self._keys = keys
        self._skew = skew
        self._tombstones = int(tombstones * (_HASHED + 1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Values) and self._made_of == other._made_of

    def __hash__(self) -> int:
        return hash(self._made_of)

    def __reduce__(self) -> tuple[object, ...]:
        return _again, self._made_of

    def value(self, uid: int) -> bytes | None:
        """The `size` bytes of this uid, or None if its record is a tombstone."""
        if self._tombstones and (uid * _OTHER & _HASHED) < self._tombstones:
            return None
        start = (uid * _MULTIPLIER & _HASHED) >> 64 - _BITS
        return self._pool[start : start + self.size]

    def key(self, uid: int) -> bytes:
        """One of the keys."""
        number = uid % self._keys
        if self._skew != 1.0:
            evenly = (uid * _MULTIPLIER & _HASHED) / (_HASHED + 1)
            number = min(int(self._keys * evenly**self._skew), self._keys - 1)
        return b"key-%d-%d" % (self._made_of[0] % 1000, number)


def _again(seed: int, size: int, keys: int, skew: float, tombstones: float) -> Values:
    return Values(seed, size, keys=keys, skew=skew, tombstones=tombstones)
