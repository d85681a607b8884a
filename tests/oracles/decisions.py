"""The decisions of transaction coordinators, and whether markers agree with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from linkflap.harness.log.coordinators import TransactionState
from tests.oracles.plain import NEVER, Plain, PlainLog

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)


def states_of(plain: Plain, cluster: str) -> list[TransactionState]:
    replica = next(r for r in reversed(plain.view.replicas) if r.cluster == cluster and r.canonical)
    return [entry for entry in replica.entries if isinstance(entry, TransactionState)]


def decided_by(plain: Plain, cluster: str) -> list[dict[str, Any]]:
    """Every prepared transaction, in order; complete once that is below the high watermark."""
    replica = next(r for r in reversed(plain.view.replicas) if r.cluster == cluster and r.canonical)
    found: list[dict[str, Any]] = []
    pending: dict[str, dict[str, Any]] = {}
    for entry in states_of(plain, cluster):
        name = entry.transactional_id
        if entry.state in (PREPARE_COMMIT, PREPARE_ABORT):
            pending[name] = {
                "producer": (entry.producer_id, entry.producer_epoch),
                "commit": entry.state == PREPARE_COMMIT,
                "partitions": set(entry.partitions),
                "complete": False,
            }
            found.append(pending[name])
        elif entry.state in (COMPLETE_COMMIT, COMPLETE_ABORT) and name in pending:
            row = pending.pop(name)
            same = row["commit"] == (entry.state == COMPLETE_COMMIT)
            row["complete"] = same and entry.offset < replica.high_watermark
    return found


ENDED = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
BEFORE: dict[int, tuple[int, ...]] = {
    EMPTY: ENDED,
    ONGOING: (*ENDED, ONGOING),
    PREPARE_COMMIT: (ONGOING,),
    PREPARE_ABORT: (ONGOING,),
    COMPLETE_COMMIT: (PREPARE_COMMIT,),
    COMPLETE_ABORT: (PREPARE_ABORT,),
    -1: ENDED,
}
"""The valid previous states of each state (Kafka's TransactionState); -1: a record without a value.
With transactions v2 a producer may abort when nothing is ongoing."""


def impossible(plain: Plain, cluster: str, log: PlainLog) -> Iterator[int]:
    """The offsets of records of `__transaction_state` that cannot follow the record before them of
    their transactional id: at or above what a cleaner may have removed."""
    past: dict[str, list[TransactionState]] = {}
    windows = [w for w in plain.windows if w.target.split("/")[0] == cluster]
    skew = 2 * 3600 * 1000 if any(w.fault == "clock-skew" for w in windows) else 0
    skew = skew if plain.view.recorded else NEVER
    for state in states_of(plain, cluster):
        mine = past.setdefault(state.transactional_id, [])
        mine.append(state)
        if state.offset < max(plain.compacted.get(cluster, 0), log.log_start):
            continue
        if len(mine) == 1 and log.log_start:
            continue
        earlier = mine[-2] if len(mine) > 1 else None
        if not follows(earlier, state, skew) and not _retried(plain, cluster, log, mine, skew):
            yield state.offset


def _retried(
    plain: Plain, cluster: str, log: PlainLog, mine: Sequence[TransactionState], skew: int
) -> bool:
    """Whether the coordinator that wrote the last record may have failed to append those before it,
    and so have gone on from an earlier one: a fault of its cluster's brokers is near, or no history
    knows of one."""
    last = mine[-1]

    def leader(state: TransactionState) -> int:
        return int([b for b in log.batches if b.base_offset <= state.offset][-1].leader_epoch)

    for n in range(len(mine) - 2, -1, -1):
        if leader(mine[n]) != leader(last):
            return False
        if follows(mine[n - 1] if n else None, last, skew):
            if not plain.view.recorded:
                return True
            begin, end = (mine[n].updated - skew) / 1000 - 10, (last.written + skew) / 1000
            return any(
                w.start / 1e9 <= end and begin <= w.end / 1e9
                for w in plain.windows
                if w.target.split("/")[0] == cluster
                or (w.fault, w.target.split("->")[0]) == ("failover-forced", cluster)
            )
    return False


def follows(before: TransactionState | None, now: TransactionState, skew: int) -> bool:
    """KIP-98, KIP-360, KIP-890: the transitions, with what each keeps and changes. A coordinator
    takes the time of an update from its clock, and then that of the record; the next one loads the
    last state before it goes on. Clocks differ by up to `skew` milliseconds."""
    if before is None or before.state == -1:
        previous = now.previous_id in (-1, now.producer_id)
        nothing = not now.partitions and now.started == -1 and now.next_id < 0
        timed = now.updated <= now.written + skew
        return now.state == EMPTY and now.producer_epoch == 0 and previous and nothing and timed
    bumps = now.version >= 2
    allowed = BEFORE.get(now.state, ())
    if now.state == PREPARE_ABORT and bumps:
        allowed = (*allowed, *ENDED)
    if before.state not in allowed:
        return False
    if now.state == -1:
        return now.written - before.updated + skew >= 7 * 24 * 3600 * 1000
    same_id = now.producer_id == before.producer_id
    up = now.producer_epoch - before.producer_epoch
    ended = now.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
    prepared = now.state in (PREPARE_COMMIT, PREPARE_ABORT)
    used_up = before.producer_epoch >= 32766
    if now.state == EMPTY:
        fresh = now.producer_epoch == 0 and not same_id
        producer = fresh if used_up else same_id and up in (0, 1)
    elif ended and before.next_id >= 0:
        producer = (now.producer_id, now.producer_epoch) == (before.next_id, 0)
    elif prepared and bumps:
        producer = same_id and up == (0 if before.producer_epoch == 32767 else 1)
    else:
        producer = same_id and (up == 0 or (now.state == PREPARE_ABORT and up == 1))
    keeps = now.state == EMPTY or now.timeout == before.timeout
    started = now.started == (now.updated if before.state in ENDED else before.started)
    touched = {
        EMPTY: not now.partitions and now.started == -1,
        ONGOING: before.state != ONGOING or set(before.partitions) <= set(now.partitions),
    }.get(now.state, set(now.partitions) == (set() if ended else set(before.partitions)))
    following = now.next_id < 0 or (prepared and bumps and used_up)
    previous = now.previous_id in (-1, before.producer_id)
    version = now.version == before.version if ended else True
    if prepared and before.state == ONGOING and before.version >= 2:
        version = bumps
    started = started or now.state == EMPTY
    timed = before.updated - skew <= now.updated <= now.written + skew
    return all((producer, keeps, started, touched, following, previous, version, timed))


def written_again(log: PlainLog, markers: Sequence[Any]) -> list[Any]:
    """Markers equal to the one before them, without data of their producer in between."""
    found = []
    for marker in markers:
        before = [
            b
            for b in log.batches
            if b.row < marker.row
            and b.transactional
            and b.crc_ok
            and b.producer_id == marker.producer_id
        ]
        last = before[-1] if before else None
        if last is not None and (last.ends, last.control, last.producer_epoch) == (
            True,
            marker.control,
            marker.producer_epoch,
        ):
            found.append(marker)
    return found


def leaving_out(markers: Sequence[Any], again: Sequence[Any]) -> Iterator[list[Any]]:
    """The markers without some of those that may have been written twice; first with all of
    them."""
    for count in range(len(again) + 1):
        for some in combinations(again, count):
            yield [m for m in markers if all(m is not one for one in some)]


def exactly(wanted: Sequence[dict[str, Any]], markers: Sequence[Any]) -> list[tuple[str, int]]:
    """Matches decisions and markers from left to right. The first mismatch decides what is wrong,
    by which side has more."""
    decided, owed = [row["commit"] for row in wanted], sum(row["complete"] for row in wanted)
    had = [b.control == 1 for b in markers]
    at = 0
    for row in wanted:
        if at < len(had) and had[at] == row["commit"]:
            at += 1
            continue
        if row["complete"] and (len(had) < owed or at == len(had)):
            return [("marker-missing", -1)]
        if at < len(had):
            return [
                (
                    "marker-unexplained" if len(had) > len(decided) else "outcome-disagreement",
                    markers[at].base_offset,
                )
            ]
    return [("marker-unexplained", markers[at].base_offset)] if at < len(had) else []


def can_agree(
    wanted: Sequence[dict[str, Any]],
    markers: Sequence[Any],
    again: Sequence[Any],
    *,
    every: bool,
    from_start: bool,
) -> bool:
    """Whether there is a way to leave out what need not be there, so that the rest is the same:
    incomplete decisions, repeated markers, and the first decisions or markers where the other log
    has lost its beginning. A log has no markers of decisions that came before those that have
    lost theirs: a cleaner removes the oldest records of a transactional id first."""
    lost_decisions = range(len(markers) + 1) if not every else (0,)
    lost_markers = range(len(wanted) + 1) if not from_start else (0,)
    for n in lost_markers:
        for some in leaving_out(markers, again):
            for m in lost_decisions if not n else (0,):
                had = [b.control == 1 for b in some[m:]]
                if _without_open(list(wanted[n:]), had):
                    return True
    return False


def _without_open(wanted: list[dict[str, Any]], had: list[bool]) -> bool:
    if not wanted:
        return not had
    if had and had[0] == wanted[0]["commit"] and _without_open(wanted[1:], had[1:]):
        return True
    return not wanted[0]["complete"] and _without_open(wanted[1:], had)
