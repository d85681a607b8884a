"""Bounds that leaders reported and that cannot be: last stable offsets too early or too late, high
watermarks that fell."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

from linkflap.harness.model.history import EventRow, Watermark
from tests.faithful.clusters import states
from tests.faithful.made import Made
from tests.faithful.mutations.base import MM2_PAIR, PAIR, change_mark, data, marks, mutation
from tests.faithful.mutations.relays import COPIES, COPYING
from tests.faithful.spec import OUTPUTS, TOPIC

MISMATCH = "last-stable-offset/lso-mismatch"


def _in_one_epoch(made: Made) -> list[tuple[Watermark, Watermark]]:
    """Neighbouring samples of A by one leader in one epoch."""
    sampled = marks(made, "A")
    return [
        (a, b)
        for a, b in pairwise(sampled)
        if (a.leader, a.leader_epoch) == (b.leader, b.leader_epoch)
    ]


@mutation(PAIR, must=MISMATCH)
def stable_too_early(made: Made, rng: Random) -> None:
    """A sample has a last stable offset in the middle of a transaction that was open."""
    batch = next(e for e in data(made, "A", native=True, state="committed") if e.span > 1)
    marker = states(made.log("A")).marker[batch.offset]
    found = next(m for m in marks(made, "A") if m.high_watermark > marker)
    change_mark(made, found, last_stable=batch.offset + 1)


@mutation(PAIR, must=MISMATCH, may="last-stable-offset/high-watermark-above-log")
def stable_too_late(made: Made, rng: Random) -> None:
    """A sample has a last stable offset after records of a transaction without a marker below the
    high watermark."""
    batch = data(made, "A", native=True, state="committed")[0]
    first = marks(made, "A")[0]
    made.marks.insert(
        0,
        replace(
            first,
            time=made.started,
            returned=made.started + 10,
            last_stable=batch.end,
            high_watermark=batch.end,
        ),
    )


@mutation(
    PAIR,
    must="last-stable-offset/lso-above-high-watermark",
    may=MISMATCH + " last-stable-offset/lso-regression",
)
def stable_above_the_high_watermark(made: Made, rng: Random) -> None:
    """A sample has a last stable offset above the high watermark, and above that of the next
    sample."""
    before, after = _in_one_epoch(made)[0]
    change_mark(made, before, last_stable=max(before.high_watermark, after.high_watermark) + 1)


@mutation(
    PAIR,
    must="last-stable-offset/lso-regression",
    may=MISMATCH + " uncommitted-read/uncommitted-read",
)
def stable_went_back(made: Made, rng: Random) -> None:
    """A sample has a lower last stable offset than the one before, from the same leader in the same
    epoch."""
    before, after = next((a, b) for a, b in _in_one_epoch(made) if a.last_stable > 0)
    change_mark(made, after, last_stable=before.last_stable - 1)


@mutation(PAIR, must="last-stable-offset/high-watermark-regression")
def high_watermark_fell(made: Made, rng: Random) -> None:
    """A sample has a lower high watermark than the one before, from the same leader in the same
    epoch."""
    before, after = next((a, b) for a, b in _in_one_epoch(made) if a.high_watermark > 0)
    change_mark(made, after, high_watermark=before.high_watermark - 1)


@mutation(PAIR, must="last-stable-offset/log-start-regression", may="log-start")
def log_start_went_back(made: Made, rng: Random) -> None:
    """A's log start offset is higher in one sample than in the next, from the same leader in the
    same epoch."""
    before, _ = next((a, b) for a, b in _in_one_epoch(made) if a.last_stable > 0)
    change_mark(made, before, log_start=before.last_stable)


@mutation(
    PAIR,
    must="last-stable-offset/log-start-above-lso last-stable-offset/log-start-regression",
    may="log-start",
)
def log_start_above_the_stable(made: Made, rng: Random) -> None:
    """A sample has a log start offset above its last stable offset; the samples before and after it
    are from the same leader in the same epoch."""
    pairs = _in_one_epoch(made)
    _, mark = next((a, b) for (a, b), (c, _) in pairwise(pairs) if b == c)
    change_mark(made, mark, log_start=mark.last_stable + 1)


def _begins_later(made: Made, cluster: str, batches: int, *, topic: str = TOPIC) -> None:
    """A cluster's log lacks its first batches: its files, their bounds, and the last samples."""
    start = made.log(cluster, topic=topic)[batches].offset
    for key in made.log_keys(cluster, 0, topic=topic):
        made.rewrite(key, lambda log: [e for e in log if e.offset >= start])
        made.logs[key].bounds = replace(made.logs[key].bounds, log_start=start)
    for mark in [m for m in marks(made, cluster) if m.topic == topic][-2:]:
        change_mark(made, mark, log_start=start)


@mutation(PAIR, must="log-start/lost-beginning")
def beginning_lost(made: Made, rng: Random) -> None:
    """The first batches of A are gone from all replicas, and its log start has moved. Nobody
    deleted them, and they are kept for a week."""
    _begins_later(made, "A", 2)


@mutation(MM2_PAIR, must="log-start/lost-beginning")
def beginning_lost_where_offsets_move(made: Made, rng: Random) -> None:
    """The first batches of B are gone, which has its own offsets, and A has deleted nothing."""
    _begins_later(made, "B", 2)


def _begins_inside(made: Made) -> int:
    """A's log begins at the second record of a batch, whose bytes are all there."""
    batch = next(e for e in made.log("A") if len(e.records) > 1)
    start = batch.offset + batch.records[1].delta
    for key in made.log_keys("A", 0):
        made.rewrite(key, lambda log: [e for e in log if e.offset >= batch.offset])
        made.logs[key].bounds = replace(made.logs[key].bounds, log_start=start)
    for mark in marks(made, "A")[-2:]:
        change_mark(made, mark, log_start=start)
    return start


@mutation(PAIR, must="log-start/lost-beginning")
def beginning_lost_inside_a_batch(made: Made, rng: Random) -> None:
    """A's log start is inside of a batch, and nobody had deleted the records before."""
    _begins_inside(made)


@mutation(PAIR, verdict="valid")
def beginning_deleted_inside_a_batch(made: Made, rng: Random) -> None:
    """Somebody had A's records deleted up to the second one of a batch."""
    row = {"topic": marks(made, "A")[0].topic, "partition": 0, "offset": _begins_inside(made)}
    time = marks(made, "A")[-2].time - 1
    made.events.append(EventRow(time=time, kind="records-deleted", subject="A", data=row))


@mutation(PAIR, must="log-start/lost-beginning")
def beginning_lost_below_the_size_kept(made: Made, rng: Random) -> None:
    """The topic keeps 100 MB, and less is left of A."""
    made.set_on_topics(retention_bytes="100000000")
    _begins_later(made, "A", 2)


@mutation(PAIR, must="log-start/lost-beginning")
def beginning_lost_inside_a_segment(made: Made, rng: Random) -> None:
    """The topic keeps one byte. A's first batches are gone, and so few cannot have filled a
    segment."""
    made.set_on_topics(segment_bytes="1073741824", retention_bytes="1")
    _begins_later(made, "A", 2)


@mutation(PAIR, must="log-start/lost-beginning")
def beginning_lost_beyond_what_was_deleted(made: Made, rng: Random) -> None:
    """Somebody deleted A's first batch, and the first three are gone."""
    row = {"topic": marks(made, "A")[0].topic, "partition": 0, "offset": made.log("A")[1].offset}
    time = marks(made, "A")[-2].time - 1
    made.events.append(EventRow(time=time, kind="records-deleted", subject="A", data=row))
    _begins_later(made, "A", 3)


@mutation(PAIR, verdict="valid")
def beginning_past_the_time_kept(made: Made, rng: Random) -> None:
    """The topic keeps records for one millisecond, and A has deleted its first batches."""
    made.set_on_topics(retention_ms="1")
    _begins_later(made, "A", 2)


@mutation(COPYING, must="log-start/lost-beginning", unknown="program-copies")
def beginning_lost_of_what_a_program_wrote(made: Made, rng: Random) -> None:
    """The first batches of a program's outputs are gone on A. Its mirror has them, with times that
    retention would keep for a week."""
    _begins_later(made, "A", 2, topic=OUTPUTS)


@mutation(
    {**MM2_PAIR, **COPIES, "steps": 120}, unknown="log-start program-copies", verdict="unknown"
)
def beginning_of_unknown_age(made: Made, rng: Random) -> None:
    """The first batches of a program's outputs are gone on A. Nobody knows which copies on B are
    theirs, and so whether retention deleted them."""
    _begins_later(made, "A", 2, topic=OUTPUTS)


def _replica(made: Made, *ends: int) -> None:
    """Samples of a follower of A while its leader and epoch stay the same: its end, against the
    high watermark of that time."""
    one, two = next((a, b) for a, b in _in_one_epoch(made) if a.high_watermark > 2)
    step = (two.time - one.returned) // (len(ends) + 1)
    for number, behind in enumerate(ends):
        asked = one.returned + number * step
        row = {
            "topic": one.topic,
            "partition": one.partition,
            "broker": 9,
            "log_start": 0,
            "log_end": one.high_watermark + behind,
        }
        made.events.append(
            EventRow(
                time=asked + 1,
                kind="replicas-sampled",
                subject="A",
                data={"asked": asked, "rows": [row]},
            )
        )


@mutation(PAIR, must="last-stable-offset/replica-end-regression")
def replica_that_lost_committed_records(made: Made, rng: Random) -> None:
    """A follower fetched up to the high watermark, and then its log ends one record earlier, under
    the same leader and epoch."""
    _replica(made, -2, 0, -1)


@mutation(PAIR, verdict="valid")
def replica_that_lost_uncommitted_records(made: Made, rng: Random) -> None:
    """A follower had a record above the high watermark, and has it no more."""
    _replica(made, -2, 1, 0)


@mutation(PAIR, verdict="valid")
def replica_that_never_fetched_from_this_leader(made: Made, rng: Random) -> None:
    """A follower's log gets shorter before it has fetched anything from the present leader: its
    records may have been another leader's."""
    _replica(made, 0, -1)


@mutation(PAIR, must="last-stable-offset/high-watermark-ahead")
def high_watermark_of_the_fastest_follower(made: Made, rng: Random) -> None:
    """While a mirror leads B's partition, it reports a high watermark that one of two followers in
    sync has not reached."""
    _led_by_mirror(made, behind=1)


@mutation(PAIR, verdict="valid")
def high_watermark_of_the_slowest_follower(made: Made, rng: Random) -> None:
    """While a mirror leads B's partition, it reports the high watermark that all followers have."""
    _led_by_mirror(made, behind=0)


def _led_by_mirror(made: Made, *, behind: int) -> None:
    """The samples of B's partition name a mirror as their leader, and one of its followers was
    sampled beside each."""
    like = marks(made, "B")[-1]
    end, began, tick = like.high_watermark, made.ended + 1_000_000, 200_000_000
    made.marks = [m for m in made.marks if (m.cluster, m.partition) != ("B", 0)]
    for number, has in enumerate((end - 2, end - 1, end - behind, end)):
        time = began + number * tick
        made.marks.append(
            replace(like, leader=1000, leader_epoch=9, time=time, returned=time + 1000)
        )
        row = {"topic": like.topic, "partition": 0, "broker": 2, "log_start": 0, "log_end": has}
        made.events.append(
            EventRow(
                time=time + 3000,
                kind="replicas-sampled",
                subject="B",
                data={"asked": time + 2000, "rows": [row]},
            )
        )
    made.ended = began + 5 * tick
