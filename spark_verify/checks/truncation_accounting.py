"""truncation-accounting: what a failback truncates, and a failover appends, is what the mirror
recorded, and no more than is permitted.

A cluster that follows again loses everything behind the offset where its history and the new
owner's diverge, and nothing below it (KIP-1279, last mirrored offset; KIP-101). The check compares
the log with the capture from right before the truncation. Below the truncation the log is
unchanged, byte for byte; nothing of the tail is left. No record of the tail was acknowledged,
except those that the preceding forced failover had lost already and that `failover` counts. A
planned failover leaves no tail.

A failover ends open transactions. Between the last mirrored and the promoted offset, the log has
the markers that the mirror recorded, at the recorded offsets, and nothing else. If the failover
truncated the log instead, the recorded truncations lead from one offset to the other. Where a
mirror records that it truncated a log, at a failover or because its source was truncated, a batch
begins there, in a later leader epoch than all before it (KIP-101: otherwise an epoch and an offset
identify two batches). Mirrored batches have the leader epochs that the mirror recorded, among them
the last one: a failback by epoch relies on that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, SupportsInt

import numpy as np

from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Due,
    Examined,
    Finding,
    Found,
    Unjudged,
)
from linkflap.spark_verify.checks.log_model.generations import (
    before_truncation,
    compacted,
    generations,
    number_at,
    replica_of,
)
from linkflap.spark_verify.checks.log_model.outcomes import outcomes
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.partition_facts import LogPromotion, LogTruncation, MirrorStop
from linkflap.spark_verify.facts.view import (
    ABORT,
    NO_EPOCH,
    OTHER_CONTROL,
    Batches,
    Bools,
    Ints,
    PartitionView,
    Replica,
)

_ABORT: Final = re.compile(r"ABORT of producer (-?\d+), epoch (-?\d+)")


def _not_appended(
    replica: Replica, stop: MirrorStop, cleaned: int, about: Mapping[str, object]
) -> Iterator[Found]:
    """Markers of the journal that are not in the log. Retention may have deleted those below the
    log start, and the log cleaner those below `cleaned`."""
    batches = replica.batches
    for offset, what in ((at, what) for at, what in stop.appended if at >= replica.log_start):
        rows = np.flatnonzero(batches.base_offset == offset)
        if not len(rows) and offset < cleaned:
            continue
        if len(rows) != 1 or not _is(batches, int(rows[0]), what):
            yield Found.at(
                "marker-not-appended",
                stop.cluster,
                offset,
                **about,
                said=what,
                holds=[_named(batches, int(row)) for row in rows],
            )


def ended(
    replica: Replica, stop: MirrorStop, promotion: LogPromotion, *, generation: int, cleaned: int
) -> Iterator[Finding]:
    """Compares the journal of a mirror's end with the bytes; below `cleaned`, the log cleaner may
    have removed markers."""
    batches = replica.batches
    if stop.promoted < 0:
        return
    count = 1 + len(stop.appended) + len(stop.truncated)
    yield Examined(
        cluster=stop.cluster,
        origin="native",
        count=count,
        generation=generation,
        start=promotion.offset,
    )
    about = {"link": stop.link, "mirrored": stop.mirrored, "promoted": stop.promoted}
    if promotion.offset != _kept(stop):
        yield Found.at("promotion-mismatch", stop.cluster, promotion.offset, **about)
    yield from _not_appended(replica, stop, cleaned, about)
    appended = {offset for offset, _ in stop.appended}
    between = np.flatnonzero(
        (batches.last_offset >= stop.mirrored) & (batches.base_offset < stop.promoted)
    ).tolist()
    silent = [row for row in between if int(batches.base_offset[row]) not in appended]
    for row in silent:
        evidence = about | {"holds": _named(batches, row)}
        yield Found.at("marker-unannounced", stop.cluster, batches.base_offset[row], **evidence)
    if not silent and not (_adds_up(stop) and _above_the_mirrors_own(batches, stop)):
        evidence = about | {
            "truncated": [list(one) for one in stop.truncated],
            "appended": [list(one) for one in stop.appended],
        }
        yield Found.at("promotion-unaccounted", stop.cluster, stop.promoted, **evidence)
    yield from unseen_truncations(replica, stop, about)
    yield from _other_epochs(replica, stop, about)


def _kept(stop: MirrorStop) -> int:
    """The end of the mirrored part of the promoted log. The markers behind it are not on the
    source."""
    return min(
        stop.mirrored,
        stop.promoted - len({offset for offset, _ in stop.appended if offset < stop.promoted}),
    )


def _adds_up(stop: MirrorStop) -> bool:
    """Whether the truncations of the failover lead from the last mirrored offset to where its
    markers begin.

    The list also has earlier truncations, made because the source was truncated. A failover that
    was killed halfway repeats its truncations, so its first ones may be listed twice.
    """
    # Markers of the brokers that lead afterwards (WriteTxnMarkers) are behind the promoted offset.
    wanted = stop.promoted - sum(offset < stop.promoted for offset, _ in stop.appended)
    if wanted == stop.mirrored:
        return True
    for first in range(len(stop.truncated)):
        ends = {stop.mirrored}
        for end, at in stop.truncated[first:]:
            if end not in ends or at > end:
                break
            ends.add(at)
        else:
            return stop.truncated[-1][1] == wanted
    return False


def _above_the_mirrors_own(batches: Batches, stop: MirrorStop) -> bool:
    """Whether the promoted offset is above every marker that the mirror wrote itself. Brokers that
    write the markers (WriteTxnMarkers) lead in an epoch that is newer than any of the journal's."""
    behind = [offset for offset, _ in stop.appended if offset >= stop.promoted]
    if not behind or not stop.epochs:
        return True
    rows = np.isin(batches.base_offset, behind) & (batches.leader_epoch != NO_EPOCH)
    return bool((batches.leader_epoch[rows] > stop.epochs[-1][0]).all())


def unseen_truncations(
    replica: Replica, stop: MirrorStop, about: Mapping[str, object]
) -> Iterator[Found]:
    """Recorded truncations that the bytes do not show. A truncation that a later and deeper one
    hides is not compared."""
    batches = replica.batches
    for index, (end, at) in enumerate(stop.truncated):
        if at >= end or any(later < at for _, later in stop.truncated[index + 1 :]):
            continue
        below, behind = batches.base_offset < at, batches.last_offset >= at
        rows = np.flatnonzero(behind)
        if not len(rows) or not below.any():
            continue
        row, newest = int(rows[0]), int(batches.leader_epoch[below].max())
        if below[row] or int(batches.leader_epoch[row]) <= newest:
            holds = {
                "base": int(batches.base_offset[row]),
                "leader_epoch": int(batches.leader_epoch[row]),
            }
            yield Found.at(
                "truncation-not-made",
                stop.cluster,
                at,
                **about,
                end=end,
                truncated_to=at,
                before=newest,
                holds=holds,
            )


def _other_epochs(
    replica: Replica, stop: MirrorStop, about: Mapping[str, object]
) -> Iterator[Found]:
    """The first mirrored batch whose leader epoch differs from the one that the mirror recorded, up
    to the last mirrored batch."""
    batches = replica.batches
    starts = np.array([start for _, start in stop.epochs], np.int64)
    rows = np.flatnonzero(batches.base_offset < min(stop.mirrored, stop.promoted))
    if not len(starts) or not len(rows):
        return
    index = np.searchsorted(starts, batches.base_offset[rows], side="right") - 1
    recorded = np.array([epoch for epoch, _ in stop.epochs], np.int64)[np.maximum(index, 0)]
    wrong = np.flatnonzero((index >= 0) & (recorded != batches.leader_epoch[rows]))
    if len(wrong):
        row = int(rows[wrong[0]])
        yield Found.at(
            "epoch-mismatch",
            stop.cluster,
            batches.base_offset[row],
            **about,
            said=recorded[wrong[0]],
            leader_epoch=batches.leader_epoch[row],
            batches=len(wrong),
        )


def _is(batches: Batches, row: int, what: str) -> bool:
    """Whether a batch is the marker that a journal names
    (`harness.mirrors.shadow.open_transactions.marker_name`)."""
    abort = _ABORT.fullmatch(what)
    if abort is None:
        return int(batches.control[row]) == OTHER_CONTROL
    who = (int(batches.producer_id[row]), int(batches.producer_epoch[row]))
    return int(batches.control[row]) == ABORT and who == (int(abort[1]), int(abort[2]))


def _named(batches: Batches, row: int) -> dict[str, int]:
    names = ("control", "producer_id", "producer_epoch", "count")
    return {name: int(getattr(batches, name)[row]) for name in names}


_SAME: Final = ("last_offset", "length", "crc", "leader_epoch")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failback:
    """A cluster that follows again: its truncated log generation, the next one, and the logs
    captured right `before` and `after` the truncation."""

    view: PartitionView
    generation: LogGeneration
    following: LogGeneration
    before: Replica
    after: Replica

    def found(self, kind: str, offset: SupportsInt, **evidence: object) -> Found:
        return Found.at(
            kind, self.generation.cluster, offset, **{"capture": self.before.moment, **evidence}
        )

    def not_of_the_owner(self, rows: Ints) -> Ints:
        """The rows of the batches that the new owner does not have at their offsets."""
        parted_at, batches = self.generation.truncated_to, self.before.batches
        eras = self.following.eras
        source = next((e.source for e in eras if e.start == parted_at and e.source), "")
        owner = self.view.canonical().get(source)
        if owner is None:
            return rows
        theirs, mine = (
            zip(b.base_offset.tolist(), b.crc.tolist(), strict=True)
            for b in (owner.batches, batches.take(rows))
        )
        there = set(theirs)
        return rows[np.array([batch not in there for batch in mine], np.bool_)]


def absent_before(failback: _Failback, end: int) -> Iterator[Found]:
    """Batches below a truncation that are absent from a capture taken between the loss of the
    cluster and the truncation.

    Everything below the point where two histories diverge is older than the divergence, and cannot
    have been added later.
    """
    view, generation, b = failback.view, failback.generation, failback.after.batches
    since = [
        p.fault_time
        for p in view.promotions
        if p.source == generation.cluster and p.time <= generation.ended
    ]
    for before in view.earlier:
        then = max(since, default=0) <= before.captured <= failback.following.settled
        if before.cluster != generation.cluster or before.damage or not then:
            continue
        rows = np.flatnonzero(
            (b.last_offset < end) & (b.base_offset >= before.log_start) & b.crc_ok
        )
        rows = rows[~np.isin(b.base_offset[rows], before.batches.base_offset)]
        how = {"capture": before.moment, "how": "nothing was there before", "batches": len(rows)}
        for row in rows[np.diff(rows, prepend=-2) != 1].tolist():
            yield failback.found("history-changed", b.base_offset[row], **how)


def changed_below(failback: _Failback, rows: Ints) -> Iterator[Found]:
    """Batches below the truncation that are missing or changed afterwards; one finding per
    range."""
    before, after = failback.before.batches, failback.after.batches
    wrong = rows[~_has(after, before, rows)]
    for row in wrong[np.diff(wrong, prepend=-2) != 1].tolist():
        base = before.base_offset[row]
        there = (after.base_offset == base).any()
        how = "another batch is there" if there else "nothing is there any more"
        yield failback.found("history-changed", base, how=how, batches=len(wrong))


def _has(there: Batches, batches: Batches, rows: Ints) -> Bools:
    """Per row, whether the other log has the same batch."""
    if not len(there):
        return np.zeros(len(rows), np.bool_)
    at = np.minimum(np.searchsorted(there.base_offset, batches.base_offset[rows]), len(there) - 1)
    same = there.base_offset[at] == batches.base_offset[rows]
    for name in _SAME:
        same &= getattr(there, name)[at] == getattr(batches, name)[rows]
    return np.asarray(same)


def left_of_tail(failback: _Failback, tail: Ints, reported: int | None) -> Iterator[Found]:
    """Batches of the tail that are still in the log and did not come back from the new owner. Also
    batches below the `reported` offset of the truncation that the new owner does not have.

    The mirror may truncate the log further with its next batches. Until then readers get records
    that the new owner never had.
    """
    before, parted_at = failback.before.batches, failback.generation.truncated_to
    rows = tail[_has(failback.after.batches, before, tail)]
    foreign = before.base_offset[failback.not_of_the_owner(rows)]
    if len(foreign):
        where = {"parted_at": parted_at, "batches": len(rows)}
        yield failback.found("tail-not-truncated", foreign[0], **where)
    if reported is not None:
        below = failback.not_of_the_owner(tail[before.base_offset[tail] < reported])
        if len(below):
            where = {"parted_at": parted_at, "truncated_to": reported}
            yield failback.found("truncation-too-short", before.base_offset[below[0]], **where)


def truncation_findings(
    view: PartitionView, generation: LogGeneration, following: LogGeneration
) -> Iterator[Finding]:
    before, after = before_truncation(view, generation), replica_of(view, following)
    if before is None or after is None:
        yield Unjudged(
            f"{generation.cluster} was made to follow, and no log of it from before and "
            "after that was captured"
        )
        return
    failback = _Failback(
        view=view, generation=generation, following=following, before=before, after=after
    )
    recorded = [
        t
        for t in view.truncations
        if t.cluster == generation.cluster and generation.ended <= t.time <= following.ended
    ]
    yield from _contradicted(failback, recorded)
    parted_at, batches = generation.truncated_to, before.batches
    tail = np.flatnonzero(batches.last_offset >= parted_at)
    if len(tail) and not recorded:
        where = {"parted_at": parted_at, "end": before.end}
        yield failback.found("truncation-unrecorded", batches.base_offset[tail[0]], **where)
    below = np.flatnonzero(
        (batches.last_offset < parted_at) & (batches.base_offset >= after.log_start)
    )
    yield from changed_below(failback, below)
    yield from absent_before(failback, min([parted_at, *(t.offset for t in recorded)]))
    possible = [t.offset for t in recorded if not _impossible(t, generation, before)]
    yield from left_of_tail(failback, tail, min(possible, default=None))
    yield from _promised(failback)
    seen = ((len(below), following.number, 0), (len(tail), generation.number, parted_at))
    yield from (
        Examined(cluster=generation.cluster, origin="native", count=n, generation=number, start=at)
        for n, number, at in seen
        if n
    )


def _contradicted(failback: _Failback, recorded: Sequence[LogTruncation]) -> Iterator[Found]:
    """Recorded truncations below the point of divergence, and impossible ones."""
    generation = failback.generation
    for truncation in recorded:
        at = truncation.offset
        what = {"parted_at": generation.truncated_to, "end": truncation.end}
        if at < generation.truncated_to:
            yield failback.found("truncation-too-deep", at, **what)
        if why := _impossible(truncation, generation, failback.before):
            yield failback.found("truncation-impossible", at, **what, because=why)


def _impossible(truncation: LogTruncation, generation: LogGeneration, before: Replica) -> str:
    """Why a recorded truncation is impossible; empty if it is possible.

    The recorded end may be above that of the last capture before it, because a restarted cluster's
    coordinator appends markers.
    """
    if truncation.end < truncation.offset:
        return f"the log ended at {truncation.end}, below where it was truncated"
    if before.damage:
        return ""
    if truncation.offset > max(before.end, generation.truncated_to):
        return f"the log, captured before, ended at {before.end}"
    if truncation.end < before.end:
        return f"the log, captured before, ended at {before.end}, above its recorded end"
    return ""


def without_reversal(truncation: LogTruncation, mine: Sequence[LogGeneration]) -> bool:
    """Whether a truncation is recorded for a cluster that no mirror made to follow at that time.

    A truncation that removed nothing does not count: an empty tail is recorded only when the log
    grows, perhaps after the mirror has caught up.
    """
    return truncation.end != truncation.offset and not any(
        generation.ended <= truncation.time <= following.settled
        for generation, following in pairwise(mine)
    )


def _promised(failback: _Failback) -> Iterator[Found]:
    """Acknowledged records behind the truncation that no forced failover had lost: requested later,
    or without any forced failover."""
    generation = failback.generation
    what = outcomes(failback.view, generation, earlier=False)
    if not len(what):
        return
    lost = -1 if generation.lost is None else generation.lost
    late = (what.sends.column("invoked") > lost)[what.send]
    rows = np.flatnonzero(what.must & (what.acked >= generation.truncated_to) & late)
    if len(rows):
        row = int(rows[0])
        send = what.sends[int(what.send[row])]
        evidence = {
            "records": len(rows),
            "uid": int(what.uid[row]),
            "operation": send.number,
            "client": send.client,
        }
        yield Found.at("truncated-write", generation.cluster, what.acked[row], **evidence)


NEVER_FOLLOWED: Final = "no mirror made this cluster follow then"


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Examines every truncation, and the end of every mirror that failed over."""
    for name, mine in sorted(generations(view).items()):
        for generation, following in pairwise(mine):
            yield from truncation_findings(view, generation, following)
        known = [t for t in view.truncations if t.cluster == name]
        yield from [
            Found.at(
                "truncation-impossible", t.cluster, t.offset, because=NEVER_FOLLOWED, end=t.end
            )
            for t in known
            if without_reversal(t, mine)
        ]
    for stop in view.stops:
        promotion = next(
            (p for p in view.promotions if p.link == stop.link and p.time >= stop.time), None
        )
        mine = generations(view).get(stop.cluster, ())
        number = number_at(mine, stop.time)
        replica = replica_of(view, mine[number]) if mine else None
        if promotion is not None and replica is not None:
            yield from ended(
                replica, stop, promotion, generation=number, cleaned=compacted(view, replica)
            )


def _due(scenario: Scenario, promotions: Sequence[LogPromotion]) -> Due:
    """Every cluster that is to follow again, and every cluster promoted by a mirror that keeps a
    journal."""
    if not scenario.mirror.guarantee.offsets_kept:
        return ()
    truncated = {f.on.source for f in scenario.schedule if f.name.reverses}
    return {(cluster, "native") for cluster in truncated | {p.cluster for p in promotions}}


CHECK = Check(
    name="truncation-accounting",
    guarantee="""A failback truncates the records that the new owner never had, and nothing else. A
        failover appends what the mirror recorded.""",
    source="KIP-1279 (failback: last mirrored offset and epoch; ABORT markers at stop); KIP-101",
    wire="""Acknowledgements are promises as for lost-write; what was asked for after the failover
        is known by the time of the first request for its batch.""",
    inputs={"batches", "records", "sends", "promotions"},
    anomalies=(
        AnomalyKind(
            name="truncation-too-deep",
            meaning="""A log was truncated below the offset at which its history and the new owner's
                diverge.""",
            sentence="""{cluster} truncated {tp} to {offset}, although both logs agree up to
                {parted_at}""",
            alone="what both clusters had is gone until it is mirrored again",
            smallest="A has 1 2, B was promoted at 2, A was truncated at 1: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="truncation-too-short",
            meaning="""A recorded truncation leaves a batch that the new owner never had, whatever
                happened to the batch later.""",
            sentence="""{cluster} truncated {tp} to {truncated_to} and kept its own batch at {at},
                although the logs part at {parted_at}""",
            alone="until the log is truncated further, readers get what the new owner never had",
            smallest="""A had 1 2, B was promoted at 1, A follows B and is recorded as truncated at
                2: at offset 1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="truncation-unrecorded",
            meaning="""A log had a tail that the new owner never had, and no truncation of it was
                recorded.""",
            sentence="""{cluster} lost its log of {tp} from {parted_at} on, and the mirror reported
                no truncation""",
            alone="the truncated records are not reported",
            smallest="""A has 1 2, B was promoted at 1, A follows B and no truncation is reported:
                at offset 1.""",
        ),
        AnomalyKind(
            name="truncation-impossible",
            meaning="""A recorded truncation is impossible: above its own end or the log's, below
                the log's end at that time, or of a cluster that did not follow then.""",
            sentence="""the mirror reports a truncation of {tp} on {cluster} from {end} on, which
                cannot be: {because}""",
            alone="what was given up cannot be known from it",
            smallest="A has 1 2 and followed B, a truncation from 2 to 5 is reported: at offset 5.",
        ),
        AnomalyKind(
            name="history-changed",
            meaning="""A batch below the truncation is gone, has other bytes or another leader
                epoch, or was not there before.""",
            sentence="""{cluster} is not what it was at {at}, below the truncation, when {capture}
                was taken: {how}""",
            alone="readers that were there before and after know two histories",
            smallest="""A had 1 2 and was truncated at 1, now it has only what came from offset 1
                on: at offset 0.""",
        ),
        AnomalyKind(
            name="tail-not-truncated",
            meaning="A batch from behind the offset where the histories diverge is still there.",
            sentence="""{cluster} kept {batches} batches from {at} on that its new source does not
                have""",
            alone="readers of the two clusters get different records",
            smallest="""A had 1 2, B was promoted at 1, A follows B and has 2 at offset 1: at offset
                1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="truncated-write",
            meaning="""A truncation removed an acknowledged record that no forced failover had lost
                before.""",
            sentence="""{cluster} acknowledged {who} at {at}, and the truncation removed it although
                the failover had drained""",
            counted="acknowledged write was truncated|acknowledged writes were truncated",
            smallest="""A acknowledged 2 at offset 1, after a planned failover at 1 it was truncated
                there: at offset 1.""",
        ),
        AnomalyKind(
            name="marker-not-appended",
            meaning="""A failover recorded that it appended a marker, and the destination has none
                or another one there.""",
            sentence="""the mirror says that it appended {said} at {at} on {cluster}, and it is not
                there""",
            alone="the transaction stays open, and readers of committed records wait for it",
            smallest="""the mirror of A->B says ABORT of producer 7 at offset 1, B has data there:
                at offset 1.""",
        ),
        AnomalyKind(
            name="marker-unannounced",
            meaning="""Between the last mirrored offset and the promoted one is a batch that the
                mirror did not record.""",
            sentence="{cluster} has a marker at {at} that the mirror does not say it appended",
            alone="who goes by what the mirror says does not know how the transaction ended",
            smallest="""the mirror says mirrored 1, promoted 2 and nothing appended, B has a batch
                at offset 1: at offset 1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="promotion-mismatch",
            meaning="""The recorded promotion is not at the offset where the mirror reported its own
                end.""",
            sentence="""the mirror says that {tp} on {cluster} was mirrored to {mirrored} and
                promoted at {promoted}, which does not add up""",
            alone="who goes by what the mirror says looks for lost records at the wrong offsets",
            smallest="""the mirror says mirrored 2 and promoted 2, the promotion is at 1: at offset
                1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="promotion-unaccounted",
            meaning="""The truncations and markers of a mirror do not lead from its last mirrored to
                the promoted offset; or a marker of its own leader epoch is not below that.""",
            sentence="""the mirror {link} says that it mirrored {tp} on {cluster} to {mirrored} and
                promoted it at {promoted}, and its truncations and markers do not lead from the one
                to the other""",
            alone="who goes by what the mirror says looks for lost records at the wrong offsets",
            smallest="""the mirror says mirrored 2, promoted 1, and mentions no truncation: at
                offset 1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="epoch-mismatch",
            meaning="""A mirrored batch has another leader epoch than the mirror recorded for its
                offset.""",
            sentence="""{cluster} has leader epoch {leader_epoch} at {at} where the mirror says
                {said}""",
            alone="a failback by what the mirror says truncates at the wrong offset",
            smallest="""the mirror of A->B says epoch 3 from offset 0 on, B's batch at offset 0 has
                epoch 0: at offset 0.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="truncation-not-made",
            meaning="""A mirror recorded a truncation, and a batch lies across its offset, or
                continues in the earlier leader epoch.""",
            sentence="""the mirror {link} says that it truncated {tp} on {cluster} from {end} to
                {truncated_to}, and the log still has a batch of before""",
            alone="the log keeps what the mirror gave up",
            smallest="""the mirror of A->B says that it truncated B from 2 to 1, B has 1 2 in one
                leader epoch: at offset 1.""",
        ),
    ),
    complete={"promotions", "sends"},
    follows={"leader-epochs", "standby-isolation"},
    kernel=kernel,
    unit="batches",
    due_at=_due,
    when="those of every failover and failback, if the mirror keeps offsets",
)
