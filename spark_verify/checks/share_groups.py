"""share-groups: the promise of a share group (KIP-932): each committed record is delivered until it
is acknowledged, and not after that.

Neither order, nor where a group begins on another cluster after a failover, is promised or judged.

A member hands over records that it had fetched before, even if its lock has expired meanwhile and
another member was given the record and accepted it: then its own acknowledgement is refused. So a
record counts as delivered again only if a poll that began after the confirmation got it and the
broker confirmed an acknowledgement of that too. The group's start offset, as its coordinator has it
at the end, shows that every record below it is finished; it lags behind the last acknowledgements.
A broker gives up on a record after five deliveries, and a killed member may have been given one
without recording it. So the check does not judge how often a record was delivered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

import numpy as np

from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding
from linkflap.spark_verify.checks.parts.delivered_records import (
    Delivered,
    aborted_there,
    by_client,
    columns_of,
    found,
)
from linkflap.spark_verify.checks.parts.generation_clients import of_readers
from linkflap.spark_verify.checks.parts.generations import (
    every,
    examined,
    generations,
    log_of,
    number_at,
    replica_of,
)
from linkflap.spark_verify.checks.parts.logs import Log, among, distinct
from linkflap.spark_verify.checks.parts.share_group_progress import (
    DROPPED,
    ENDS,
    NEVER,
    column_of,
    done_with,
)
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.partition_facts import Promotion
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Bools, Origin, PartitionView

ABORTED: Final = "aborted-delivery"
AGAIN: Final = "delivered-again"
CONFIRMED: Final = (*ENDS, "released", "renewed")


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Follows every record that members of a group acquired on a cluster, and looks for those that
    none did."""
    findings: list[Finding] = []
    for generation in every(view):
        log = log_of(view, generation)
        for group, rows in _groups(view, generation).items():
            got = column_of(rows, "acquire")
            findings += examined(generation, distinct(got.offset), whole=True)
            wrong = [*_aborted(view, generation, log, rows), *_again(generation, rows, got)]
            findings += of_readers(generation, replica_of(view, generation), wrong)
            if generation.last and not _earlier(view, generation, group):
                findings += done_with(view, generation, log, group, rows)
    return findings


def _groups(view: PartitionView, generation: LogGeneration) -> Mapping[str, Sequence[Read]]:
    """What members did in a log generation, by group."""
    known = generations(view)[generation.cluster]

    def of_it(row: Read) -> bool:
        times = {number_at(known, row.time), number_at(known, row.returned)}
        return row.cluster == generation.cluster and times == {generation.number}

    theirs = sorted(filter(of_it, view.shares), key=attrgetter("group"))
    return {group: list(rows) for group, rows in groupby(theirs, attrgetter("group"))}


def _earlier(view: PartitionView, generation: LogGeneration, group: str) -> bool:
    """Whether a group was on a cluster before its log was truncated: what it is done with need not
    be of this log."""
    return any(
        (r.cluster, r.group) == (generation.cluster, group) and r.time < generation.began
        for r in view.shares
    )


def _aborted(
    view: PartitionView, generation: LogGeneration, log: Log | None, rows: Sequence[Read]
) -> Sequence[Finding]:
    got = columns_of(
        [row for row in rows if row.kind == "acquire" and row.isolation == "read_committed"]
    )
    by_marker = aborted_there(log, got)
    bad = by_marker | by_client(view, got)
    return found(
        generation.cluster, got, bad, ABORTED, lambda row: "marker" if by_marker[row] else "client"
    )


def _again(generation: LogGeneration, rows: Sequence[Read], got: Delivered) -> Sequence[Finding]:
    ends = column_of(rows, *ENDS)
    if not len(ends) or not len(got):
        return []
    order = np.argsort(ends.returned, kind="stable")
    known, first = np.unique(ends.offset[order], return_index=True)
    ended = order[first]  # of each offset the first that was confirmed
    nearest = np.minimum(np.searchsorted(known, got.offset), len(known) - 1)
    row = ended[nearest]
    began = np.array([read.time for read in got.reads], np.int64)[got.read]
    late = (
        (known[nearest] == got.offset) & (ends.uid[row] == got.uid) & (ends.returned[row] < began)
    )
    held = _held(got, late, column_of(rows, *CONFIRMED))
    return found(
        generation.cluster,
        got,
        held,
        AGAIN,
        lambda number: ends.reads[int(ends.read[row[number]])].reader,
    )


def _held(got: Delivered, late: Bools, answered: Delivered) -> Bools:
    """Of late deliveries, those whose acknowledgement their broker confirmed."""
    wanted = np.flatnonzero(among(answered.offset, distinct(got.offset[late])))
    held = np.zeros(len(got), np.bool_)
    confirmed: dict[tuple[int, str, int], int] = {}
    for row in wanted.tolist():
        read = answered.reads[int(answered.read[row])]
        key = int(answered.offset[row]), read.reader, read.process
        confirmed[key] = max(confirmed.get(key, 0), read.time)
    for row in np.flatnonzero(late).tolist():
        read = got.reads[int(got.read[row])]
        held[row] = (
            confirmed.get((int(got.offset[row]), read.reader, read.process), -1) >= read.returned
        )
    return held


def _due_at(scenario: Scenario, promotions: Sequence[Promotion]) -> Collection[tuple[str, Origin]]:
    """Where share groups begin."""
    del promotions
    due: set[tuple[str, Origin]] = set()
    for workload in scenario.workloads:
        if workload.kind == "share-group":
            cluster = str(workload.options.get("cluster", workload.home))
            due.add((cluster, "native" if cluster == workload.home else "mirrored"))
    return due


CHECK = Check(
    name="share-groups",
    guarantee=(
        "A share group is given each committed record until a member accepts or rejects it, "
        "and not after that was confirmed. With read_committed it is given no record of an "
        "aborted transaction."
    ),
    source=(
        "KIP-932 (share groups: delivery, acknowledgement, share.isolation.level); KIP-1222 "
        "(renewal)"
    ),
    inputs=frozenset({"batches", "records", "sends", "reads", "promotions"}),
    anomalies=(
        AnomalyKind(
            name=ABORTED,
            meaning=(
                "A member of a share group that has read_committed was given a record whose "
                "transaction was aborted."
            ),
            sentence=(
                "{reader} got {who} of {cluster} at {at} in its share group, although their "
                "transaction was aborted"
            ),
            counted=(
                "aborted record was given to a share group|aborted records were given to a share "
                "group"
            ),
            smallest=(
                "1 is aborted, a member of a read_committed group acquired 1: at the offset where "
                "it got it."
            ),
        ),
        AnomalyKind(
            name=AGAIN,
            meaning=(
                "A record was delivered to a share group by a poll that began after the broker had "
                "confirmed that it was accepted or rejected, and the broker confirmed an "
                "acknowledgement of that delivery too."
            ),
            sentence=(
                "{reader} got {who} of {cluster} at {at} again, after {witness} had their "
                "acknowledgement confirmed"
            ),
            counted=(
                "acknowledged record was delivered again|acknowledged records were delivered again"
            ),
            smallest=(
                "1 is accepted and confirmed; then a member acquires 1, and that is confirmed too: "
                "at the offset of 1."
            ),
        ),
        AnomalyKind(
            name=NEVER,
            meaning=(
                "A committed record lies below the start offset of a share group, and no member was"
                " ever given it."
            ),
            sentence=(
                "a share group on {cluster} is done with {who} at {at}, and no member was given "
                "them"
            ),
            counted=(
                "committed record was never given to a share group|committed records were never "
                "given to a share group"
            ),
            smallest=(
                "1 is committed at 0, the group's start offset is 1, nobody acquired 1: at the "
                "offset of 1."
            ),
        ),
        AnomalyKind(
            name=DROPPED,
            meaning=(
                "A committed record lies below the start offset of a share group. It was "
                "given to members fewer than three times, and none of them ever asked to "
                "accept or reject it."
            ),
            sentence=(
                "a share group on {cluster} is done with {who} at {at}, which no member accepted or"
                " rejected"
            ),
            counted=(
                "record was dropped by a share group unacknowledged|records were dropped by a share"
                " group unacknowledged"
            ),
            smallest=(
                "1 was acquired once and only released, and the group's start offset is 1: at the "
                "offset of 1."
            ),
        ),
    ),
    complete=frozenset({"promotions", "reads"}),
    follows=frozenset({"order-equality", "marker-pairing", "commit-aborted", "provenance"}),
    kernel=kernel,
    due_at=_due_at,
    when="where a workload's share group begins",
)
