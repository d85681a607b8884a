"""A run whose schedule was played, and events of it that are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.rundir.values import Status
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.verdict.judge import judge
from tests.unit.checks.judged_runs import LINK, Recorded, looked, result, row
from tests.unit.checks.recorded_parts import (
    AWAY,
    HOME,
    played,
    promises,
)


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
