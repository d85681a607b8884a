"""Coordinators' records and others' observations of them, as partial findings that
`parts.coordinator_decisions` compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from linkflap.harness.log.coordinators import TransactionState
from linkflap.spark_verify.checks.base import PartialFinding
from linkflap.spark_verify.checks.parts.generations import generations, native, replica_of
from linkflap.spark_verify.checks.parts.lost_records import Taken
from linkflap.spark_verify.checks.parts.samples import (
    disturbed_from,
    pending_commits,
    visible_commits,
)
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import (
    ABORT,
    COMMIT,
    OTHER_CONTROL,
    Batches,
    Bools,
    Ints,
    PartitionView,
    Replica,
)


def state_columns(states: Sequence[TransactionState], high_watermark: int) -> dict[str, object]:
    """States of transactions as columns, with the partitions that each touched."""
    names = {name: n for n, name in enumerate(dict.fromkeys(s.transactional_id for s in states))}
    topics = {
        name: n
        for n, name in enumerate(dict.fromkeys(topic for s in states for topic, _ in s.partitions))
    }
    rows = [
        (
            names[s.transactional_id],
            s.producer_id,
            s.producer_epoch,
            s.state,
            s.offset,
            int(s.offset < high_watermark),
        )
        for s in states
    ]
    numbered = [
        (n, topics[topic], number) for n, s in enumerate(states) for topic, number in s.partitions
    ]
    return {
        "what": "states", "ids": list(names), "topics": list(topics),
        "states": np.array(rows, np.int64).reshape(-1),
        "partitions_of_states": np.array(numbered, np.int64).reshape(-1),
    }  # fmt: skip


def commit_columns(replica: Replica) -> dict[str, object]:
    """Commits of groups, and whether a coordinator has reloaded the partition since; and those of
    open transactions."""
    # A leader that wrote in a later epoch had reloaded the entire partition.
    reloaded = replica.batches.leader_epoch < replica.batches.leader_epoch.max(initial=-1)
    seen = [(commit, int(reloaded[row])) for commit, row in visible_commits(replica)]
    open_ = list(pending_commits(replica))
    named = dict.fromkeys((c.group, c.topic, c.partition) for c in (*(c for c, _ in seen), *open_))
    keys = {key: n for n, key in enumerate(named)}
    written = [(keys[c.group, c.topic, c.partition], c.committed, after) for c, after in seen]
    pending = [(keys[c.group, c.topic, c.partition], c.committed) for c in open_]
    return {
        "what": "commits", "keys": [list(key) for key in keys],
        "commits": np.array(written, np.int64).reshape(-1),
        "pending": np.array(pending, np.int64).reshape(-1),
    }  # fmt: skip


def marker_partials(view: PartitionView) -> Iterator[PartialFinding]:
    """The markers of each cluster's own coordinators in this partition: those that are there in the
    end, and in each log before it was truncated."""
    for cluster, mine in generations(view).items():
        for generation in mine:
            replica = replica_of(view, generation)
            if replica is None or replica.damage:
                continue
            floor = _truncated_to(view, generation)
            own = _of_its_coordinators(view, generation, replica)
            own &= replica.batches.base_offset >= (floor or 0)
            whole = floor is None and not (replica.log_start or view.compacted.get(cluster))
            # Behind a reset (KIP-1279) producer ids are another cluster's; without a history
            # nothing says whose.
            reset = not view.recorded and bool((replica.batches.control == OTHER_CONTROL).any())
            partial = marked_partial(
                replica,
                own,
                from_start=whole and view.recorded,
                to_end=generation.last,
                known=not reset,
                recorded=view.recorded,
            )
            lost = Taken(view, cluster).markers()
            yield replace(partial, data={**partial.data, "lost": lost}) if lost else partial


def _truncated_to(view: PartitionView, generation: LogGeneration) -> int | None:
    """The offset below which a log was never truncated until the end of a generation, as its
    mirrors say: what was above it is in no log. None if it was not truncated at all."""
    cluster, ended = generation.cluster, generation.ended
    begun = [t.offset for t in view.truncations if t.cluster == cluster and t.time <= ended]
    stopped = [
        to
        for stop in view.stops
        if stop.cluster == cluster and stop.time <= ended
        for _, to in stop.truncated
    ]
    return max([*begun, *stopped, *generation.earlier], default=None)


def _of_its_coordinators(view: PartitionView, generation: LogGeneration, replica: Replica) -> Bools:
    """Per batch, whether it is native here, and not what a mirror appended when it ended."""
    offsets = replica.batches.base_offset
    own = (
        native(generation, offsets)
        if view.guarantee.offsets_kept
        else np.ones(len(offsets), np.bool_)
    )
    appended = [
        offset
        for stop in view.stops
        if stop.cluster == replica.cluster
        for offset, _ in stop.appended
    ]
    # A cleaner takes markers from anywhere below its checkpoint; those above are all there, as at
    # the end of a log.
    return own & (offsets >= view.compacted.get(replica.cluster, 0)) & ~np.isin(offsets, appended)


def marked_partial(
    replica: Replica, own: Bools, *, from_start: bool, to_end: bool, known: bool, recorded: bool
) -> PartialFinding:
    """`from_start`: all markers that were ever written there are there, `to_end`: and the last
    ones. `known`: they are all of this cluster's coordinators."""
    batches = replica.batches
    rows = np.flatnonzero(
        own & batches.crc_ok & ((batches.control == COMMIT) | (batches.control == ABORT))
    )
    columns = (
        batches.producer_id,
        batches.producer_epoch,
        batches.control,
        batches.base_offset,
        _written_again(batches),
    )
    data = {
        "what": "markers", "from_start": from_start, "to_end": to_end, "known": known,
        "recorded": recorded,
        "markers": np.stack([c[rows] for c in columns], axis=1).reshape(-1),
    }  # fmt: skip
    return PartialFinding(
        cluster=replica.cluster, offset=replica.log_start, data=data, together=replica.cluster
    )


def _written_again(batches: Batches) -> Ints:
    """Per batch 1 where it may be a marker that its coordinator wrote once more: the same as the
    one before it of its producer, without data in between. So it is when a leader moves, or an
    answer is lost, while a marker is being written.
    """
    of_producers = np.flatnonzero(batches.transactional & batches.crc_ok)
    order = of_producers[np.argsort(batches.producer_id[of_producers], kind="stable")]
    marker = (batches.control == COMMIT) | (batches.control == ABORT)
    columns = (batches.producer_id, batches.producer_epoch, batches.control)
    again = np.zeros(len(batches), np.int64)
    if len(order):
        same = marker[order[1:]] & np.logical_and.reduce(
            [c[order[1:]] == c[order[:-1]] for c in columns]
        )
        again[order[1:]] = same
    return again


def seen_of_groups(view: PartitionView) -> Iterator[PartialFinding]:
    """Committed offsets that somebody saw on a cluster, in order of time; and those that clients
    were acknowledged."""
    commits = [r for r in view.reads if r.kind == "commit" and r.group and r.position >= 0]
    for cluster in sorted({g.cluster for g in view.groups} | {r.cluster for r in commits}):
        disturbed = disturbed_from(view.windows, cluster)
        sampled = [
            (g.group, g.offset, int(g.time >= disturbed))
            for g in view.groups
            if g.cluster == cluster
        ]
        acknowledged = [(r.group, r.position) for r in commits if r.cluster == cluster]
        yield PartialFinding(
            cluster=cluster, offset=-1, data=_seen(sampled, acknowledged), together=cluster
        )


def _seen(
    sampled: Sequence[tuple[str, int, int]], acknowledged: Sequence[tuple[str, int]]
) -> Mapping[str, object]:
    groups = dict.fromkeys(
        [*(group for group, *_ in sampled), *(group for group, _ in acknowledged)]
    )
    names = {group: number for number, group in enumerate(groups)}
    seen = {"sampled": _numbered(names, sampled), "acknowledged": _numbered(names, acknowledged)}
    return {"what": "seen", "groups": list(names), **seen}


def _numbered(
    names: Mapping[str, int], rows: Sequence[tuple[str, int, int] | tuple[str, int]]
) -> Ints:
    """Rows that begin with a group's name, with its number instead, one behind the other."""
    return np.array([(names[name], *rest) for name, *rest in rows], np.int64).reshape(-1)
