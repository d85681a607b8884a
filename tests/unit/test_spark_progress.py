"""The progress of a job in words: that of its furthest stage that has begun; and its display."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import cast

from pyspark import SparkContext
from rich.console import Console

from linkflap.report.progress import COUNTERS_EVERY, PlainLines, Screen
from linkflap.spark_verify.spark.spark_progress import COMBINED, JUDGED, READ, JobWatch

Stage = tuple[int, int, int]


class Tracker:
    """Stages of one job as Spark's status tracker returns them: (active, completed, tasks), None
    for a stage without them yet."""

    def __init__(self, *stages: Stage | None) -> None:
        self.stages = stages

    def statusTracker(self) -> Tracker:
        return self

    def getActiveJobsIds(self) -> list[int]:
        return [3] if self.stages else []

    def getJobInfo(self, job: int) -> SimpleNamespace:
        return SimpleNamespace(stageIds=[10 + n for n in reversed(range(len(self.stages)))])

    def getStageInfo(self, stage: int) -> SimpleNamespace | None:
        found = self.stages[stage - 10]
        return found and SimpleNamespace(
            numActiveTasks=found[0], numCompletedTasks=found[1], numTasks=found[2]
        )


def lines(*looks: list[Stage | None]) -> list[tuple[object, ...]]:
    said: list[tuple[object, ...]] = []
    for stages in looks:
        JobWatch(cast(SparkContext, Tracker(*stages)), lambda *what: said.append(what)).look()
    return said


def test_the_furthest_stage_that_has_begun_is_reported() -> None:
    assert lines([], [None, None]) == []
    assert lines([(2, 5, 8), None, None]) == [(READ, 5, 8)]
    assert lines([(0, 8, 8), (1, 1, 4), None]) == [(JUDGED, 1, 4)]
    assert lines([(0, 8, 8), (2, 2, 4), None]) == [(JUDGED, 2, 4)]
    assert lines([(0, 8, 8), (0, 4, 4), (1, 0, 2)]) == [(COMBINED, 0, 2)]


def test_unchanged_progress_is_not_reported_again() -> None:
    said: list[tuple[object, ...]] = []
    watch = JobWatch(cast(SparkContext, Tracker((2, 5, 8))), lambda *what: said.append(what))
    watch.look()
    watch.look()
    assert said == [(READ, 5, 8)]


def test_lines_tell_it_now_and_then() -> None:
    out, now = io.StringIO(), [0.0]
    with PlainLines(out, clock=lambda: now[0]) as lines:
        lines.phase("judging")
        for count in range(1, 9):
            now[0] += COUNTERS_EVERY / 2
            lines.done("pieces read", count, 8)
    assert [
        line.split(maxsplit=3)[3] for line in out.getvalue().splitlines() if " count " in line
    ] == [f"{count} of 8 pieces read" for count in (2, 4, 6, 8)]


def test_a_screen_shows_it_beside_the_phase() -> None:
    screen = Screen(Console(file=io.StringIO(), width=120), clock=lambda: 0.0)
    screen.phase("judging")
    screen.done("pieces read", 3, 8)
    out = io.StringIO()
    console = Console(file=out, width=120)
    console.print(screen.frame())
    assert "judging  3 of 8 pieces read" in out.getvalue()
    screen.phase("reporting")
    console.print(screen.frame())
    assert "reporting  3 of" not in out.getvalue()
