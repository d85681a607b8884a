"""Bytes that are lost, repeated, out of order, torn, changed, or where they should not be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

from tests.faithful.entries import Entry, Rec
from tests.faithful.made import LogKey, Made
from tests.faithful.mutations.base import (
    COPIED,
    FORCED,
    MM2_FORCED,
    MM2_PAIR,
    MM2_PLANNED,
    PAIR,
    PLANNED,
    Afterwards,
    data,
    forget,
    kept_out,
    mapped,
    mutation,
    promised,
    put,
)

SEEN = "read-committed-visibility/phantom-read"
"""What else is true of a record that readers got and that is not there any more, or not visible."""


def _committed(made: Made, cluster: str, rng: Random, *, native: bool) -> Entry:
    """A batch that clients know to be committed, and that is neither the first nor the last."""
    found = [e for e in data(made, cluster, native=native) if promised(made, e)]
    return found[rng.randrange(1, len(found) - 1)]


@mutation(
    PAIR,
    must=(
        "byte-equality/byte-hole record-equality/record-hole order-equality/mirror-hole "
        "lost-write/lost-write"
    ),
    may=SEEN + " sequence-continuity",
)
def mirrored_batch_lost(made: Made, rng: Random) -> None:
    """A mirrored batch in the middle of B is gone from every replica."""
    made.change("B", 0, kept_out(_committed(made, "B", rng, native=False)))


@mutation(
    MM2_PAIR,
    must="order-equality/mirror-hole lost-write/lost-write",
    may=SEEN + " sequence-continuity",
)
def moved_batch_lost(made: Made, rng: Random) -> None:
    """A batch that MirrorMaker 2 wrote in the middle of B is gone from every replica."""
    mirrored = data(made, "B", native=False)
    made.change("B", 0, kept_out(next(e for e in mirrored[1:-1] if promised(made, e))))


@mutation(
    FORCED,
    must="lost-write/lost-write ghost-ack/ghost-ack",
    may=SEEN + " sequence-continuity torn-transaction last-stable-offset/lso-mismatch",
)
def native_batch_lost(made: Made, rng: Random) -> None:
    """An acknowledged batch of B's own is gone from every replica."""
    made.change("B", 0, kept_out(_committed(made, "B", rng, native=True)))


@mutation(
    PLANNED,
    must="lost-write/lost-write byte-equality/byte-hole record-equality/record-hole",
    may="torn-transaction",
)
def tail_lost_though_drained(made: Made, rng: Random) -> None:
    """What was mirrored last before a planned failover is not on B, and nobody there had seen
    it."""
    last = [e for e in data(made, "B", native=False) if promised(made, e)][-1]
    forget(made, set(range(last.offset, last.end)), "B")
    made.change("B", 0, kept_out(last))


@mutation(
    MM2_FORCED,
    must="lost-write/lost-write",
    may="order-equality/mirror-hole sequence-continuity " + SEEN,
)
def tail_lost_though_shown(made: Made, rng: Random) -> None:
    """What was mirrored last before a forced failover is not on B, though readers of B had got
    it."""
    made.change(
        "B", 0, kept_out([e for e in data(made, "B", native=False) if promised(made, e)][-1])
    )


@mutation(FORCED, must="duplicate/duplicate sequence-continuity/sequence-repeat")
def native_batch_repeated(made: Made, rng: Random) -> None:
    """An idempotent batch of B's own is there once more at the end."""
    batch = next(e for e in data(made, "B", native=True, state="plain") if e.pid >= 0)
    made.change(
        "B",
        0,
        lambda log: [*log, replace(batch, offset=log[-1].end, leader_epoch=log[-1].leader_epoch)],
    )


@mutation(MM2_PAIR, must="order-equality/mirrored-duplicate duplicate/mirrored-duplicate")
def moved_batch_repeated(made: Made, rng: Random) -> None:
    """MirrorMaker 2 wrote a batch once more although nothing had failed."""
    mirrored = data(made, "B", native=False)
    again = mirrored[rng.randrange(len(mirrored))]
    sequence = mirrored[-1].sequence + len(mirrored[-1].records)
    made.change("B", 0, lambda log: [*log, replace(again, offset=log[-1].end, sequence=sequence)])


@mutation(
    MM2_PAIR, must="order-equality/mirror-inversion", may="send-order inconsistent-offset " + SEEN
)
def moved_batches_swapped(made: Made, rng: Random) -> None:
    """Two neighbouring batches that MirrorMaker 2 wrote have changed places."""
    mirrored = data(made, "B", native=False)
    at = rng.randrange(len(mirrored) - 1)
    one, two = mirrored[at], mirrored[at + 1]
    first = replace(two, offset=one.offset, sequence=one.sequence)
    second = replace(one, offset=first.end, sequence=one.sequence + len(two.records))
    made.change(
        "B", 0, lambda log: [{one.offset: first, two.offset: second}.get(e.offset, e) for e in log]
    )


@mutation(
    FORCED,
    must="send-order/internal-inversion ghost-ack/ghost-ack",
    may="inconsistent-offset " + SEEN,
)
def records_swapped(made: Made, rng: Random) -> None:
    """Two records of one of B's own batches have changed places."""
    batch = next(e for e in data(made, "B", native=True) if len(e.records) > 1)
    one, two, *rest = batch.records
    swapped = (two._replace(delta=0), one._replace(delta=1), *rest)
    made.change("B", 0, put(batch, records=swapped))


@mutation(
    {**FORCED, "steps": 200},
    must="send-order/send-inversion ghost-ack/ghost-ack",
    may="inconsistent-offset send-order " + SEEN,
)
def batches_swapped(made: Made, rng: Random) -> None:
    """What a producer without an id sent in two operations is on B in the wrong order."""
    plain = [e for e in data(made, "B", native=True) if e.pid < 0]
    pairs = ((a, b) for a in plain for b in plain if a.offset < b.offset and a.span == b.span)
    one, two = next(
        (a, b) for a, b in pairs if _one_incarnation(a.records[0].operation, b.records[0].operation)
    )
    made.change("B", 0, put(one, records=two.records))
    made.change("B", 0, put(two, records=one.records))


def _one_incarnation(one: int, other: int) -> bool:
    """Two operations of one process: one that took the place of a dead client keeps no order with
    that."""
    return one != other and one >> 40 == other >> 40


@mutation(PAIR, unknown="recording", verdict="unknown")
def segment_torn(made: Made, rng: Random) -> Afterwards:
    """The last bytes of a segment of B's leader are missing: what is missing may have been
    there."""
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
    """A byte of a mirrored record is another one in every replica of B, and the CRC is right
    again."""
    batch = _committed(made, "B", rng, native=False)
    made.change("B", 0, put(batch, records=_changed(batch.records)))


@mutation(
    mapped(PAIR, producer_ids="complement"),
    must="byte-equality/record-divergence order-equality/mirror-divergence",
)
def value_changed_under_another_id(made: Made, rng: Random) -> None:
    """A byte of a record is another one on B, where the mirror changes producer ids and with them
    every CRC."""
    batch = _committed(made, "B", rng, native=False)
    made.change("B", 0, put(batch, records=_changed(batch.records)))


@mutation(MM2_PAIR, must="order-equality/mirror-divergence")
def timestamp_changed(made: Made, rng: Random) -> None:
    """MirrorMaker 2 gave a record another timestamp."""
    batch = data(made, "B", native=False)[1]
    first, *rest = batch.records
    made.change("B", 0, put(batch, records=(first._replace(timestamp=first.timestamp + 1), *rest)))


def _changed(records: tuple[Rec, ...]) -> tuple[Rec, ...]:
    first, *rest = records
    value = bytearray(first.value or b"v")
    value[-1] ^= 1
    return (first._replace(value=bytes(value)), *rest)


@mutation(PAIR, must="replica-agreement/corrupt-batch", unknown="recording")
def crc_wrong(made: Made, rng: Random) -> None:
    """A mirrored batch has a CRC that is not that of its bytes, in every replica of B."""
    made.change("B", 0, put(_committed(made, "B", rng, native=False), crc_flip=0x5A))


@mutation(PAIR, must="replica-agreement/replica-disagreement", may="leader-epochs/epoch-reuse")
def one_replica_changed(made: Made, rng: Random) -> None:
    """A byte of a record is another one in B's replica that does not lead, and the CRC is right
    again."""
    batch = _committed(made, "B", rng, native=False)
    made.rewrite(made.log_keys("B", 0)[1], put(batch, records=_changed(batch.records)))


@mutation(COPIED, must="replica-agreement/replica-disagreement leader-epochs/epoch-reuse")
def compacted_batch_of_another(made: Made, rng: Random) -> None:
    """On A's replica that does not lead, a batch that a cleaner was at has another producer epoch,
    which no cleaner writes."""
    file = made.log_keys("A", 0)[1]
    held = {e.offset for e in made.log("A")}
    cleaned = made.logs[file].bounds.compacted
    batch = next(
        e
        for e in made.logs[file].entries
        if e.pid >= 0 and e.ends is None and e.end <= cleaned and e.offset in held
    )
    made.rewrite(file, put(batch, epoch=batch.epoch + 1))


def _last_of_a_key(made: Made, rng: Random) -> tuple[LogKey, Entry, Rec]:
    """Of what A's cleaners compacted, a record that none of them takes, on the replica that does
    not lead."""
    file = made.log_keys("A", 0)[1]
    cleaned = made.logs[file].bounds.compacted
    held = {e.offset: set(e.uids) for e in made.log("A")}
    newest: dict[bytes | None, tuple[Entry, Rec]] = {}
    for entry in made.logs[file].entries:
        for record in entry.records if entry.end <= cleaned and not entry.transactional else ():
            newest[record.key] = entry, record
    mine = [
        (e, r)
        for key, (e, r) in newest.items()
        if None not in (key, r.value) and r.uid in held.get(e.offset, ())
    ]
    later = {
        r.key
        for e in made.logs[file].entries
        if e.transactional or e.end > cleaned
        for r in e.records
    }
    entry, record = rng.choice([(e, r) for e, r in mine if r.key not in later])
    return file, entry, record


@mutation(COPIED, must="replica-agreement/replica-missing")
def compacted_key_without_its_last(made: Made, rng: Random) -> None:
    """On A's replica that does not lead, the last record of a key is gone from what a cleaner was
    at: no cleaner takes that."""
    file, entry, record = _last_of_a_key(made, rng)
    left = tuple(r for r in entry.records if r is not record)
    made.rewrite(file, lambda log: [replace(e, records=left) if e is entry else e for e in log])


@mutation(COPIED, must="replica-agreement/replica-disagreement")
def compacted_value_of_another(made: Made, rng: Random) -> None:
    """On A's replica that does not lead, the last record of a key has another value, in what a
    cleaner was at."""
    file, entry, record = _last_of_a_key(made, rng)
    other = tuple(r._replace(value=b"another") if r is record else r for r in entry.records)
    made.rewrite(file, lambda log: [replace(e, records=other) if e is entry else e for e in log])


@mutation(
    mapped(PAIR, leader_epochs="keep"),
    must="leader-epochs/epoch-not-kept",
    may="leader-epochs/epoch-behind truncation-accounting",
)
def epochs_not_kept(made: Made, rng: Random) -> None:
    """From a mirrored batch on, B has everything in the next leader epoch, though the mirror keeps
    the source's."""
    start = _committed(made, "B", rng, native=False).offset
    made.change(
        "B",
        0,
        lambda log: [
            replace(e, leader_epoch=e.leader_epoch + 1) if e.offset >= start else e for e in log
        ],
    )


@mutation(PAIR, must="replica-agreement/replica-missing")
def one_replica_without(made: Made, rng: Random) -> None:
    """A batch is gone from A's replica that does not lead."""
    made.rewrite(made.log_keys("A", 0)[1], kept_out(made.log("A")[2]))


@mutation(PAIR, must="replica-agreement/log-disorder")
def file_out_of_order(made: Made, rng: Random) -> None:
    """Two batches have changed places in the file of A's replica that does not lead, with the
    offsets they had."""
    file = made.log_keys("A", 0)[1]
    made.logs[file].edges_at = ()
    made.rewrite(file, lambda log: [log[0], log[2], log[1], *log[3:]])


@mutation(
    PAIR,
    must="byte-equality/byte-hole byte-equality/byte-stranger record-equality/record-hole",
    may=(
        "byte-equality inconsistent-offset last-stable-offset poll-continuity "
        "read-committed-visibility record-equality"
    ),
)
def offsets_shifted(made: Made, rng: Random) -> None:
    """From a mirrored batch on everything on B is one offset too far."""
    log = made.log("B")
    start = log[len(log) // 2].offset
    made.change(
        "B",
        0,
        lambda all_: [e if e.offset < start else replace(e, offset=e.offset + 1) for e in all_],
    )


@mutation(PAIR, must="byte-equality/byte-stranger byte-equality/byte-divergence")
def batch_split(made: Made, rng: Random) -> None:
    """The records of one batch are on B in two."""
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
    """Behind all that A has, B has a record, as if it had been mirrored."""
    record = Rec(0, (77 << 40) + 1, 77 << 40, 0, 1_800_000_000_000, None, b"whose?")
    made.change("B", 0, lambda log: [*log, _alone(log[-1], record)])


@mutation(PAIR, must="byte-equality/byte-divergence")
def packed_anew(made: Made, rng: Random) -> None:
    """The mirror compressed a batch with another codec: the same records in other bytes."""
    batch = _committed(made, "B", rng, native=False)
    made.change("B", 0, put(batch, codec="gzip" if batch.codec != "gzip" else "lz4"))


@mutation(FORCED, must="provenance/stranger")
def nobody_sent_it(made: Made, rng: Random) -> None:
    """A record without a payload id lies at the end of B's log."""
    record = Rec(0, -1, -1, -1, 1_800_000_000_000, None, b"whose?")
    made.change("B", 0, lambda log: [*log, _alone(log[-1], record)])


@mutation(FORCED, must="provenance/stranger")
def nobody_planned_it(made: Made, rng: Random) -> None:
    """A record with a payload id that no client ever had lies at the end of B's log."""
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
    """Of a transaction over two partitions one is not on B, though the failover was planned."""
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
    """Of a committed transaction one partition had not arrived when A died: every partition is
    mirrored on its own."""
