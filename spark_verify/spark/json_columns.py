"""Columns of numbers as text, for partial findings that cross Spark as JSON.

Offsets and payload ids mostly rise by one, so their differences, compressed, take a fraction of a
byte each. The worst case is 11 bytes per number: its own eight in base64.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Final

import numpy as np

from linkflap.spark_verify.facts.view import Ints

COLUMN: Final = "int64"
"""The only name in an object that stands for a column: little-endian differences, the first from 0;
zlib; base64."""
_QUICKLY: Final = 1


def packed(data: Mapping[str, object]) -> dict[str, object]:
    """The same values, with columns (arrays of int64) as objects that JSON can hold."""
    return {
        name: _packed(value) if isinstance(value, np.ndarray) else value
        for name, value in data.items()
    }


def unpacked(data: Mapping[str, object]) -> dict[str, object]:
    """What was packed, as it came back out of JSON: columns are arrays again."""
    return {name: _unpacked(value) for name, value in data.items()}


def _packed(column: Ints) -> dict[str, str]:
    # Differences may wrap around, and so do then the sums.
    differences = np.diff(column.astype("<i8", casting="safe"), prepend=0)
    return {COLUMN: base64.b64encode(zlib.compress(differences.tobytes(), _QUICKLY)).decode()}


def _unpacked(value: object) -> object:
    if not isinstance(value, dict) or value.keys() != {COLUMN}:
        return value
    differences = np.frombuffer(zlib.decompress(base64.b64decode(value[COLUMN])), "<i8")
    return np.cumsum(differences, dtype=np.int64)
