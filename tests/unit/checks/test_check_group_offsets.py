"""group-offsets: the smallest histories."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from linkflap.harness.guarantees import declared
from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.scenario import MirrorSpec, Scenario, WorkloadSpec
from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.topologies import parse
from tests.unit.checks.clients import poll
from tests.unit.checks.group_coordinators import (
    BYTES,
    NAME,
    beside,
    committed,
    killed,
    together,
)
from tests.unit.checks.histories import promoted, samples, view
from tests.unit.checks.logs import SECOND, Log
from tests.unit.checks.verdicts import (
    Rejected,
    assert_accepted,
    assert_rejected,
    due_at,
    examined,
    findings,
    unjudged,
)

AFTER = 600 * SECOND


def moved(
    committed: int,
    *got: tuple[int, int],
    before: tuple[tuple[int, int], ...] = ((0, 1),),
    cluster_at: int = AFTER,
) -> list[Read]:
    return [
        poll(*before, group="g"),
        poll(kind="commit", group="g", position=committed, at=200 * SECOND),
        poll(*got, cluster="B", group="g", at=cluster_at),
    ]


LOGS = [Log("A").data(1, 2, 3), Log("B").data(1, 2, 3)]
FAILED_OVER = [promoted(3)]
ACCEPTED = {
    "goes on where it was": (
        view(LOGS, promotions=FAILED_OVER, reads=moved(1, (1, 2), (2, 3))),
        {"B/mirrored": 3},
    ),
    "read on both sides all along": (
        view(LOGS, promotions=FAILED_OVER, reads=moved(2, (0, 1), cluster_at=SECOND)),
        {},
    ),
    "no failover": (view(LOGS, reads=moved(2, (0, 1))), {}),
    "no group sync": (
        view(LOGS, promotions=FAILED_OVER, reads=moved(2, (0, 1)), mirror={"groups": ""}),
        {},
    ),
    "got on the source, not committed there": (
        view(LOGS, promotions=FAILED_OVER, reads=moved(1, (2, 3), before=((0, 1), (1, 2)))),
        {"B/mirrored": 3},
    ),
}


def synced(*offsets: int, group: str = "g", every: int = SECOND) -> list[GroupOffset]:
    """The mirror's commits for the group on B, sampled at seconds 300, 301, …"""
    return [
        GroupOffset(
            time=300 * SECOND + i * every,
            cluster="B",
            group=group,
            topic="A.t",
            partition=0,
            offset=offset,
        )
        for i, offset in enumerate(offsets)
    ]


def checkpointed(*offsets: int, high: int = 3, got: int = 3) -> PartitionView:
    """A group that got the first `got` records on A at second 100, and committed that many."""
    before = tuple((i, i + 1) for i in range(got))
    reads = moved(got, (3, 8), before=before)
    marks = {"B": samples(*[(high, high)] * 400)}
    return view(
        LOGS, promotions=FAILED_OVER, reads=reads, groups=synced(*offsets), watermarks=marks
    )


ACCEPTED |= {"checkpoints": (checkpointed(1, 1, 3), {"B/mirrored": 3, "B/checkpoints": 3})}


REJECTS = {
    "group-skip": Rejected(
        view=view(LOGS, promotions=FAILED_OVER, reads=moved(1, (2, 3))), cluster="B", offset=1
    ),
    "group-replay": Rejected(
        view=view(LOGS, promotions=FAILED_OVER, reads=moved(2, (0, 1), (1, 2), (2, 3))),
        cluster="B",
        offset=0,
    ),
    "checkpoint-regression": Rejected(view=checkpointed(2, 1), cluster="B", offset=1),
    "checkpoint-beyond-end": Rejected(view=checkpointed(3, high=2), cluster="B", offset=3),
    "checkpoint-ahead": Rejected(
        view=checkpointed(2, got=1), cluster="B", offset=1, only=("group-skip",)
    ),
    "checkpoint-beyond-commit": Rejected(view=BYTES, beside=(beside(4),), cluster="B", offset=4),
    "checkpoint-stranger": Rejected(
        view=BYTES, beside=(beside(1, source=("members", 2)),), cluster="B", offset=1
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind: str) -> None:
    assert_rejected(NAME, kind, REJECTS[kind])


def test_of_a_record_written_twice_only_the_copy_that_was_read_is_a_replay() -> None:
    logs = [Log("A").data(1, 2, 3), Log("B").data(1, 2, 1, 2, 3)]
    reads = moved(2, (3, 2), (4, 3), before=((0, 1), (1, 2)))
    seen = view(
        logs, promotions=[promoted(5)], reads=reads, groups=synced(3), mirror_kind="mm2"
    )  # fmt: skip
    assert [(f.offset, f.evidence["records"]) for f in findings(NAME, seen)] == [(3, 1)]


def test_a_replay_comes_with_its_bound() -> None:
    (found,) = findings(NAME, REJECTS["group-replay"].view)
    assert (found.evidence["records"], found.evidence["bound"]) == (2, 2)


def test_the_groups_own_commit_after_the_failover_is_no_checkpoint() -> None:
    late = [
        GroupOffset(time=AFTER, cluster="B", group="g", topic="A.t", partition=0, offset=offset)
        for offset in (3, 1)
    ]
    seen = view(
        LOGS,
        promotions=FAILED_OVER,
        reads=moved(3, (2, 3), before=((0, 1), (1, 2), (2, 3))),
        groups=late,
    )
    assert "checkpoint-regression" not in {f.kind for f in findings(NAME, seen)}


def test_it_is_due_where_a_group_follows_a_failover() -> None:
    def due(*workloads: WorkloadSpec, **mirror: str) -> Collection[tuple[str, str]]:
        scenario = Scenario(
            name="", about="", seed=1, topology=parse("A->B"),
            mirror=declared(MirrorSpec(kind="mm2", options=mirror)),
            workloads=workloads, schedule=(),
        )  # fmt: skip
        return due_at(NAME, scenario, FAILED_OVER)

    def readers(**options: str | bool) -> WorkloadSpec:
        return WorkloadSpec(kind="readers", home="A", options=options)

    followed = {("B", "mirrored"), ("A", "checkpoints")}
    assert due(readers(group="g")) == followed
    assert due(readers()) == followed, "readers are in a group unless they are assigned"
    assert (
        due(readers(assign=True))
        == due(readers(follow=False))
        == due(readers(cluster="B"))
        == set()
    )
    assert due(readers(group="g"), groups="") == set()
    assert due(WorkloadSpec(kind="relay", home="A")) == followed, (
        "relays are in a group, and follow"
    )


def test_one_groups_samples_prove_nothing_about_another() -> None:
    """Both groups committed on A, long before bounds were sampled; offsets were sampled only of
    g."""
    reads = [replace(r, group=group, reader=group) for group in "gh" for r in moved(1, (1, 2))]
    on_source = GroupOffset(
        time=100 * SECOND, cluster="A", group="g", topic="A.t", partition=0, offset=1
    )
    seen = view(
        LOGS,
        promotions=FAILED_OVER,
        reads=reads,
        groups=[on_source],
        watermarks={"A": samples(*[(3, 3)] * 400)},
    )
    assert unjudged(NAME, seen) == [
        "no committed offset of group h was ever sampled on A, so how far it was there is unknown"
    ]


@pytest.mark.parametrize(
    ("sync_times", "fault", "replays"),
    [
        ((), "", [(200, 200)]),
        ((150,), "", [(50, 50), (150, 0)]),
        ((150,), "A/1", [(200, 100)]),
        ((150,), "B", [(200, 100)]),
        ((150,), "A->B", [(50, 50), (150, 0)]),
    ],
)
def test_a_late_sync_explains_repeats_above_the_last_one(
    sync_times: tuple[int, ...], fault: str, replays: list[tuple[int, int]]
) -> None:
    """Not what is below it, unless a coordinator may have answered with an earlier commit."""
    windows = [Window(id="f", fault="it", target=fault, start=1, end=2)] if fault else []
    uids = range(1, 201)
    again = [(i, uid) for i, uid in enumerate(uids)]
    reads = [
        poll(*again, group="g"),
        poll(kind="commit", group="g", position=200, at=200 * SECOND),
        poll(kind="commit", group="g", position=200, at=210 * SECOND),
        poll(*again, cluster="B", group="g", at=AFTER),
    ]
    logs = [Log("A").data(*uids), Log("B").data(*uids)]
    seen = view(
        logs, promotions=[promoted(200)], reads=reads, groups=synced(*sync_times), windows=windows
    )
    assert [
        (each.kind, each.evidence["records"], each.evidence["bound"])
        for each in findings(NAME, seen)
    ] == [("group-replay", *replay) for replay in replays]


def test_sampled_offsets_are_counted_where_they_were_sampled() -> None:
    on_source = GroupOffset(
        time=100 * SECOND, cluster="A", group="g", topic="A.t", partition=0, offset=1
    )
    after = GroupOffset(time=AFTER, cluster="B", group="g", topic="A.t", partition=0, offset=3)
    another = GroupOffset(time=SECOND, cluster="A", group="h", topic="A.t", partition=0, offset=1)
    seen = view(
        LOGS,
        promotions=FAILED_OVER,
        reads=moved(1, (1, 2)),
        groups=[on_source, another, *synced(1), after],
    )
    assert examined(NAME, seen) == {"A/checkpoints": 1, "B/checkpoints": 1, "B/mirrored": 3}


BACK = checkpointed(2, 1)


@pytest.mark.parametrize(
    "log",
    [committed(1, 2), committed(1, 2, 3), committed(1, 2, end="commit"), committed(2, 1, 2)],
    ids=["in order", "and on", "in a transaction", "back and on again, before the samples"],
)
def test_a_coordinator_that_loaded_a_group_anew_may_answer_with_an_earlier_commit(
    log: PartitionView,
) -> None:
    assert together(killed(BACK), log) == ([], [])


@pytest.mark.parametrize(
    "seen",
    [
        (killed(BACK), committed(2, 1)),
        (killed(BACK), committed(2)),
        (killed(BACK), committed(1, 2, group="h")),
        (killed(BACK), committed(1, 2, end="abort")),
        (killed(BACK, second=302), committed(1, 2)),
        (BACK, committed(1, 2)),
    ],
    ids=[
        "the log went back",
        "never there",
        "of another group",
        "aborted",
        "before the fault",
        "without a fault",
    ],
)
def test_a_later_or_missing_entry_of_the_coordinator_is_no_earlier_commit(
    seen: tuple[PartitionView, PartitionView],
) -> None:
    assert together(*seen) == ([("checkpoint-regression", 1)], [])


@pytest.mark.parametrize(
    "logs", [(), (committed(1, 2, start=3),)], ids=["not captured", "its beginning is gone"]
)
def test_without_the_coordinators_log_a_step_back_after_a_fault_is_unknown(
    logs: tuple[PartitionView, ...],
) -> None:
    why = (
        "the offset of group g in A.t-0 on B stepped back after a fault on its brokers, and not all"
        " of __consumer_offsets is "
    )
    assert together(killed(BACK), *logs) == ([], [why + "there to say why"])
