"""Stored results of cases: which must be reproduced again, and what a verdict means for a case.

The command linkflap case: list, show, run and matrix, and bad input.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import track_record_page

from linkflap.chaos import scenario_file
from linkflap.chaos.cases import case_named, registry, results
from linkflap.chaos.cases.bench import Variant
from linkflap.chaos.cases.case import Outcome
from linkflap.chaos.cases.judged import FILES, changed, of_verdict
from linkflap.chaos.cases.results import StoredResult, of_rows, reproduced
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from tests.unit.case_results import ROOT, a_case, a_result, ended, invoked


def a_row(
    case: str = "KAFKA-20734", version: str = "4.3.1", shown: int = 3, **changed: Any
) -> StoredResult:
    values: dict[str, Any] = {
        "format": 1,
        "date": "2026-11-22",
        "case": case,
        "version": version,
        "client": "librdkafka",
        "transactions": "",
        "outcome": Outcome.REPRODUCED if shown else Outcome.NOT_REPRODUCED,
        "shown": shown,
        "runs": 3,
        "needed": 3,
        "controls": 3,
        "low": 0.0,
        "high": 1.0,
        "expected": True,
        "schedule": case_named(case).schedule,
        "seconds": 1.0,
        "linkflap": "0.1.0",
    }
    return StoredResult(**values | changed)


def test_regression_plays_the_newest_release_on_which_a_case_showed() -> None:
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


def test_stored_results_can_be_played_again() -> None:
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
        "beyond-truncation.toml",
        "dead-source.toml",
        "flap-storm.toml",
        "kept-ids.toml",
        "mm2-isolation.toml",
    }


def test_the_verdict_of_a_case() -> None:
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


def test_results_are_stored_and_added_up(tmp_path: Path) -> None:
    each = a_case()
    for shown in (3, 1):
        results.store(tmp_path, results.row(each, a_result(shown=shown)))
    results.store(
        tmp_path,
        results.row(each, a_result(runs=0, outcome=Outcome.UNKNOWN, why="no run came to its end")),
    )
    results.store(tmp_path, results.row(each, a_result("4.2.0")))
    rows = results.load(tmp_path)
    assert len(rows) == 4
    found = results.tallies(rows)
    tally = found["a-case", "4.3.1", "librdkafka", ""]
    assert (tally.outcome, tally.shown, tally.runs) == (Outcome.REPRODUCED, 4, 6)
    page = track_record_page.render(rows, {"a-case": each})
    assert (
        "| 4.2.0 | librdkafka | default | NOT REPRODUCED 0 of 3 (0 to 56 %) | does not show |"
        in page
    )
    assert "| 4.3.1 | librdkafka | default | REPRODUCED 4 of 6 (30 to 90 %) | shows |" in page
    assert page.index("| 4.2.0 | librdkafka") < page.index("| 4.3.1 | librdkafka")


def test_every_case_that_never_showed_says_in_what_ways_it_was_tried() -> None:
    found: dict[str, list[results.CaseTally]] = {}
    for key, tally in results.tallies(results.load(results.STORED)).items():
        found.setdefault(key[0], []).append(tally)
    missed = {name for name, tallies in found.items() if track_record_page.is_missed(tallies)}
    assert missed, "some did not"
    assert {name for name in missed if not registry()[name].tried} == set()
    page = (ROOT / "docs" / "track-record.md").read_text()
    for name in missed:
        assert f"What was tried: {registry()[name].tried}." in page
        assert f"  tried       {registry()[name].tried}\n" in invoked("show", name).output


def test_show_has_every_stored_result_of_the_case() -> None:
    shown = invoked("show", "KAFKA-16386").output
    for release, outcome in (
        ("3.7.0", "REPRODUCED"),
        ("3.7.1", "NOT REPRODUCED 0 of "),
        ("4.3.1", "NOT REPRODUCED 0 of "),
    ):
        assert f" {release} wire: {outcome}" in shown


def test_results_of_another_schedule_are_not_added_up(tmp_path: Path) -> None:
    results.store(tmp_path, results.row(a_case(schedule="1. do something else"), a_result(shown=3)))
    results.store(tmp_path, results.row(a_case(), a_result(shown=0)))
    (tally,) = results.tallies(results.load(tmp_path)).values()
    assert (tally.shown, tally.runs) == (0, 3)


def test_too_few_runs_are_marked(tmp_path: Path) -> None:
    results.store(tmp_path, results.row(a_case(), a_result("4.2.0", runs=2)))
    page = track_record_page.render(results.load(tmp_path), {"a-case": a_case()})
    assert "UNKNOWN: not shown in 0 of 2 (0 to 66 %); a NOT REPRODUCED takes 3 runs" in page
    assert "NOT REPRODUCED 0" not in page
    assert (
        a_result("4.2.0", runs=2).words
        == "UNKNOWN: not shown in 0 of 2 (0 to 66 %); a NOT REPRODUCED takes 3 runs"
    )
    assert a_result("4.2.0").words == "NOT REPRODUCED 0 of 3 (0 to 56 %)"


def test_a_torn_row_names_the_file_and_the_line(tmp_path: Path) -> None:
    results.store(tmp_path, results.row(a_case(), a_result()))
    with (tmp_path / "a-case.jsonl").open("a") as file:
        file.write('{"format": 1, "da\n')
    with pytest.raises(
        InputError, match=r"a-case.jsonl, line 2, is no stored result .*; remove that line"
    ):
        results.load(tmp_path)


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ({"shown": 5, "runs": 3}, "has a case that showed 5 times in 3 runs"),
        ({"shown": -1}, "is no stored result .*shown"),
        ({"shown": 0, "runs": -1}, "is no stored result .*runs"),
        ({"runs": 10**40}, "is no stored result .*runs"),
    ],
)
def test_counts_that_no_runs_have_name_the_line(
    tmp_path: Path, counts: dict[str, int], why: str
) -> None:
    row = msgspec.to_builtins(results.row(a_case(), a_result())) | counts
    (tmp_path / "a-case.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match=rf"a-case.jsonl, line 1, {why}"):
        results.load(tmp_path)


def test_stored_results_are_of_cases_that_there_are() -> None:
    stored = results.load(results.STORED)
    assert {row.case for row in stored} <= registry().keys()
    assert all(row.controls <= row.runs and row.shown <= row.runs for row in stored)


def test_a_directory_is_named_in_full_in_a_scenario_that_is_played_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libs").mkdir()
    with zipfile.ZipFile(tmp_path / "libs" / "kafka-clients-4.2.0.jar", "w") as jar:
        jar.writestr("kafka/kafka-version.properties", "version=4.2.0\n")
    monkeypatch.chdir(tmp_path)
    text = changed("beyond-truncation.toml", "./libs", {})
    assert f"@{tmp_path / 'libs'}" in text
    assert "@./libs" not in text
    assert "@4.3.1" in changed("beyond-truncation.toml", "4.3.1", {})


def test_list_and_show() -> None:
    assert invoked("list").output.count("\n") == len(registry())
    known = json.loads(invoked("list", "--json").output)
    assert [one["name"] for one in known] == list(registry())
    shown = invoked("show", "KAFKA-20734").output
    for title in (
        "claim",
        "sources",
        "expected",
        "schedule",
        "REPRODUCED",
        "control",
        "refuted by",
    ):
        assert f"  {title} " in shown
    assert json.loads(invoked("show", "KAFKA-20734", "--json").output)["kind"] == "defect"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("run", "nothing-like-it"), "there is no case"),
        (("run", "KAFKA-20734", "--kafka", "2.8"), "no list of jars is kept"),
        (
            ("run", "KAFKA-20734", "--kafka", "3.9.2", "--transactions", "V2"),
            "transactions V2 came with Kafka 4.0.0",
        ),
        (
            ("matrix", "--client", "java", "--transactions", "V2", "--kafka", "1.0"),
            "no list of jars is kept",
        ),
        (("run", "KAFKA-20734", "--kafka", ""), "an empty name is no Kafka"),
        (("run", "KAFKA-20734", "--client", "wire"), "is not played by wire"),
        (("run", "KAFKA-20734", "--clients", "wire"), "is not played by wire"),
        (("run", "KAFKA-20734", "--count", "0"), "0 is not in the range"),
        (("run", "KAFKA-20734", "--keep", str(ROOT)), "exists already; give a new folder"),
        (("matrix", "KAFKA-20734", "--shard", "5/4"), "is not of the form K/N"),
    ],
)
def test_bad_input_is_one_sentence_and_254(
    words: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    code, text = ended(*words, *(["--store", str(tmp_path)] if words[0] != "show" else []))
    assert code == 254
    assert sentence in text
    assert not list(tmp_path.iterdir()), "nothing was played"


@pytest.mark.parametrize(
    ("option", "names"), [("--store", "give another folder"), ("--keep", "there is no folder")]
)
def test_a_folder_that_cannot_be_made_is_said_before_anything_is_played(
    tmp_path: Path, option: str, names: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    code, text = ended("run", "KAFKA-20734", "--store", str(tmp_path), option, str(file / "in it"))
    assert code == 254
    assert f"{option} {file / 'in it'}" in text
    assert names in text
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing was stored"


@pytest.mark.parametrize(
    ("shown", "code"),
    [({"4.2.0": 0, "4.3.1": 3}, 0), ({"4.2.0": 2, "4.3.1": 3}, 1), ({"4.2.0": 0, "4.3.1": 0}, 1)],
)
def test_a_matrix_that_is_stored_already_ends_as_what_is_stored_says(
    tmp_path: Path, shown: dict[str, int], code: int
) -> None:
    each = case_named("KAFKA-20734")
    for version, count in shown.items():
        results.store(tmp_path, results.row(each, a_result(version, count, case=each.name)))
    words = ("matrix", each.name, "--kafka", "4.2.0", "--kafka", "4.3.1", "--store", str(tmp_path))
    assert invoked(*words).return_value == code


def test_a_matrix_of_a_pattern_has_those_of_its_cases_that_the_client_plays(tmp_path: Path) -> None:
    words = ("KIP-1163-*", "kip-1163-retries", "--client", "java", "--kafka", "4.3.1")
    assert invoked("matrix", *words, "--store", str(tmp_path)).return_value == 2
    wanted = [
        name
        for name, each in registry().items()
        if name.startswith("KIP-1163-") and "java" in each.clients
    ]
    assert "KIP-1163-retries" in wanted
    stored = results.load(tmp_path)
    assert sorted(row.case for row in stored) == sorted(wanted)
    assert {row.outcome for row in stored} == {Outcome.NEEDS}
    assert "no case 'KIP-0000-*'" in str(invoked("matrix", "KIP-0000-*").exception)


def test_a_matrix_of_all_cases_has_those_that_the_client_plays(tmp_path: Path) -> None:
    java = {
        name
        for name, each in registry().items()
        if "java" in each.clients and "V1" in each.protocols
    }
    for name in java:
        stored = a_result(
            "4.3.1",
            1,
            30,
            case=name,
            variant=Variant(kafka="4.3.1", client="java", transactions="V1"),
        )
        results.store(tmp_path, results.row(registry()[name], stored))
    done = invoked(
        "matrix",
        "--client",
        "java",
        "--transactions",
        "V1",
        "--kafka",
        "4.3.1",
        "--store",
        str(tmp_path),
    )
    assert done.exception is None, (
        "a case that is not played so is left out, and does not end the matrix"
    )
    assert done.stderr.count("stored already") == len(java) > 0
