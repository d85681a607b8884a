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
from dataclasses import dataclass, replace
from heapq import heapreplace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from linkflap.spark_verify.plan import Captured, RunPlan
from linkflap.spark_verify.rows import BATCHES, HISTORY, PARTS, batch_rows, history_rows

BATCHES_FORMAT: Final = "linkflap-batches"
HISTORY_FORMAT: Final = "linkflap-history"
_PIECE: Final = 4 << 20
"""Bytes of log per task: a task costs some ten milliseconds, and decoding 4 MiB about as much."""
_APART: Final = 128 << 20
"""Bytes of one log from which on several tasks read it: about a second of decoding, ten times what a task may cost."""
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
    """`linkflap-batches`: captured replicas, or pieces of them, one row each, and one per stretch of their batches."""

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
    """The option `pieces` of linkflap-batches: small replicas together, big ones apart, at least two pieces."""
    whole = (r for plan in plans for r in (*plan.replicas, *plan.earlier))
    parts = sorted((part for replica in whole for part in _apart(replica)), key=lambda r: -_work(r))
    total = sum(map(_work, parts))
    pieces: list[list[Captured]] = [[] for _ in range(max(2, -(-total // _PIECE)))]
    least = [(0, number) for number in range(len(pieces))]
    for part in parts:
        size, number = least[0]
        pieces[number].append(part)
        heapreplace(least, (size + _work(part), number))
    return msgspec.json.encode([p for p in pieces if p] or [[]]).decode()


def _apart(replica: Captured) -> Iterator[Captured]:
    """A replica; or a big one in pieces, each the segments that begin in one stretch of it, which is `_APART` of work."""
    if _work(replica) <= _APART or len(replica.paths) == 1:
        yield replica
        return
    sizes = [_size(path) for path in replica.paths]
    stretch = _APART * replica.size // _work(replica)
    files = zip(replica.paths, sizes, accumulate(sizes), strict=True)
    for piece, (_, run) in enumerate(groupby(files, lambda file: (file[2] - file[1]) // stretch)):
        paths, own, _ = zip(*run, strict=True)
        yield replace(replica, paths=paths, size=sum(own), piece=piece, damage=() if piece else replica.damage)


def _size(path: str) -> int:
    """0 of one that went away since the replica was planned: whoever reads it says so."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _work(replica: Captured) -> int:
    return replica.size if replica.canonical and replica.records == "every" else replica.size // _HEADERS_ALONE


def history_pieces(plans: Sequence[RunPlan]) -> str:
    """The option `pieces` of linkflap-history: one task per part of each run."""
    return msgspec.json.encode([[Part(root=plan.run, part=part)] for part in PARTS for plan in plans] or [[]]).decode()
