"""The run directory as two Spark data sources: `linkflap-batches` and `linkflap-history` (schemas in `spark_verify.rows`).

Python Data Source API, Arrow batches. One load() per scan, and no filter push-down: with it on, Spark 4.2 and 4.3 keep the
filters of one query for the next one, and a verifier that counts too little says valid.
What to read is planned by the caller and comes as the option `pieces`, JSON: a list of pieces, one Spark task each. Tasks run
where Spark has executors, and those must see the files at the same paths: one that does not says so, and which it is.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_verify.plan import Captured, RunPlan
from spark_verify.rows import BATCHES, HISTORY, PARTS, batch_rows, history_rows

BATCHES_FORMAT: Final = "linkflap-batches"
HISTORY_FORMAT: Final = "linkflap-history"
_PIECE: Final = 4 << 20
"""Bytes of log per task: a task costs some ten milliseconds, and decoding 4 MiB about as much."""
_HEADERS_ALONE: Final = 8
"""How many times faster a log is read of which nobody needs the records."""
UNSEEN: Final = "UnseenPathError"


class UnseenPathError(Exception):
    """An executor has no such file, though the driver has: one sentence that names both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part (operations, polls, watermarks) of one run's history."""

    root: str
    part: str


class _Piece(InputPartition):
    """What one task reads, as JSON: a plain string crosses to the worker whatever classes mean there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)


class _BatchReader(DataSourceReader):
    def __init__(self, pieces: str) -> None:
        self._pieces = pieces

    def partitions(self) -> Sequence[InputPartition]:
        return [_Piece(bytes(raw).decode()) for raw in msgspec.json.decode(self._pieces, type=list[msgspec.Raw])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        replicas = msgspec.json.decode(partition.value, type=list[Captured])
        _see(Path(path) for replica in replicas for path in replica.paths)
        return batch_rows(replicas)


class _HistoryReader(_BatchReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for piece in msgspec.json.decode(partition.value, type=list[Part]):
            _see([Path(piece.root) / "run.json"])
            yield from history_rows(Path(piece.root), piece.part)


def _see(paths: Iterable[Path]) -> None:
    """Raises UnseenPathError for the first that is not there: the driver saw all of them when it planned."""
    for path in paths:
        if not os.path.lexists(path):
            raise UnseenPathError(
                f"the executor on {socket.gethostname()} (in {Path.cwd()}) cannot see {path}, which the driver can; "
                "put the logs on storage that every executor has at the same path"
            )


class BatchSource(DataSource):
    """`linkflap-batches`: captured replicas, one row each, and one row per batch of theirs."""

    @classmethod
    def name(cls) -> str:
        return BATCHES_FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(BATCHES)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(self.options["pieces"])


class HistorySource(DataSource):
    """`linkflap-history`: sends, reads, watermarks."""

    @classmethod
    def name(cls) -> str:
        return HISTORY_FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(HISTORY)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _HistoryReader(self.options["pieces"])


def register(spark: SparkSession) -> None:
    """Makes both formats known to a session."""
    spark.dataSource.register(BatchSource)
    spark.dataSource.register(HistorySource)


def batch_pieces(plans: Sequence[RunPlan]) -> str:
    """The option `pieces` of linkflap-batches: small replicas together, big ones alone, at least two pieces."""
    replicas = sorted((r for plan in plans for r in (*plan.replicas, *plan.earlier)), key=lambda r: -_work(r))
    total = sum(map(_work, replicas))
    pieces: list[list[Captured]] = [[] for _ in range(max(2, -(-total // _PIECE)))]
    sizes = [0] * len(pieces)
    for replica in replicas:
        least = sizes.index(min(sizes))
        pieces[least].append(replica)
        sizes[least] += _work(replica)
    return msgspec.json.encode([p for p in pieces if p] or [[]]).decode()


def _work(replica: Captured) -> int:
    return replica.size if replica.canonical and replica.records == "every" else replica.size // _HEADERS_ALONE


def history_pieces(plans: Sequence[RunPlan]) -> str:
    """The option `pieces` of linkflap-history: one task per part of each run."""
    return msgspec.json.encode([[Part(root=plan.run, part=part)] for part in PARTS for plan in plans] or [[]]).decode()
