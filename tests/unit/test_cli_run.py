"""`linkflap run` before anything starts: what it accepts, what it refuses, and its error texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from linkflap.harness.cli.commands import linkflap
from linkflap.harness.model.errors import InputError


def said(*arguments: str) -> str:
    """The output of a dry run; raises its error."""
    done = CliRunner().invoke(linkflap, ["run", *arguments, "--dry-run"], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.output


def refused(*arguments: str) -> str:
    with pytest.raises(InputError) as error:
        said(*arguments)
    return str(error.value)


@pytest.fixture
def docker_scenario(tmp_path: Path) -> str:
    path = tmp_path / "mine.toml"
    said("baseline", "--runtime", "docker", "--save", str(path))
    assert 'runtime = "docker"' in path.read_text()
    return str(path)


def test_brokers_are_processes_unless_docker_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("LINKFLAP_RUNTIME")
    assert "runtime process" in said("baseline", "--save", str(tmp_path / "one.toml"))
    assert "runtime =" not in (tmp_path / "one.toml").read_text()
    monkeypatch.setenv("LINKFLAP_RUNTIME", "docker")
    assert "runtime docker" in said("baseline")
    assert "runtime process" in said("baseline", "--runtime", "process")


def test_a_scenario_file_may_ask_for_docker(
    monkeypatch: pytest.MonkeyPatch, docker_scenario: str
) -> None:
    monkeypatch.delenv("LINKFLAP_RUNTIME")
    assert "runtime docker" in said(docker_scenario)
    assert "runtime process" in said(docker_scenario, "--runtime", "process")
    monkeypatch.setenv("LINKFLAP_RUNTIME", "process")
    assert "runtime process" in said(docker_scenario)


def test_every_forced_failover_has_a_variant_whose_source_is_half_open(tmp_path: Path) -> None:
    with_it = said("round-trip", "--stall-source", "--save", str(tmp_path / "one.toml"))
    assert with_it.count("failover-forced on") == with_it.count("{'source': 'stalled'}") == 1
    assert 'source = "stalled"' in (tmp_path / "one.toml").read_text()
    assert "stalled" not in said("round-trip")


def test_a_scenario_without_a_forced_failover_has_no_such_variant(tmp_path: Path) -> None:
    assert "has none" in refused("planned-failover", "--stall-source")
    said("baseline", "--save", str(tmp_path / "mine.toml"))
    assert "--stall-source changes a built-in scenario" in refused(
        str(tmp_path / "mine.toml"), "--stall-source"
    )
