"""The tests on docs/pytest.md request only what exists. Nothing is started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from linkflap.api import runs
from linkflap.chaos.scenario_file import is_file
from linkflap.harness import pytest_plugin
from linkflap.harness.recording.run import check
from linkflap.topologies import parse
from tests.foreign_project import BLOCKS

ROOT = Path(__file__).resolve().parents[2]


def every_one() -> Iterator[ParameterSet]:
    """Each test of each block with all arguments of its markers, once per parameter."""
    for block in BLOCKS:
        names: dict[str, object] = {}
        exec(compile(block, "docs/pytest.md", "exec"), names)  # our own page
        for test in (
            made
            for name, made in names.items()
            if name.startswith("test_") and isinstance(made, FunctionType)
        ):
            every: list[pytest.Mark] = vars(test)["pytestmark"]
            marks = [mark for mark in every if mark.name == "linkflap"]
            given = [
                p.marks for mark in every if mark.name == "parametrize" for p in mark.args[1]
            ] or [()]
            for more in given:
                yield pytest.param(test, arguments([*marks, *more]), id=test.__name__)


def arguments(marks: Iterable[pytest.Mark]) -> dict[str, object]:
    wanted: dict[str, object] = {}
    for mark in marks:
        wanted |= {**({"scenario": mark.args[0]} if mark.args else {}), **mark.kwargs}
    return wanted


def test_five_kinds_of_user_and_shared_clusters_take_some_ten_lines_each() -> None:
    assert len(BLOCKS) == 5 + 1
    assert all(block.count("\n") <= 17 for block in BLOCKS)


@pytest.mark.parametrize(("test", "wanted"), [*every_one()])
def test_each_test_requests_only_what_exists(
    test: FunctionType, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    fixture = next(name for name in test.__code__.co_varnames if name.startswith("linkflap_"))
    if fixture == "linkflap_world":
        assert wanted.keys() <= {"topology", "topics", "mirror"}
        return
    if fixture == "linkflap_shared":
        assert wanted.keys() <= {"topology", "runtime", "reuse"}
        assert parse(wanted["topology"]).links
        return
    pytest_plugin._check_names(wanted, pytest_plugin._ARGUMENTS, with_options=True)
    asked = {
        name: wanted.pop(name, None)
        for name in ("scenario", "seed", "topology", "mirror", "duration", "clients")
    }
    chosen = runs._chosen(
        asked["scenario"],
        asked["seed"],
        asked["topology"],
        asked["mirror"],
        wanted,
        asked["duration"],
        asked["clients"],
    )
    assert is_file(asked["scenario"]) or chosen.name.startswith(asked["scenario"])
    check(chosen, "process")
