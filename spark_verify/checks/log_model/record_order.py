"""Records that came again, or out of the source's order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from linkflap.spark_verify.checks.base import Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.cleaning import perhaps_again, written_again
from linkflap.spark_verify.checks.log_model.logs import among, runs, written
from linkflap.spark_verify.checks.log_model.mirrored_ranges import Hop, repeated_at_source
from linkflap.spark_verify.facts.view import Ints, PartitionView


def order_anomaly(compared: Hop, kind: str, at: Ints, **evidence: object) -> Found:
    """An anomaly at neighbouring records of the destination: `at` are indices into `mirrored`."""
    ours = compared.destination.replica
    rows = compared.mirrored[at]
    return Found.at(
        kind,
        ours.cluster,
        ours.records.offset[rows[0]],
        records=len(at),
        uid=ours.records.uid[rows[0]],
        source=compared.source.cluster,
        **evidence,
    )


def repeats(view: PartitionView, compared: Hop) -> Iterator[Finding]:
    ours = compared.destination.replica
    uids = ours.records.uid[compared.mirrored]
    excused = np.concatenate((repeated_at_source(compared), compared.unsettled))
    again = np.flatnonzero((compared.copy > 0) & ~among(uids, excused))
    if len(again) and may_repeat(view):
        yield unknown_repeats(view, ours.cluster, len(again))
        return
    compacted = compared.gaps or view.compacted.get(ours.cluster, 0) > 0
    # One replay of a range is one anomaly, dated by its oldest record.
    for start, end in runs(again, compared.first[again]):
        at = again[start:end]
        offset = int(ours.records.offset[compared.mirrored[at[0]]])
        original = int(ours.records.offset[compared.mirrored[compared.first[at[0]]]])
        evidence: dict[str, object] = {
            "first_offset": original,
            "copy": int(compared.copy[at].max()),
            "first_written": written(view, ours.cluster, original),
            "written": written(view, ours.cluster, offset),
        }
        if not compacted and not _goes_on(view, compared, at, excused):
            evidence["alone"] = True
        yield order_anomaly(compared, "mirrored-duplicate", at, **evidence)


def _goes_on(view: PartitionView, compared: Hop, at: Ints, excused: Ints) -> bool:
    """Whether a mirror that went back went on from there: repeats are followed by the source's next
    record, or by another repeat, up to the last record that had arrived before; or it ended before
    it had copied everything."""
    position = compared.position
    if position[at[-1]] in (-1, position[: at[-1] + 1].max()):
        return True
    after = at[-1] + 1 + np.flatnonzero(position[at[-1] + 1 :] >= 0)[:1]
    if not len(after):
        mirrored_range = compared.mirrored_range
        link = f"{mirrored_range.source}->{mirrored_range.destination}"
        return link not in view.partition_facts.facts.drained
    rows = compared.mirrored[[at[-1], after[0]]]
    doubted = among(compared.destination.records.uid[rows], excused).any()
    return bool(doubted or position[after[0]] <= position[at[-1]] + 1)


def may_repeat(view: PartitionView) -> bool:
    """Whether a mirror may write a record again around faults, and nobody recorded these."""
    return not view.recorded and view.guarantee.delivery == "at-least-once"


def unknown_repeats(view: PartitionView, cluster: str, count: int) -> Unjudged:
    return Unjudged(
        f"{count} records of {cluster}'s {view.tp} were mirrored again: an "
        "at-least-once mirror does that around faults, and nobody recorded these; if it writes "
        "in transactions, say --set delivery=exactly-once"
    )


def inversions(view: PartitionView, compared: Hop) -> Iterator[Finding]:
    late = late_records(compared, but=compared.unordered)
    before = np.maximum.accumulate(compared.position)
    behind = np.searchsorted(before, before[late])
    doubted = written_again(
        view, compared.destination.replica, compared.mirrored[late], compared.mirrored[behind]
    )
    if doubted.any():
        yield Unjudged(perhaps_again(int(doubted.sum()), compared.destination.cluster))
    late = late[~doubted]
    for start, end in runs(late, compared.position[late]):
        yield order_anomaly(
            compared,
            "mirror-inversion",
            late[start:end],
            position=int(compared.position[late[start]]),
        )


def late_records(compared: Hop, *, but: Ints) -> Ints:
    """First copies behind a record that follows them at the source, without those (`but`) whose
    order cannot be known."""
    kept = np.flatnonzero((compared.copy == 0) & (compared.position >= 0))
    if not len(kept):
        return kept
    uids = compared.destination.records.uid[compared.mirrored[kept]]
    positions = compared.position[kept]
    return kept[positions < np.maximum.accumulate(np.where(among(uids, but), -1, positions))]


def divergences(compared: Hop) -> Sequence[Finding]:
    known = np.flatnonzero(compared.position >= 0)
    rows = compared.sequence[compared.position[known]]
    theirs, ours = compared.source.records, compared.destination.records
    other = theirs.digest[rows] != ours.digest[compared.mirrored[known]]
    changed, rows = known[other], rows[other]
    return [
        order_anomaly(
            compared,
            "mirror-divergence",
            changed[start:end],
            source_offset=int(theirs.offset[rows[start]]),
        )
        for start, end in runs(changed, compared.position[changed])
    ]
