"""Per transaction, what became of its records in one partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from linkflap.spark_verify.checks.base import Examined, Finding, PartialFinding
from linkflap.spark_verify.checks.parts.deleted_records import deleted
from linkflap.spark_verify.checks.parts.generations import incomplete
from linkflap.spark_verify.checks.parts.logs import ABORTED, OPEN, Log, among, distinct, locate
from linkflap.spark_verify.checks.parts.lost_records import Taken
from linkflap.spark_verify.checks.parts.mirrored_ranges import Hop
from linkflap.spark_verify.checks.parts.outcomes import Outcomes, read_uids
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import Bools, Ints, Origin, PartitionView

COUNTS: Final = ("visible", "aborted", "open", "absent")
LOST, OVERTAKEN = "lost", "overtaken"
"""Columns of some partial findings: records that a loss explains, and that later ones overtook."""


def native_outcomes(
    view: PartitionView, generation: LogGeneration, log: Log, what: Outcomes
) -> Sequence[Finding]:
    """Outcomes of transactions on the cluster that acknowledged them. A torn log yields nothing:
    the caller reports it."""
    cluster, records = log.replica.cluster, log.replica.records
    rows = transactional(what)
    if not log.whole or not len(rows):
        return []
    at = locate(records.uid, what.uid)
    gone, doubtful = deleted(view, generation, log, what, at < 0)
    rows = rows[~what.refused[rows] & ~gone[rows] & ~doubtful[rows]]
    if not len(rows):
        return []
    at = at[rows]
    there = at >= 0
    state = np.where(there, log.record_state[at] if len(records) else -1, -1)
    waiting = state == OPEN
    unproven = (waiting & (generation.lost is not None)) | (~there & bool(incomplete(view, log)))
    shown = among(what.uid[rows], read_uids(view, generation, "read_committed"))
    offset = np.where(there, records.offset[at] if len(records) else -1, what.acked[rows])
    became = np.select([state == ABORTED, waiting, ~there], [1, 2, 3], 0)
    taken, invoked = Taken(view, cluster), what.sends.column("invoked")[what.send[rows]]
    by = np.where(
        there,
        taken.unended(what.uid[rows]),
        taken.sent(what.acked[rows], what.uid[rows], invoked),
    )
    kept = ~unproven
    return _counted_outcomes(
        cluster, "native", "", what, rows[kept], became[kept], offset[kept], shown[kept], by[kept],
        taken,
    )  # fmt: skip


def mirrored_outcomes(compared: Hop, what: Outcomes) -> Sequence[Finding]:
    """What of transactions that the source has committed is in the mirrored era of a cluster that
    was promoted.

    What waits for its marker at the source counts as committed there if another partition has a
    COMMIT of it.
    """
    source, destination, mirrored_range = (
        compared.source,
        compared.destination,
        compared.mirrored_range,
    )
    promotion = mirrored_range.promotion
    theirs, ours = source.replica.records, destination.replica.records
    rows = transactional(what)
    if promotion is None or not (source.whole and destination.whole and len(theirs) and len(rows)):
        return []
    at = locate(theirs.uid, what.uid[rows])
    due = (
        (at >= 0)
        & (source.visible[at] | (source.record_state[at] == OPEN))
        & (theirs.offset[at] >= compared.since)
    )
    due &= ~among(what.uid[rows], theirs.uid[compared.sequence[compared.cleaned]])
    rows, at = rows[due], at[due]
    era = np.flatnonzero(
        destination.visible
        & (ours.offset >= mirrored_range.start)
        & (ours.offset < mirrored_range.end)
    )
    arrived = among(what.uid[rows], ours.uid[era])
    below = locate(ours.uid, what.uid[rows])
    offset = np.where(below >= 0, ours.offset[below] if len(ours) else -1, -1)
    overtaken = among(what.uid[rows], theirs.uid[compared.sequence[compared.holes]])
    hop, nobody = (
        f"{promotion.link} {promotion.kind} {promotion.fault_time}",
        np.zeros(len(rows), np.bool_),
    )
    return _counted_outcomes(
        promotion.cluster, "mirrored", hop, what, rows, np.where(arrived, 0, 3), offset, nobody,
        overtaken=overtaken & ~arrived,
    )  # fmt: skip


def transactional(what: Outcomes) -> Ints:
    return np.flatnonzero(what.sends.says("kind", "transaction")[what.send])


def _counted_outcomes(
    cluster: str,
    origin: Origin,
    hop: str,
    what: Outcomes,
    rows: Ints,
    became: Ints,
    offset: Ints,
    shown: Bools,
    by: Ints | None = None,
    taken: Taken | None = None,
    overtaken: Bools | None = None,
) -> Sequence[Finding]:
    """One partial finding: a row of `COUNTS` per transaction, and where and which is the first of
    its records that is not visible. Of some of those, a loss explains it (`by`, `taken`); some
    were `overtaken` by later ones of their partition.
    """
    if not len(rows):
        return []
    numbers = what.sends.column("number")[what.send[rows]]
    operations = distinct(numbers)
    index = np.searchsorted(operations, numbers)
    table = np.zeros((len(COUNTS), len(operations)), np.int64)
    np.add.at(table, (became, index), 1)
    read = np.zeros(len(operations), np.int64)
    np.add.at(read, index, shown.astype(np.int64))
    gone = np.flatnonzero(became > 0)[::-1]
    first = np.full((2, len(operations)), -1, np.int64)
    first[:, index[gone]] = offset[gone], what.uid[rows[gone]]
    columns = dict(zip(COUNTS, table.tolist(), strict=True))
    data = {"hop": hop, "operation": operations.tolist(), "read": read.tolist()} | columns
    data |= {"offset": first[0].tolist(), "uid": first[1].tolist()}
    lost = None if by is None else (by >= 0) & (became > 0)
    for name, which in ((LOST, lost), (OVERTAKEN, overtaken)):
        if which is not None and which.any():
            data[name] = np.bincount(index[which], minlength=len(operations)).tolist()
    if taken and by is not None:
        data |= taken.evidence(int(by.max()))
    return [
        PartialFinding(cluster=cluster, offset=-1, data=data),
        Examined(cluster=cluster, origin=origin, count=len(operations)),
    ]
