"""The one Spark job: views that passed through Spark equal those read without it, and every finding
arrives."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from pyspark.sql import SparkSession

from linkflap.harness.log.segments import Ints
from linkflap.spark_verify.checks.base import (
    Check,
    Combined,
    Examined,
    Found,
    Measured,
    PartialFinding,
    Unjudged,
)
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read import pieces
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.spark import job
from tests.kafka_log import batches_in, field_of, segment
from tests.run_views import views
from tests.synthetic import ENDED, TOPIC, Shape, same, write_run

pytestmark = pytest.mark.spark


def check(name: str, kernel: object, combine: object = None) -> Check:
    return Check(
        name=name, guarantee="", source="", inputs=frozenset(), anomalies=(),
        kernel=kernel, combine=combine,  # type: ignore[arg-type]
    )  # fmt: skip


def dumped(view: PartitionView) -> list[Found]:
    return [
        Found(
            kind="view",
            cluster="",
            offset=view.partition,
            evidence={"pickle": pickle.dumps(view).hex()},
        )
    ]


def every_kind(view: PartitionView) -> list[object]:
    records = view.canonical()["B"].records
    return [
        Found(
            kind="noun",
            cluster="B",
            offset=records.offset[-1],
            evidence={"uid": records.uid[0], "all": records.uid[:2]},
        ),
        Examined(cluster="A", origin="native", count=len(view.canonical()["A"].records)),
        Unjudged(reason="because"),
        PartialFinding(cluster="B", offset=3, data={"partition": view.partition}),
    ]


def joined(partials: list[PartialFinding]) -> list[Combined]:
    seen = [(c.topic, c.partition, c.data["partition"]) for c in partials]
    return [
        Combined(
            found=Found(kind="joined", cluster="B", offset=1, evidence={"seen": seen}),
            topic=TOPIC,
            partition=0,
        )
    ]


def columns(view: PartitionView) -> list[object]:
    """Both partitions say the same word in their first partial finding, and one each in another."""
    numbers = np.arange(5, dtype=np.int64) + 10 * view.partition
    words = ("both", f"only {view.partition}")
    return [
        PartialFinding(cluster="B", offset=at, data={"numbers": numbers, "at": at}, together=word)
        for at, word in enumerate(words)
    ]


def summed(partials: list[PartialFinding]) -> list[Combined]:
    if not partials:
        return []
    evidence = {
        "word": [c.together for c in partials],
        "sum": sum(int(cast(Ints, c.data["numbers"]).sum()) for c in partials),
    }
    return [
        Combined(
            found=Found(kind="summed", cluster="B", offset=1, evidence=evidence),
            topic=TOPIC,
            partition=0,
        )
    ]


def crash(view: PartitionView) -> list[object]:
    raise ZeroDivisionError(f"partition {view.partition}")


def test_views_that_crossed_spark_equal_those_that_did_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    roots = [
        write_run(tmp_path / "one", Shape(transactions=30)),
        write_run(tmp_path / "two", Shape(partitions=3, codec="lz4")),
    ]
    found = job.findings(spark, roots, [check("dump", dumped)])
    crossed = {
        (row.run, row.partition): pickle.loads(bytes.fromhex(str(row.data["pickle"])))
        for row in found
    }
    direct = {(view.run, view.partition): view for root in roots for view in views(root)}
    assert len(direct) == 5
    assert crossed.keys() == direct.keys()
    assert all(same(crossed[key], direct[key]) for key in direct)


def test_a_log_that_several_tasks_read_is_one_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_run(tmp_path / "run", Shape(transactions=30))
    for path in sorted((root / "captures").glob("*/*/*/*/*.log")):
        data = [each for _, each in batches_in(path)]
        for some in (data[start : start + 16] for start in range(0, len(data), 16)):
            segment(path.parent, some, base_offset=field_of(some[0], "base_offset"))
    monkeypatch.setattr(pieces, "_APART", 1)
    assert (
        max(captured.piece for task in pieces.pieces([plan(root)]) for captured in task.replicas)
        == 3
    )
    found = job.findings(spark, [root], [check("dump", dumped)])
    crossed = [
        pickle.loads(bytes.fromhex(str(row.data["pickle"])))
        for row in found
        if row.finding == "found"
    ]
    assert same(sorted(crossed, key=lambda view: view.partition), list(views(root)))
    assert not any(replica.damage for view in crossed for replica in view.replicas)


def test_every_kind_of_finding_arrives(spark: SparkSession, tmp_path: Path) -> None:
    root = write_run(tmp_path / "run")
    checks = [check("kinds", every_kind, joined), check("crash", crash), check("plain", dumped)]
    found = job.findings(spark, [root], checks)
    kinds = [row for row in found if row.check == "kinds"]
    assert sorted(row.finding for row in kinds) == [
        "examined",
        "examined",
        "found",
        "found",
        "found",
        "unjudged",
        "unjudged",
    ]
    (both,) = [row for row in kinds if row.kind == "joined"]
    assert both.data == {"seen": [[TOPIC, 0, 0], [TOPIC, 1, 1]]}
    noun = next(row for row in kinds if row.kind == "noun" and row.partition == 1)
    assert noun.data == {"uid": 2 << 40, "all": [2 << 40, (2 << 40) + 1]}
    assert (noun.topic, noun.cluster, noun.offset) == (TOPIC, "B", 38)
    assert [row.count for row in kinds if row.finding == "examined"] == [30, 30]
    crashed = [row for row in found if row.check == "crash"]
    assert {(row.finding, row.data["reason"]) for row in crashed} == {
        ("crashed", f"ZeroDivisionError: partition {partition}") for partition in range(2)
    }
    assert len([row for row in found if row.check == "plain"]) == 2, (
        "a crash hides nobody else's findings"
    )


def test_partial_findings_are_combined_with_those_that_they_belong_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = replace(
        check("kept", columns, summed), measure=lambda _partial, _events: Measured(failovers=())
    )
    found = job.findings(
        spark, [write_run(tmp_path / "run")], [check("columns", columns, summed), kept]
    )
    for name in ("columns", "kept"):
        combined = [
            (row.data["word"], row.data["sum"])
            for row in found
            if (row.check, row.finding) == (name, "found")
        ]
        assert sorted(combined) == [(["both", "both"], 70), (["only 0"], 10), (["only 1"], 60)]
    assert sorted(row.together for row in found if row.finding == "partial") == [
        "both",
        "both",
        "only 0",
        "only 1",
    ]


def test_damage_of_any_part_arrives(spark: SparkSession, tmp_path: Path) -> None:
    root = write_run(tmp_path / "run")
    (root / "captures" / ENDED / "bounds.json").unlink()
    with (root / "operations" / "p1.jsonl").open("ab") as file:
        file.write(b"{")
    found = job.findings(spark, [root], [check("dump", dumped)])
    damage = {
        (str(row.data["path"]), str(row.data["reason"])) for row in found if row.finding == "damage"
    }
    assert any(path == "operations/p1.jsonl" and "torn" in reason for path, reason in damage)
    assert any(path.endswith("bounds.json") for path, _ in damage)


def test_the_same_session_judges_again_after_the_bytes_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = write_run(tmp_path / "run")
    counting = check("kinds", every_kind)

    def native() -> list[int]:
        return [
            row.count
            for row in job.findings(spark, [root], [counting])
            if row.finding == "examined"
        ]

    assert native() == [30, 30]
    path = next((root / "captures").glob(f"*/A/1/{TOPIC}-0/*.log"))
    path.write_bytes(b"")
    assert sorted(native()) == [0, 30]
