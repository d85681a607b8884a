"""Promotions, truncations and budgets: what a failover and a failback may do, and what was done
instead. What clients see while a cluster's log is truncated, and what was captured before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from linkflap.harness.model.history import EventRow, Fetched, Poll, SendGroup, Watermark
from linkflap.harness.model.scenario import Budgets
from tests.faithful.clusters import ABORT, COMMIT, RESET, Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    BESIDE,
    FORCED,
    MM2_FORCED,
    PAIR,
    PLANNED,
    PLANNED_ROUND_TRIP,
    ROUND_TRIP,
    Afterwards,
    NothingToChange,
    change_mark,
    data,
    drop_events,
    event,
    journal,
    marks,
    mutation,
    promotion,
    put,
)
from tests.faithful.mutations.readers import change_poll, got, polls
from tests.faithful.observers import MS, SECOND
from tests.faithful.world import values_of


@mutation(
    FORCED,
    must="standby-isolation/standby-write",
    may="ghost-ack inconsistent-offset lost-write unseen",
)
def standby_acknowledged(made: Made, rng: Random) -> None:
    """B acknowledged a client's write while it was the destination of a mirror."""
    row = next(
        o for o in made.operations if (o.cluster, o.phase, o.kind) == ("B", "return", "send")
    )
    invoke = next(o for o in made.operations if (o.number, o.phase) == (row.number, "invoke"))
    number = row.number + 100
    group = SendGroup(
        topic=row.sends[0].topic, partition=0, first_uid=(row.process << 40) + 7000, count=1
    )
    early = made.started + SECOND // 50
    made.operations += [
        replace(invoke, number=number, time=early, sends=(group,)),
        replace(row, number=number, time=early + MS, sends=(replace(group, acks=((0, 1, 1),)),)),
    ]


@mutation(
    FORCED,
    must="standby-isolation/circular-mirror provenance/stranger",
    may="lost-write/lost-write",
)
def came_round(made: Made, rng: Random) -> None:
    """A's own era has a record that clients sent to B: a mirror copied it back."""
    theirs = next(e for e in data(made, "B", native=True, state="plain") if e.pid < 0)
    made.change(
        "A",
        0,
        lambda log: [*log, replace(theirs, offset=log[-1].end, leader_epoch=log[-1].leader_epoch)],
    )


@mutation(
    PLANNED,
    must="standby-isolation/standby-write",
    may=(
        "byte-equality ghost-ack leader-epochs order-equality producer-id-uniqueness "
        "record-equality sequence-continuity truncation-accounting"
    ),
)
def promotion_recorded_too_late(made: Made, rng: Random) -> None:
    """The promotion of B is recorded after B's first own batches, so that these are in the era of
    the mirror."""
    first = data(made, "B", native=True)[0]
    index = next(i for i, e in enumerate(made.events) if e.kind == "promotion")
    old = made.events[index]
    made.events[index] = replace(old, data={**old.data, "offset": first.end})


@mutation(ROUND_TRIP, must="truncation-accounting/truncation-too-deep")
def truncated_too_deep(made: Made, rng: Random) -> None:
    """A was truncated below the divergence offset of A and B, as the mirror reports itself."""
    event(made, "truncation", offset=made.log("A")[1].offset)


@mutation(ROUND_TRIP, must="truncation-accounting/truncation-too-short")
def truncated_too_short(made: Made, rng: Random) -> None:
    """A was truncated above the divergence offset of A and B, as the mirror reports itself. B's
    first batch truncated it again, without a report."""
    tail = [e for e in made.log("A", moment="1-reverse") if e.offset >= promotion(made, "B")]
    event(made, "truncation", offset=tail[0].end)


@mutation(
    ROUND_TRIP,
    must="truncation-accounting/truncation-unrecorded",
    may="last-stable-offset/lso-mismatch poll-continuity/passed-unread",
)
def truncation_not_recorded(made: Made, rng: Random) -> None:
    """A had a tail that B never had, and its truncation is not recorded."""
    drop_events(made, lambda e: e.kind == "truncation" and e.data["partition"] == 0)


@mutation(
    ROUND_TRIP,
    must="truncation-accounting/history-changed",
    may="truncation-accounting/epoch-mismatch",
)
def history_rewritten(made: Made, rng: Random) -> None:
    """A batch of A below the truncation has another leader epoch than before."""
    batch = next(e for e in made.log("A")[::-1] if e.end <= promotion(made, "B"))
    made.change("A", 0, put(batch, leader_epoch=batch.leader_epoch + 1))


@mutation(
    ROUND_TRIP,
    must="truncation-accounting/tail-not-truncated",
    may=(
        "byte-equality group-offsets inconsistent-offset last-stable-offset lost-write "
        "marker-pairing order-equality poll-continuity producer-id-uniqueness "
        "read-committed-visibility record-equality "
        "sequence-continuity standby-isolation torn-transaction truncation-accounting"
    ),
)
def tail_not_truncated(made: Made, rng: Random) -> None:
    """A still has its tail, which B never had, in place of B's records."""
    parted = promotion(made, "B")
    tail = [e for e in made.log("A", moment="1-reverse") if e.offset >= parted]
    made.change(
        "A",
        0,
        lambda log: [
            *[e for e in log if e.end <= parted],
            *tail,
            *[e for e in log if e.offset >= tail[-1].end],
        ],
    )


@mutation(
    PLANNED_ROUND_TRIP, must="truncation-accounting/truncated-write", may="lost-write/lost-write"
)
def acknowledged_and_truncated(made: Made, rng: Random) -> None:
    """A acknowledged a write after a planned failover away from A, and lost it when it followed
    B."""
    row = next(
        o for o in made.operations if (o.cluster, o.phase, o.kind) == ("A", "return", "send")
    )
    invoke = next(o for o in made.operations if (o.number, o.phase) == (row.number, "invoke"))
    number, time = row.number + 100, next(e.time for e in made.events if e.kind == "clients-moved")
    group = SendGroup(
        topic=row.sends[0].topic, partition=0, first_uid=(row.process << 40) + 7000, count=1
    )
    log = made.log("A", moment="1-reverse")
    values, uid = values_of(made.scenario.seed), group.first_uid
    record = (
        log[0]
        .records[0]
        ._replace(
            delta=0,
            uid=uid,
            operation=number,
            counter=7000,
            key=values.key(uid),
            value=values.value(uid),
        )
    )
    entry = Entry(offset=log[-1].end, records=(record,), leader_epoch=log[-1].leader_epoch)
    made.change("A", 0, lambda all_: [*all_, entry], moment="1-reverse")
    made.operations += [
        replace(invoke, number=number, time=time, sends=(group,)),
        replace(
            row,
            number=number,
            time=time + MS,
            sends=(replace(group, acks=((0, 1, entry.offset),)),),
        ),
    ]
    indexes = [i for i, e in enumerate(made.events) if e.kind == "truncation"]
    at = next(
        i
        for i in indexes
        if (made.events[i].data["topic"], made.events[i].data["partition"]) == (group.topic, 0)
    )
    made.events[at] = replace(
        made.events[at], data={**made.events[at].data, "offset": entry.offset, "end": entry.end}
    )


@mutation(
    {**FORCED, "open_at_death": True},
    must="truncation-accounting/marker-not-appended",
)
def another_marker_than_announced(made: Made, rng: Random) -> None:
    """The mirror reports that it aborted one producer, and the marker has another producer's id."""
    marker = next(e for e in made.log("B") if e.offset >= promotion(made, "B"))
    made.change("B", 0, put(marker, epoch=marker.epoch + 7))


@mutation(
    {**FORCED, "open_at_death": True},
    must="truncation-accounting/marker-unannounced",
    may="internal-topics/marker-unexplained",
)
def marker_not_announced(made: Made, rng: Random) -> None:
    """There is a marker between the last mirrored offset and the promotion offset, and the mirror
    does not report it."""
    rows = next(e for e in made.events if e.kind == "mirror-stopped").data["partitions"]
    reported = [{**row, "appended": row["appended"][1:]} for row in rows]  # type: ignore[attr-defined]
    event(made, "mirror-stopped", 0, partitions=reported)


@mutation(
    PLANNED,
    must="truncation-accounting/promotion-mismatch",
    may="truncation-accounting/promotion-unaccounted",
)
def journal_says_something_else(made: Made, rng: Random) -> None:
    """The mirror reports that its mirrored range ended one batch before B's promotion offset."""
    last = data(made, "B", native=False)[-1]
    journal(made, mirrored=promotion(made, "B"), promoted=last.offset)


@mutation({**FORCED, "open_at_death": True}, must="truncation-accounting/promotion-unaccounted")
def promoted_onto_the_mirrors_own_abort(made: Made, rng: Random) -> None:
    """The mirror reports a promotion one offset too low: at the last ABORT that it wrote itself."""
    last = next(e for e in reversed(made.log("B")) if e.ends == ABORT and e.leader_epoch == 1)
    journal(made, promoted=last.offset)


@mutation(PLANNED, must="truncation-accounting/promotion-unaccounted")
def journal_does_not_add_up(made: Made, rng: Random) -> None:
    """The mirror reports a promotion two offsets after its mirrored range, and no markers in
    between."""
    journal(made, mirrored=promotion(made, "B") + 2, promoted=promotion(made, "B"))


@mutation(PLANNED, must="truncation-accounting/truncation-not-made")
def truncation_only_announced(made: Made, rng: Random) -> None:
    """The mirror reports that it truncated B's log at its failover, and the mirrored records are
    still there."""
    log = made.log("B")
    truncated_to = log[len(log) // 4].offset
    journal(made, truncated=[[promotion(made, "B"), truncated_to]])


@mutation(PLANNED, must="truncation-accounting/epoch-mismatch")
def other_epochs_than_announced(made: Made, rng: Random) -> None:
    """The mirror recorded another leader epoch for its mirrored range than B's batches have."""
    journal(made, epochs=[[7, 0]])


@mutation({**FORCED, "lag": True}, must="failover/rpo-over-budget")
def more_lost_than_allowed(made: Made, rng: Random) -> None:
    """The failover lost records, and the scenario allows none."""
    made.scenario = replace(made.scenario, budgets=Budgets(rpo_records=0))


@mutation(MM2_FORCED, must="failover/rto-over-budget")
def slower_than_allowed(made: Made, rng: Random) -> None:
    """The first write after the failover took longer than the scenario allows."""
    made.scenario = replace(made.scenario, budgets=Budgets(rto_seconds=0.001))


def _refused(made: Made) -> None:
    """The mirror refused every request for a failover."""
    data = {
        "kind": "forced",
        "error": "INVALID_CLUSTER_MIRROR_STATES",
        "code": 145,
        "seconds": 60.0,
    }
    at = max(e.time for e in made.events if e.kind != "phase")
    made.events.append(EventRow(time=at, kind="failover-refused", subject="A->B", data=data))


@mutation(PAIR, must="failover/failover-refused")
def failover_that_was_refused(made: Made, rng: Random) -> None:
    """The mirror refused every request for a failover, and clients stayed on the old cluster."""
    _refused(made)


@mutation(
    PAIR,
    must=(
        "standby-isolation/partial-promotion failover/failover-refused byte-equality/byte-stranger"
    ),
)
def refused_and_carried_out_in_part(made: Made, rng: Random) -> None:
    """The mirror refused every request for a failover, and promoted one partition of B all the
    same: it has a reset of the producer state."""
    _refused(made)
    made.change(
        "B",
        0,
        lambda log: [
            *log,
            Entry(
                offset=log[-1].end, ends=RESET, leader_epoch=log[-1].leader_epoch,
                timestamp=made.ended // MS,
            ),
        ],
    )  # fmt: skip


OTHERS = (
    "inconsistent-offset/inconsistent-offset last-stable-offset/lso-mismatch "
    "poll-continuity/internal-skip poll-continuity/passed-unread poll-continuity/poll-skip "
    "read-committed-visibility/phantom-read"
)
"""What readers and samplers of A show where a capture lacks something."""


def _lasts(made: Made) -> tuple[int, int]:
    """When the reversal began and ended."""
    times = [
        e.time
        for e in made.events
        if e.kind in ("fault-start", "fault-end") and e.data.get("id") == "reverse"
    ]
    return times[0], times[1]


def _truncated(made: Made) -> int:
    return next(
        (e.time for e in made.events if e.kind == "truncation" and e.data["partition"] == 0),
        _lasts(made)[1],
    )


def _seen(made: Made, *, after: bool) -> list[Poll]:
    """Polls of A while it lasted, before the truncation or after it, that returned something of
    partition 0."""
    (began, ended), at = _lasts(made), _truncated(made)
    mine = [p for p in made.polls if p.cluster == "A" and p.kind == "poll" and got(p)]
    mine = [
        p
        for p in mine
        if began < p.time and p.returned < ended and (p.time > at if after else p.returned < at)
    ]
    if not mine:
        raise NothingToChange("nobody read A while the reversal lasted")
    return mine


@mutation(
    ROUND_TRIP,
    must="inconsistent-offset/inconsistent-offset",
    may=(
        "read-committed-visibility poll-continuity unseen group-offsets uncommitted-read "
        "aborted-read"
    ),
)
def other_payloads_before_the_truncation(made: Made, rng: Random) -> None:
    """During a reversal, before the truncation, a reader gets payloads that are in no log."""
    for poll in _seen(made, after=False):
        change_poll(made, poll, [(uid + 7, offset) for uid, offset in got(poll)])


@mutation(
    ROUND_TRIP,
    must="inconsistent-offset/inconsistent-offset",
    may=(
        "read-committed-visibility poll-continuity unseen group-offsets uncommitted-read "
        "aborted-read"
    ),
)
def other_payloads_after_the_truncation(made: Made, rng: Random) -> None:
    """During a reversal, after the truncation, a reader gets payloads that are in no log."""
    for poll in _seen(made, after=True):
        change_poll(made, poll, [(uid + 7, offset) for uid, offset in got(poll)])


@mutation(ROUND_TRIP, must="poll-continuity/internal-regression", may="poll-continuity")
def went_back_while_reversed(made: Made, rng: Random) -> None:
    """During a reversal, a reader gets the records of a poll in reverse order."""
    poll = next(p for p in _seen(made, after=True) if len(got(p)) > 1)
    change_poll(made, poll, got(poll)[::-1])


def _samples(made: Made) -> list[Watermark]:
    began, ended = _lasts(made)
    mine = [m for m in marks(made, "A") if began < m.time and m.returned < ended]
    if len(mine) < 2:
        raise NothingToChange("A was not sampled while the reversal lasted")
    return mine


@mutation(
    ROUND_TRIP,
    must="last-stable-offset/lso-above-high-watermark",
    may="last-stable-offset uncommitted-read",
)
def lso_above_while_reversed(made: Made, rng: Random) -> None:
    """During a reversal, every sample has a last stable offset far above the high watermark."""
    samples = _samples(made)
    if len(samples) < 3:
        raise NothingToChange("the first of the new log is compared with none, and the last too")
    for mark in samples:
        change_mark(made, mark, last_stable=mark.high_watermark + 5000)


@mutation(ROUND_TRIP, must="truncation-accounting/history-changed", may=OTHERS)
def capture_lacks_its_head(made: Made, rng: Random) -> None:
    """The capture before the truncation lacks its first batch."""
    made.change("A", 0, lambda log: log[1:], moment="1-reverse")


@mutation(ROUND_TRIP, must="truncation-accounting/history-changed", may=OTHERS)
def capture_lacks_a_marker(made: Made, rng: Random) -> None:
    """The capture before the truncation lacks a COMMIT marker from below the truncation."""
    _without(made, lambda e: e.ends == COMMIT)


@mutation(ROUND_TRIP, must="truncation-accounting/history-changed", may=OTHERS)
def capture_lacks_its_middle(made: Made, rng: Random) -> None:
    """The capture before the truncation lacks a batch from the middle of the log below the
    truncation."""
    _without(made, lambda e: e.ends is None)


def _without(made: Made, which: Callable[[Entry], bool]) -> None:
    mine = [
        e
        for e in made.log("A", moment="1-reverse")[1:]
        if which(e) and e.end <= promotion(made, "B")
    ]
    gone: Entry = mine[len(mine) // 2]
    made.change("A", 0, lambda log: [e for e in log if e.offset != gone.offset], moment="1-reverse")


@mutation(
    ROUND_TRIP,
    must="truncation-accounting/history-changed",
    may=(
        f"{OTHERS} last-stable-offset/high-watermark-above-log poll-continuity/position-beyond-end "
        "truncation-accounting/truncation-impossible"
    ),
)
def capture_lacks_its_tail(made: Made, rng: Random) -> None:
    """The capture before the truncation ends below the truncation."""
    below = [e for e in made.log("A", moment="1-reverse") if e.end <= promotion(made, "B")]
    made.change(
        "A", 0, lambda log: [e for e in log if e.offset < below[-2].offset], moment="1-reverse"
    )


@mutation(
    ROUND_TRIP,
    must="truncation-accounting/truncation-impossible",
    may="poll-continuity last-stable-offset",
)
def truncated_above_its_end(made: Made, rng: Random) -> None:
    """The mirror reports that it truncated A at an offset that A never had."""
    event(made, "truncation", offset=10**6, end=10**6 + 1)


@mutation(
    ROUND_TRIP,
    must="truncation-accounting/truncation-impossible",
    may="last-stable-offset poll-continuity/position-beyond-end",
)
def truncated_from_below(made: Made, rng: Random) -> None:
    """The mirror reports that A's log ended below the offset of its truncation."""
    event(made, "truncation", end=promotion(made, "B") - 1)


@mutation(FORCED, must="truncation-accounting/truncation-impossible", may="last-stable-offset")
def truncated_that_never_followed(made: Made, rng: Random) -> None:
    """A truncation of B is recorded, although B never became the destination of a mirror again."""
    at = next(i for i, e in enumerate(made.events) if e.kind == "clients-moved")
    position = {
        "cluster": "B",
        "topic": made.log_keys("B", 0)[0].topic,
        "partition": 0,
        "offset": 5,
        "end": 9,
    }
    added = replace(
        made.events[at],
        kind="truncation",
        subject="A->B",
        data=position,
        time=made.events[at].time + 1,
    )
    made.events.insert(at + 1, added)


@mutation(
    PAIR,
    must=(
        "replica-agreement/log-ends-early last-stable-offset/high-watermark-above-log "
        "poll-continuity/position-beyond-end byte-equality/byte-stranger"
    ),
    may=(
        "commit-aborted/commit-unmarked ghost-ack/ghost-ack internal-topics/marker-missing "
        "last-stable-offset/hanging-transaction last-stable-offset/lso-mismatch "
        "lost-write/lost-write order-equality/mirror-phantom order-equality/mirrored-aborted "
        "read-committed-visibility/phantom-read "
        "record-equality/record-stranger torn-transaction/torn-transaction"
    ),
)
def last_batch_gone(made: Made, rng: Random) -> None:
    """No broker of A has its last batch, and A's bounds and samples show that it existed."""
    for key in made.log_keys("A", 0):
        captured = made.logs[key]
        captured.entries = captured.entries[:-1]


@mutation(
    PAIR,
    must="last-stable-offset/high-watermark-above-log",
    may="last-stable-offset leader-epochs lost-write group-offsets",
)
def sampled_above_the_end(made: Made, rng: Random) -> None:
    """The last sample of A has a high watermark 100 above the end of the log."""
    last = marks(made, "A")[-1]
    change_mark(made, last, high_watermark=last.high_watermark + 100)


@mutation(
    PAIR,
    must="last-stable-offset/high-watermark-above-log",
    may="last-stable-offset leader-epochs lost-write group-offsets",
)
def sampled_above_what_was_sent(made: Made, rng: Random) -> None:
    """The first sample of A has a high watermark behind a record that was sent only afterwards."""
    first, *_, last = marks(made, "A")
    change_mark(made, first, high_watermark=last.high_watermark)


@mutation(PAIR, must="replica-agreement/log-ends-early", may="replica-agreement")
def emptied_follower(made: Made, rng: Random) -> None:
    """A follower of A has an empty log and a high watermark above 0."""
    key = next(p for p in made.log_keys("A", 0) if not made.logs[p].bounds.leader)
    made.logs[key].entries = []


@mutation(PAIR, must="replica-agreement/log-ends-early", may="replica-agreement")
def half_a_follower(made: Made, rng: Random) -> None:
    """A follower of A has only the first half of its log, and a high watermark in the second
    half."""
    key = next(p for p in made.log_keys("A", 0) if not made.logs[p].bounds.leader)
    captured = made.logs[key]
    captured.entries = captured.entries[: len(captured.entries) // 2]


@mutation(ROUND_TRIP, unknown="recording", verdict="unknown")
def ends_of_faults_gone(made: Made, rng: Random) -> None:
    """No fault has a recorded end; the heals are recorded."""
    drop_events(made, lambda e: e.kind == "fault-end")


@mutation(ROUND_TRIP, unknown="recording", verdict="unknown")
def event_out_of_time(made: Made, rng: Random) -> None:
    """The failover back to A is recorded an hour after the run."""
    at = [i for i, e in enumerate(made.events) if e.kind == "phase" or e.kind == "captured"][-1]
    made.events[at] = replace(made.events[at], time=made.ended + 3600 * 10**9)


@mutation(ROUND_TRIP, unknown="recording", verdict="unknown", may=" ".join(BESIDE))
def events_torn(made: Made, rng: Random) -> Afterwards:
    """The file of events ends in the middle of a row, after the first failover."""

    def tear(root: Path) -> None:
        path = root / "events.jsonl"
        data = path.read_bytes()
        first = data.index(b"clients-moved")
        path.write_bytes(data[: rng.randrange(first, len(data) - 1)])

    return tear


READER = "A-uncommitted"


@mutation(ROUND_TRIP, must="poll-continuity/skipped-by-truncation", verdict="valid")
def stayed_beyond_the_truncation(made: Made, rng: Random) -> None:
    """A reader of everything got A's tail before it was truncated. It then continued at its old
    position, in records that came from B."""
    truncated_to, since = (
        promotion(made),
        next(e.time for e in made.events if e.kind == "fault-start" and e.data["id"] == "reverse"),
    )
    all_of_it = data(made, "A", native=True, moment="1-reverse")
    tail = [e for e in all_of_it if e.offset >= truncated_to]
    if not tail:
        raise NothingToChange("A had nothing that B did not have")
    stood = tail[-1].end
    skipped = [
        e for e in data(made, "A", native=True) if truncated_to <= e.offset and e.end <= stood
    ]
    later = [poll for poll in polls(made, READER) if poll.time > since]
    if not skipped or not any(offset >= stood for poll in later for _, offset in got(poll)):
        raise NothingToChange("nobody read what came after that from B")
    for poll in later:
        change_poll(made, poll, [pair for pair in got(poll) if pair[1] >= stood])
    _not_moved(made, since)
    before = [poll for poll in polls(made, READER) if poll.time < since][-1]
    last = max(
        offset for poll in polls(made, READER) if poll.time < since for _, offset in got(poll)
    )
    fresh = [(uid, e.offset_of(uid)) for e in all_of_it for uid in e.uids]
    runs = tuple((uid, offset, 1) for uid, offset in fresh if offset > last)
    row = Fetched(topic=made.log_keys("A", 0)[0].topic, partition=0, runs=runs, position=stood)
    made.polls.append(replace(before, time=since - 2, returned=since - 1, fetched=(row,)))


def _not_moved(made: Made, since: int) -> None:
    """Nobody set the reader back, in the first partition, to where the log was truncated."""
    for poll in [
        p for p in made.polls if p.reader == READER and p.kind == "assign" and p.time > since
    ]:
        others = tuple(f for f in poll.fetched if f.partition != 0)
        made.polls[made.polls.index(poll)] = replace(poll, fetched=others)


@mutation(ROUND_TRIP, unknown="recording", verdict="unknown")
def sample_beyond_every_log_before_a_truncation(made: Made, rng: Random) -> None:
    """After its last capture and before it was truncated, a log was sampled with a log start or a
    high watermark beyond the end of every log."""
    event = next(e for e in made.events if e.kind == "truncation")
    captured = max(e.time for e in made.events if e.kind == "captured" and e.time < event.time)
    where = event.data["cluster"], event.data["partition"]
    last = [m for m in made.marks if (m.cluster, m.partition) == where and m.time < event.time][-1]
    third = (event.time - captured) // 3
    wrong = replace(last, time=captured + third, returned=captured + 2 * third)
    beyond = rng.choice((10**6, 2**60))
    made.marks.append(
        replace(wrong, log_start=beyond)
        if rng.random() < 0.5
        else replace(wrong, high_watermark=beyond)
    )
    made.marks.sort(key=lambda mark: mark.time)
