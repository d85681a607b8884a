"""Triage: which of several runs with the same failure is shrunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.suite.failures import name_of
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.replays import Replays
from linkflap.suite.shrink import Rate
from linkflap.suite.triage import CHOSEN, _chosen, _fails_often

FAULTS = {4: 2, 6: 1, 7: 3, 9: 4}
"""The number of faults of each run with the failure."""


class Replayed:
    """Each run fails again in some of its replays."""

    def __init__(self, failed: Mapping[int, int], *, spent: bool = False) -> None:
        self.failed, self.spent = failed, spent
        self.runs: list[int] = []

    def __call__(self, candidates: Sequence[SimpleNamespace], *, times: int) -> list[Rate]:
        self.runs += [made.number for made in candidates]
        return [Rate(failed=self.failed[made.number], tries=times) for made in candidates]


def chosen(replays: Replayed) -> tuple[int, str]:
    folder = SimpleNamespace(
        plan=SimpleNamespace(replays=4),
        scenario=lambda number: SimpleNamespace(number=number, schedule=range(FAULTS[number])),
    )
    runs = cast(list[RunResult], [SimpleNamespace(number=number) for number in FAULTS])
    run, rate = _fails_often(
        cast(SuiteFolder, folder), "lost-write:lost-write", runs, cast(Replays, replays), print
    )
    return run.number, str(rate).partition(" (")[0]


@pytest.mark.parametrize(
    ("failed", "replayed", "expected"),
    [
        ({6: 2}, [6], (6, "2 of 4")),
        ({6: 1, 4: 3}, [6, 4], (4, "3 of 4")),
        ({6: 1, 4: 0, 7: 2}, [6, 4, 7], (7, "2 of 4")),
        ({6: 1, 4: 1, 7: 0}, [6, 4, 7], (6, "1 of 4")),
        ({6: 0, 4: 0, 7: 0}, [6, 4, 7], (6, "0 of 4")),
    ],
)
def test_runs_with_more_faults_are_replayed_until_one_fails_again_in_half_of_its_replays(
    failed: Mapping[int, int], replayed: list[int], expected: tuple[int, str]
) -> None:
    replays = Replayed(failed)
    assert chosen(replays) == expected
    assert replays.runs == replayed


def test_other_runs_are_not_replayed_when_the_time_for_shrinking_is_spent() -> None:
    replays = Replayed({6: 1, 4: 4}, spent=True)
    assert chosen(replays) == (6, "1 of 4")
    assert replays.runs == [6]


def test_a_session_that_resumes_keeps_the_run_that_was_chosen(tmp_path: Path) -> None:
    folder = cast(
        SuiteFolder,
        SimpleNamespace(
            root=tmp_path,
            plan=SimpleNamespace(replays=4),
            scenario=lambda number: SimpleNamespace(number=number, schedule=range(FAULTS[number])),
        ),
    )
    runs = cast(list[RunResult], [SimpleNamespace(number=number) for number in FAULTS])
    kind = "lost-write:lost-write"
    own = tmp_path / "failures" / name_of(kind)
    own.mkdir(parents=True)
    killed = Replayed({6: 1, 4: 4}, spent=True)
    resumed = Replayed({6: 1, 4: 4})
    for replays in (killed, resumed):
        run, _ = _chosen(folder, own, kind, runs, cast(Replays, replays), print)
        assert run.number == 6
        assert replays.runs == [6]
    assert (own / CHOSEN).read_text() == "6\n"
