"""Deadlines: how long a busy machine may take, and extensions for work that makes progress."""

from __future__ import annotations

import os
import time

import pytest

from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import patient, until


@pytest.mark.parametrize(
    ("load", "processors", "seconds"),
    [(0.0, 2, 6), (2.0, 2, 6), (5.0, 2, 15), (20.0, 2, 60), (500.0, 2, 60), (20.0, 32, 6)],
)
def test_a_deadline_grows_with_the_processes_that_want_each_processor(
    monkeypatch: pytest.MonkeyPatch, load: float, processors: int, seconds: int
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)), raising=False)
    assert patient(6.0) == seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that have passed: every sleep takes one."""
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += 1.0

    monkeypatch.setattr(time, "monotonic", lambda: passed[0])
    monkeypatch.setattr(time, "sleep", sleep)
    return passed


@pytest.mark.parametrize(
    ("remaining", "seconds"),
    [
        ([9, 9, 9, 9, 9], 3),  # no progress
        ([9, 8, 8, 8, 8, 8], 4),  # then stuck
        ([9, 8, 7, 6, 5, 5, 5, 5, 5], 7),  # longer than the deadline, then stuck
        ([5, 9, 9, 5, 5, 5], 3),  # no better than before
        ([None, 9, 9, 9, 9, 9], 4),  # unknown at first
        (range(1000, 0, -1), 30),  # slow for ever
    ],
    ids=repr,
)
def test_the_deadline_counts_from_the_last_progress(
    clock: list[float], remaining: list[int | None], seconds: int
) -> None:
    counts = iter(remaining)
    with pytest.raises(DeadlineExceeded, match=f"waited {seconds} s for the end"):
        until(lambda: False, within=3, what="the end", left=lambda: next(counts))
    assert clock == [seconds]


def test_without_progress_to_measure_the_deadline_is_fixed(clock: list[float]) -> None:
    with pytest.raises(DeadlineExceeded, match="waited 3 s for the end; last seen: a lag of 4"):
        until(lambda: False, within=3, what="the end", state=lambda: "a lag of 4")
    assert clock == [3]
