"""Unpacks columns of numbers into separate numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def lines_of(packed: pa.BinaryScalar, fields: Sequence[str]) -> NDArray[np.int64]:
    """The numbers of one packed row, one line each. Copied: Spark's buffer may be unaligned, and
    must not be held."""
    return np.frombuffer(packed.as_py(), "<i8").reshape(-1, len(fields))


def numbers_of(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """A column without nulls as a numpy array of its own, so that no view of Spark's buffers
    outlives them."""
    return np.array(
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    )


def unpacked(column: pa.BinaryArray, kind: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """All numbers of a packed column, and the edges of its rows in them."""
    if not len(column):
        return np.zeros(0, kind), np.zeros(1, np.int64)
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, np.int32)[
        column.offset : column.offset + len(column) + 1
    ].astype(np.int64)
    # Copied: the buffer may be unaligned, and must not outlive Spark's.
    numbers = np.frombuffer(
        bytes(data.slice(int(edges[0]), int(edges[-1] - edges[0]))) if data else b"", kind
    )
    return numbers, (edges - edges[0]) // kind.itemsize


def rows_of(column: pa.BinaryArray, kind: str) -> list[NDArray[Any]]:
    """One array per row of a packed column."""
    numbers, edges = unpacked(column, np.dtype(kind))
    return [numbers[start:stop] for start, stop in pairwise(edges.tolist())]
