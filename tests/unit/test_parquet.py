"""The Parquet files of a verdict: every anomaly and everything examined, also if there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.spark.finding_rows import FindingRow
from linkflap.spark_verify.verdict import parquet


def examined(partition: int, count: int) -> FindingRow:
    return FindingRow(
        run="r", topic="A.t", partition=partition, check="duplicate", finding="examined",
        cluster="B", origin="mirrored",
        count=count, offset=7, data={"generation": 1},
    )  # fmt: skip


def test_nothing_is_left_out(tmp_path: Path) -> None:
    anomalies = [
        Anomaly(
            check="duplicate", kind="duplicate", cluster="B", topic="A.t", partition=0, offset=n,
            evidence={"uid": n, "why": ["a"]}, allowed=n == 0,
        )
        for n in range(100)
    ]  # fmt: skip
    other = FindingRow(
        run="r",
        topic="A.t",
        partition=0,
        check="duplicate",
        finding="unjudged",
        data={"reason": "because"},
    )
    parquet.write(tmp_path, anomalies, [examined(0, 3), other, examined(1, 4)], run=str(tmp_path))
    found = pq.read_table(tmp_path / parquet.FINDINGS_FILE).to_pylist()
    assert [row["offset"] for row in found] == list(range(100))
    assert [row["allowed"] for row in found].count(True) == 1
    assert json.loads(found[5]["evidence"]) == {"uid": 5, "why": ["a"]}
    counted = pq.read_table(tmp_path / parquet.EXAMINED_FILE).to_pylist()
    assert [
        (r["partition"], r["count"], r["era"], r["generation"], r["origin"]) for r in counted
    ] == [
        (0, 3, 7, 1, "mirrored"),
        (1, 4, 7, 1, "mirrored"),
    ]
    assert {path.name for path in tmp_path.iterdir()} == {
        parquet.FINDINGS_FILE,
        parquet.EXAMINED_FILE,
    }


def test_without_anomalies_the_columns_are_there(tmp_path: Path) -> None:
    parquet.write(tmp_path, [], [], run=str(tmp_path))
    assert pq.read_schema(tmp_path / parquet.FINDINGS_FILE).equals(parquet.FOUND)
    assert pq.read_schema(tmp_path / parquet.EXAMINED_FILE).equals(parquet.EXAMINED)
