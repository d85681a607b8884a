"""What groups committed on a cluster, and what their offsets map to on another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np

from linkflap.harness.log.coordinators import GroupCommit, GroupMembers
from linkflap.spark_verify.checks.base import PartialFinding
from linkflap.spark_verify.checks.parts.mirrored_ranges import Hop
from linkflap.spark_verify.checks.parts.sampled_offsets import disturbed_from, visible_commits
from linkflap.spark_verify.facts.eras import FOREVER
from linkflap.spark_verify.facts.view import Ints, PartitionView, Replica

COMMITS: Final = "commits"
MAPPED: Final = "mapped"
_MEMBERS: Final = -1
"""Instead of the number of a time without members: the group has some, and commits for itself."""


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
    """What offsets of the source map to on the destination of a mirrored range, where groups were
    seen to read."""
    if not (view.groups or any(r.group for r in view.reads)):
        return
    there, replica = compared.mirrored_range.destination, compared.destination.replica
    exact = view.mirror.guarantee.group_offsets == "exact"
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
        compared.destination.replica.records.offset[compared.mirrored[known]],
    )
    present = np.flatnonzero(last >= 0)
    origins = compared.source.replica.records.offset[compared.sequence[present]]
    return origins, np.minimum.accumulate(last[present][::-1])[::-1]
