"""Entries of group coordinators in the histories of group-offsets, and the findings in all of a
run."""

from __future__ import annotations

from dataclasses import replace

from linkflap.harness.log.coordinators import GROUPS, GroupCommit, GroupMembers
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Found, PartialFinding, Unjudged
from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.clients import poll
from tests.unit.checks.histories import view
from tests.unit.checks.logs import SECOND, Log

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
    return replace(
        seen,
        partition_facts=replace(
            seen.partition_facts, facts=replace(seen.partition_facts.facts, windows=[window])
        ),
    )


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
    raw = [(one, f) for one in seen for f in REGISTRY[NAME].kernel(one)]
    partials = [
        replace(f, topic=one.topic, partition=one.partition)
        for one, f in raw
        if isinstance(f, PartialFinding)
    ]
    combine = REGISTRY[NAME].combine
    assert combine is not None
    every = [*(f for _, f in raw), *(c.found for c in combine(partials))]
    return [(f.kind, f.offset) for f in every if isinstance(f, Found)], [
        f.reason for f in every if isinstance(f, Unjudged)
    ]


def killed(seen: PartitionView, second: int = 299) -> PartitionView:
    """The same, with a broker of B killed by that second."""
    window = Window(
        id="f", fault="broker-kill", target="B/1", start=second * SECOND, end=second * SECOND
    )
    return replace(
        seen,
        partition_facts=replace(
            seen.partition_facts, facts=replace(seen.partition_facts.facts, windows=[window])
        ),
    )


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
