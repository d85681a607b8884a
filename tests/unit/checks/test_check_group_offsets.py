"""group-offsets: the smallest histories."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from linkflap.harness.guarantees import declared
from linkflap.harness.log.coordinators import GROUPS, GroupCommit, GroupMembers
from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.scenario import MirrorSpec, WorkloadSpec
from linkflap.spark_verify.facts.partition_facts import LogTruncation, Window
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import PartitionView
from tests.scenarios import scenario_of
from tests.unit.checks.histories import SECOND, Log, but, poll, promoted, samples, view
from tests.unit.checks.verdicts import Rejected, due_at, examined, findings, unjudged

NAME = "group-offsets"


def coordinator(
    cluster: str, *written: int | str | tuple[int, ...], group: str = "g", start: int = 0
) -> tuple[Log, tuple[GroupCommit | GroupMembers, ...]]:
    """Entries of a group coordinator: committed offsets, "members", "empty", or, in a tuple, the
    commits of one transaction."""
    log = Log(cluster, start=start)
    entries: list[GroupCommit | GroupMembers] = []
    for one in written:
        at = log.end
        if isinstance(one, str):
            log.data(-1)
            entries.append(
                GroupMembers(offset=at, group=group, member="", present=one == "members")
            )
            continue
        offsets = one if isinstance(one, tuple) else (one,)
        log = log.txn(*[-1] * len(offsets), pid=9) if isinstance(one, tuple) else log.data(-1)
        entries += [
            GroupCommit(offset=at + n, group=group, topic="A.t", partition=0, committed=offset)
            for n, offset in enumerate(offsets)
        ]
    return log, tuple(entries)


def coordinators(
    *logs: tuple[Log, tuple[GroupCommit | GroupMembers, ...]], disturbed: str = ""
) -> PartitionView:
    """`__consumer_offsets` of clusters, in a run in which brokers of one cluster may have been
    killed."""
    seen = view([log for log, _ in logs], topic=GROUPS)
    seen = replace(
        seen,
        replicas=[replace(r, entries=e) for r, (_, e) in zip(seen.replicas, logs, strict=True)],
    )
    if not disturbed:
        return seen
    window = Window(id="f", fault="broker-kill", target=f"{disturbed}/1", start=0, end=0)
    return but(seen, windows=[window])


READ_ON_A = [poll((0, 1), group="g")]


BYTES = view(
    [Log("A").data(1, 2).data(3, 4), Log("B").data(1, 2).data(3, 4)],
    reads=READ_ON_A,
    mirror_kind="shadow",
)
"""A group reads on A, and nothing fails over; B's log may end at 2 or 4."""


def beside(
    *mirror: int | str | tuple[int, int],
    source: tuple[int | str, ...] = ("members", 1, 3),
    disturbed: str = "",
    start: int = 0,
) -> PartitionView:
    """The group's commits on A, and its entries on B."""
    return coordinators(
        coordinator("A", *source), coordinator("B", *mirror, start=start), disturbed=disturbed
    )


def together(*seen: PartitionView) -> tuple[list[tuple[str, int]], list[str]]:
    """The findings in the partitions of one run, (kind, offset), and the reasons why something is
    unknown."""
    return [(f.kind, f.offset) for f in findings(NAME, *seen)], unjudged(NAME, *seen)


def killed(seen: PartitionView, second: int = 299) -> PartitionView:
    """The same, with a broker of B killed by that second."""
    window = Window(
        id="f", fault="broker-kill", target="B/1", start=second * SECOND, end=second * SECOND
    )
    return but(seen, windows=[window])


def committed(
    *offsets: int, start: int = 0, group: str = "g", end: str | None = None
) -> PartitionView:
    """The commits of B's group coordinator, in a run in which a broker of B was killed; `end`: in a
    transaction."""
    log = Log("B", start=start)
    for _ in offsets if end is None else ():
        log.data(-1)
    log = log if end is None else log.txn(*[-1] * len(offsets), pid=9, end=end)
    entries = [
        GroupCommit(offset=start + n, group=group, topic="A.t", partition=0, committed=offset)
        for n, offset in enumerate(offsets)
    ]
    seen = killed(view([log], topic=GROUPS))
    return replace(seen, replicas=[replace(r, entries=tuple(entries)) for r in seen.replicas])


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


def checkpointed(*offsets: int, high: int = 3, got: int = 3, then: int = 3) -> PartitionView:
    """A group that got the first `got` records on A at second 100, and committed that many. B's
    high watermark was not reported at second 300, and was `then` afterwards."""
    before = tuple((i, i + 1) for i in range(got))
    reads = moved(got, (3, 8), before=before)
    rows = [(high, high)] * 299 + [(-1, -1)] + [(then, then)] * 100
    marks = {"B": samples(*rows)}
    return view(
        LOGS, promotions=FAILED_OVER, reads=reads, groups=synced(*offsets), watermarks=marks
    )


ACCEPTED |= {
    "checkpoints": (checkpointed(1, 1, 3), {"B/mirrored": 3, "B/checkpoints": 3}),
    "a checkpoint while B did not report its high watermark": (
        checkpointed(3, high=2),
        {"B/mirrored": 3, "B/checkpoints": 1},
    ),
    "a checkpoint before B ever reported a high watermark": (
        checkpointed(3, high=-1),
        {"B/mirrored": 3, "B/checkpoints": 1},
    ),
}


REJECTS = {
    "group-skip": Rejected(view(LOGS, promotions=FAILED_OVER, reads=moved(1, (2, 3))), "B", 1),
    "group-replay": Rejected(
        view(LOGS, promotions=FAILED_OVER, reads=moved(2, (0, 1), (1, 2), (2, 3))), "B", 0
    ),
    "checkpoint-regression": Rejected(checkpointed(2, 1), "B", 1),
    "checkpoint-beyond-end": Rejected(checkpointed(3, high=2, then=2), "B", 3),
    "checkpoint-ahead": Rejected(checkpointed(2, got=1), "B", 1, only=("group-skip",)),
    "checkpoint-beyond-commit": Rejected(view=BYTES, beside=(beside(4),), cluster="B", offset=4),
    "checkpoint-stranger": Rejected(
        view=BYTES, beside=(beside(1, source=("members", 2)),), cluster="B", offset=1
    ),
}


def test_record_mirrored_twice_replays_only_the_copy_that_was_read() -> None:
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


def test_group_offsets_is_due_on_clusters_where_a_group_follows_a_failover() -> None:
    def due(*workloads: WorkloadSpec, **mirror: str) -> Collection[tuple[str, str]]:
        scenario = scenario_of(
            mirror=declared(MirrorSpec(kind="mm2", options=mirror)), workloads=workloads
        )
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
        ((150,), "B partitions-added", [(50, 50), (150, 0)]),
        ((150,), "A records-deleted", [(50, 50), (150, 0)]),
    ],
)
def test_a_late_sync_explains_repeats_above_the_last_one(
    sync_times: tuple[int, ...], fault: str, replays: list[tuple[int, int]]
) -> None:
    """Not what is below it, unless a coordinator may have answered with an earlier commit."""
    target, _, name = fault.partition(" ")
    windows = [Window(id="f", fault=name or "it", target=target, start=1, end=2)] if fault else []
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


MOVED = view(
    [Log("A").data(1, 2).data(3, 4), Log("B").data(-1, 1, 2).data(3, 4)],
    reads=READ_ON_A,
)
"""MirrorMaker 2 has shifted every record by one."""


def truncated(offset: int) -> PartitionView:
    """The same, and B's log was truncated there once."""
    note = LogTruncation(link="A->B", cluster="B", offset=offset, end=9, time=SECOND)
    return but(BYTES, truncations=[note])


@pytest.mark.parametrize(
    ("seen", "internal"),
    [
        (BYTES, beside(1, 3, 3)),
        (BYTES, beside(0, 1, 2, 3)),
        (BYTES, beside(3, 1, source=("members", 1, 3, 1))),
        (BYTES, beside(3, 1, source=("members", 1, 3), disturbed="A")),
        (BYTES, beside(3, "members", 4, 5, "empty", 1)),
        (BYTES, beside("members", 4, 3)),
        (BYTES, beside((4, 3))),
        (BYTES, beside(4, 1, source=(1, 3))),
        (BYTES, coordinators(coordinator("A", "members", 1, 3), coordinator("B", 4, 1, group="h"))),
        (truncated(2), beside(3, 2)),
        (truncated(1), beside(1, source=("members", 3))),
        (MOVED, beside(2, 4)),
        (MOVED, beside(2, 1, source=("members", 3, 1))),
        (replace(BYTES, reads=[]), beside(4)),
        (
            replace(BYTES, reads=[*BYTES.reads, poll(kind="commit", group="g", position=4)]),
            beside(4),
        ),
    ],
    ids=[
        "as on the source",
        "taken back to where the log ends",
        "the group went back on the source",
        "the source's coordinator answered late",
        "the group itself was there in between",
        "the group itself",
        "in a transaction",
        "a group without members commits like a mirror",
        "another group",
        "the destination was truncated",
        "taken back to where the destination was truncated",
        "translated",
        "translated, and the group went back",
        "no group was seen",
        "acknowledged on the source, whose log has lost it",
    ],
)
def test_legal_commits_of_a_mirror_are_accepted(
    seen: PartitionView, internal: PartitionView
) -> None:
    assert together(seen, internal) == ([], [])


@pytest.mark.parametrize(
    ("seen", "internal", "found"),
    [
        (BYTES, beside(3, 1), ("checkpoint-regression", 1)),
        (BYTES, beside(3, 2), ("checkpoint-regression", 2)),
        (
            BYTES,
            beside(3, 1, source=("members", 1, 3), disturbed="B"),
            ("checkpoint-regression", 1),
        ),
        (BYTES, beside("members", 9, "empty", 4), ("checkpoint-beyond-commit", 4)),
        (truncated(2), beside(3, 1, source=("members", 3)), ("checkpoint-stranger", 1)),
        (MOVED, beside(4, 2), ("checkpoint-regression", 2)),
        (MOVED, beside(5), ("checkpoint-beyond-commit", 5)),
    ],
    ids=[
        "back",
        "back to where the log ended",
        "back, and only the destination's coordinator may have answered late",
        "beyond, after the group was there",
        "what was never committed, in a log that was truncated behind it",
        "translated, and back",
        "translated too far",
    ],
)
def test_illegal_commit_of_a_mirror_is_found(
    seen: PartitionView, internal: PartitionView, found: tuple[str, int]
) -> None:
    assert together(seen, internal) == ([found], [])


def test_a_translated_offset_may_be_that_of_the_first_copy() -> None:
    """B has 3 and 4 twice: a group that continues at the second 3 skips nothing."""
    twice = view(
        [Log("A").data(1, 2).data(3, 4), Log("B").data(1, 2).data(3, 4).data(3, 4)], reads=READ_ON_A
    )
    assert together(twice, beside(4, source=("members", 2))) == ([], [])
    assert together(twice, beside(5, source=("members", 2))) == (
        [("checkpoint-beyond-commit", 5)],
        [],
    )


@pytest.mark.parametrize(
    "internal",
    [
        beside(4, start=3),
        beside(4, source=("members", 3), start=3),
        coordinators(coordinator("A", "members", 1, start=2), coordinator("B", 4)),
    ],
    ids=["the destination's", "both", "the source's"],
)
def test_coordinator_log_without_its_beginning_proves_nothing(
    internal: PartitionView,
) -> None:
    why = (
        "what the mirror committed for group g in A.t-0 on B looks wrong, and not all of "
        "__consumer_offsets is there to say so"
    )
    assert together(BYTES, internal) == ([], [why])


def test_a_step_back_of_a_translating_mirror_is_unknown_after_a_fault_on_the_destination() -> None:
    why = (
        "the mirror took the offset of group g on B back from 4 to 2; after a fault on its "
        "brokers, "
    )
    why += "its coordinator may have answered late"
    assert together(MOVED, beside(4, 2, disturbed="B")) == ([], [why])
