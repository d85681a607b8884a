"""Compares the decisions of a cluster's coordinators with its partitions and clients, over all
partitions of the cluster.

A transaction is decided when it is prepared (PrepareCommit, PrepareAbort), with its partitions.
Then every one of them gets a marker of the recorded producer id and epoch; then the transaction is
complete. One producer id and epoch may decide many transactions (before KIP-890), so outcomes are
compared in order. If the beginning of either log is gone, the last outcomes are compared: the
markers of those at the very end may not be there yet, unless they are complete. A coordinator that
gets no answer writes a marker again, so a marker that repeats another may be of the same decision,
or of the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from linkflap.harness.log.coordinators import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from linkflap.harness.model.topology import TopicPartition
from linkflap.spark_verify.checks.base import Combined, Found, PartialFinding
from linkflap.spark_verify.checks.parts.coordinator_groups import groups_seen, of_cluster, rows_of
from linkflap.spark_verify.checks.parts.lost_records import EVIDENCE

"""Topic, partition."""
Producer = tuple[int, int]
"""Producer id, epoch."""
_Lost = tuple[int, int, int, int, str]
"""Producer id, epoch, control type, where the loss begins, and the fault."""


@dataclass(slots=True, kw_only=True)
class _Decided:
    """One transaction, prepared at an offset of its coordinator's log. `complete`: that says so,
    below the high watermark."""

    transactional_id: str
    producer: Producer
    commit: bool
    offset: int
    partitions: Sequence[TopicPartition]
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marker:
    """A marker of one producer in one partition; `again`: it may be the one before it, written once
    more."""

    commit: bool
    offset: int
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decisions:
    """What the coordinators of a cluster decided, in their order, per partition and producer;
    `every`: since the beginning."""

    decided: Mapping[TopicPartition, Mapping[Producer, Sequence[_Decided]]]
    every: bool


def combine(partials: Sequence[PartialFinding]) -> Sequence[Combined]:
    """Compares what is known of each cluster."""
    found: list[Combined] = []
    for cluster in sorted({partial.cluster for partial in partials}):
        mine = [partial for partial in partials if partial.cluster == cluster]
        found += [*_outcomes(mine), *groups_seen(mine)]
    return found


def _outcomes(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    states = of_cluster(partials, "states")
    # A log with a hole says of no transaction how it ended.
    if not states or not all(partial.data["sound"] for partial in states):
        return
    decisions = _decisions(states)
    for partial in of_cluster(partials, "markers"):
        tp = partial.topic, partial.partition
        actual: dict[Producer, list[_Marker]] = defaultdict(list)
        for pid, epoch, control, offset, again in rows_of(partial.data["markers"], 5):
            actual[pid, epoch].append(_Marker(commit=control == 1, offset=offset, again=again == 1))
        expected = decisions.decided.get(tp, {})
        exact = bool(partial.data["exact"]) and decisions.every
        for producer in sorted(expected.keys() | actual.keys()):
            wanted, markers = expected.get(producer, ()), actual.get(producer, [])
            compare = _in_order if exact else _at_the_end if partial.data["known"] else None
            one = compare(wanted, markers) if compare is not None else None
            if compare is not None and one is not None:
                kind, offset, decided = one
                evidence = {
                    "producer_id": producer[0],
                    "producer_epoch": producer[1],
                    **_shown(decided),
                }
                taken: Any = partial.data.get("lost", ())
                lost = [row for row in taken if (row[0], row[1]) == producer]
                if lost and compare(wanted, _with(markers, lost)) is None:
                    evidence[EVIDENCE] = lost[0][4]
                found = Found(kind=kind, cluster=partial.cluster, offset=offset, evidence=evidence)
                yield Combined(found=found, topic=partial.topic, partition=partial.partition)


def _with(markers: Sequence[_Marker], lost: Sequence[_Lost]) -> Sequence[_Marker]:
    """The markers with those that a loss took away, before what was written from its start on."""
    rows = [
        (at, 0, _Marker(commit=control == 1, offset=at, again=False))
        for _, _, control, at, _ in lost
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
    found: dict[TopicPartition, dict[Producer, list[_Decided]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for partial in states:
        for decided in _transactions(partial.data):
            for tp in decided.partitions:
                found[tp][decided.producer].append(decided)
    return _Decisions(decided=found, every=all(partial.data["begins"] == 0 for partial in states))


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
            # A coordinator that moved prepares again what it finds prepared.
            known = prepared.get(name)
            if known is None or known.producer != (pid, epoch) or known.complete:
                prepared[name] = _Decided(
                    transactional_id=ids[name], producer=(pid, epoch),
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


def _in_order(wanted: Sequence[_Decided], markers: Sequence[_Marker]) -> One | None:
    """The first place at which markers are not what was decided; of what is not complete they may
    be missing."""
    if any(marker.again for marker in markers) and _explained(wanted, markers):
        return None
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


def _explained(wanted: Sequence[_Decided], markers: Sequence[_Marker]) -> bool:
    """Whether each marker is of the next decision, or of the same one again, and none that is
    complete lacks its own."""
    reached = _skipping(wanted, {0})
    for marker in markers:
        matched = {n + 1 for n in reached if n < len(wanted) and wanted[n].commit == marker.commit}
        reached = _skipping(wanted, matched | (reached if marker.again else set()))
    return len(wanted) in reached


def _skipping(wanted: Sequence[_Decided], reached: set[int]) -> set[int]:
    """With what is not complete skipped, from each of these on."""
    found = set(reached)
    for number in sorted(reached):
        while number < len(wanted) and not wanted[number].complete and number + 1 not in found:
            number += 1
            found.add(number)
    return found


def _at_the_end(wanted: Sequence[_Decided], markers: Sequence[_Marker]) -> One | None:
    """Of logs that lost their beginning: the last marker that is not what was decided."""
    if not markers or not wanted or _ends_alike(wanted, markers):
        return None
    last = next((d for d in reversed(wanted) if d.complete), wanted[-1])
    return "outcome-disagreement", markers[-1].offset, last


def _ends_alike(wanted: Sequence[_Decided], markers: Sequence[_Marker]) -> bool:
    """Whether the last markers are the last decisions, as far back as both are known."""
    open_ = next((n for n, decided in enumerate(reversed(wanted)) if decided.complete), len(wanted))
    left = {len(wanted) - n for n in range(open_ + 1)}
    for marker in reversed(markers):
        if 0 in left:
            return True
        matched = {n - 1 for n in left if wanted[n - 1].commit == marker.commit}
        left = matched | (left if marker.again else set())
    return bool(left)
