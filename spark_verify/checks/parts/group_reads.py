"""What a consumer group skipped, and what it got again, where it read on after a failover."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from linkflap.harness.log.coordinators import GROUPS
from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.model.history import GroupOffset
from linkflap.spark_verify.checks.base import Examined, Finding, Found, PartialFinding, Unjudged
from linkflap.spark_verify.checks.parts.logs import Log, among, distinct, locate, together
from linkflap.spark_verify.checks.parts.mirrored_ranges import Hop
from linkflap.spark_verify.checks.parts.samples import disturbed_from
from linkflap.spark_verify.facts.eras import FOREVER, on_cluster
from linkflap.spark_verify.facts.partition_facts import Promotion
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Ints, PartitionView, Watermarks


def uids_of(reads: Iterable[Read]) -> Ints:
    """The payload ids that these reads returned, each once, in order."""
    return distinct(together(r.uids for r in reads))


def checkpoints(
    view: PartitionView, promotion: Promotion, group: str, destination: Log, polls: Sequence[Read]
) -> Iterator[Finding]:
    """The mirror's commits for the group on the destination, as sampled before the failover. The
    same thread samples bounds and groups, one after the other. So the first high watermark that it
    requested after a group's offset is from a time when the offset had been reported.
    """
    committed = [
        g
        for g in view.groups
        if g.group == group and g.cluster == promotion.cluster and g.time < promotion.fault_time
    ]
    marks = view.watermarks.get(promotion.cluster)
    reached = (
        np.maximum.accumulate(marks.high_watermark) if marks is not None else np.empty(0, np.int64)
    )
    ours = destination.records
    mirrored = np.flatnonzero(
        destination.visible & (ours.uid >= 0) & (ours.offset < promotion.offset)
    )
    highest = -1
    for row in committed:
        evidence = {"group": group, "committed": row.offset, "time": row.time}
        if row.offset < highest:
            yield _went_back(view, promotion, row, evidence | {"before": highest})
        after = int(np.searchsorted(marks.time, row.time)) if marks is not None else 0
        end = int(reached[after]) if after < len(reached) else promotion.offset
        if row.offset > end:
            yield _checkpoint(
                "checkpoint-beyond-end",
                promotion,
                row.offset,
                evidence | {"high_watermark": end},
            )
        fresh = mirrored[(ours.offset[mirrored] >= highest) & (ours.offset[mirrored] < row.offset)]
        ahead = fresh[~among(ours.uid[fresh], uids_of(r for r in polls if r.time <= row.time))]
        if len(ahead):
            more = {"records": len(ahead), "uid": int(ours.uid[ahead[0]])}
            yield _checkpoint(
                "checkpoint-ahead", promotion, int(ours.offset[ahead[0]]), evidence | more
            )
        highest = max(highest, row.offset)


def _went_back(
    view: PartitionView, promotion: Promotion, row: GroupOffset, evidence: Mapping[str, object]
) -> Found | PartialFinding:
    there = promotion.cluster
    if row.time < disturbed_from(view.windows, there):
        return _checkpoint("checkpoint-regression", promotion, row.offset, evidence)
    return PartialFinding(cluster=there, offset=row.offset, data={"what": "back", **evidence})


def held_against(
    part: PartialFinding, sampled: Mapping[str, Any], logs: Sequence[Mapping[str, Any]]
) -> Found | Unjudged | None:
    """A sample that stepped back, against the commits in the logs of its cluster; None where they
    explain it."""
    index = [sampled["group"], part.topic, part.partition]
    commits = [committed for log in logs for *key, committed, _ in log["rows"] if key == index]
    if not logs or not all(log["every"] for log in logs):
        what = f"the offset of group {sampled['group']} in {part.tp} on {part.cluster}"
        return Unjudged(
            f"{what} stepped back after a fault on its brokers, and not all of {GROUPS} is "
            "there to say why"
        )
    first = commits.index(part.offset) if part.offset in commits else len(commits)
    if sampled["before"] in commits[first:]:
        return None
    evidence = {name: value for name, value in sampled.items() if name != "what"}
    return Found.at("checkpoint-regression", part.cluster, part.offset, **evidence)


def _checkpoint(
    kind: str, promotion: Promotion, offset: int, evidence: Mapping[str, object]
) -> Found:
    return Found.at(kind, promotion.cluster, offset, **evidence)


def during(view: PartitionView, compared: Hop) -> PartitionView:
    """What was seen of groups until the next failover away from the destination; there, from when
    it followed for certain.

    Until then the mirror sets groups back that had read what it truncated.
    """
    began, there = compared.mirrored_range.settled, compared.mirrored_range.destination
    later = [p.fault_time for p in view.promotions if p.source == there and p.time > began]
    ended = min(later, default=FOREVER)
    marks = view.watermarks

    def within(cluster: str, time: int, returned: int) -> bool:
        return (cluster != there or time >= began) and returned <= ended

    return replace(
        view,
        reads=[r for r in view.reads if within(r.cluster, r.time, r.returned)],
        groups=[g for g in view.groups if within(g.cluster, g.time, g.time)],
        watermarks=(
            {name: _within(mine, began, ended) for name, mine in marks.items()}
            if began or later
            else marks
        ),
    )


def _within(marks: Watermarks, began: int, ended: int) -> Watermarks:
    inside = (marks.time >= began) & (marks.returned <= ended)
    return marks.take(inside)


def polls_of(view: PartitionView, group: str) -> Sequence[Read]:
    """Every poll of a group's members, on all clusters."""
    return [r for r in view.reads if r.group == group and r.kind == "poll" and len(r.uids)]


def skipped_and_repeated(
    view: PartitionView,
    promotion: Promotion,
    group: str,
    source: Log,
    destination: Log,
    polls: Sequence[Read],
) -> Iterable[Finding]:
    own = [r for r in view.reads if r.group == group]
    commits = [
        r for r in own if r.cluster == promotion.source and r.kind == "commit" and r.position >= 0
    ]
    after = [r for r in own if r.cluster == promotion.cluster and r.kind == "poll" and len(r.uids)]
    if not commits or not after:
        return []
    return _beside(view, promotion, commits, after, source, destination, uids_of(polls))


def _beside(
    view: PartitionView,
    promotion: Promotion,
    commits: Sequence[Read],
    after: Sequence[Read],
    source: Log,
    destination: Log,
    got: Ints,
) -> Iterator[Finding]:
    """What a group that had committed on the source skipped, and got again, where it began on the
    destination."""
    group = commits[0].group
    committed = max(commits, key=lambda r: r.returned)
    ours = destination.records
    mirrored = np.flatnonzero(
        destination.visible & (ours.uid >= 0) & (ours.offset < promotion.offset)
    )
    at = locate(source.records.uid, ours.uid[mirrored])
    mirrored, at = mirrored[at >= 0], at[at >= 0]
    origin = source.records.offset[at]
    first = min(after, key=lambda r: r.returned)
    start = int(first.offsets[0])
    skipped = mirrored[
        (ours.offset[mirrored] < start)
        & (origin >= committed.position)
        & ~among(ours.uid[mirrored], got)
    ]
    # The copy that was read: an at-least-once mirror may have written a record twice.
    read = locate(ours.offset[mirrored], np.concatenate([r.offsets for r in after]))
    uids = np.concatenate([r.uids for r in after])[read >= 0]
    read = read[read >= 0]
    read = read[ours.uid[mirrored[read]] == uids]
    again = mirrored[(origin < committed.position) & np.isin(np.arange(len(mirrored)), read)]
    synced = [
        g.offset
        for g in view.groups
        if g.group == group and g.cluster == promotion.cluster and g.time < first.time
    ]
    above = ours.offset[mirrored] >= max(synced, default=0)
    late = np.isin(again, mirrored[above])
    bound = int(np.count_nonzero((origin < committed.position) & above))
    if _disturbed(view, promotion, commits, first):
        late = np.ones(len(again), np.bool_)
        bound = max(_bound(view.guarantee, commits, committed, origin), bound)
    yield Examined(cluster=promotion.cluster, origin="mirrored", count=len(mirrored))
    evidence = {"group": group, "committed_on_source": committed.position, "began_at": start}
    for kind, rows, more in (
        ("group-skip", skipped, {}),
        ("group-replay", again[late], {"bound": bound}),
        # Nothing explains what is below the offset that the mirror had committed for the group.
        ("group-replay", again[~late], {"bound": 0}),
    ):
        if len(rows):
            shown = evidence | {"records": len(rows), "uid": int(ours.uid[rows[0]])} | more
            yield Found.at(kind, promotion.cluster, ours.offset[rows[0]], **shown)


def _disturbed(
    view: PartitionView, promotion: Promotion, commits: Sequence[Read], first: Read
) -> bool:
    """Whether the mirror, or the group when it began, may have got an earlier commit of the group:
    it went back on the source, or a coordinator of either end reloaded (KAFKA-15910)."""
    ordered = [each.position for each in sorted(commits, key=lambda each: each.returned)]
    if any(after < before for before, after in pairwise(ordered)):
        return True
    ends = ((promotion.source, promotion.fault_time), (promotion.cluster, first.time))
    return any(
        window.start < until
        for cluster, until in ends
        for window in on_cluster(view.windows, cluster)
    )


def _bound(promised: Guarantee, commits: Sequence[Read], committed: Read, origin: Ints) -> int:
    """The number of mirrored records that the group may get again if its offsets were synced as
    often as the mirror promises."""
    by_then = committed.returned - int(promised.group_offset_seconds * 1e9)
    settled = [r.position for r in commits if r.returned <= by_then]
    since = max(settled, default=0)
    recent = int(np.count_nonzero((origin >= since) & (origin < committed.position)))
    behind = int(np.count_nonzero(origin >= committed.position))
    return recent + promised.group_offset_records + behind
