"""Checkpoints: what a mirror committed for a group on its destination, as sampled before a failover
(KIP-545)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from linkflap.harness.log.coordinators import GROUPS
from linkflap.harness.model.history import GroupOffset
from linkflap.spark_verify.checks.base import Finding, Found, PartialFinding, Unjudged
from linkflap.spark_verify.checks.parts.logs import Log, among, distinct
from linkflap.spark_verify.checks.parts.sampled_offsets import disturbed_from
from linkflap.spark_verify.facts.partition_facts import Promotion
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Ints, PartitionView


def uids_of(reads: Iterable[Read]) -> Ints:
    """The payload ids that these reads returned, each once, in order."""
    parts = [r.uids for r in reads]
    return distinct(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def checkpoints(
    view: PartitionView, promotion: Promotion, group: str, destination: Log, polls: Sequence[Read]
) -> Sequence[Finding]:
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
    ours = destination.replica.records
    mirrored = np.flatnonzero(
        destination.visible & (ours.uid >= 0) & (ours.offset < promotion.offset)
    )
    findings: list[Finding] = []
    highest = -1
    for row in committed:
        evidence = {"group": group, "committed": row.offset, "time": row.time}
        if row.offset < highest:
            findings.append(_went_back(view, promotion, row, evidence | {"before": highest}))
        after = int(np.searchsorted(marks.time, row.time)) if marks is not None else 0
        end = int(reached[after]) if after < len(reached) else promotion.offset
        if row.offset > end:
            findings.append(
                _checkpoint(
                    "checkpoint-beyond-end",
                    promotion,
                    row.offset,
                    evidence | {"high_watermark": end},
                )
            )
        fresh = mirrored[(ours.offset[mirrored] >= highest) & (ours.offset[mirrored] < row.offset)]
        ahead = fresh[~among(ours.uid[fresh], uids_of(r for r in polls if r.time <= row.time))]
        if len(ahead):
            more = {"records": len(ahead), "uid": int(ours.uid[ahead[0]])}
            findings.append(
                _checkpoint(
                    "checkpoint-ahead", promotion, int(ours.offset[ahead[0]]), evidence | more
                )
            )
        highest = max(highest, row.offset)
    return findings


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
        what = (
            f"the offset of group {sampled['group']} in {part.topic}-{part.partition} on "
            f"{part.cluster}"
        )
        return Unjudged(
            reason=(
                f"{what} stepped back after a fault on its brokers, and not all of {GROUPS} is "
                "there to say why"
            )
        )
    first = commits.index(part.offset) if part.offset in commits else len(commits)
    if sampled["before"] in commits[first:]:
        return None
    evidence = {name: value for name, value in sampled.items() if name != "what"}
    return Found(
        kind="checkpoint-regression", cluster=part.cluster, offset=part.offset, evidence=evidence
    )


def _checkpoint(
    kind: str, promotion: Promotion, offset: int, evidence: Mapping[str, object]
) -> Found:
    return Found(kind=kind, cluster=promotion.cluster, offset=offset, evidence=evidence)
