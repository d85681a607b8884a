"""The command linkflap case: list, show, run and matrix, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linkflap.chaos.cases import case_named, registry, results
from linkflap.chaos.cases.variant import Variant
from tests.unit.case_command import ROOT, ended, invoked
from tests.unit.case_results import a_result


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
        (("matrix", "KAFKA-20734", "--shard", "5/4"), "is not of the form I/N"),
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
