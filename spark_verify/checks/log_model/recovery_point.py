"""The loss of a forced failover in a mirrored range (RPO), and which part of the lost tail the
destination had shown.

Asynchronous mirroring may leave the tail behind; the destination must keep every record that it has
shown to a reader.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linkflap.spark_verify.checks.log_model.generations import (
    every,
    generations,
    marks_in,
    reads_in,
    sends_to,
)
from linkflap.spark_verify.checks.log_model.logs import NOWHERE, among, together
from linkflap.spark_verify.checks.log_model.mirrored_ranges import Hop
from linkflap.spark_verify.checks.log_model.outcomes import outcomes
from linkflap.spark_verify.facts.eras import FOREVER
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView


def shown_tail(view: PartitionView, compared: Hop) -> Ints:
    """Positions of the missing tail that the destination once had: a reader got them, or a high
    watermark covered them."""
    behind = compared.behind
    uids = compared.source.records.uid[compared.sequence[behind]]
    # Records that were open there, and were aborted or truncated, had been shown only to
    # read_uncommitted readers: those are promised nothing.
    ended = among(uids, compared.destination.records.uid) | _truncated_while_open(
        view, compared, behind
    )
    got = among(uids, _read_there(view, compared, "read_committed")) | (
        among(uids, _read_there(view, compared)) & ~ended
    )
    got[np.flatnonzero(behind > compared.front)[: covered(view, compared)]] = True
    return behind[got]


def _truncated_while_open(view: PartitionView, compared: Hop, positions: Ints) -> Bools:
    """Per position, whether its COMMIT is behind all that had arrived when the mirror ended and
    truncated the destination."""
    mirrored_range, source = compared.mirrored_range, compared.source
    ended = FOREVER if mirrored_range.promotion is None else mirrored_range.promotion.time
    link = f"{mirrored_range.source}->{mirrored_range.destination}"
    stops = [
        s
        for s in view.stops
        if s.link == link and s.truncated and mirrored_range.began <= s.time <= ended
    ]
    marker = source.marker[source.records.batch[compared.sequence[positions]]]
    return np.asarray(
        (marker < NOWHERE) & (marker >= max((s.mirrored for s in stops), default=NOWHERE))
    )


def _read_there(view: PartitionView, compared: Hop, isolation: str | None = None) -> Ints:
    """Every payload id that readers of the destination, of one isolation level or of any, got since
    it followed the source."""
    since = generations(view)[compared.mirrored_range.destination][
        compared.mirrored_range.generation :
    ]
    polls = (r for generation in since for r in reads_in(view, generation) if r.kind == "poll")
    return together(r.uids for r in polls if isolation in (None, r.isolation))


def covered(view: PartitionView, compared: Hop) -> int:
    """How many offsets between the end of the mirrored bytes and the promotion offset, or the
    death of the destination, the destination was seen to have had.

    Seen by a sampled high watermark, or by the position of a reader, which gets no further than the
    high watermark. Only what was seen before the first native write to this partition was asked for
    counts: from then on the log ends above the promotion offset whether the mirrored tail is there
    or not. All these times are one harness' clock.
    """
    log, mirrored_range = compared.destination, compared.mirrored_range
    cluster, promotion, bound = log.cluster, mirrored_range.promotion, mirrored_range.end
    generation = generations(view)[cluster][mirrored_range.generation]
    if promotion is not None:
        since = sends_to(view, cluster).column("invoked")
        before = max(int(since[since >= mirrored_range.began].min(initial=FOREVER)), promotion.time)
    elif generation.lost is not None:
        before = generation.lost
    else:
        return 0
    marks = marks_in(view, generation)
    seen = (
        marks.high_watermark[
            (marks.returned <= before) & (marks.time >= mirrored_range.began)
        ].tolist()
        if marks is not None
        else []
    )
    polls = (r for r in reads_in(view, generation) if r.kind == "poll")
    seen += [r.position for r in polls if mirrored_range.began <= r.time and r.returned <= before]
    below = log.batches.last_offset[log.batches.base_offset < bound]
    end = int(below.max()) + 1 if len(below) else log.replica.log_start
    # Records that a cleaner took were there.
    end = max(end, min(bound, view.compacted.get(cluster, 0)))
    return max(0, min(max(seen, default=0), bound) - end)


def lost_by_failover(view: PartitionView, compared: Hop) -> int:
    """Acknowledged records that a forced failover lost (RPO): not mirrored, and not a lost-write
    either.

    They include records without a marker at the failover, and records that the source itself had
    mirrored.
    """
    never_arrived = together(_acknowledged(view, compared))
    uids = compared.destination.records.uid[compared.mirrored]
    gone = ~among(never_arrived, uids)
    lost = np.concatenate((compared.holes, shown_tail(view, compared), compared.cleaned))
    return int(
        np.count_nonzero(
            gone & ~among(never_arrived, compared.source.records.uid[compared.sequence[lost]])
        )
    )


def _acknowledged(view: PartitionView, compared: Hop) -> Iterator[Ints]:
    """Payload ids that clients of the source, or of those upstream of it, were promised and that
    this mirrored range was to bring.
    """
    mirrored_range, there = compared.mirrored_range, compared.source.records.uid
    for generation in every(view):
        what = outcomes(view, generation, earlier=False)
        due = what.uid[what.must & (what.acked >= mirrored_range.start)] if len(what) else what.uid
        if (generation.cluster, generation.number) == (
            mirrored_range.source,
            mirrored_range.source_generation,
        ):
            mine = what.must & (what.acked >= max(compared.since, mirrored_range.start))
            if compared.gaps:
                mine &= (what.acked >= view.compacted[generation.cluster]) | among(what.uid, there)
            yield what.uid[mine]
        elif generation.cluster not in (mirrored_range.source, mirrored_range.destination):
            yield due[among(due, there)]
