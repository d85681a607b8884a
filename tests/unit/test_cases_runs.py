"""Runs of a case: claim and control alternate, steps fail, and the result tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.benches import Benches
from linkflap.chaos.cases.case import Case, Expected, Observation, Outcome
from linkflap.chaos.cases.runner import run_case
from linkflap.chaos.cases.variant import Variant
from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.runtimes.distribution import kafka as kafkas
from tests.unit.case_results import a_case, a_result


def test_a_result_without_runs_says_why() -> None:
    assert (
        a_result(runs=0, outcome=Outcome.UNKNOWN, why="no run came to its end: x").words
        == "UNKNOWN: no run came to its end: x"
    )
    assert replace(a_result(shown=3), shown=3).words == "REPRODUCED 3 of 3 (44 to 100 %)"


class NoBenches:
    """Deployments without clusters: what the runner does with steps that show it, do not show it,
    or fail."""

    def __init__(self) -> None:
        self.stamp, self.dropped, self.ended = "1-a-case", 0, 0

    def prepare(self, variant: Variant) -> None:
        pass

    def bench(self, case: Case, variant: Variant) -> NoBenches:
        return self

    def drop(self) -> None:
        self.dropped += 1

    def begin(self, stamp: str) -> None:
        pass

    def end(self) -> None:
        self.ended += 1

    def settle(self) -> None:
        pass


def steps(*shown: bool | None) -> Callable[[Bench], Observation]:
    """Steps whose runs show it or not, in this order; None: the step fails."""
    turns = iter(shown)

    def play(bench: Bench) -> Observation:
        seen = next(turns)
        if seen is None:
            raise DeadlineExceeded("waited 60 s for a leader")
        return Observation(shown=seen, facts={"shown": seen})

    return play


def test_control_and_claim_by_turns() -> None:
    benches = NoBenches()
    case = a_case(play=steps(False, True, True), play_control=steps(False, False, False))
    result = run_case(case, Variant(kafka="4.3.1"), benches=cast(Benches, benches))
    assert (result.outcome, result.shown, result.runs, result.controls) == (
        Outcome.REPRODUCED,
        2,
        3,
        3,
    )
    assert result.facts == {"shown": True}, "of the first run that showed it"
    assert (result.exit_code, benches.dropped) == (0, 0)


def test_a_control_that_shows_it_makes_the_result_unknown() -> None:
    case = a_case(play=steps(True, True, True), play_control=steps(False, True, False))
    result = run_case(case, Variant(kafka="4.3.1"), benches=cast(Benches, NoBenches()))
    assert result.words == "UNKNOWN: the control showed it in 1 of 3 runs"
    assert (result.exit_code, result.controls) == (2, 2)


def test_a_guarantee_whose_control_does_not_show_the_anomaly_is_unknown() -> None:
    case = a_case(
        play=steps(False),
        play_control=steps(False),
        control_shows=True,
        expected=(Expected(shows=False),),
    )
    result = run_case(case, Variant(kafka="4.3.1"), count=1, benches=cast(Benches, NoBenches()))
    assert result.words == "UNKNOWN: the control did not show it in 1 of 1 runs"


def test_a_run_that_failed_counts_for_nothing_and_gets_new_clusters() -> None:
    benches = NoBenches()
    case = a_case(
        play=steps(None, False, False, False), play_control=steps(False, False, False, False)
    )
    reported: list[str] = []
    result = run_case(
        case, Variant(kafka="4.2.0"), benches=cast(Benches, benches), report=reported.append
    )
    assert (result.outcome, result.shown, result.runs, result.exit_code) == (
        Outcome.NOT_REPRODUCED,
        0,
        3,
        0,
    )
    assert result.failures == ("run 1: DeadlineExceeded: waited 60 s for a leader",)
    assert benches.dropped == 1
    assert reported[0] == result.failures[0]


def test_a_machine_without_a_java_is_said_once_and_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(version: str) -> None:
        raise SetupError(f"no Java was found for Kafka {version}; install Java 17 or 21")

    monkeypatch.setattr("linkflap.chaos.cases.benches.java_for", none)
    monkeypatch.setattr(kafkas, "kafka", lambda kafka: SimpleNamespace(version=kafka))
    with (
        Benches(tmp_path / "runs") as benches,
        pytest.raises(SetupError, match=r"for Kafka 4\.3\.1; install"),
    ):
        run_case(a_case(), Variant(kafka="4.3.1"), benches=benches)
    assert not (tmp_path / "runs").exists()


def test_three_failures_in_a_row_end_the_case() -> None:
    case = a_case(play=steps(None, None, None), play_control=steps(False, False, False))
    result = run_case(case, Variant(kafka="4.3.1"), benches=cast(Benches, NoBenches()))
    assert (
        result.words
        == "UNKNOWN: no run came to its end: run 1: DeadlineExceeded: waited 60 s for a leader"
    )
    assert (result.exit_code, len(result.failures)) == (2, 3)


def test_a_mirrored_case_gets_clusters_of_its_own_for_control_and_claim() -> None:
    benches = NoBenches()
    case = a_case(play=steps(True), play_control=steps(False), apart=True)
    assert (
        run_case(case, Variant(kafka="4.3.1"), count=1, benches=cast(Benches, benches)).shown == 1
    )
    assert benches.dropped == 2


def test_an_error_in_a_case_itself_is_not_reported_as_a_failed_run() -> None:
    def broken(bench: Bench) -> Observation:
        raise InputError("there is no such mirror")

    with pytest.raises(InputError, match="there is no such mirror"):
        run_case(
            a_case(play=steps(True), play_control=broken),
            Variant(kafka="4.3.1"),
            benches=cast(Benches, NoBenches()),
        )
