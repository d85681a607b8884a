"""Compares the decisions of a cluster's coordinators with its partitions and clients, over all
partitions of the cluster.

A transaction is decided when it is prepared (PrepareCommit, PrepareAbort), with its partitions.
Then every one of them gets a marker of the recorded producer id and epoch; then the transaction is
complete. So per partition and producer id, the markers are the decisions, in that order. The marker
of what is not complete may not be there yet. A coordinator that gets no answer writes a marker
again, so a marker that repeats another may be of the same decision, or of the next.

Where the beginning of either log is gone, the other's beginning has no counterpart: any number of
the first decisions may lack their markers, or of the first markers their decisions. Of a log that
was captured before it was truncated, the end is not known either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from linkflap.harness.log.coordinators import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from linkflap.harness.model.topology import TopicPartition
from linkflap.spark_verify.checks.base import Combined, Found, PartialFinding, grouped
from linkflap.spark_verify.checks.parts.lost_records import EVIDENCE
from linkflap.spark_verify.checks.parts.transaction_states import IMPOSSIBLE, name_of


def _written(
    commits: Sequence[PartialFinding],
) -> Mapping[tuple[str, str, int], list[tuple[int, bool]]]:
    """(group, topic, partition) -> its commits in the log: the offset, and whether the coordinator
    had reloaded the partition."""
    written: dict[tuple[str, str, int], list[tuple[int, bool]]] = defaultdict(list)
    for partial in commits:
        keys = [tuple(key) for key in partial.data["keys"]]
        for key, committed, reloaded in rows_of(partial.data["commits"], 3):
            written[keys[key]].append((committed, bool(reloaded)))
    return written


def _pending(commits: Sequence[PartialFinding]) -> Mapping[tuple[str, str, int], set[int]]:
    """(group, topic, partition) -> what open transactions commit: it may have been acknowledged,
    but no reader was given it."""
    pending: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for partial in commits:
        keys = [tuple(key) for key in partial.data["keys"]]
        for key, committed in rows_of(partial.data["pending"], 2):
            pending[keys[key]].add(committed)
    return pending


def _has_all(commits: Sequence[PartialFinding]) -> bool:
    """Whether all that coordinators ever wrote of groups is there."""
    return bool(commits) and all(
        partial.data["sound"] and partial.data["begins"] == 0 for partial in commits
    )


def groups_seen(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    """What was seen of groups, against what their coordinators wrote."""
    commits = of_cluster(partials, "commits")
    if not _has_all(commits):
        return
    written, pending = _written(commits), _pending(commits)
    for partial in of_cluster(partials, "seen"):
        names = partial.data["groups"]
        sampled = rows_of(partial.data["sampled"], 3)
        acknowledged = rows_of(partial.data["acknowledged"], 2)
        for number, group in enumerate(names):
            log = written.get((group, partial.topic, partial.partition), [])
            seen = [
                (offset, bool(disturbed)) for which, offset, disturbed in sampled if which == number
            ]
            lost = _not_in(
                log, [next(same) for _, same in groupby(seen, itemgetter(0))], how="sampled"
            )
            there = {committed for committed, _ in log} | pending.get(
                (group, partial.topic, partial.partition), set()
            )
            lost = lost or _absent(
                there, [offset for which, offset in acknowledged if which == number]
            )
            if lost is not None:
                found = Found.at(
                    "commit-missing",
                    partial.cluster,
                    lost[0],
                    group=group,
                    seen=lost[1],
                    commits_in_the_log=len(log),
                )
                yield partial.combined(found)


def _not_in(
    log: Sequence[tuple[int, bool]], seen: Sequence[tuple[int, bool]], *, how: str
) -> tuple[int, str] | None:
    """The first observation that is not in the log behind the previous one.

    It may be earlier in the log once the coordinator has reloaded it.
    """
    commits, index = [committed for committed, _ in log], 0
    for offset, disturbed in seen:
        try:
            index = commits.index(offset, index)
        except ValueError:
            if not commits or not (disturbed or log[index][1]) or offset not in commits:
                return offset, how
            index = commits.index(offset)
    return None


def _absent(there: Collection[int], acknowledged: Sequence[int]) -> tuple[int, str] | None:
    return next(((offset, "acknowledged") for offset in acknowledged if offset not in there), None)


def of_cluster(partials: Sequence[PartialFinding], what: str) -> list[PartialFinding]:
    return [partial for partial in partials if partial.data["what"] == what]


def rows_of(values: object, width: int) -> list[list[int]]:
    rows: list[list[int]] = np.asarray(values, np.int64).reshape(-1, width).tolist()
    return rows


_Lost = tuple[int, int, int, int, str]
"""Producer id, epoch, control type, where the loss begins, and the fault."""


@dataclass(slots=True, kw_only=True)
class _Decided:
    """One transaction, prepared at an offset of its coordinator's log. `complete`: that says so,
    below the high watermark."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    offset: int
    partitions: Sequence[TopicPartition]
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marker:
    """A marker of one producer in one partition; `again`: it may be the one before it, written once
    more."""

    epoch: int
    commit: bool
    offset: int
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decisions:
    """What the coordinators of a cluster decided, in their order, per partition and producer id;
    `every`: since the beginning. `known`: else, the lowest epoch of each producer id that a state
    is there of; what was decided in a higher one is there."""

    decided: Mapping[TopicPartition, Mapping[int, Sequence[_Decided]]]
    every: bool
    known: Mapping[int, int]


def combine(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    """Compares what is known of each cluster."""
    for _, mine in sorted(grouped(partials, lambda each: each.cluster).items()):
        yield from _outcomes(mine)
        yield from groups_seen(mine)


def _outcomes(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    states = of_cluster(partials, "states")
    # A log with a hole says of no transaction how it ended.
    if not states or not all(partial.data["sound"] for partial in states):
        return
    yield from _shared_ids(states)
    decisions = _decisions(states)
    for partial in of_cluster(partials, "markers"):
        if not partial.data["known"]:
            continue
        actual: dict[int, list[_Marker]] = defaultdict(list)
        for pid, epoch, control, offset, again in rows_of(partial.data["markers"], 5):
            actual[pid].append(
                _Marker(epoch=epoch, commit=control == 1, offset=offset, again=again == 1)
            )
        expected = decisions.decided.get((partial.topic, partial.partition), {})
        for pid in sorted(expected.keys() | actual.keys()):
            for epoch, group in _groups(
                expected.get(pid, ()), actual.get(pid, []), decisions, pid, partial.data
            ):
                if (one := group.mismatch()) is not None:
                    kind, offset, decided = one
                    evidence = {"producer_id": pid, "producer_epoch": epoch, **_shown(decided)}
                    lost = [
                        row
                        for row in partial.data.get("lost", ())
                        if (row[0], row[1]) == (pid, epoch)
                    ]
                    back = replace(group, markers=_with(group.markers, lost))
                    if lost and back.mismatch() is None:
                        evidence[EVIDENCE] = lost[0][4]
                    found = Found.at(kind, partial.cluster, offset, **evidence)
                    yield partial.combined(found)


def _shared_ids(states: Sequence[PartialFinding]) -> Iterator[Combined]:
    """Producer ids that two transactional ids have: each id gets its own."""
    owners: dict[int, str] = {}
    for partial in sorted(states, key=lambda each: each.partition):
        ids = partial.data["ids"]
        reported: set[int] = set()
        for name, pid, _, state, offset, _ in rows_of(partial.data["states"], 6):
            owner = owners.setdefault(pid, ids[name]) if pid >= 0 else ids[name]
            if owner != ids[name] and pid not in reported:
                reported.add(pid)
                found = Found.at(
                    IMPOSSIBLE,
                    partial.cluster,
                    offset,
                    transactional_id=ids[name],
                    state=name_of(state),
                    wrong=f"producer id {pid} is that of {owner}",
                )
                yield partial.combined(found)


def _with(markers: Sequence[_Marker], lost: Sequence[_Lost]) -> Sequence[_Marker]:
    """The markers with those that a loss took away, before what was written from its start on."""
    rows = [
        (at, 0, _Marker(epoch=epoch, commit=control == 1, offset=at, again=False))
        for _, epoch, control, at, _ in lost
    ]
    rows += [(marker.offset, 1, marker) for marker in markers]
    return [marker for _, _, marker in sorted(rows, key=lambda row: row[:2])]


def _shown(decided: _Decided | None) -> dict[str, object]:
    if decided is None:
        return {}
    outcome = "COMMIT" if decided.commit else "ABORT"
    return {
        "transactional_id": decided.transactional_id,
        "decided": outcome,
        "decided_at": decided.offset,
    }


def _decisions(states: Sequence[PartialFinding]) -> _Decisions:
    found: dict[TopicPartition, dict[int, list[_Decided]]] = defaultdict(lambda: defaultdict(list))
    known: dict[int, int] = {}
    for partial in states:
        for _, pid, epoch, *_ in rows_of(partial.data["states"], 6):
            if epoch >= 0:
                known[pid] = min(epoch, known.get(pid, epoch))
        for decided in _transactions(partial.data):
            for tp in decided.partitions:
                found[tp][decided.producer_id].append(decided)
    every = all(partial.data["begins"] == 0 for partial in states)
    return _Decisions(decided=found, every=every, known=known)


def _transactions(data: Mapping[str, Any]) -> list[_Decided]:
    """The transactions of one partition of `__transaction_state`, in the order in which they were
    prepared."""
    ids, topics = data["ids"], data["topics"]
    partitions: dict[int, list[TopicPartition]] = defaultdict(list)
    for row, topic, partition in rows_of(data["partitions_of_states"], 3):
        partitions[row].append((topics[topic], partition))
    found: list[_Decided] = []
    prepared: dict[int, _Decided] = {}
    for row, (name, pid, epoch, state, offset, below) in enumerate(rows_of(data["states"], 6)):
        if state in (PREPARE_COMMIT, PREPARE_ABORT):
            prepared[name] = _Decided(
                transactional_id=ids[name], producer_id=pid, epoch=epoch,
                commit=state == PREPARE_COMMIT, offset=offset,
                partitions=partitions[row],
            )  # fmt: skip
            found.append(prepared[name])
        elif state in (COMPLETE_COMMIT, COMPLETE_ABORT) and name in prepared:
            done = prepared.pop(name)
            done.complete = bool(below) and done.commit == (state == COMPLETE_COMMIT)
    return found


One = tuple[str, int, _Decided | None]
"""Kind, offset, and what was decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """What was decided in one epoch of a producer id, and its markers in one partition.

    `every`: all that was decided is there; `from_start`: all markers are, from the first on.
    """

    wanted: Sequence[_Decided]
    markers: Sequence[_Marker]
    every: bool
    from_start: bool

    def mismatch(self) -> One | None:
        """The first place at which the markers are not what was decided; None where they can be."""
        if self._alike():
            return None
        if self.every and self.from_start:
            return _in_order(self.wanted, self.markers)
        owed = [decided for decided in self.wanted if decided.complete]
        if self.from_start and len(self.markers) < len(owed):
            return "marker-missing", -1, owed[0]
        last = owed[-1] if owed else None
        extra = not self.wanted or (self.every and len(self.markers) > len(self.wanted))
        kind = "marker-unexplained" if extra else "outcome-disagreement"
        return (kind, self.markers[-1].offset, last) if self.markers else None

    def _alike(self) -> bool:
        """Whether each marker is of the next decision, or of the same one again, and none that is
        complete lacks its own."""
        wanted = self.wanted
        reached = _skipping(wanted, {0} if self.from_start else {*range(len(wanted) + 1)})
        for marker in self.markers:
            matched = {
                n + 1 for n in reached if n < len(wanted) and wanted[n].commit == marker.commit
            }
            before = set() if self.every else {0}
            reached = _skipping(wanted, matched | before | (reached if marker.again else set()))
        return len(wanted) in reached


def _groups(
    wanted: Sequence[_Decided],
    markers: Sequence[_Marker],
    decisions: _Decisions,
    pid: int,
    data: Mapping[str, Any],
) -> Iterator[tuple[int, _Group]]:
    """The epochs of a producer id, in order. They rise along both logs: of an epoch above one that
    a log has, that log has all. An epoch below 0 is of a changed header, and shows nothing."""
    lowest = min((marker.epoch for marker in markers if marker.epoch >= 0), default=-1)
    known = decisions.known.get(pid, -1)
    epochs = sorted({*(each.epoch for each in wanted), *(each.epoch for each in markers)})
    shared = _last_shared_epoch(wanted, markers)
    for epoch in epochs:
        # Copied logs may be of two moments: what is in one alone at the end may be later.
        if not data["recorded"] and epoch > shared:
            continue
        yield (
            epoch,
            _Group(
                wanted=_decided_in(epoch, wanted, to_end=bool(data["to_end"])),
                markers=[marker for marker in markers if marker.epoch == epoch],
                every=decisions.every or -1 < known < epoch,
                from_start=bool(data["from_start"]) or -1 < lowest < epoch,
            ),
        )


def _last_shared_epoch(wanted: Sequence[_Decided], markers: Sequence[_Marker]) -> int:
    """The epoch up to which both logs have some of a producer id; -1 where one has none."""
    return min(
        max((decided.epoch for decided in wanted), default=-1),
        max((marker.epoch for marker in markers), default=-1),
    )


def _decided_in(epoch: int, wanted: Sequence[_Decided], *, to_end: bool) -> Sequence[_Decided]:
    """What was decided in an epoch. Unless the markers are known `to_end`, what was decided behind
    the last of them may have been marked later."""
    decided = [each for each in wanted if each.epoch == epoch]
    return decided if to_end else [replace(each, complete=False) for each in decided]


def _in_order(wanted: Sequence[_Decided], markers: Sequence[_Marker]) -> One | None:
    """The first place at which markers are not what was decided; of what is not complete they may
    be missing."""
    complete = sum(decided.complete for decided in wanted)
    index = 0
    for decided in wanted:
        if index < len(markers) and markers[index].commit == decided.commit:
            index += 1
        elif decided.complete and (len(markers) < complete or index == len(markers)):
            return "marker-missing", -1, decided
        elif index < len(markers):
            kind = "marker-unexplained" if len(markers) > len(wanted) else "outcome-disagreement"
            return kind, markers[index].offset, decided
    return ("marker-unexplained", markers[index].offset, None) if index < len(markers) else None


def _skipping(wanted: Sequence[_Decided], reached: set[int]) -> set[int]:
    """With what is not complete skipped, from each of these on."""
    found = set(reached)
    for number in sorted(reached):
        while number < len(wanted) and not wanted[number].complete and number + 1 not in found:
            number += 1
            found.add(number)
    return found
