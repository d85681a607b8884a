"""Failures of a suite: which are alike, which run is the evidence, triage, shrinking, and stored
regressions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkflap.chaos import scenario_file, schedule
from linkflap.chaos.cases.case import Outcome
from linkflap.chaos.cases.results import load, reproduced
from linkflap.chaos.cases.runner import Benches
from linkflap.chaos.cases.runner import CaseResult as Played
from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.chaos.generator.bounds import ALL
from linkflap.chaos.triggers import condition
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec, Scenario
from linkflap.harness.model.verdict import Verdict
from linkflap.suite import regression
from linkflap.suite import triage as triages
from linkflap.suite.failures import (
    by_kind,
    era_in,
    era_of,
    failures,
    kinds_of,
    name_of,
    paths_of,
    read,
)
from linkflap.suite.folder import Plan, RunResult, SuiteFolder
from linkflap.suite.observed import struck
from linkflap.suite.regression import Entry
from linkflap.suite.shrink import PASSES, Rate, Shrinker, followers, without
from linkflap.suite.summary import junit
from linkflap.suite.triage import CHOSEN, Replays, _chosen, _fails_often, triage
from linkflap.suite.work import Task, Workers
from tests.unit.scripted_suite import Scripted

# Kinds of failure, and which runs failed alike.


def document(
    *checks: tuple[str, str, dict[str, int], str],
    causes: list[dict[str, str]] | tuple[()] = (),
    verdict: str = "invalid",
) -> dict[str, object]:
    rows = [
        {"name": name, "verdict": said, "kinds": kinds, "reason": reason}
        for name, said, kinds, reason in checks
    ]
    return {
        "verdict": verdict,
        "reason": "12 of 30 things",
        "checks": rows,
        "causes": [dict(c) for c in causes],
    }


def test_root_anomalies_come_first() -> None:
    checks = [
        ("lost-write", "invalid", {"lost-write": 3}, ""),
        ("byte-equality", "invalid", {"byte-hole": 1}, ""),
    ]
    causes = [{"check": "byte-equality", "kind": "byte-hole"}]
    assert kinds_of(document(*checks, causes=causes)) == (
        "byte-equality:byte-hole",
        "lost-write:lost-write",
    )
    assert kinds_of(document(*reversed(checks))) == (
        "lost-write:lost-write",
        "byte-equality:byte-hole",
    )


def test_unknown_checks_beside_an_anomaly_are_left_out() -> None:
    checks = [("lost-write", "invalid", {"lost-write": 3}, ""), ("unseen", "unknown", {}, "why")]
    assert kinds_of(document(*checks)) == ("lost-write:lost-write",)


def test_unknowns_are_alike_but_for_their_numbers() -> None:
    one = document(("unseen", "unknown", {}, "17 of 20 readers; and more"), verdict="unknown")
    other = document(("unseen", "unknown", {}, "3 of 1,020 readers"), verdict="unknown")
    assert kinds_of(one) == kinds_of(other) == ("unknown:unseen:N of N readers",)
    assert kinds_of(document(verdict="unknown")) == ("unknown:run:N of N things",)
    failed = {**one, "reason": "the run was failed: service store of A ended; see /x; and more"}
    assert kinds_of(failed) == ("unknown:run:service store of A ended",)
    assert kinds_of(document(verdict="valid")) == ()


def test_runs_with_a_kind_that_led_another_are_that_kinds() -> None:
    a = RunResult(number=1, verdict="invalid", kinds=("x:one", "y:two"))
    b = RunResult(number=2, verdict="invalid", kinds=("z:three", "x:one"))
    c = RunResult(number=3, verdict="invalid", kinds=("z:three",))
    assert {kind: [r.number for r in runs] for kind, runs in by_kind([c, b, a]).items()} == {
        "x:one": [1, 2],
        "z:three": [2, 3],
    }
    assert by_kind([RunResult(number=4, verdict="valid")]) == {}


def test_a_kind_that_most_runs_of_another_have_is_its_consequence_and_a_rarer_one_is_not() -> None:
    kinds = {4: ("refused",), 8: ("hangs", "refused"), 9: ("lie", "hangs", "refused")}
    runs = [RunResult(number=n, verdict="invalid", kinds=each) for n, each in kinds.items()]
    assert {kind: [r.number for r in each] for kind, each in by_kind(runs).items()} == {
        "refused": [4, 8, 9],
        "lie": [9],
    }


def test_kinds_are_names_of_folders() -> None:
    assert (
        name_of("unknown:unseen:N of N readers, of A->B") == "unknown-unseen-n-of-n-readers-of-a-b"
    )


# Runs that fail with the same kind, and for different reasons.


KIND = "lost-write:lost-write"


class TwoBugs(Scripted):
    """A run fails if it has a link-cut or a mirror-kill."""

    def fails(self, task: Task) -> bool:
        return bool(faults(scenario_file.read(task.scenario, seed=0)) & {"link-cut", "mirror-kill"})


class NoBug(Scripted):
    """No run fails again."""

    def fails(self, task: Task) -> bool:
        return False


def faults(scenario: Scenario) -> set[str]:
    return {fault.fault for fault in scenario.schedule}


def drawn(bounds: GeneratorBounds, holds: Callable[[Scenario], bool]) -> Scenario:
    """The first generated scenario for which this is true."""
    every = (generate(1, number, Coverage(), bounds, guided=False) for number in range(3000))
    return next(made for made in every if holds(made))


def with_fault(wanted: str, other: str) -> Scenario:
    return drawn(
        GeneratorBounds(most=4), lambda made: wanted in faults(made) and other not in faults(made)
    )


def suite(root: Path, *, shrink: float) -> SuiteFolder:
    """A suite whose runs 1 and 2 failed."""
    plan = Plan(name="nightly", seed=7, seconds=60, jobs=2, shrink_seconds=shrink, replays=2)
    folder = SuiteFolder.create(root, plan)
    for number, wanted in enumerate((("link-cut", "mirror-kill"), ("mirror-kill", "link-cut")), 1):
        folder.write_scenario(number, with_fault(*wanted))
        folder.append(RunResult(number=number, verdict="invalid", kinds=(KIND,)))
    return folder


@pytest.fixture(autouse=True)
def no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted runs have no history to read."""
    monkeypatch.setattr(triages, "observed", lambda path: SimpleNamespace(cells=()))


def test_a_run_without_the_faults_of_the_smallest_scenario_is_shrunk_too(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=600)
    assert len(failures(folder)) == 1
    reports = triage(folder, cast(Workers, TwoBugs()), lambda _: None)
    assert sorted(
        (report.found, [fault.partition(" ")[0] for fault in report.faults]) for report in reports
    ) == [((1,), ["link-cut"]), ((2,), ["mirror-kill"])]
    found = failures(folder)
    assert sorted([run.number for run in one.runs] for one in found) == [[1], [2]]
    assert not any(one.unexplained for one in found)

    again = TwoBugs()
    assert triage(folder, cast(Workers, again), lambda _: None) == reports
    assert again.started == []


def test_runs_that_no_report_explains_stay_listed(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=600)
    _, other = triage(folder, cast(Workers, TwoBugs()), lambda _: None)
    second = next(found for found in failures(folder) if found.path.name.endswith("-2"))
    (second.path / "report.json").unlink()
    (left,) = failures(folder)
    assert [run.number for run in left.runs] == [1, 2]
    assert [run.number for run in left.unexplained] == list(other.found)


def test_a_failure_that_never_failed_again_explains_one_run(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=600)
    (report,) = triage(folder, cast(Workers, NoBug()), lambda _: None)
    assert (report.reproduced, len(report.found)) == (False, 1)
    (one,) = failures(folder)
    assert ([run.number for run in one.runs], len(one.unexplained)) == ([1, 2], 1)


def test_a_run_on_another_mirror_is_another_failure(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=600)
    first = folder.scenario(1)
    folder.write_scenario(2, replace(first, mirror=MirrorSpec(kind="mm2")))
    reports = triage(folder, cast(Workers, TwoBugs()), lambda _: None)
    assert [report.mirror for report in reports] == ["shadow", "mm2"]


def test_a_report_of_another_kind_with_the_same_directory_is_none(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=600)
    triage(folder, cast(Workers, TwoBugs()), lambda _: None)
    (own, _) = paths_of(folder, KIND)[:2]
    assert read(own, KIND) is not None
    assert read(own, "lost-write:another") is None


def test_a_verdict_that_cannot_be_read_has_no_era(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=600)
    folder.run_path(1).mkdir()
    (folder.run_path(1) / "verdict.json").write_text('{"anomal')
    assert era_in(folder, folder.results[0], KIND) == ""


def test_long_names_of_different_kinds_differ() -> None:
    one, other = (f"unknown:check:{'reason ' * 20}{end}" for end in ("A", "B"))
    assert name_of(one) != name_of(other)
    assert len(name_of(one)) == 80


def test_without_time_for_shrinking_one_failure_of_a_kind_is_replayed(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=0)
    assert len(triage(folder, cast(Workers, TwoBugs()), lambda _: None)) == 1


def anomaly(**changed: object) -> dict[str, object]:
    at = {"cluster": "B", "topic": "t", "partition": 0, "offset": 7}
    made = {"check": "lost-write", "kind": "lost-write", "allowed": False, "evidence": {}}
    return made | at | changed


def era(origin: str, start: int, end: int | None, *, truncated: bool = False) -> dict[str, object]:
    where = {"cluster": "B", "topic": "t", "partition": 0}
    return {**where, "origin": origin, "start": start, "end": end, "truncated": truncated}


ERAS = [
    era("native", 0, None, truncated=True),
    era("mirrored", 0, 7),
    era("native", 7, None),
]


@pytest.mark.parametrize(
    ("anomalies", "expected"),
    [
        ([anomaly()], "native"),
        ([anomaly(offset=6)], "mirrored"),
        ([anomaly(allowed=True), anomaly(offset=6)], "mirrored"),
        ([anomaly(kind="another")], ""),
        ([anomaly(topic=None)], ""),
        ([anomaly(offset=6, evidence={"capture": "1-failover"})], "native"),
    ],
)
def test_the_era_is_that_of_the_first_anomaly(
    anomalies: list[Mapping[str, Any]], expected: str
) -> None:
    assert era_of({"anomalies": anomalies, "eras": ERAS}, KIND) == expected
    assert era_of({"anomalies": anomalies}, KIND) == ""


def test_struck_faults_name_the_log_states() -> None:
    cells = (
        "on/shadow/A->B",
        "strike/link-cut/mirror-behind/link-1/shadow",
        "strike/link-cut/open-transactions/link-1/shadow",
        "strike/mirror-kill/plain/link-1/shadow",
    )
    assert list(struck(cells)) == [
        "link-cut on link-1 during mirror-behind, open-transactions",
        "mirror-kill on link-1",
    ]


# Replays: their budget, and whose run directory is the evidence of a failure.


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
        return Replays(folder=tmp_path, kind=KIND, works=cast(Workers, Failing()), seconds=600.0)

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


# Triage: which of several runs with the same failure is shrunk.


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


RUNS = cast(list[RunResult], [SimpleNamespace(number=number) for number in FAULTS])


def failed_alike(root: Path = Path()) -> SuiteFolder:
    return cast(
        SuiteFolder,
        SimpleNamespace(
            root=root,
            plan=SimpleNamespace(replays=4),
            scenario=lambda number: SimpleNamespace(number=number, schedule=range(FAULTS[number])),
        ),
    )


def chosen(replays: Replayed) -> tuple[int, str]:
    run, rate = _fails_often(failed_alike(), KIND, RUNS, cast(Replays, replays), print)
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
    own = tmp_path / "failures" / name_of(KIND)
    own.mkdir(parents=True)
    killed = Replayed({6: 1, 4: 4}, spent=True)
    resumed = Replayed({6: 1, 4: 4})
    for replays in (killed, resumed):
        run, _ = _chosen(failed_alike(tmp_path), own, KIND, RUNS, cast(Replays, replays), print)
        assert run.number == 6
        assert replays.runs == [6]
    assert (own / CHOSEN).read_text() == "6\n"


# Shrinking with predicates as oracles: the result is minimal, within the allowed number of
# runs.


EVERY = GeneratorBounds(topologies=ALL, mirrors=("shadow", "mm2"), most=8)


@dataclass
class Predicate:
    """Fails always, or with a probability, where the predicate is true."""

    holds: Callable[[Scenario], bool]
    share: float = 1.0
    budget: int = 2000
    width: int = 2
    rng: random.Random = field(default_factory=lambda: random.Random(4))
    asked: int = 0

    @property
    def spent(self) -> bool:
        return self.asked >= self.budget

    def __call__(self, candidates: Sequence[Scenario], *, times: int) -> list[Rate]:
        self.asked += times * len(candidates)
        return [
            Rate(
                failed=sum(
                    self.holds(made) and self.rng.random() < self.share for _ in range(times)
                ),
                tries=times,
            )
            for made in candidates
        ]


def kinds(made: Scenario) -> list[str]:
    return [fault.fault for fault in made.schedule]


def with_faults(*wanted: str) -> Scenario:
    """A generated scenario that has all of these faults, and others."""
    return drawn(
        EVERY, lambda made: {*wanted} <= faults(made) and len(made.schedule) >= len(wanted) + 3
    )


@pytest.mark.parametrize(
    "needed",
    [
        ("mirror-kill",),
        ("link-cut", "broker-kill"),
        ("failover-forced", "client-kill"),
        ("mirror-kill", "mirror-reverse"),
    ],
)
def test_the_result_has_only_what_the_failure_needs(needed: tuple[str, ...]) -> None:
    found = with_faults(*needed)
    shrunk = Shrinker(fails=Predicate(lambda made: set(needed) <= set(kinds(made)))).shrink(found)
    # A reversal needs its failover.
    assert set(kinds(shrunk.scenario)) - {"failover-planned", "failover-forced"} == set(needed) - {
        "failover-forced"
    }
    assert len(shrunk.scenario.schedule) <= len(needed) + 1
    assert not shrunk.scenario.mirror.options
    assert not shrunk.scenario.topics.config
    assert all(not fault.options for fault in shrunk.scenario.schedule)
    assert all(cluster.brokers == 1 for cluster in shrunk.scenario.topology.clusters)
    assert shrunk.rate.share == 1.0


def test_the_option_that_a_failure_needs_is_left_alone() -> None:
    made = with_faults("link-latency")
    nth = next(n for n, fault in enumerate(made.schedule) if fault.fault == "link-latency")
    schedule = list(made.schedule)
    schedule[nth] = replace(schedule[nth], options={"latency": 300, "jitter": 20})
    needed = {"latency": 300}

    def holds(one: Scenario) -> bool:
        return any(needed.items() <= fault.options.items() for fault in one.schedule)

    shrunk = Shrinker(fails=Predicate(holds)).shrink(replace(made, schedule=tuple(schedule)))
    assert [dict(fault.options) for fault in shrunk.scenario.schedule] == [needed]


def test_the_order_of_faults_is_kept() -> None:
    def holds(made: Scenario) -> bool:
        names = kinds(made)
        return "broker-kill" in names and "link-cut" in names[names.index("broker-kill") :]

    found = drawn(EVERY, lambda made: holds(made) and len(made.schedule) > 4)
    assert kinds(Shrinker(fails=Predicate(holds)).shrink(found).scenario) == [
        "broker-kill",
        "link-cut",
    ]


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_step_can_be_played_and_is_smaller(seed: int) -> None:
    made = generate(seed, 1, Coverage(), EVERY, guided=False)
    for reduce in PASSES:
        for smaller in reduce(made):
            assert smaller != made
            assert len(smaller.schedule) <= len(made.schedule)
    steps: list[Scenario] = []
    Shrinker(fails=Predicate(lambda candidate: True, budget=40), accepted=steps.append).shrink(made)
    for step in steps:
        schedule.check(step.schedule, step.topology)


def test_a_failure_that_comes_and_goes_is_shrunk_to_one_that_comes_often() -> None:
    found = with_faults("mirror-kill", "link-cut")
    oracle = Predicate(lambda made: "mirror-kill" in kinds(made), share=0.8)
    shrunk = Shrinker(fails=oracle).shrink(found)
    assert "mirror-kill" in kinds(shrunk.scenario)
    assert len(shrunk.scenario.schedule) <= 3
    assert shrunk.rate.share >= 0.5


def test_a_step_that_fails_too_rarely_is_undone() -> None:
    """The first tries of the smaller ones fail by chance; measured again, only the original fails
    often enough."""
    found = with_faults("mirror-kill", "link-cut")
    seen: dict[int, int] = {}

    def holds(made: Scenario) -> bool:
        seen[len(made.schedule)] = seen.get(len(made.schedule), 0) + 1
        return made == found or seen[len(made.schedule)] <= 2

    assert Shrinker(fails=Predicate(holds)).shrink(found).scenario == found


def test_spent_budget_ends_the_shrinking_with_its_smallest_so_far() -> None:
    found = with_faults("mirror-kill", "link-cut")
    oracle = Predicate(lambda made: "mirror-kill" in kinds(made), budget=4)
    shrunk = Shrinker(fails=oracle).shrink(found)
    assert "mirror-kill" in kinds(shrunk.scenario)
    assert oracle.asked <= 4 + 2 + 4 * 3  # a group that was begun, and the measuring of few steps


def test_the_rate_without_the_last_fault_is_known() -> None:
    found = with_faults("mirror-kill", "link-cut")
    shrunk = Shrinker(
        fails=Predicate(lambda made: {"mirror-kill", "link-cut"} <= set(kinds(made)))
    ).shrink(found)
    assert len(shrunk.scenario.schedule) == 2
    assert shrunk.without_last == Rate(failed=0, tries=2)


def fault(id_: str, when: str = "always") -> FaultSpec:
    return FaultSpec(id=id_, fault="link-cut", target="A->B", at=1.0, duration=1.0, when=when)


def test_a_fault_after_a_removed_fault_takes_over_its_trigger() -> None:
    chain = [
        fault("a"),
        fault("b", "after:a"),
        fault("c", "after:b and open-transactions:2"),
        fault("d", "during:b and after:c"),
    ]
    assert [(f.id, f.when) for f in without(chain, ["b"])] == [
        ("a", "always"),
        ("c", "after:a and open-transactions:2"),
        ("d", "after:c"),
    ]
    assert [(f.id, f.when) for f in without(chain, ["a", "b"])] == [
        ("c", "open-transactions:2"),
        ("d", "after:c"),
    ]
    assert followers(chain, "b") == {"b", "c", "d"}
    assert condition(without(chain, ["c"])[2].when).during == ("b",)


def test_rates_have_an_interval() -> None:
    assert str(Rate(failed=3, tries=4)) == "3 of 4 (30 to 95 %)"
    assert str(Rate(failed=0, tries=0)) == "0 of 0 (0 to 100 %)"
    assert replace(Rate(failed=1, tries=2)) + Rate(failed=1, tries=2) == Rate(failed=2, tries=4)


# `linkflap suite regression` with cases that a function plays: what is decided, stored, and
# resumed.


PLAN = Plan(name="regression", seed=1, seconds=3600, jobs=1)
KNOWN = reproduced()[:5]


@pytest.fixture
def folder(tmp_path: Path) -> SuiteFolder:
    made = SuiteFolder.create(tmp_path / "suite", PLAN)
    regression.write_entries(made, KNOWN)
    return made


def played(
    entry: Entry, outcome: Outcome = Outcome.REPRODUCED, *, runs: int = 1, why: str = ""
) -> Played:
    shown = runs if outcome is Outcome.REPRODUCED else 0
    version = entry.variant.kafka
    return Played(
        case=entry.case, variant=entry.variant, version=version, outcome=outcome, why=why,
        seconds=2.0,
        shown=shown, runs=runs, needed=3, controls=runs,
    )  # fmt: skip


def say(text: str) -> None:
    pass


def test_a_reproduced_case_is_valid(folder: SuiteFolder) -> None:
    regression.run(folder, say, lambda entry, benches: played(entry))
    assert regression.verdict_of(folder) is Verdict.VALID
    assert sorted(result.number for result in folder.results) == [0, 1, 2, 3, 4]
    assert len(load(folder.root / "cases")) == 5
    assert "5 of 5 cases were played; 5 reproduced again" in regression.summary(folder)


def test_a_case_that_no_longer_shows_is_invalid_and_comes_first(folder: SuiteFolder) -> None:
    gone = KNOWN[3].case.name

    def play(entry: Entry, benches: Benches) -> Played:
        return (
            played(entry, Outcome.NOT_REPRODUCED, runs=3) if entry.case == gone else played(entry)
        )

    regression.run(folder, say, play)
    assert regression.verdict_of(folder) is Verdict.INVALID
    (failed,) = [result for result in folder.results if result.failed]
    assert failed.kinds == (f"regression:{gone}",)
    assert failed.cause.startswith("it was reproduced in ")
    first = next(
        line
        for line in regression.summary(folder).splitlines()
        if line.startswith(f"| {KNOWN[3].case.name}")
    )
    assert regression.summary(folder).splitlines()[6] == first
    assert f"linkflap case run {gone} --kafka {KNOWN[3].variant.kafka}" in first
    names = {entry.number: entry.title for entry in regression.entries(folder)}
    found = ElementTree.fromstring(junit(folder, names))
    assert (found.get("tests"), found.get("failures"), found.get("errors")) == ("5", "1", "0")
    assert found[0].get("name") == names[3]


@pytest.mark.parametrize(
    ("shown", "runs", "verdict"),
    [(1, 13, Verdict.UNKNOWN), (1, 3, Verdict.INVALID), (10, 10, Verdict.INVALID)],
)
def test_a_case_that_seldom_shows_is_not_gone_after_a_few_runs(
    shown: int, runs: int, verdict: Verdict
) -> None:
    entry = Entry(
        number=0, case=KNOWN[0].case.name, variant=KNOWN[0].variant, shown=shown, runs=runs
    )
    result = regression.result_of(entry, played(entry, Outcome.NOT_REPRODUCED, runs=10), ended=1.0)
    assert result.verdict == verdict
    assert ("at the rate before (1 of 13), 45 % of regressions do not" in result.reason) is (
        verdict is Verdict.UNKNOWN
    )


@pytest.mark.parametrize(
    ("outcome", "runs"), [(Outcome.NOT_REPRODUCED, 2), (Outcome.UNKNOWN, 0), (Outcome.NEEDS, 0)]
)  # fmt: skip
def test_too_few_runs_and_cases_that_could_not_be_played_are_unknown(
    folder: SuiteFolder, outcome: Outcome, runs: int
) -> None:
    regression.run(folder, say, lambda entry, benches: played(entry, outcome, runs=runs, why="why"))
    assert regression.verdict_of(folder) is Verdict.UNKNOWN
    assert all(result.kinds[0].startswith("unknown:") for result in folder.results)


def test_a_suite_that_ended_early_goes_on_with_what_it_began_with(
    folder: SuiteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def play(entry: Entry, benches: Benches) -> Played:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(entry.number)
        return played(entry)

    with pytest.raises(KeyboardInterrupt):
        regression.run(folder, say, play)
    assert regression.verdict_of(folder) is Verdict.UNKNOWN  # three were never played
    again = SuiteFolder.open(folder.root)
    # what is stored meanwhile changes nothing
    monkeypatch.setattr(regression, "reproduced", lambda: [])
    rest: list[int] = []

    def noted(entry: Entry, benches: Benches) -> Played:
        rest.append(entry.number)
        return played(entry)

    regression.run(again, say, noted)
    assert sorted(asked + rest) == [0, 1, 2, 3, 4]
    assert regression.verdict_of(again) is Verdict.VALID


def test_no_more_is_played_than_there_is_time_for(tmp_path: Path) -> None:
    made = SuiteFolder.create(tmp_path / "suite", replace(PLAN, seconds=1e-9))
    regression.write_entries(made, KNOWN)
    regression.run(made, say, lambda entry, benches: pytest.fail("it has no time"))
    assert regression.verdict_of(made) is Verdict.UNKNOWN


def test_shards_share_out_the_cases(tmp_path: Path) -> None:
    numbers = []
    for part in range(3):
        made = SuiteFolder.create(tmp_path / str(part), replace(PLAN, shard=(part, 3)))
        regression.write_entries(made, KNOWN)
        numbers += [entry.number for entry in regression.entries(made)]
    assert sorted(numbers) == [0, 1, 2, 3, 4]


def test_a_case_is_played_until_it_shows(
    folder: SuiteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = regression.entries(folder)[0]
    outcomes = iter([Outcome.NOT_REPRODUCED, Outcome.REPRODUCED])
    monkeypatch.setattr(regression, "run_case", lambda *_, **__: played(entry, next(outcomes)))
    found = regression.until_shown(entry, cast(Benches, None))
    assert (found.outcome, found.shown, found.runs, found.controls) == (Outcome.REPRODUCED, 1, 2, 2)
    never = Outcome.NOT_REPRODUCED
    monkeypatch.setattr(regression, "run_case", lambda *_, **__: played(entry, never))
    found = regression.until_shown(entry, cast(Benches, None))
    assert (found.outcome, found.shown, found.runs) == (never, 0, KNOWN[0].case.runs)
