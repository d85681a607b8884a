"""Files that the events imply and the directory lacks are damage; what depends on them is not
proven."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from linkflap.harness.model.verdict import Verdict
from linkflap.harness.rundir import RunReader
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.verdict.judge import judge
from tests.events import event
from tests.synthetic import append_events
from tests.unit.checks.judged_runs import Recorded, looked, result, row
from tests.unit.checks.recorded_parts import (
    AWAY,
    BACK,
    captured,
    failed_over,
    missing,
    promises,
    stopped,
)


def test_every_recorded_capture_exists(recorded: Recorded) -> None:
    captured(recorded, "A", "B")
    assert plan(recorded.close()).damage == []


@pytest.mark.parametrize("bounds", [True, False])
def test_a_recorded_capture_that_is_missing(recorded: Recorded, bounds: bool) -> None:
    captured(recorded, "A", moment="1-away")
    captured(recorded, "A", "B")
    if bounds:
        recorded.writer.write_bounds("1-away", [recorded._bounds("A")])
    folder = recorded.close()
    shutil.rmtree(folder / "captures" / ("1-away/A" if bounds else "1-away"))
    (folder / "manifest.json").unlink()
    lacking = "none is there" if bounds else "nothing says where they began"
    assert ("captures/1-away/A", f"missing: its logs were captured, and {lacking}") in missing(
        folder
    )
    assert {c.bounds.cluster for c in plan(folder).replicas} == {"A", "B"}


def test_an_older_capture_does_not_stand_in_for_the_last(recorded: Recorded) -> None:
    captured(recorded, "A", moment="1-away")
    recorded.writer.write_bounds("1-away", [recorded._bounds("A")])
    captured(recorded, "A", "B")
    folder = recorded.close()
    shutil.rmtree(folder / "captures/end/A")
    planned = plan(folder)
    assert {c.bounds.cluster for c in planned.replicas} == {"B"}
    assert [(c.bounds.cluster, c.moment) for c in planned.earlier] == [("A", "1-away")]


@pytest.mark.parametrize(
    ("check", "kind", "verdict"),
    [
        ("lost-write", "lost-write", Verdict.UNKNOWN),
        ("read-committed-visibility", "phantom-read", Verdict.UNKNOWN),
        ("replica-agreement", "corrupt-batch", Verdict.INVALID),
    ],
)
def test_findings_that_depend_on_a_missing_capture_are_not_proven(
    recorded: Recorded, check: str, kind: str, verdict: Verdict
) -> None:
    captured(recorded, "A", "B")
    folder = recorded.close()
    rows = [*looked(folder, check), row(folder, check, "found", cluster="A", kind=kind, offset=4)]
    assert result(judge(folder, rows, [REGISTRY[check]]), check).verdict is Verdict.INVALID
    shutil.rmtree(folder / "captures/end/A")
    shown = result(judge(folder, rows, [REGISTRY[check]]), check)
    assert (shown.verdict, "captures/end/A" in shown.reason) == (
        verdict,
        verdict is Verdict.UNKNOWN,
    )


def test_every_failover_promoted_what_its_mirror_names(recorded: Recorded) -> None:
    failed_over(
        recorded,
        0,
        1,
        journal=[("A.linkflap-canary", 0), ("A.t", 0), ("A.t", 1), ("heartbeats", 0)],
    )
    failed_over(recorded, 0, link=BACK)
    stopped(recorded, ("A.t", 2))
    assert promises(recorded.close()) == []


def test_a_failover_without_any_promotion(recorded: Recorded) -> None:
    failed_over(recorded, 0)
    failed_over(recorded)
    failed_over(recorded, link=BACK, journal=[("A.t", 0)])
    assert promises(recorded.close()) == [
        "the failover over A->B has no promotion of any partition",
        "the failover over B->A has no promotion of any partition",
    ]


def test_a_partition_of_the_mirror_without_a_promotion(recorded: Recorded) -> None:
    failed_over(recorded, 0, journal=[("A.t", 0), ("A.t", 1)])
    said = "the mirror of A->B says that it promoted A.t-1, and no promotion of it is there"
    assert said in promises(recorded.close())


def test_events_outside_of_the_run(recorded: Recorded) -> None:
    recorded.event("phase", "work")
    folder = recorded.close()
    assert promises(folder) == []
    run, hour = RunReader(folder).run, 3600 * 10**9
    where = {"cluster": "A", "topic": "A.t", "partition": 0, "offset": 3, "end": 3}
    for time, kind, data in (
        (run.started - hour, "failover", {}),
        (run.ended + hour, "truncation", where),
        (run.ended, "phase", {}),
        (run.started, "phase", {}),
    ):
        append_events(folder, [event(kind, "B->A", at=time, **data).row])
    said = [reason for reason in promises(folder) if "the run had" in reason]
    assert said == [
        "failover of B->A is 3600.0 s before the run had started",
        "truncation of B->A is 3600.0 s after the run had ended",
    ]


def test_of_two_captures_of_a_cluster_each_says_when_it_was_taken(recorded: Recorded) -> None:
    captured(recorded, "A", moment="1-away")
    captured(recorded, "A", "B")
    recorded.writer.write_bounds("1-away", [recorded._bounds("A")])
    folder = recorded.close()
    assert promises(folder) == []
    path = folder / "events.jsonl"
    path.write_text(
        "".join(
            line for line in path.read_text().splitlines(keepends=True) if '"1-away"' not in line
        )
    )
    assert "A was captured as 1-away, and no event says when" in promises(folder)


def test_findings_that_depend_on_a_missing_promotion_are_not_proven(recorded: Recorded) -> None:
    failed_over(recorded)
    folder = recorded.close()
    rows = [
        *looked(folder, "provenance"),
        row(folder, "provenance", "found", cluster="A", kind="stranger", offset=4),
    ]
    shown = result(judge(folder, rows, [REGISTRY["provenance"]]), "provenance")
    assert (shown.verdict, shown.reason.startswith("events.jsonl is damaged")) == (
        Verdict.UNKNOWN,
        True,
    )


@pytest.mark.parametrize(("alive", "dead"), [(True, set()), (False, {"A"})])
def test_a_cluster_of_which_a_broker_died_is_dead_unless_it_was_alive_in_the_end(
    recorded: Recorded, alive: bool, dead: set[str]
) -> None:
    recorded.event("broker-died", "A/1", by="itself")
    captured(recorded, "A", "B")
    folder = recorded.close(status="failed")
    bounds = [replace(Recorded._bounds(cluster), alive=alive or cluster == "B") for cluster in "AB"]
    recorded.writer.write_bounds("end", bounds)
    assert set(plan(folder).facts.deaths) == dead


@pytest.mark.parametrize(("alive", "dead"), [(True, set()), (False, {"A"})])
def test_the_source_of_a_forced_failover_is_dead_unless_it_was_alive_in_the_end(
    recorded: Recorded, alive: bool, dead: set[str]
) -> None:
    recorded.event("fault-start", AWAY.target, id=AWAY.id, fault=AWAY.fault)
    failed_over(recorded)
    captured(recorded, "A", "B")
    folder = recorded.close()
    bounds = [replace(Recorded._bounds(cluster), alive=alive or cluster == "B") for cluster in "AB"]
    recorded.writer.write_bounds("end", bounds)
    assert set(plan(folder).facts.deaths) == dead
