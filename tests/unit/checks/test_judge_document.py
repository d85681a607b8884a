"""The document of a verdict, as a user reads it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from linkflap.harness.model.clock import now
from linkflap.harness.rundir import RunReader
from linkflap.spark_verify.verdict.judge import EXAMPLES
from tests.unit.checks.judged_runs import (
    LINK,
    Recorded,
    document_of,
    looked,
    result,
    row,
    verdict_of,
)


def test_the_document_explains_every_era(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "run")
    run.event("failover", LINK, kind="forced", fault_time=now())
    run.event("promotion", LINK, cluster="B", topic="A.t", partition=0, offset=3)
    folder = run.close()
    rows = [
        row(
            folder,
            "duplicate",
            "examined",
            cluster="A",
            origin="native",
            count=5,
            offset=0,
            data={"generation": 0},
        ),
        row(
            folder,
            "duplicate",
            "examined",
            cluster="B",
            origin="mirrored",
            count=3,
            offset=0,
            data={"generation": 0},
        ),
        row(
            folder,
            "duplicate",
            "examined",
            cluster="B",
            origin="native",
            count=2,
            offset=3,
            data={"generation": 0},
        ),
        row(folder, "duplicate", "found", cluster="B", kind="duplicate", offset=4),
    ]
    eras = document_of(verdict_of(folder, rows, "duplicate"))["eras"]
    shown = [
        (
            e["cluster"],
            e["origin"],
            e["start"],
            e["end"],
            e["compared"],
            e["anomalies"],
            e["verdict"],
        )
        for e in eras
    ]
    assert shown == [
        ("A", "native", 0, None, {"records": 5}, 0, "valid"),
        ("B", "mirrored", 0, 3, {"records": 3}, 0, "valid"),
        ("B", "native", 3, None, {"records": 2}, 1, "invalid"),
    ]


def test_examples_are_capped_and_counts_are_not(recorded: Recorded) -> None:
    folder = recorded.close()
    many = [
        row(folder, "duplicate", "found", cluster="A", kind="duplicate", offset=i)
        for i in range(EXAMPLES + 5)
    ]
    judgement = verdict_of(folder, [*looked(folder, "duplicate"), *many], "duplicate")
    assert len(document_of(judgement)["anomalies"]) == EXAMPLES
    assert document_of(judgement)["anomalies_left_out"] == 5
    assert result(judgement, "duplicate").anomalies == EXAMPLES + 5
    assert [a["offset"] for a in document_of(judgement)["anomalies"]] == list(range(EXAMPLES))


def test_the_document_is_what_the_design_promises(recorded: Recorded) -> None:
    folder = recorded.close()
    found = row(
        folder,
        "duplicate",
        "found",
        cluster="A",
        kind="duplicate",
        offset=4,
        data={"uid": 7, "first_offset": 2},
    )
    document = document_of(verdict_of(folder, [*looked(folder, "duplicate"), found], "duplicate"))
    assert {
        "verdict",
        "run",
        "seed",
        "scenario",
        "runtime",
        "mirror",
        "checks",
        "failovers",
        "anomalies",
    } <= set(document)
    assert (document["seed"], document["scenario"], document["runtime"]) == (5, "test", "process")
    assert document["mirror"] == "mm2 delivery=at-least-once"
    assert {"name", "verdict", "examined", "anomalies", "reason"} <= set(document["checks"][0])
    assert document["anomalies"] == [
        {
            "check": "duplicate", "kind": "duplicate", "cluster": "A", "topic": "A.t",
            "partition": 0, "offset": 4,
            "allowed": False, "cause": 1,
            "sentence": "A has producer 0 #7 at A.t-0 @ 4 again, first at offset 2",
            "evidence": {"uid": 7, "first_offset": 2},
        }
    ]  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(document)) == document


def test_the_whole_directory_is_read_once_it_is_closed(recorded: Recorded) -> None:
    folder = recorded.close()
    assert RunReader(folder).damage() == []
