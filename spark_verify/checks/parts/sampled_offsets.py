"""Sampled committed offsets of groups: whether there are any samples of a group that had committed.

The sampler (`harness.capture.watermarks`) requests bounds all the time and the offsets of groups
now and then, in one thread. If bounds were sampled for a while after a group had committed, and its
offsets never were, the sampler did not ask for that group, or got no answer.

A coordinator that reloads a partition answers with the part below its known high watermark
(KAFKA-15910). Until its followers have fetched, samples step back to an earlier commit of the
group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from linkflap.harness.log.coordinators import GroupCommit
from linkflap.spark_verify.checks.parts.logs import ABORTED, OPEN, read
from linkflap.spark_verify.facts.eras import FOREVER, on_cluster
from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.facts.view import PartitionView, Replica

ASKED_WITHIN: Final = 3_000_000_000
"""Nanoseconds of sampling within which groups are sampled too: they are every half a second, and
each attempt may take 2 s to fail."""


def never_sampled(view: PartitionView, cluster: str, group: str, *, until: int) -> str:
    """Why a group's position on a cluster before some time is unknown; empty where it was sampled,
    or not due."""
    if any(g.group == group and g.cluster == cluster for g in view.groups):
        return ""
    mine = [
        r
        for r in view.reads
        if r.group == group and r.cluster == cluster and r.kind == "commit" and r.returned < until
    ]
    marks = view.watermarks.get(cluster)
    if not mine or marks is None:
        return ""
    first = min(r.returned for r in mine)
    if not ((marks.time >= first + ASKED_WITHIN) & (marks.returned < until)).any():
        return ""
    return (
        f"no committed offset of group {group} was ever sampled on {cluster}, so how far it was "
        "there is unknown"
    )


def disturbed_from(windows: Sequence[Window], cluster: str) -> int:
    """When the first fault reached brokers of a cluster: from then on its coordinators may have
    reloaded their partitions."""
    given_up = [w for w in windows if w.name.forced and w.on.source == cluster]
    return min((w.start for w in (*on_cluster(windows, cluster), *given_up)), default=FOREVER)


def visible_commits(replica: Replica) -> Iterator[tuple[GroupCommit, int]]:
    """Commits of groups in a coordinator's log, each with the row of its batch: those of a
    transaction that did not commit never were."""
    state = read(replica).state
    return ((commit, row) for commit, row in _commits(replica) if state[row] not in (ABORTED, OPEN))


def pending_commits(replica: Replica) -> Iterator[GroupCommit]:
    """Commits of groups in transactions that are open in a coordinator's log.

    A transaction's commit is acknowledged once it is prepared, and its markers are written after
    that (KIP-98): brokers that die in between leave none, and write it when they are back.
    """
    state = read(replica).state
    return (commit for commit, row in _commits(replica) if state[row] == OPEN)


def _commits(replica: Replica) -> Iterator[tuple[GroupCommit, int]]:
    commits = [entry for entry in replica.entries if isinstance(entry, GroupCommit)]
    rows = (
        np.searchsorted(replica.batches.base_offset, [c.offset for c in commits], side="right") - 1
    )
    return zip(commits, rows.tolist(), strict=True)
