"""Seeded payloads: what a record holds is a pure function of (seed, uid), so that a replayed run writes the same bytes."""

from __future__ import annotations

import random
from typing import Final

_BITS: Final = 16
_POOL: Final = 1 << _BITS
_MULTIPLIER: Final = 0x9E3779B97F4A7C15  # Knuth's multiplicative hash, of 64 bits: its high bits depend on all of the uid
KEYS: Final = 64


class Values:
    """Keys and values of one run. `size` is bytes per value (1 to 64 KiB); incompressible, as a pool of random bytes is."""

    __slots__ = ("_keys", "_pool", "size")

    def __init__(self, seed: int, size: int) -> None:
        rng = random.Random(f"linkflap values {seed}")
        pool = rng.randbytes(_POOL)
        self.size = size
        self._pool = pool + pool[:size]
        self._keys = [b"key-%d-%d" % (seed % 1000, n) for n in range(KEYS)]

    def value(self, uid: int) -> bytes:
        """`size` bytes that belong to this uid."""
        start = (uid * _MULTIPLIER & 0xFFFF_FFFF_FFFF_FFFF) >> 64 - _BITS
        return self._pool[start : start + self.size]

    def key(self, uid: int) -> bytes:
        """One of `KEYS` keys."""
        return self._keys[uid % KEYS]
