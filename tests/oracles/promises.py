"""The acknowledgements of clients, record by record, and so the records that must be in the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from linkflap.harness.model.payload import PROCESS_SHIFT
from tests.oracles.cleaned import Written, taken
from tests.oracles.plain import NEVER, Plain, PlainLog, of_send
from tests.oracles.story import PlainGeneration, Story


@dataclass(slots=True)
class Promise:
    """One record of one send. `must`: it has to be in the log, because its commit was acknowledged
    or a reader saw it; outside of transactions, because it was acknowledged."""

    send: Any
    uid: int
    acked: int
    refused: bool
    must: bool


def read_uids(story: Story, generation: PlainGeneration, isolation: str | None = None) -> set[int]:
    """Every payload id that a reader or a share group got in a generation."""
    polls = [r for r in story.polls(generation) if isolation in (None, r.isolation)]
    return {uid for r in polls for uid in r.uids}


def promises(
    plain: Plain, story: Story, generation: PlainGeneration, *, earlier: bool = True
) -> list[Promise]:
    """The records of this generation. Also records of earlier ones that lie below every later
    truncation, if their transaction's marker does too.
    """
    found: list[Promise] = []
    seen = read_uids(story, generation, "read_committed")
    for send in plain.sends:
        if send.cluster != generation.cluster:
            continue
        number = story.number_at(generation.cluster, send.invoked)
        shown = any(uid in seen for uid, _, _ in of_send(send))
        for uid, acked, refused in of_send(send):
            if number == generation.number or (
                earlier
                and number < generation.number
                and _still(story, generation, number, uid, acked)
            ):
                must = _must(send, acked, shown) and not refused
                found.append(Promise(send=send, uid=uid, acked=acked, refused=refused, must=must))
    return found


def _must(send: Any, acked: int, shown: bool) -> bool:
    if send.kind == "send":
        return bool(acked >= 0)
    committing = send.kind == "transaction" and send.ending == "commit"
    return bool(committing and (send.outcome == "ok" or (send.outcome == "info" and shown)))


def _still(story: Story, generation: PlainGeneration, number: int, uid: int, acked: int) -> bool:
    truncated_to = min(generation.earlier[number:])
    return 0 <= acked < truncated_to and _settled(
        story.log(story.generations[generation.cluster][number]), uid, truncated_to
    )


def _settled(log: PlainLog | None, uid: int, truncated_to: int) -> bool:
    if log is None or not log.records:
        return True
    record = log.of(uid)
    return record is not None and (record.state == "plain" or marker_at(record) < truncated_to)


def marker_at(record: Any) -> int:
    """The offset of the marker that ends a record's transaction."""
    marker = record.batch.marker
    return NEVER if marker is None else int(marker.base_offset)


def never_committed(send: Any) -> bool:
    """Whether its producer aborted it, or its commit was certainly refused."""
    refused_for_certain = send.ending == "commit" and send.outcome == "fail"
    return bool(send.kind == "transaction" and (send.ending == "abort" or refused_for_certain))


def refused(plain: Plain, cluster: str = "") -> set[int]:
    """Every payload id whose write was certainly refused, on one cluster or on any."""
    found: set[int] = set()
    for send in plain.sends:
        failed = send.kind == "send" and send.outcome == "fail"
        if cluster in ("", send.cluster):
            found |= {uid for uid, acked, said in of_send(send) if (said or failed) and acked < 0}
    return found


def deleted(
    plain: Plain,
    story: Story,
    generation: PlainGeneration,
    log: PlainLog,
    promise: Promise,
) -> bool | None:
    """Whether a promised record was deleted with the start of its log, or by a cleaner; None where
    that is not known."""
    start = log.log_start
    if 0 <= promise.acked < start:
        return True
    if log.of(promise.uid) is not None:
        return False
    compacted = plain.compacted.get(generation.cluster, 0)
    if not max(start, compacted):
        return False  # nothing was taken: also where its neighbours leave the record no offset
    mine = promises(plain, story, generation)
    lost = _written(plain, story, generation, mine, promise)
    if lost.last < start or lost.first >= max(start, compacted):
        return lost.last < start
    below = lost.last < max(start, compacted) or None
    if compacted <= start or not promise.must:
        return below
    others = [_written(plain, story, generation, mine, p) for p in mine if _may(p)]
    others += _mirrored(plain, story, generation)
    by_cleaner = taken(plain, generation, log, lost, [w for w in others if log.of(w.uid) is None])
    return below if by_cleaner else None if lost.first < start else by_cleaner


def _may(promise: Promise) -> bool:
    return not (promise.refused or never_committed(promise.send))


def _mirrored(plain: Plain, story: Story, generation: PlainGeneration) -> list[Written]:
    """The records from clients of other clusters, where a mirror keeps offsets."""
    found: list[Written] = []
    for other in story.every() if plain.keeps else ():
        if other.cluster == generation.cluster:
            continue
        theirs = promises(plain, story, other, earlier=False)
        for start, end, owner, source in generation.eras():
            if source and owner[0] == other.cluster:
                written = [_written(plain, story, other, theirs, p) for p in theirs if _may(p)]
                found += [
                    replace(w, last=min(w.last, end - 1))
                    for w in written
                    if w.last >= start and w.first < end
                ]
    return found


def _written(
    plain: Plain,
    story: Story,
    generation: PlainGeneration,
    others: list[Promise],
    promise: Promise,
) -> Written:
    """Where a record is, or was: as acknowledged, or else as a poll or the other end of a mirror
    says, or else behind every earlier record of its producer and before every later one."""
    known: dict[int, int] = {}
    committed: set[int] = set()
    for read in story.polls(generation):
        for uid, offset in zip(read.uids, read.offsets, strict=True):
            known.setdefault(int(uid), int(offset))
        if read.isolation == "read_committed":
            committed.update(map(int, read.uids))
    for log in plain.replicas if plain.keeps else ():
        for record in log.records if log.cluster != generation.cluster else ():
            known.setdefault(record.uid, record.offset)
    known |= {other.uid: other.acked for other in others if other.acked >= 0}
    process = promise.uid >> PROCESS_SHIFT
    mine = {
        other.uid: known[other.uid]
        for other in others
        if other.uid in known and other.uid >> PROCESS_SHIFT == process
    }
    before = max((at for uid, at in mine.items() if uid < promise.uid), default=-1)
    after = min((at for uid, at in mine.items() if uid > promise.uid), default=NEVER)
    at = known.get(promise.uid)
    return Written(
        uid=promise.uid,
        first=before + 1 if at is None else at,
        last=after - 1 if at is None else at,
        time=promise.send.invoked // 1_000_000,
        sure=promise.must or promise.uid in committed,
    )
