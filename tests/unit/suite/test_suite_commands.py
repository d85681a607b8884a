"""A suite of a scenario file that starts programs: only if that is allowed, and they are shown
first."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from linkflap.chaos.scenario_file import save
from linkflap.chaos.scenarios import ScenarioRequest, scenario
from linkflap.cli.commands import linkflap as command
from linkflap.cli.suite import kind_of
from linkflap.harness.model.errors import InputError
from linkflap.topologies import parse

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
FILES = (EXAMPLES / "application" / "failover.toml", EXAMPLES / "replicator" / "crash.toml")


@pytest.mark.parametrize("path", FILES, ids=["application", "mirror"])
def test_programs_are_started_only_where_that_is_allowed(tmp_path: Path, path: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"starts programs of yours \(python3 .*; allow this with --allow-commands",
    ):
        command.main(["suite", str(path), "--out", str(tmp_path / "suite")], standalone_mode=False)
    assert not (tmp_path / "suite").exists()


@pytest.mark.parametrize(
    ("path", "program"),
    list(zip(FILES, ("payments.py", "copier.py"), strict=True)),
    ids=["application", "mirror"],
)
def test_a_dry_run_shows_them(capsys: pytest.CaptureFixture[str], path: Path, program: str) -> None:
    assert command.main(["suite", str(path), "--dry-run"], standalone_mode=False) == 0
    assert f"python3 {program}" in capsys.readouterr().out


def test_allowed_commands_are_stored_with_full_paths() -> None:
    kind, given = kind_of(str(FILES[1]), allow_commands=True)
    assert kind == "own"
    assert str(EXAMPLES / "replicator" / "mirror.toml") in given
    assert str(EXAMPLES / "application") in kind_of(str(FILES[0]), allow_commands=True)[1]


@pytest.mark.parametrize("where", ["topology", "clients"])
def test_a_folder_of_jars_is_code_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "libs").mkdir()
    with zipfile.ZipFile(tmp_path / "libs" / "kafka-clients-9.9.9.jar", "w") as jar:
        jar.writestr("kafka/kafka-version.properties", "version=9.9.9")
    built = scenario(
        "baseline", ScenarioRequest(seed=1, clients="java@./libs" if where == "clients" else None)
    )
    if where == "topology":
        built = replace(built, topology=parse("A@./libs->B"))
    path = tmp_path / "mine.toml"
    save(built, path)
    with pytest.raises(
        InputError, match=r"no release \(c.*: \./libs\); allow this with --allow-commands"
    ):
        command.main(["suite", str(path), "--out", str(tmp_path / "suite")], standalone_mode=False)
    assert not (tmp_path / "suite").exists()
    assert command.main(["suite", str(path), "--dry-run"], standalone_mode=False) == 0
    assert "on ./libs" in capsys.readouterr().out
    kind, given = kind_of(str(path), allow_commands=True)
    assert kind == "own"
    assert f"@{tmp_path}/libs" in given, "a suite runs it from another folder"
