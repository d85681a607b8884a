"""Replays: their budget, and whose run directory is the evidence of a failure."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

from linkflap.chaos import scenario_file
from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.suite.replays import Replays
from linkflap.suite.work import Task, Workers
from tests.unit.suite.scripted import Scripted


def test_the_time_that_replays_take_is_no_time_of_shrinking(tmp_path: Path) -> None:
    replays = Replays(
        folder=tmp_path, kind="lost-write:lost-write", works=cast(Workers, None), seconds=600.0
    )
    replays._began = time.monotonic() - 700.0
    assert replays.spent
    replays.shrinks()
    assert not replays.spent


class Failing(Scripted):
    """Every run fails with one kind. Its directory has its scenario."""

    def fails(self, task: Task) -> bool:
        return True

    def start(self, task: Task) -> None:
        super().start(task)
        (task.folder / "scenario.toml").write_bytes(task.scenario.read_bytes())


def test_the_evidence_is_a_run_of_the_smallest_scenario(tmp_path: Path) -> None:
    def replays() -> Replays:
        return Replays(
            folder=tmp_path,
            kind="lost-write:lost-write",
            works=cast(Workers, Failing()),
            seconds=600.0,
        )

    original, smaller, other = (
        generate(1, number, Coverage(), GeneratorBounds(), guided=False) for number in (1, 2, 3)
    )
    first = replays()
    first([original], times=1)
    first.accept(original)
    first([smaller, other], times=1)
    first.accept(smaller)
    assert len(list((tmp_path / "failed").iterdir())) == 2

    resumed = replays()
    resumed([original, smaller, other], times=2)
    resumed.settle(smaller)
    evidence = (tmp_path / "evidence" / "scenario.toml").read_text()
    assert evidence == scenario_file.render(smaller)
    assert not (tmp_path / "failed").exists()
