"""The records that a share group has finished, and those that it was never given."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import numpy as np

from linkflap.spark_verify.checks.base import Finding, Found, Unjudged
from linkflap.spark_verify.checks.parts.delivered_records import Delivered, columns_of
from linkflap.spark_verify.checks.parts.logs import Log, among, distinct, runs
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Ints, PartitionView

NEVER: Final = "never-delivered"
DROPPED: Final = "never-acknowledged"
ENDS: Final = ("accepted", "rejected")
OFTEN: Final = 3
"""A record with this many recorded deliveries may have been archived by its broker."""


def done_with(
    view: PartitionView,
    generation: LogGeneration,
    log: Log | None,
    group: str,
    rows: Sequence[Read],
) -> Sequence[Finding]:
    """What the group is done with and was never given, or was given and never asked to be rid
    of."""
    if _last_cluster(view, group) != generation.cluster:
        return []
    ends = [row.position for row in rows if row.kind == "settled"]
    if not ends or log is None:
        return [
            Unjudged(
                reason=(
                    f"no member of share group {group} reported how far it is done with "
                    f"{view.topic}-{view.partition}"
                )
            )
        ]
    visible = np.flatnonzero(log.visible)
    offsets, uids = log.replica.records.offset[visible], log.replica.records.uid[visible]
    done = offsets < max(ends)
    findings = _missed_by(generation, rows, offsets[done], uids[done])
    later = offsets[~done]
    waiting = later[~among(later, distinct(column_of(rows, "acquire").offset))]
    if len(waiting):
        where = f"{view.topic}-{view.partition} of {generation.cluster}"
        findings.append(
            Unjudged(
                reason=(
                    f"share group {group} was not given all of {where} in time: first {waiting[0]}"
                )
            )
        )
    return findings


def _last_cluster(view: PartitionView, group: str) -> str:
    return max(
        (row for row in view.shares if row.group == group), key=attrgetter("returned")
    ).cluster


def _missed_by(
    generation: LogGeneration, rows: Sequence[Read], offsets: Ints, uids: Ints
) -> list[Finding]:
    """Of records that a group is done with, those that it never was given, and those that it never
    was asked to be done with."""
    got = among(offsets, distinct(column_of(rows, "acquire").offset))
    asked = among(offsets, distinct(column_of(rows, "accept", "reject", *ENDS).offset))
    often = among(
        offsets,
        distinct(
            columns_of([r for r in rows if r.kind == "acquire" and r.position >= OFTEN]).offset
        ),
    )
    kinds = ((NEVER, ~got), (DROPPED, got & ~asked & ~often))
    return [
        each
        for kind, bad in kinds
        for each in _found_of_group(generation.cluster, kind, offsets[bad], uids[bad])
    ]


def column_of(rows: Sequence[Read], *kinds: str) -> Delivered:
    return columns_of([row for row in rows if row.kind in kinds])


def _found_of_group(cluster: str, kind: str, offsets: Ints, uids: Ints) -> Sequence[Found]:
    return [
        Found(
            kind=kind,
            cluster=cluster,
            offset=int(offsets[start]),
            evidence={"records": end - start, "uid": int(uids[start])},
        )
        for start, end in runs(offsets, uids)
    ]
