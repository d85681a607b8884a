"""The obvious plan as a baseline: Spark's full outer join of both logs' records on topic, partition
and offset.

The comparison is fair. Compiled loops decode records directly into Arrow columns (offset,
timestamp, key, value; no Python object for each record), in one task for each partition and
cluster. Spark's adaptive execution is enabled, and it chooses a sort-merge join. The join does less
than the verifier: it does not recompute CRCs or compare headers, and it cannot see a record that
occurs twice with the same content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from linkflap.harness.log import layout
from linkflap.harness.log.batches import ReplicaLog, scan
from linkflap.harness.log.records import spans

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
KEYS = ["topic", "partition", "offset"]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]


def differing(spark: SparkSession, one: Path, other: Path) -> DataFrame:
    """The offsets at which the two sides have different records, one row for each."""
    left, right = (
        _records(spark, folder).alias(name) for folder, name in ((one, "l"), (other, "r"))
    )
    on = [col(f"l.{key}") == col(f"r.{key}") for key in KEYS]
    same = col("l.timestamp").eqNullSafe(col("r.timestamp"))
    for name in ("key", "value"):
        same &= col(f"l.{name}").eqNullSafe(col(f"r.{name}"))
    return left.join(right, on, "full_outer").where(
        ~same | col("l.offset").isNull() | col("r.offset").isNull()
    )


def _records(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.format(RecordSource.name()).option("folder", str(folder)).load()


class RecordSource(DataSource):
    """The decoded data records of a log directory."""

    @classmethod
    def name(cls) -> str:
        return "benchmark-records"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options["folder"])


class _Reader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> Sequence[InputPartition]:
        return [
            InputPartition(json.dumps(str(path))) for path in sorted(Path(self._folder).iterdir())
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return decoded(Path(json.loads(partition.value)))


def decoded(folder: Path) -> Iterator[pa.RecordBatch]:
    """The data records of one partition folder, some ten thousand rows at a time."""
    topic, _, number = folder.name.rpartition("-")
    log = scan(sorted(folder.glob("*.log")))
    for first, after in spans(log):
        rows = first + np.flatnonzero(log.headers.control[first:after] == layout.DATA)
        for index in np.unique(log.headers.segment[rows]).tolist():
            mine = rows[log.headers.segment[rows] == index]
            whole = _columns(log, index, mine)
            names = [
                pa.repeat(topic, len(whole[0])),
                pa.repeat(pa.scalar(int(number), pa.int32()), len(whole[0])),
            ]
            table = pa.record_batch([*names, *whole], schema=SCHEMA)
            yield from (table.slice(start, 1 << 15) for start in range(0, len(table), 1 << 15))


def _columns(log: ReplicaLog, segment: int, rows: Ints) -> list[Any]:
    headers = log.headers
    counts = headers.count[rows]
    total = int(counts.sum())
    offset, timestamp = np.empty(total, np.int64), np.empty(total, np.int64)
    ends = [np.zeros(total + 1, np.int32) for _ in range(2)]
    size = int(headers.length[rows].sum())
    data = [np.empty(size, np.uint8) for _ in range(2)]
    _decode(
        log.segments[segment].data, headers.position[rows] + layout.HEADER_SIZE, counts,
        headers.base_offset[rows],
        headers.base_timestamp[rows], offset, timestamp, ends[0], data[0], ends[1], data[1],
    )  # fmt: skip
    binaries = [
        pa.Array.from_buffers(
            pa.binary(), total, [None, pa.py_buffer(end), pa.py_buffer(content[: end[-1]])]
        )
        for end, content in zip(ends, data, strict=True)
    ]
    return [pa.array(offset), pa.array(timestamp), *binaries]


@numba.njit(cache=True, nogil=True)
def _varint(data: Bytes, position: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = int(data[position])
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


@numba.njit(cache=True, nogil=True)
def _copy(data: Bytes, position: int, row: int, ends: NDArray[np.int32], out: Bytes) -> int:
    """Appends a byte string. A null would become an empty string; these logs have none."""
    size, position = _varint(data, position)
    size = max(size, 0)
    begin = ends[row]
    out[begin : begin + size] = data[position : position + size]
    ends[row + 1] = begin + size
    return position + size


@numba.njit(cache=True, nogil=True)
def _decode(
    data: Bytes, starts: Ints, counts: Ints, bases: Ints, times: Ints, offset: Ints,
    timestamp: Ints,
    key_ends: NDArray[np.int32], keys: Bytes, value_ends: NDArray[np.int32], values: Bytes,
) -> None:  # fmt: skip
    row = 0
    for i in range(len(starts)):
        position = starts[i]
        for _ in range(counts[i]):
            size, position = _varint(data, position)
            end = position + size
            delta, position = _varint(data, position + 1)
            timestamp[row] = times[i] + delta
            delta, position = _varint(data, position)
            offset[row] = bases[i] + delta
            position = _copy(data, position, row, key_ends, keys)
            _copy(data, position, row, value_ends, values)
            position = end
            row += 1
