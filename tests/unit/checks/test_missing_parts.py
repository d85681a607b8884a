"""Files that the events imply and the directory lacks are damage; what depends on them is not
proven."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from linkflap.harness.model.scenario import FaultSpec, MirrorSpec
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import RunReader
from linkflap.harness.rundir.files import Status
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.verdict.judge import judge
from tests.events import event
from tests.synthetic import append_events
from tests.unit.checks.judged_runs import LINK, Recorded, looked, result, row

BACK = "B->A"


def captured(run: Recorded, *partitions: str, moment: str = "end") -> None:
    for cluster in partitions:
        folder = run.folder / "captures" / moment / cluster / "1" / "A.t-0"
        folder.mkdir(parents=True)
        (folder / "0.log").write_bytes(b"")
        run.event("captured", cluster, moment=moment, replicas=1)


def stopped(run: Recorded, *partitions: tuple[str, int], link: str = LINK) -> None:
    rows = [
        {"topic": topic, "partition": partition, "mirrored": 3, "promoted": 3}
        for topic, partition in partitions
    ]
    run.event("mirror-stopped", link, drained=True, partitions=rows)


def failed_over(
    run: Recorded,
    *partitions: int,
    link: str = LINK,
    journal: Sequence[tuple[str, int]] | None = None,
) -> None:
    began = now()
    if journal is not None:
        stopped(run, *journal, link=link)
    for partition in partitions:
        promoted(run, partition, link=link)
    run.event("failover", link, kind="planned", fault_time=began)


def promoted(run: Recorded, partition: int = 0, *, link: str = LINK, cluster: str = "") -> None:
    where = {"cluster": cluster or link[-1], "topic": "A.t", "partition": partition, "offset": 3}
    run.event("promotion", link, **where)


def missing(folder: Path) -> list[tuple[str, str]]:
    """The damage of a directory, without its files."""
    return [
        (d.path, d.reason)
        for d in plan(folder).damage
        if (folder / d.path).is_dir() or not (folder / d.path).exists()
    ]


def promises(folder: Path) -> list[str]:
    return [d.reason for d in plan(folder).damage if d.path == "events.jsonl"]


AWAY = FaultSpec(id="away", fault="failover-forced", target=LINK, at=1.0, duration=0.0)


HOME = FaultSpec(
    id="home", fault="mirror-reverse", target=LINK, at=1.0, duration=0.0, when="after:away"
)


def played(run: Recorded, *, lacks: tuple[str, ...] = (), bit: bool = True) -> None:
    """The failover and the reversal, as a run records them, without the events of these kinds."""

    def event(kind: str, subject: str, **data: object) -> None:
        if f"{data.get('id', subject)} {kind}" not in lacks and kind not in lacks:
            run.event(kind, subject, **data)

    for spec in (AWAY, HOME):
        event("fault-start", LINK, id=spec.id, fault=spec.fault)
        if spec is HOME:
            event("mirror-started", BACK, mirror="shadow")
        elif "failover" not in lacks:
            failed_over(run, 0, journal=None if "mirror-stopped" in lacks else [("A.t", 0)])
        if spec is AWAY:
            event("clients-moved", "A", to="B")
        event("fault-bite", LINK, id=spec.id, bit=bit)
        event("fault-heal", LINK, id=spec.id, healed=bit)
        event("fault-end", LINK, id=spec.id)


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


def test_promotions_and_failovers_that_no_mirror_writes(recorded: Recorded) -> None:
    promoted(recorded, 5)
    failed_over(recorded, 0, 1)
    failed_over(recorded, 0, 0)
    promoted(recorded, 0, cluster="A")
    promoted(recorded, 6)
    assert promises(recorded.close()) == [
        "A.t-5 was promoted before the failover over A->B began",
        "one failover over A->B promoted A.t-0 twice",
        "a promotion of A.t-0 over A->B is of cluster A",
        "A.t-6 was promoted over A->B, and no failover followed",
    ]


def test_a_promotion_right_before_the_harness_was_killed(recorded: Recorded) -> None:
    promoted(recorded)
    assert promises(recorded.close(status="failed")) == []


@pytest.mark.parametrize("late", [False, True])
def test_a_failover_that_its_fault_did_not_begin(recorded: Recorded, late: bool) -> None:
    before = now()
    recorded.fault(fault="failover-planned")
    promoted(recorded)
    fault_time = now() + 10**9 if late else before
    recorded.event("failover", LINK, kind="planned", fault_time=fault_time)
    said = "the failover over A->B says that its source was abandoned before its fault began, or"
    assert any(reason.startswith(said) for reason in promises(recorded.close()))


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


@pytest.mark.parametrize("wrong", [{"ended": 2**63 - 1}, {"started": -(2**63)}])
def test_a_run_that_begins_or_ends_far_from_all_that_it_recorded(
    recorded: Recorded, wrong: dict[str, int]
) -> None:
    recorded.event("phase", "work")
    folder = recorded.close()
    assert [each for each in plan(folder).damage if each.path == "run.json"] == []
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | wrong))
    reasons = [each.reason for each in plan(folder).damage if each.path == "run.json"]
    assert any("from all that was recorded of it" in reason for reason in reasons)
    judged = judge(folder, looked(folder, "provenance"), [REGISTRY["provenance"]])
    assert judged.verdict is Verdict.UNKNOWN


def test_capture_without_an_event_of_its_moment_is_reported(recorded: Recorded) -> None:
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
def test_a_cluster_with_a_dead_broker_is_dead_unless_it_was_alive_in_the_end(
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


@pytest.fixture
def scheduled(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "scheduled", schedule=(AWAY, HOME), mirror=MirrorSpec(kind="shadow"))


def test_a_schedule_that_was_played_is_all_there(scheduled: Recorded) -> None:
    played(scheduled)
    assert promises(scheduled.close()) == []


def test_faults_that_were_given_up_promise_nothing(scheduled: Recorded) -> None:
    for spec in (AWAY, HOME):
        scheduled.event("fault-bite", LINK, id=spec.id, bit=False, observable=spec.when)
    assert promises(scheduled.close()) == []


def test_a_run_that_broke_off_promises_no_fault(scheduled: Recorded) -> None:
    assert promises(scheduled.close(status="failed")) == []


ALL_OF_AWAY = (
    "failover",
    "clients-moved",
    *(f"away fault-{kind}" for kind in ("start", "bite", "heal", "end")),
)


ALL_OF_HOME = (
    "mirror-started",
    *(f"home fault-{kind}" for kind in ("start", "bite", "heal", "end")),
)


TOOK_EFFECT = "fault away (failover-forced on A->B) took effect, and no failover of A->B is there"


MOVED = "clients were moved along A->B, and no failover over it is there"


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        (("failover",), [TOOK_EFFECT, MOVED]),
        (("failover", "clients-moved"), [TOOK_EFFECT]),
        (("failover", "away fault-bite", "away fault-heal"), [MOVED]),
        (
            ("mirror-stopped",),
            ["the failover over A->B has no journal of its mirror (mirror-stopped)"],
        ),
        (ALL_OF_AWAY, ["nothing says whether fault away (failover-forced on A->B) took effect"]),
        (
            ("away fault-start",),
            ["fault away (failover-forced on A->B) took effect, and nothing says when it began"],
        ),
        (
            ("mirror-started",),
            [
                "fault home (mirror-reverse on A->B) took effect, and no mirror-started of B->A is "
                "there"
            ],
        ),
        (
            ("home fault-start",),
            [
                "nothing says when it began",
                "a mirror of B->A ran, and no mirror-reverse of A->B is there",
            ],
        ),
        (ALL_OF_HOME, ["nothing says whether fault home (mirror-reverse on A->B) took effect"]),
    ],
)
def test_events_of_a_failover_and_a_reversal_show_that_others_are_missing(
    scheduled: Recorded, lacks: tuple[str, ...], says: list[str]
) -> None:
    played(scheduled, lacks=lacks)
    found = promises(scheduled.close())
    assert all(any(sentence in reason for reason in found) for sentence in says), found


@pytest.mark.parametrize("status", ["finished", "failed"])
@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ("home fault-end", "fault home on A->B began, and nothing says when it ended"),
        ("home fault-start", "fault home on A->B ended, and nothing says when it began"),
    ],
)
def test_a_fault_has_a_beginning_and_an_end(
    scheduled: Recorded, lacks: str, says: str, status: Status
) -> None:
    played(scheduled, lacks=(lacks,))
    # A failed run may have stopped waiting for a fault.
    assert (says in promises(scheduled.close(status=status))) == (
        status == "finished" or "began" in says.partition("says")[2]
    )


def test_a_failover_that_is_gone_makes_no_violation_of_what_clients_then_wrote(
    scheduled: Recorded,
) -> None:
    played(scheduled, lacks=ALL_OF_AWAY)
    folder = scheduled.close()
    name, (kind, *_) = "standby-isolation", REGISTRY["standby-isolation"].anomalies
    rows = [
        *looked(folder, name),
        row(folder, name, "found", cluster="B", kind=kind.name, offset=4),
    ]
    shown = result(judge(folder, rows, [REGISTRY[name]]), name)
    assert (shown.verdict, shown.reason.startswith("events.jsonl is damaged")) == (
        Verdict.UNKNOWN,
        True,
    )
