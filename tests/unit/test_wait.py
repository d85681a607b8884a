"""How long a busy machine may take."""

from __future__ import annotations

import os

import pytest

from linkflap.harness.model.wait import patient


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
