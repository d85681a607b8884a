"""Writes all findings and examined counts as Parquet beside verdict.json, for questions that a
document of examples cannot answer.

    findings.parquet   every anomaly, none left out: run, check, kind, cluster, topic, partition,
                       offset, allowed, evidence (JSON)
    examined.parquet   per check and partition what was looked at: run, check, topic, partition,
                       cluster, origin, era, generation,
    count
                       (era: the offset at which the era begins, -1 where the check means none)

Both are written anew by every `linkflap verify`;
`spark.read.parquet("linkflap-runs/*/findings.parquet")` is all runs at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from linkflap.harness.model.verdict import Anomaly
from linkflap.harness.rundir import write_whole
from linkflap.spark_verify.checks.finding_rows import FindingRow

FINDINGS_FILE: Final = "findings.parquet"
EXAMINED_FILE: Final = "examined.parquet"
_PARTITION: Final = [("topic", pa.string()), ("partition", pa.int32())]
FOUND: Final = pa.schema(
    [
        ("run", pa.string()),
        ("check", pa.string()),
        ("kind", pa.string()),
        ("cluster", pa.string()),
        *_PARTITION,
        ("offset", pa.int64()),
        ("allowed", pa.bool_()),
        ("evidence", pa.string()),
    ]
)
EXAMINED: Final = pa.schema(
    [
        ("run", pa.string()),
        ("check", pa.string()),
        *_PARTITION,
        ("cluster", pa.string()),
        ("origin", pa.string()),
        ("era", pa.int64()),
        ("generation", pa.int32()),
        ("count", pa.int64()),
    ]
)


def write(
    folder: Path, anomalies: Sequence[Anomaly], rows: Iterable[FindingRow], *, run: str
) -> None:
    """Writes both files into a folder, each completely or not at all. `run` is the run directory's
    name in them."""
    found: list[Mapping[str, object]] = [
        {
            "run": run, "check": a.check, "kind": a.kind, "cluster": a.cluster, "topic": a.topic,
            "partition": a.partition,
            "offset": a.offset, "allowed": a.allowed,
            "evidence": msgspec.json.encode(a.evidence).decode(),
        }
        for a in anomalies
    ]  # fmt: skip
    examined: list[Mapping[str, object]] = [
        {
            "run": run, "check": r.check, "topic": r.topic, "partition": r.partition,
            "cluster": r.cluster, "origin": r.origin,
            "era": r.offset, "generation": r.data.get("generation"), "count": r.count,
        }
        for r in rows
        if r.finding == "examined"
    ]  # fmt: skip
    _write(folder / FINDINGS_FILE, pa.Table.from_pylist(found, FOUND))
    _write(folder / EXAMINED_FILE, pa.Table.from_pylist(examined, EXAMINED))


def _write(path: Path, table: pa.Table) -> None:
    content = pa.BufferOutputStream()
    pq.write_table(table, content)
    write_whole(path, content.getvalue())
