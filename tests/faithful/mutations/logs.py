"""Bytes that are lost, torn, changed, or where they should not be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

from tests.faithful.entries import ABORT, COMMIT, Entry, Rec
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    FORCED,
    MM2_FORCED,
    MM2_PAIR,
    MM2_PLANNED,
    PAIR,
    PLANNED,
    Afterwards,
    data,
    kept_out,
    known_committed,
    mapped,
    mutation,
    promised,
    put,
)
from tests.faithful.mutations.order import SEEN
from tests.faithful.mutations.polls import forget
from tests.faithful.mutations.replicas import changed_records


@mutation(
    PAIR,
    must=(
        "byte-equality/byte-hole record-equality/record-hole order-equality/mirror-hole "
        "lost-write/lost-write"
    ),
    may=SEEN + " sequence-continuity",
)
def mirrored_batch_lost(made: Made, rng: Random) -> None:
    """Every replica of B lacks a mirrored batch in the middle of the log."""
    made.change("B", 0, kept_out(known_committed(made, "B", rng, native=False)))


@mutation(
    MM2_PAIR,
    must="order-equality/mirror-hole lost-write/lost-write",
    may=SEEN + " sequence-continuity",
)
def moved_batch_lost(made: Made, rng: Random) -> None:
    """Every replica of B lacks a batch in the middle of the log that MirrorMaker 2 wrote."""
    mirrored = data(made, "B", native=False)
    made.change("B", 0, kept_out(next(e for e in mirrored[1:-1] if promised(made, e))))


@mutation(
    FORCED,
    must="lost-write/lost-write ghost-ack/ghost-ack",
    may=SEEN + " sequence-continuity torn-transaction last-stable-offset/lso-mismatch",
)
def native_batch_lost(made: Made, rng: Random) -> None:
    """Every replica of B lacks an acknowledged batch of B's own."""
    made.change("B", 0, kept_out(known_committed(made, "B", rng, native=True)))


@mutation(
    PLANNED,
    must="lost-write/lost-write byte-equality/byte-hole record-equality/record-hole",
    may="torn-transaction",
)
def tail_lost_though_drained(made: Made, rng: Random) -> None:
    """B lacks the last records before a planned failover, and no reader of B had got them."""
    last = [e for e in data(made, "B", native=False) if promised(made, e)][-1]
    forget(made, set(range(last.offset, last.end)), "B")
    made.change("B", 0, kept_out(last))


@mutation(
    MM2_FORCED,
    must="lost-write/lost-write",
    may="order-equality/mirror-hole sequence-continuity " + SEEN,
)
def tail_lost_though_shown(made: Made, rng: Random) -> None:
    """B lacks the last mirrored records before a forced failover, although readers of B had got
    them."""
    made.change(
        "B", 0, kept_out([e for e in data(made, "B", native=False) if promised(made, e)][-1])
    )


@mutation(PAIR, unknown="recording", verdict="unknown")
def segment_torn(made: Made, rng: Random) -> Afterwards:
    """A segment of B's leader lacks its last bytes, so it is unknown what was in them."""
    file = made.log_keys("B", 0)[0]

    def tear(root: Path) -> None:
        folder = (
            root
            / "captures"
            / file.moment
            / file.cluster
            / str(file.broker)
            / f"{file.topic}-{file.partition}"
        )
        path = sorted(folder.glob("*.log"))[-1]
        path.write_bytes(path.read_bytes()[:-7])

    return tear


@mutation(
    PAIR,
    must=(
        "byte-equality/byte-divergence record-equality/record-divergence "
        "order-equality/mirror-divergence"
    ),
)
def value_changed(made: Made, rng: Random) -> None:
    """In every replica of B, one byte of a mirrored record has changed, and the CRC was
    recomputed."""
    batch = known_committed(made, "B", rng, native=False)
    made.change("B", 0, put(batch, records=changed_records(batch.records)))


@mutation(
    mapped(PAIR, producer_ids="complement"),
    must=(
        "byte-equality/byte-divergence record-equality/record-divergence "
        "order-equality/mirror-divergence"
    ),
)
def value_changed_under_another_id(made: Made, rng: Random) -> None:
    """One byte of a record has changed on B. The mirror changes producer ids, so every CRC differs
    anyway."""
    batch = known_committed(made, "B", rng, native=False)
    made.change("B", 0, put(batch, records=changed_records(batch.records)))


@mutation(mapped(PAIR, producer_ids="complement"), must="byte-equality/byte-divergence")
def marker_time_changed_under_another_id(made: Made, rng: Random) -> None:
    """A mirrored marker has another timestamp on B, and the CRC was recomputed. The mirror changes
    producer ids, so every CRC differs anyway."""
    marker = next(e for e in made.log("B") if e.ends in (ABORT, COMMIT))
    made.change("B", 0, put(marker, timestamp=marker.timestamp + 1))


@mutation(MM2_PAIR, must="order-equality/mirror-divergence")
def timestamp_changed(made: Made, rng: Random) -> None:
    """MirrorMaker 2 gave a record another timestamp."""
    batch = data(made, "B", native=False)[1]
    first, *rest = batch.records
    made.change("B", 0, put(batch, records=(first._replace(timestamp=first.timestamp + 1), *rest)))


@mutation(
    mapped(PAIR, leader_epochs="keep"),
    must="leader-epochs/epoch-not-kept",
    may="leader-epochs/epoch-behind truncation-accounting",
)
def epochs_not_kept(made: Made, rng: Random) -> None:
    """From one mirrored batch on, B's batches have the next leader epoch, although the mirror keeps
    the source's epochs."""
    start = known_committed(made, "B", rng, native=False).offset
    made.change(
        "B",
        0,
        lambda log: [
            replace(e, leader_epoch=e.leader_epoch + 1) if e.offset >= start else e for e in log
        ],
    )


@mutation(
    PAIR,
    must="byte-equality/byte-hole byte-equality/byte-stranger record-equality/record-hole",
    may=(
        "byte-equality inconsistent-offset last-stable-offset poll-continuity "
        "read-committed-visibility record-equality"
    ),
)
def offsets_shifted(made: Made, rng: Random) -> None:
    """From one mirrored batch on, all offsets on B are one too high."""
    log = made.log("B")
    start = log[len(log) // 2].offset
    made.change(
        "B",
        0,
        lambda all_: [e if e.offset < start else replace(e, offset=e.offset + 1) for e in all_],
    )


@mutation(PAIR, must="byte-equality/byte-stranger byte-equality/byte-divergence")
def batch_split(made: Made, rng: Random) -> None:
    """B has the records of one batch in two batches."""
    batch = next(e for e in data(made, "B", native=False) if len(e.records) > 1)
    first, *rest = batch.records
    one = replace(batch, records=(first,), span=1)
    two = replace(
        batch,
        offset=batch.offset + 1,
        records=tuple(r._replace(delta=r.delta - 1) for r in rest),
        span=batch.span - 1,
        sequence=batch.sequence + 1 if batch.pid >= 0 else -1,
    )
    made.change(
        "B",
        0,
        lambda log: [
            new for e in log for new in ((one, two) if e.offset == batch.offset else (e,))
        ],
    )


@mutation(MM2_PAIR, must="order-equality/mirror-phantom")
def mirrored_from_nowhere(made: Made, rng: Random) -> None:
    """MirrorMaker 2 wrote a record that A never had."""
    last = data(made, "B", native=False)[-1]
    stranger = last.records[-1]._replace(delta=0, uid=(77 << 40) + 1, operation=77 << 40)
    entry = replace(last, records=(stranger,), span=1, sequence=last.sequence + len(last.records))
    made.change("B", 0, lambda log: [*log, replace(entry, offset=log[-1].end)])


@mutation(
    PAIR,
    must=(
        "byte-equality/byte-stranger record-equality/record-stranger order-equality/mirror-phantom"
    ),
)
def mirrored_beyond_the_source(made: Made, rng: Random) -> None:
    """B has a mirrored record after the end of A's log."""
    record = Rec(0, (77 << 40) + 1, 77 << 40, 0, 1_800_000_000_000, None, b"whose?")
    made.change("B", 0, lambda log: [*log, _alone(log[-1], record)])


@mutation(PAIR, must="byte-equality/byte-divergence")
def packed_anew(made: Made, rng: Random) -> None:
    """The mirror compressed a batch again, with another codec: the same records in other bytes."""
    batch = known_committed(made, "B", rng, native=False)
    made.change("B", 0, put(batch, codec="gzip" if batch.codec != "gzip" else "lz4"))


@mutation(FORCED, must="provenance/stranger")
def nobody_sent_it(made: Made, rng: Random) -> None:
    """At the end of B's log is a record without a payload id."""
    record = Rec(0, -1, -1, -1, 1_800_000_000_000, None, b"whose?")
    made.change("B", 0, lambda log: [*log, _alone(log[-1], record)])


@mutation(FORCED, must="provenance/stranger")
def nobody_planned_it(made: Made, rng: Random) -> None:
    """At the end of B's log is a record with a payload id that no client had."""
    record = Rec(0, (77 << 40) + 1, 77 << 40, 0, 1_800_000_000_000, None, b"whose?")
    made.change("B", 0, lambda log: [*log, _alone(log[-1], record)])


def _alone(last: Entry, record: Rec) -> Entry:
    return Entry(offset=last.end, records=(record,), leader_epoch=last.leader_epoch)


@mutation(
    MM2_PLANNED,
    must="torn-transaction/torn-transaction lost-write/lost-write",
    may="order-equality/mirror-hole sequence-continuity " + SEEN,
)
def torn_by_a_planned_failover(made: Made, rng: Random) -> None:
    """B lacks one partition of a transaction over two partitions, although the failover was
    planned."""
    parts = [
        {r.operation for e in data(made, "B", p, native=False) for r in e.records} for p in (0, 1)
    ]
    own = [
        e
        for e in data(made, "A", native=True, state="committed")
        if e.records[0].operation in parts[0] & parts[1]
    ]
    operation = own[-1].records[0].operation
    made.change(
        "B",
        0,
        lambda log: [
            _without(e, operation)
            for e in log
            if _without(e, operation).records or e.ends is not None
        ],
    )


def _without(entry: Entry, operation: int) -> Entry:
    """A batch without the records of an operation, its offsets as they were."""
    return replace(entry, records=tuple(r for r in entry.records if r.operation != operation))


@mutation({**FORCED, "tear": True}, must="torn-transaction/torn-by-failover", verdict="valid")
def torn_by_a_forced_failover(made: Made, rng: Random) -> None:
    """One partition of a committed transaction was not mirrored when A died, because each partition
    is mirrored independently."""
