"""Defects where a mirror ends: truncations of its destination where transactions are open
(KIP-1279, February to May 2026), and sessions behind a reset of the producer state."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import Fetched
from linkflap.harness.model.scenario import Budgets
from tests.faithful.clusters import RESET, Entry, states
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    COPIED,
    COPIED_RESET,
    FORCED,
    OVERLAPPING_TRUNCATION,
    PLANNED,
    RESETS,
    TRUNCATING,
    NothingToChange,
    data,
    event,
    journal,
    kept_out,
    mapped,
    marks,
    mutation,
    promised,
    promotion,
    put,
)
from tests.faithful.mutations.writes import COLLISION
from tests.faithful.stories import without_history

READER = "B-uncommitted"


def _lost(made: Made) -> list[Entry]:
    """Records that A had acknowledged behind the offset to which B was truncated."""
    truncated_to, log = promotion(made), made.log("A")
    outcome = states(log).state
    behind = [
        e
        for e in log
        if e.offset >= truncated_to
        and e.ends is None
        and outcome[e.offset] in ("plain", "committed")
    ]
    return [e for e in behind if promised(made, e)]


def _promoted_at(made: Made, offset: int) -> None:
    """Promotion and journal say that the first partition was truncated at another offset than it
    was."""
    mirrored = _mirrored(made)
    index = next(
        i for i, e in enumerate(made.events) if e.kind == "promotion" and e.data["partition"] == 0
    )
    old = made.events[index]
    made.events[index] = replace(old, data={**old.data, "offset": offset})
    journal(made, truncated=[[mirrored, offset]], promoted=offset)


def _mirrored(made: Made) -> int:
    rows = next(e for e in made.events if e.kind == "mirror-stopped").data["partitions"]
    return next(row["mirrored"] for row in rows if row["partition"] == 0)  # type: ignore[attr-defined, no-any-return]


@mutation(TRUNCATING, must="failover/rpo-over-budget")
def acknowledged_above_the_truncation(made: Made, rng: Random) -> None:
    """Records that A had acknowledged after the start of an open transaction were truncated on B
    with this transaction. The failover lost them, and may lose none."""
    made.scenario = replace(made.scenario, budgets=Budgets(rpo_records=0))


@mutation(TRUNCATING, must="lost-write/lost-write")
def truncated_by_a_planned_failover(made: Made, rng: Random) -> None:
    """The failover was planned, and still truncated on B records that A had acknowledged after the
    start of an open transaction."""
    if not _lost(made):
        raise NothingToChange(
            "nothing that A had acknowledged was truncated in the first partition"
        )
    event(made, "failover", 0, kind="planned")


@mutation(TRUNCATING, must="lost-write/lost-write")
def truncated_after_it_was_read(made: Made, rng: Random) -> None:
    """A reader of everything got acknowledged records of A on B before B was truncated. Since then,
    neither cluster has them."""
    lost = _lost(made)
    if not lost or lost[-1].end > _mirrored(made):
        raise NothingToChange("nothing that A had acknowledged, and B had, was truncated")
    stopped = next(e.time for e in made.events if e.kind == "mirror-stopped")
    before = [
        p for p in made.polls if p.reader == READER and p.kind == "poll" and p.time < stopped
    ][-1]
    runs = tuple((uid, entry.offset_of(uid), 1) for entry in lost for uid in entry.uids)
    row = Fetched(
        topic=made.log_keys("A", 0)[0].topic, partition=0, runs=runs, position=lost[-1].end
    )
    at = made.polls.index(before) + 1
    made.polls.insert(at, replace(before, time=stopped - 2, returned=stopped - 1, fetched=(row,)))


@mutation(
    mapped(OVERLAPPING_TRUNCATION, open_transactions="truncate-once"),
    must="last-stable-offset/hanging-transaction",
)
def truncated_only_once(made: Made, rng: Random) -> None:
    """The mirror truncated B once. This removed the markers of transactions that began earlier, and
    nothing on B can end these transactions."""


@mutation(TRUNCATING, must="last-stable-offset/high-watermark-regression")
def sampled_after_the_truncation(made: Made, rng: Random) -> None:
    """B's high watermark was sampled before and after the mirror truncated its log, with the same
    leader in the same epoch."""
    stopped, truncated_to = (
        next(e.time for e in made.events if e.kind == "mirror-stopped"),
        promotion(made),
    )
    mark = [m for m in marks(made, "B") if m.returned < stopped][-1]
    if mark.high_watermark <= truncated_to:
        raise NothingToChange("nobody had sampled what was truncated")
    at = made.marks.index(mark) + 1
    made.marks.insert(
        at,
        replace(
            mark,
            time=stopped - 2,
            returned=stopped - 1,
            high_watermark=truncated_to,
            last_stable=truncated_to,
        ),
    )


@mutation(
    TRUNCATING,
    must="truncation-accounting/truncation-not-made standby-isolation/standby-write",
    may=(
        "byte-equality ghost-ack inconsistent-offset leader-epochs order-equality "
        "producer-id-uniqueness read-committed-visibility record-equality sequence-continuity "
        "truncation-accounting"
    ),
)
def truncated_deeper_than_reported(made: Made, rng: Random) -> None:
    """B was truncated below the offset that the mirror reports, and its clients wrote from there
    on."""
    first, second = data(made, "B", native=True)[:2]
    if second.offset > _mirrored(made):
        raise NothingToChange("nothing was mirrored where B's own records are")
    _promoted_at(made, first.end)


@mutation(
    PLANNED,
    must=(
        "truncation-accounting/truncation-not-made leader-epochs/epoch-not-raised "
        "provenance/stranger standby-isolation/circular-mirror"
    ),
    may="internal-topics lost-write producer-id-uniqueness sequence-continuity torn-transaction",
)
def tail_kept_above_the_truncation(made: Made, rng: Random) -> None:
    """The mirror reports that it truncated B and was promoted at this offset; the mirrored records
    after it are still there."""
    _promoted_at(made, data(made, "B", native=False)[-1].offset)


@mutation(OVERLAPPING_TRUNCATION, must="truncation-accounting/promotion-unaccounted")
def one_truncation_of_two_was_reported(made: Made, rng: Random) -> None:
    """The mirror truncated B repeatedly, and reports only the last truncation."""
    rows = next(e for e in made.events if e.kind == "mirror-stopped").data["partitions"]
    truncations = next(row["truncated"] for row in rows if row["partition"] == 0)  # type: ignore[attr-defined]
    if len(truncations) < 2:
        raise NothingToChange("it was truncated once")
    journal(made, truncated=truncations[-1:])


LEFT_OPEN = "marker-pairing/transaction-left-open"


def _adopted(made: Made, further: int = 0) -> None:
    """An idempotent producer of B's own in partition 0 goes on from where a mirrored one of A's
    ended."""
    theirs = [e for e in data(made, "B", native=False, state="plain") if e.pid >= 0]
    if not theirs:
        raise NothingToChange("nothing of an idempotent producer was mirrored")
    last = theirs[-1]
    mine = [e for e in data(made, "B", native=True, state="plain") if e.pid >= 0]
    if not mine:
        raise NothingToChange("no idempotent producer of B's own wrote")
    old, ahead = mine[0].pid, last.sequence + last.span + further
    used = {e.pid for e in data(made, "B", native=True)} - {old}
    if last.pid in used:
        raise NothingToChange("B hands out that id to another one")
    here = {e.offset for e in mine if e.pid == old}
    for partition in range(made.scenario.topics.partitions):
        own = here if partition == 0 else set()
        start = promotion(made, "B", partition)
        made.change(
            "B",
            partition,
            lambda log, own=own, start=start: [  # type: ignore[misc]
                (
                    replace(
                        e,
                        pid=last.pid,
                        epoch=last.epoch,
                        sequence=e.sequence + (ahead if e.offset in own else 0),
                    )
                    if e.pid == old and e.offset >= start
                    else e
                )
                for e in log
            ],
        )
    made.operations = [
        replace(o, producer_id=last.pid) if (o.producer_id, o.cluster) == (old, "B") else o
        for o in made.operations
    ]


@mutation(RESETS, must=f"sequence-continuity/sequence-start {COLLISION}")
def went_on_behind_the_reset(made: Made, rng: Random) -> None:
    """After B's reset, a producer id continues where the mirrored one ended. Its first records were
    acknowledged and not appended."""
    _adopted(made)


@mutation(
    COPIED_RESET, must=f"sequence-continuity/sequence-start {COLLISION}", may="sequence-continuity"
)
def went_on_behind_the_reset_in_copied_logs(made: Made, rng: Random) -> None:
    """The same in copied logs, without a history of the clients."""
    _adopted(made)


@mutation(COPIED, unknown="byte-equality", verdict="unknown")
def source_copied_before_its_destination(made: Made, rng: Random) -> None:
    """A's logs were copied some batches before B's: what B alone has lies above A's end."""
    mirrored = {e.offset for e in data(made, "B", native=False)}
    end = [e for e in made.log("A") if e.offset in mirrored and e.pid < 0][-1].offset
    left = [e for e in made.log("A") if e.offset < end]
    for key in made.log_keys("A", 0):
        bounds, made.logs[key].entries = made.logs[key].bounds, list(left)
        made.logs[key].bounds = replace(
            bounds, high_watermark=end, high_watermark_from="copied", last_stable=-1,
            stable_above=-1, compacted=min(bounds.compacted, end),
        )  # fmt: skip


@mutation(RESETS, must="sequence-continuity/sequence-start")
def began_late_behind_the_reset(made: Made, rng: Random) -> None:
    """After B's reset, a mirrored producer id begins with a sequence above where it ended."""
    _adopted(made, further=3)


def _mirrored_again(made: Made) -> Entry:
    """The last mirrored batch of an idempotent producer is there once more, at B's end."""
    mirrored = [e for e in data(made, "B", native=False, state="plain") if e.pid >= 0]
    if not mirrored:
        raise NothingToChange("nothing of an idempotent producer was mirrored")
    end = made.log("B")[-1]
    again = replace(mirrored[-1], offset=end.end, leader_epoch=end.leader_epoch)
    made.change("B", 0, lambda log: [*log, again])
    return again


_TWICE = (
    "duplicate inconsistent-offset lost-write unseen send-order last-stable-offset/lso-mismatch "
    "standby-isolation provenance ghost-ack"
)


@mutation(
    RESETS,
    must="sequence-continuity/sequence-repeat",
    may=f"{_TWICE} {COLLISION} sequence-continuity",
)
def mirrored_again_behind_the_reset(made: Made, rng: Random) -> None:
    """A mirrored batch is repeated after B's own records, with the same producer id and
    sequence."""
    _mirrored_again(made)


@mutation(
    COPIED_RESET,
    must="sequence-continuity/sequence-repeat",
    may=f"{COLLISION} duplicate sequence-continuity",
)
def mirrored_again_in_copied_logs(made: Made, rng: Random) -> None:
    """The same in copied logs, without a history of the clients."""
    _mirrored_again(made)


@mutation(
    FORCED,
    must=f"sequence-continuity/sequence-repeat {COLLISION}",
    may=f"{_TWICE} sequence-continuity",
)
def mirrored_again_without_a_reset(made: Made, rng: Random) -> None:
    """A mirrored batch is repeated after B's own records. The mirror keeps producer ids apart and
    resets nothing."""
    _mirrored_again(made)


def _left_open(made: Made) -> None:
    """The marker of what was open at the failover is not there; what followed is where it was."""
    journal = next(e for e in made.events if e.kind == "mirror-stopped").data["partitions"]
    rows = [row for row in journal if row["partition"] == 0]  # type: ignore[attr-defined]
    offset = rows[0]["appended"][0][0]
    made.change("B", 0, kept_out(next(e for e in made.log("B") if e.offset == offset)))


@mutation(
    {**RESETS, "open_at_death": True},
    must=(
        f"{LEFT_OPEN} last-stable-offset/hanging-transaction "
        "truncation-accounting/marker-not-appended"
    ),
    may="last-stable-offset/lso-mismatch",
)
def left_open_at_the_reset(made: Made, rng: Random) -> None:
    """A transaction that was open at the failover has no marker before B's reset."""
    _left_open(made)


@mutation({**RESETS, "open_at_death": True}, must=LEFT_OPEN)
def left_open_in_copied_logs(made: Made, rng: Random) -> None:
    """The same in copied logs, without a history of the clients."""
    _left_open(made)
    without_history(made)


@mutation(COPIED_RESET, must="marker-pairing/stable-offset-stuck")
def stable_offset_stuck(made: Made, rng: Random) -> None:
    """The leader of a running cluster reports a last stable offset at a transaction that has a
    marker."""
    first = data(made, "B", native=True, state="committed")[0].offset
    for key in made.log_keys("B", 0):
        captured = made.logs[key]
        if captured.bounds.leader:
            captured.bounds = replace(captured.bounds, last_stable=first)


@mutation(
    FORCED,
    must="marker-pairing/not-transactional",
    may="last-stable-offset/lso-mismatch uncommitted-read",
)
def committed_data_without_the_bit(made: Made, rng: Random) -> None:
    """A committed batch of B's own lacks the transactional bit."""
    made.change(
        "B", 0, put(data(made, "B", native=True, state="committed")[0], transactional=False)
    )


@mutation(
    FORCED,
    must="marker-pairing/not-transactional",
    may=(
        "aborted-read commit-aborted lost-write last-stable-offset/lso-mismatch "
        "read-committed-visibility torn-transaction uncommitted-read poll-continuity unseen"
    ),
)
def aborted_data_without_the_bit(made: Made, rng: Random) -> None:
    """An aborted batch of B's own lacks the transactional bit, so every reader gets it."""
    made.change("B", 0, put(data(made, "B", native=True, state="aborted")[0], transactional=False))


@mutation(
    FORCED,
    must="marker-pairing/impossible-header",
    may="marker-pairing/not-transactional last-stable-offset sequence-continuity",
)
def plain_data_with_the_bit(made: Made, rng: Random) -> None:
    """A batch of B's own without a producer id has the transactional bit."""
    made.change(
        "B",
        0,
        put(next(e for e in data(made, "B", native=True) if e.pid == -1), transactional=True),
    )


@mutation(FORCED, must="marker-pairing/coordinator-epoch-regression")
def marker_of_a_fenced_coordinator(made: Made, rng: Random) -> None:
    """A marker of B's own has a lower coordinator epoch than an earlier marker of the same
    producer: its coordinator was fenced."""
    markers = [
        e
        for e in made.log("B")
        if e.offset >= promotion(made) and e.ends is not None and e.pid >= 0
    ]
    own = {e.pid for e in data(made, "B", native=True)}
    later = [
        e for n, e in enumerate(markers) if e.pid in own and e.pid in {b.pid for b in markers[:n]}
    ]
    if not later:
        raise NothingToChange("no producer of B's own has two markers")
    made.change("B", 0, put(later[-1], coordinator=later[-1].coordinator - 1))


@mutation(COPIED_RESET, unknown="byte-equality", verdict="unknown")
def promotion_mark_deleted(made: Made, rng: Random) -> None:
    """Retention deleted B's beginning with the reset record that marks its promotion, so the
    promotion offset is unknown."""
    log = made.log("B")
    reset = next((e for e in log if e.ends == RESET), None)
    left = [e for e in log if reset is not None and e.offset > reset.offset + 1]
    if not left:
        raise NothingToChange("nothing is behind the reset")
    start = left[0].offset
    for replica in made.log_keys("B", 0):
        captured = made.logs[replica]
        made.rewrite(replica, lambda entries: [e for e in entries if e.offset >= start])
        captured.bounds = replace(captured.bounds, log_start=start)
    number = next(
        n for n, e in enumerate(made.events) if e.kind == "promotion" and e.data["partition"] == 0
    )
    known = made.events[number]
    event = replace(known, data={**known.data, "offset": start})
    made.events[number : number + 1] = [event, replace(event, kind="promotion-unknown")]
