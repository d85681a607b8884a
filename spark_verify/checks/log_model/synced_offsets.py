"""Compares a mirror's commits for a group on its destination with the group's commits on the
source, from bytes.

Kafka accepts the commit of a client that is no member of the group only while the group has no
members. So among a group's commits in the destination's `__consumer_offsets`, those between two
periods with members are the mirror's. In that order they must not go back, and none may pass the
mapped maximum of the group's commits on the source. If the mirror promises exact group offsets,
each is an offset that the group committed there, or one at which the destination's log ended or
began: KIP-1279 lowers a commit to the end of the destination's log.

A step back is correct if the group's own offset went back on the source, or if the destination's
log was truncated. After a fault on its brokers a coordinator that reloads the group may answer with
an earlier commit (KAFKA-15910). If that happened on the source and the mirror copies commits, it
explains a step back to an earlier commit of the group. MirrorMaker 2 never commits below the
group's offset on the destination. Once a coordinator there may have answered with an earlier
commit, a step back is unknown.

A group is judged only if it had members on the source: a group without members commits like a
mirror.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np

from linkflap.harness.log.coordinators import GROUPS, GroupCommit, GroupMembers
from linkflap.spark_verify.checks.base import Combined, Found, PartialFinding, Unjudged
from linkflap.spark_verify.checks.log_model.mirrored_ranges import Hop
from linkflap.spark_verify.checks.log_model.samples import disturbed_from, visible_commits
from linkflap.spark_verify.facts.eras import FOREVER
from linkflap.spark_verify.facts.view import Ints, PartitionView, Replica

COMMITS: Final = "commits"
MAPPED: Final = "mapped"
_MEMBERS: Final = -1
"""Stands for the number of a period without members: the group has members, and commits itself."""


def commits(view: PartitionView) -> Iterator[PartialFinding]:
    """The groups' commits on each cluster, in order: [group, topic, partition, offset, time without
    members]; whether they are complete, which groups ever had members, and whether the cluster's
    coordinators may have reloaded groups."""
    for cluster, replica in view.canonical().items():
        data = {
            "what": COMMITS,
            "every": not (replica.damage or replica.log_start or view.compacted.get(cluster)),
            "rows": _rows(replica),
            "members": sorted(
                {e.group for e in replica.entries if isinstance(e, GroupMembers) and e.present}
            ),
            "disturbed": disturbed_from(view.windows, cluster) < FOREVER,
        }
        yield PartialFinding(cluster=cluster, offset=-1, data=data)


def _rows(replica: Replica) -> list[list[object]]:
    """Commits; those of a transaction are a member's own."""
    present: dict[str, set[str]] = defaultdict(set)
    times: dict[str, int] = defaultdict(int)
    transactional = replica.batches.transactional
    visible = {commit.offset: bool(transactional[row]) for commit, row in visible_commits(replica)}
    rows: list[list[object]] = []
    for entry in replica.entries:
        if isinstance(entry, GroupMembers):
            had = bool(present[entry.group])
            (present[entry.group].add if entry.present else present[entry.group].discard)(
                entry.member
            )
            times[entry.group] += had and not present[entry.group]
        elif isinstance(entry, GroupCommit) and entry.offset in visible:
            own = visible[entry.offset] or bool(present[entry.group])
            time = _MEMBERS if own else times[entry.group]
            rows.append([entry.group, entry.topic, entry.partition, entry.committed, time])
    return rows


def mapped(view: PartitionView, compared: Hop) -> Iterator[PartialFinding]:
    """Maps offsets of the source to the destination of a mirrored range, where groups were seen to
    read."""
    if not (view.groups or any(r.group for r in view.reads)):
        return
    there, replica = compared.mirrored_range.destination, compared.destination.replica
    exact = view.guarantee.group_offsets == "exact"
    truncated = [t.offset for t in view.truncations if t.cluster == there]
    promoted = [p.offset for p in view.promotions if p.cluster == there]
    known = not (replica.damage or view.compacted.get(there) or view.unclear.get(there))
    origins, lasts = (np.empty(0, np.int64),) * 2 if exact else _last_copies(compared)
    ends = (
        np.append(replica.batches.last_offset + 1, replica.batches.base_offset)
        if exact and known
        else np.empty(0, np.int64)
    )
    data = {
        "what": MAPPED,
        "source": compared.mirrored_range.source,
        "seen": _seen(view, compared.mirrored_range.source),
        "exact": exact,
        "origins": origins,
        "lasts": lasts,
        "ends": np.unique(ends),
        "ends_known": known,
        "start": replica.log_start,
        "truncated": min(truncated, default=FOREVER),
        "promoted": max(promoted, default=FOREVER),
    }
    yield PartialFinding(cluster=there, offset=-1, data=data)


def _seen(view: PartitionView, cluster: str) -> list[tuple[str, int]]:
    """(group, offset) that clients were acknowledged or samplers were answered on a cluster, also
    where its log has lost them."""
    acknowledged = [
        (r.group, r.position)
        for r in view.reads
        if r.kind == "commit" and r.cluster == cluster and r.position >= 0
    ]
    return sorted(
        {*acknowledged, *((g.group, g.offset) for g in view.groups if g.cluster == cluster)}
    )


def _last_copies(compared: Hop) -> tuple[Ints, Ints]:
    """Offsets of the source that are on the destination, rising; and for each the first offset
    there at which neither its last copy nor one of a later record is passed yet."""
    last = np.full(len(compared.sequence), -1, np.int64)
    known = compared.position >= 0
    np.maximum.at(
        last,
        compared.position[known],
        compared.destination.records.offset[compared.mirrored[known]],
    )
    present = np.flatnonzero(last >= 0)
    origins = compared.source.records.offset[compared.sequence[present]]
    return origins, np.minimum.accumulate(last[present][::-1])[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """One group and partition on one destination: its mirrored ranges, and what the group committed
    on the source of each.

    `theirs` by the coordinator's log, in its order; `seen` besides, by clients and samplers.
    `disturbed`: a coordinator of that source may have answered with an earlier commit; `late`: one
    of the destination may.
    """

    ranges: Sequence[Mapping[str, Any]]
    theirs: Sequence[Sequence[int]]
    seen: Sequence[Sequence[int]]
    disturbed: Sequence[bool]
    late: bool

    @property
    def exact(self) -> bool:
        return all(bool(r["exact"]) for r in self.ranges)

    def bound(self) -> tuple[int, int]:
        """The highest offset that may be committed, and what the group had committed on the source
        at most."""
        highest = [
            max((*own, *seen), default=0) for own, seen in zip(self.theirs, self.seen, strict=True)
        ]
        bounds = [self._of(r, top) for r, top in zip(self.ranges, highest, strict=True)]
        return max(bounds), max(highest)

    def _of(self, one: Mapping[str, Any], top: int) -> int:
        if one["exact"]:
            return max(top, int(one["start"]))
        index = int(np.searchsorted(one["origins"], top))
        return int(one["lasts"][index]) if index < len(one["lasts"]) else FOREVER

    def strange(self, offset: int) -> bool:
        """Whether the group never committed it on the source, and the destination's log can never
        have ended or begun there."""
        if not self.exact or any(offset in own for own in (*self.theirs, *self.seen)):
            return False
        return not any(_may_end(one, offset) for one in self.ranges)

    def steps_back(self, before: int, offset: int) -> bool:
        """Whether nothing allows the mirror to commit this after that."""
        if any(one["truncated"] < before for one in self.ranges) or any(
            one["promoted"] == offset for one in self.ranges
        ):
            return False
        answered = zip(self.theirs, self.disturbed, strict=True)
        if self.exact and any(disturbed and offset in own for own, disturbed in answered):
            return False
        return not any(_went_back(own, before, offset, exact=self.exact) for own in self.theirs)


def _may_end(one: Mapping[str, Any], offset: int) -> bool:
    """Whether a batch may end at `offset`. At or behind a truncation any offset may, also where a
    batch was written over it since."""
    if not one["ends_known"] or offset <= one["start"] or offset >= one["truncated"]:
        return True
    index = int(np.searchsorted(one["ends"], offset))
    return index < len(one["ends"]) and int(one["ends"][index]) == offset


def _went_back(own: Sequence[int], before: int, offset: int, *, exact: bool) -> bool:
    """Whether the group's own offset on the source went back in the same way; for translated
    offsets, whether it ever went back."""
    if not exact:
        return any(later < earlier for earlier, later in pairwise(own))
    first = next((n for n, one in enumerate(own) if one >= before), len(own))
    return offset in own[first:]


def _by_subject(
    parts: Sequence[PartialFinding],
) -> tuple[
    Mapping[str, list[Mapping[str, Any]]], Mapping[tuple[str, str, int], list[Mapping[str, Any]]]
]:
    """The coordinators' records by cluster, and the mirrored ranges by cluster, topic and
    partition."""
    logs: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    ranges: dict[tuple[str, str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for part in parts:
        if part.data["what"] == COMMITS:
            logs[part.cluster].append(part.data)
        elif part.data["what"] == MAPPED:
            ranges[part.cluster, part.topic, part.partition].append(part.data)
    return logs, ranges


def combine(parts: Sequence[PartialFinding]) -> Iterator[Combined]:
    """Judges every group for which a mirror committed offsets."""
    logs, ranges = _by_subject(parts)
    by_cluster = {cluster: _by_group(mine) for cluster, mine in logs.items()}
    for (there, topic, partition), mine in sorted(ranges.items(), key=lambda item: item[0]):
        sources = [str(one["source"]) for one in mine]
        every = all(map(partial(_has_every, logs), (there, *sources)))
        for group in _members(logs, sources):
            key = group, topic, partition
            judged = _Judged(
                ranges=mine,
                theirs=[
                    [commit for commit, _ in by_cluster.get(source, {}).get(key, [])]
                    for source in sources
                ],
                seen=[_of(group, one["seen"]) for one in mine],
                disturbed=[_disturbed(logs, source) for source in sources],
                late=_disturbed(logs, there),
            )
            found = list(_judge(there, group, by_cluster.get(there, {}).get(key, []), judged))
            if found and not every:
                why = (
                    f"what the mirror committed for group {group} in {topic}-{partition} on {there}"
                    " looks wrong"
                )
                found = [Unjudged(f"{why}, and not all of {GROUPS} is there to say so")]
            yield from (Combined(found=one, topic=topic, partition=partition) for one in found)


_Logs = Mapping[str, Sequence[Mapping[str, Any]]]
"""The contents of the group coordinators' logs, by cluster."""


def _has_every(logs: _Logs, cluster: str) -> bool:
    """Whether every commit on a cluster is known."""
    return bool(logs.get(cluster)) and all(log["every"] for log in logs[cluster])


def _of(group: str, seen: Iterable[tuple[str, int]]) -> Sequence[int]:
    return [offset for who, offset in seen if who == group]


def _disturbed(logs: _Logs, cluster: str) -> bool:
    return any(log["disturbed"] for log in logs.get(cluster, ()))


def _members(logs: _Logs, clusters: Iterable[str]) -> Sequence[str]:
    """Groups that had members on any of these clusters."""
    return sorted(
        {group for cluster in clusters for log in logs.get(cluster, ()) for group in log["members"]}
    )


def _by_group(
    logs: Sequence[Mapping[str, Any]],
) -> Mapping[tuple[str, str, int], list[tuple[int, int]]]:
    """(offset, time without members) by group and partition, in order; a group is in one of the
    logs."""
    found: dict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
    for group, topic, partition, offset, time in (row for log in logs for row in log["rows"]):
        found[group, topic, partition].append((offset, time))
    return found


def _judge(
    there: str, group: str, rows: Sequence[tuple[int, int]], judged: _Judged
) -> Iterator[Found | Unjudged]:
    bound, source_committed = judged.bound()
    highest, since = -1, _MEMBERS
    for offset, time in rows:
        if time != since or offset < 0:  # a member was there, or its offset was deleted
            highest, since = -1, time
        if time == _MEMBERS or offset < 0:
            continue
        evidence = {"group": group, "committed": offset}
        if offset < highest and judged.steps_back(highest, offset):
            if judged.late and not judged.exact:
                what = (
                    f"the mirror took the offset of group {group} on {there} back from {highest} to"
                    f" {offset}"
                )
                yield Unjudged(
                    f"{what}; after a fault on its brokers, its coordinator may have answered late"
                )
            else:
                yield Found.at(
                    "checkpoint-regression", there, offset, **(evidence | {"before": highest})
                )
        if offset > bound:
            more = {"source_committed": source_committed, "bound": bound}
            yield Found.at("checkpoint-beyond-commit", there, offset, **(evidence | more))
        elif judged.strange(offset):
            yield Found.at("checkpoint-stranger", there, offset, **evidence)
        highest = max(highest, offset)
