"""What goes wrong where a mirror ends: sessions behind a reset of the producer state, transactions
left open."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.faithful.entries import RESET, Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    COPIED_RESET,
    FORCED,
    RESETS,
    NothingToChange,
    data,
    kept_out,
    mutation,
    promotion,
    put,
)
from tests.faithful.mutations.ids import COLLISION
from tests.faithful.stories import without_history

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
