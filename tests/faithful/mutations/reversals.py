"""What is seen of a cluster while a reversal onto it lasts, what was captured before it was
truncated, and where its log ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from linkflap.harness.model.history import Poll, Watermark
from tests.faithful.entries import COMMIT, Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    FORCED,
    PAIR,
    ROUND_TRIP,
    Afterwards,
    NothingToChange,
    change_mark,
    drop_events,
    event,
    marks,
    mutation,
    promotion,
)
from tests.faithful.mutations.polls import change_poll, got
from tests.oracles.checks import beside

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
        "last-stable-offset/lso-mismatch lost-write/lost-write order-equality/mirror-phantom "
        "order-equality/mirrored-aborted read-committed-visibility/phantom-read "
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


@mutation(ROUND_TRIP, unknown="recording", verdict="unknown", may=" ".join(beside()))
def events_torn(made: Made, rng: Random) -> Afterwards:
    """The file of events ends in the middle of a row, after the first failover."""

    def tear(root: Path) -> None:
        path = root / "events.jsonl"
        data = path.read_bytes()
        first = data.index(b"clients-moved")
        path.write_bytes(data[: rng.randrange(first, len(data) - 1)])

    return tear
