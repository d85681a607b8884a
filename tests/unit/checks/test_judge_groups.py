"""Groups that failed over and were not sampled, and groups whose connectors failed: what is unknown
then."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.model.clock import now
from linkflap.harness.model.events import Event
from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.read.failed_mirror_parts import failed_parts
from tests.events import event
from tests.unit.checks.judged_runs import LINK, Recorded, result, row, verdict_of


def group_failed_over(tmp_path: Path, *states: tuple[str, int, str, str]) -> Path:
    """A run whose group followed a failover; `states` of its mirror's connectors were recorded
    before."""
    readers = WorkloadSpec(kind="readers", home="A", options={"group": "g"})
    run = Recorded(
        tmp_path / "run", workloads=(WorkloadSpec(kind="transactional", home="A"), readers)
    )
    for connector, task, state, trace in states:
        run.event("mirror-state", LINK, connector=connector, task=task, state=state, trace=trace)
    run.event("failover", LINK, kind="forced", fault_time=now())
    run.event("promotion", LINK, cluster="B", topic="A.t", partition=0, offset=3)
    run.event("clients-moved", "A", to="B")
    run.read("drained", "readers-1", cluster="B", group="g")
    return run.close()


NEVER_SAMPLED = (
    "no committed offset of a group was ever sampled on A, so how far groups were there is unknown"
)
NEVER_SYNCED = (
    "no committed offset of a group was seen on B before the failover: the mirror had synced none"
)


@pytest.mark.parametrize(
    ("looked_at", "verdict", "reason"),
    [
        ((), Verdict.UNKNOWN, f"{NEVER_SAMPLED}; no mirrored records of B were there to examine"),
        ((("B", "mirrored"),), Verdict.UNKNOWN, NEVER_SAMPLED),
        ((("B", "mirrored"), ("A", "checkpoints")), Verdict.VALID, NEVER_SYNCED),
        ((("B", "mirrored"), ("A", "checkpoints"), ("B", "checkpoints")), Verdict.VALID, ""),
    ],
)
def test_a_group_that_failed_over_and_was_not_sampled_is_unknown(
    tmp_path: Path, looked_at: tuple[tuple[str, str], ...], verdict: Verdict, reason: str
) -> None:
    folder = group_failed_over(tmp_path)
    rows = [
        row(folder, "group-offsets", "examined", cluster=c, origin=o, count=2) for c, o in looked_at
    ]
    checked = result(verdict_of(folder, rows, "group-offsets"), "group-offsets")
    assert (checked.verdict, checked.reason) == (verdict, reason)
    assert checked.examined == {f"{c}/{o}": 2 for c, o in sorted(looked_at)}


CHECKPOINTS, SOURCE = "MirrorCheckpointConnector", "MirrorSourceConnector"
TRACE = (
    "java.util.regex.PatternSyntaxException: Unclosed character class near index 0\n\tat "
    "java.base/java.util.regex.Pattern"
)
FAILED = (CHECKPOINTS, -1, "FAILED", TRACE)


@pytest.mark.parametrize(
    ("states", "why"),
    [
        (
            [FAILED],
            (
                f"{CHECKPOINTS} of the mirror of A->B failed: "
                "java.util.regex.PatternSyntaxException: Unclosed"
            ),
        ),
        (
            [FAILED, (CHECKPOINTS, -1, "UNASSIGNED", "")],
            f"{CHECKPOINTS} of the mirror of A->B failed: java.util.regex",
        ),
        (
            [(CHECKPOINTS, 0, "FAILED", TRACE)],
            f"task 0 of {CHECKPOINTS} of the mirror of A->B failed: java.util.regex",
        ),
        ([(CHECKPOINTS, -1, "PAUSED", "")], f"{CHECKPOINTS} of the mirror of A->B was paused"),
        ([(CHECKPOINTS, -1, "STOPPED", "")], f"{CHECKPOINTS} of the mirror of A->B was stopped"),
        (
            [(CHECKPOINTS, -1, "NONE", "started\nno such class")],
            f"{CHECKPOINTS} of the mirror of A->B never had a state: no such",
        ),
    ],
)
@pytest.mark.parametrize("synced", [False, True])
def test_a_failed_connector_of_groups_makes_synced_offsets_unknown(
    tmp_path: Path, states: list[tuple[str, int, str, str]], why: str, synced: bool
) -> None:
    folder = group_failed_over(tmp_path, *states)
    where = [("B", "mirrored"), ("A", "checkpoints"), *([("B", "checkpoints")] if synced else [])]
    rows = [
        row(folder, "group-offsets", "examined", cluster=c, origin=o, count=2) for c, o in where
    ]
    checked = result(verdict_of(folder, rows, "group-offsets"), "group-offsets")
    assert checked.verdict is Verdict.UNKNOWN
    assert f"group offsets were not synced to B from then on: {why}" in checked.reason
    assert "\tat" not in checked.reason


@pytest.mark.parametrize(
    "states",
    [
        [FAILED, (CHECKPOINTS, -1, "RUNNING", "")],
        [(CHECKPOINTS, -1, "RUNNING", "")],
        [(SOURCE, 0, "FAILED", TRACE)],  # of partitions, not of groups
    ],
)
def test_a_connector_that_runs_again_and_one_of_something_else_say_nothing_of_groups(
    tmp_path: Path, states: list[tuple[str, int, str, str]]
) -> None:
    folder = group_failed_over(tmp_path, *states)
    rows = [
        row(folder, "group-offsets", "examined", cluster=c, origin=o, count=2)
        for c, o in EVERYWHERE
    ]
    assert (
        result(verdict_of(folder, rows, "group-offsets"), "group-offsets").verdict is Verdict.VALID
    )


EVERYWHERE = [("B", "mirrored"), ("A", "checkpoints"), ("B", "checkpoints")]


def test_what_failed_is_named_where_nothing_was_mirrored(recorded: Recorded) -> None:
    recorded.event(
        "mirror-state",
        LINK,
        connector=SOURCE,
        task=0,
        state="FAILED",
        trace="RecordTooLargeException: 2 of 1\n\tat",
    )
    recorded.event("mirror-stopped", LINK, drained=False)
    folder = recorded.close()
    rows = [row(folder, "duplicate", "examined", cluster="A", origin="native", count=2)]
    judgement = verdict_of(folder, rows, "duplicate")
    why = f"task 0 of {SOURCE} of the mirror of A->B failed: RecordTooLargeException: 2 of 1"
    assert (
        result(judgement, "duplicate").reason
        == f"no mirrored records of B were there to examine; {why}"
    )
    assert (
        result(judgement, "recording").reason
        == f"the mirror of A->B had not caught up when the run ended; {why}"
    )


def test_a_killed_worker_takes_its_states_with_it_and_a_dead_source_counts_for_nothing() -> None:
    def at(time: int, kind: str, **data: str | int) -> Event:
        return event(kind, LINK, at=time, **data)

    def failed(time: int, task: int) -> Event:
        return at(time, "mirror-state", connector=SOURCE, task=task, state="FAILED", trace="why")

    assert [part.task for part in failed_parts([failed(1, 0), failed(2, 1)])] == [0, 1]
    assert [
        part.task for part in failed_parts([failed(1, 0), at(2, "mirror-crashed"), failed(3, 1)])
    ] == [1]
    assert [
        part.task
        for part in failed_parts([failed(1, 0), at(5, "failover", fault_time=4), failed(6, 1)])
    ] == [0]
