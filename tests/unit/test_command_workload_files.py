"""Scenario files with a program: its path, its settings, and mistakes in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from linkflap.chaos import scenario_file
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.rundir import RunWriter
from linkflap.harness.workloads.command import Command, check
from tests.unit.program_addresses import ADDRESSES
from tests.unit.recorded_run import run

SCENARIO = """
schema = 1
name = "mine"
topology = "A->B"
[[workload]]
command = ["python3", "app.py"]
home = "A"
folder = "service"
reads = ["orders"]
writes = ["paid"]
[workload.options]
group = "mine"
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RunWriter]:
    made = RunWriter(tmp_path / "run", run())
    yield made
    made.close("finished")


def test_a_scenario_file_has_it_with_its_folder_from_there(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SCENARIO)
    read = scenario_file.read(path, seed=1)
    (spec,) = read.workloads
    assert (spec.kind, spec.command, spec.folder) == (
        "command",
        ("python3", "app.py"),
        str(tmp_path / "service"),
    )
    again = tmp_path / "again.toml"
    scenario_file.save(read, again)
    assert scenario_file.read(again, seed=1) == read


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('command = ["python3", "app.py"]\n', "", "line 5: 'kind' is missing; add kind"),
        ('command = ["python3", "app.py"]', "command = []", "'kind' is missing"),
        (
            'command = ["python3", "app.py"]',
            'command = "python3 app.py"',
            "line 6: workload.0.command is wrong",
        ),
        (
            'command = ["python3", "app.py"]',
            'command = ["./nothing"]',
            "there is no program './nothing'",
        ),
        (
            'command = ["python3", "app.py"]',
            'kind = "transactional"',
            "no option of transactional 'group'",
        ),
        (
            '[workload.options]\ngroup = "mine"\n',
            'kind = "transactional"\n',
            "command is of a program of your own, and transactional is linkflap's",
        ),
        (
            'group = "mine"',
            'groop = "mine"',
            "line 12: there is no option of command 'groop' (did you mean 'group'?)",
        ),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(
    tmp_path: Path, before: str, after: str, says: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SCENARIO.replace(before, after))
    with pytest.raises(InputError) as raised:
        scenario_file.read(path, seed=1)
    assert says in str(raised.value)


def test_a_program_that_asks_for_java_finds_one_and_the_jars_of_the_clients(
    writer: RunWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = SimpleNamespace(classpath="/libs/*"), SimpleNamespace(path="/java")
    monkeypatch.setattr("linkflap.harness.workloads.jvms._installed", lambda _: installed)
    given = {}
    for library in ("librdkafka", "java@4.3.1"):
        spec = WorkloadSpec(
            kind="command", home="A", command=("true",), folder=str(tmp_path), library=library
        )
        given[library] = Command(spec, "command-1", ADDRESSES, writer)._given()
    assert "LINKFLAP_JAVA" not in given["librdkafka"]
    assert (given["java@4.3.1"]["LINKFLAP_JAVA"], given["java@4.3.1"]["LINKFLAP_CLASSPATH"]) == (
        "/java",
        "/libs/*",
    )


def test_a_program_has_one_library() -> None:
    with pytest.raises(InputError, match="a program takes no turns"):
        check(WorkloadSpec(kind="command", home="A", command=("true",), library="java,librdkafka"))


def test_a_file_gives_java_to_a_program_only_where_the_program_asks(tmp_path: Path) -> None:
    text = """
schema = 1
name = "x"
topology = "A->B"
clients = "java"
[[workload]]
kind = "readers"
home = "A"
[[workload]]
command = ["true"]
home = "A"
[[workload]]
command = ["true"]
home = "A"
library = "java"
"""
    path = tmp_path / "x.toml"
    path.write_text(text)
    read = scenario_file.read(path, seed=1)
    assert [spec.library for spec in read.workloads] == ["java", "librdkafka", "java"]
    again = tmp_path / "again.toml"
    again.write_text(scenario_file.render(read))
    assert [spec.library for spec in scenario_file.read(again, seed=1).workloads] == [
        "java",
        "librdkafka",
        "java",
    ]
