"""Stored results of cases: what has to be reproduced again, and what a verdict says of a case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linkflap.chaos import scenario_file
from linkflap.chaos.cases import case_named, registry
from linkflap.chaos.cases.case import Outcome
from linkflap.chaos.cases.regression import of_rows, reproduced
from linkflap.chaos.cases.results import Row
from linkflap.chaos.cases.scenario_files import FILES, changed, of_verdict
from linkflap.harness.model.errors import EnvironmentFailure


def a_row(
    case: str = "KAFKA-20734", version: str = "4.3.1", shown: int = 3, runs: int = 3, **changed: Any
) -> Row:
    values: dict[str, Any] = {
        "format": 1,
        "date": "2026-11-22",
        "case": case,
        "version": version,
        "client": "librdkafka",
        "transactions": "",
        "outcome": Outcome.REPRODUCED if shown else Outcome.NOT_REPRODUCED,
        "shown": shown,
        "runs": runs,
        "needed": 3,
        "controls": runs,
        "low": 0.0,
        "high": 1.0,
        "expected": True,
        "schedule": case_named(case).schedule,
        "seconds": 1.0,
        "linkflap": "0.1.0",
    }
    return Row(**values | changed)


def test_what_has_to_be_reproduced_again() -> None:
    rows = [
        a_row(version="4.3.0"),
        a_row(version="4.3.1", shown=2),
        a_row(version="4.2.0", shown=0),
        a_row(version="4.4.0-SNAPSHOT"),
        a_row(case="min-isr", shown=0),
    ]
    (known,) = of_rows(rows)
    assert (known.case.name, known.variant.kafka, known.shown, known.runs) == (
        "KAFKA-20734",
        "4.3.1",
        2,
        3,
    )


def test_what_is_stored_can_be_played_again() -> None:
    known = reproduced()
    assert {one.case.name for one in known} <= registry().keys()
    assert any(one.case.name == "KAFKA-20734" for one in known)
    assert all(one.shown for one in known)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("kept-ids.toml", {'producer_ids = "keep"': 'producer_ids = "jump"'}),
        ("flap-storm.toml", {'producer_ids = "jump"': 'producer_ids = "negate"'}),
        ("mm2-isolation.toml", {"read_uncommitted-by-the-mirror": "read_committed"}),
    ],
)
def test_scenario_files_of_cases_are_scenarios(
    tmp_path: Path, file: str, changes: dict[str, str]
) -> None:
    path = tmp_path / file
    path.write_text(changed(file, "4.3.1", changes))
    made = scenario_file.read(path, seed=7)
    assert {cluster.kafka for cluster in made.topology.clusters} == {"4.3.1"}
    assert made.seed == 7, "each run draws its own"
    with pytest.raises(EnvironmentFailure, match="does not say 'something else'"):
        changed(file, "4.3.1", {"something else": ""})


def test_every_scenario_file_is_one_of_a_case() -> None:
    assert {path.name for path in FILES.iterdir()} == {
        "dead-source.toml",
        "flap-storm.toml",
        "kept-ids.toml",
        "mm2-isolation.toml",
    }


def test_what_a_verdict_says_of_a_case() -> None:
    checks = [
        {
            "name": "ghost-ack",
            "examined": {"A/native": 3, "B/native": 2},
            "kinds": {"ghost-ack": 2},
        },
        {"name": "lost-write", "examined": {}, "kinds": {}},
    ]
    found = of_verdict({"verdict": "invalid", "reason": "", "checks": checks})
    assert (found.verdict, found.anomalies, found.examined) == (
        "invalid",
        {"ghost-ack": {"ghost-ack": 2}},
        5,
    )
    assert found.kinds == {"ghost-ack/ghost-ack"}
    assert found.facts["anomalies"] == {"ghost-ack": {"ghost-ack": 2}}
