"""Replicas of one log that are not the same, and bytes that are not what their CRC says."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.faithful.entries import Entry, Rec
from tests.faithful.made import LogKey, Made
from tests.faithful.mutations.base import COPIED, PAIR, kept_out, known_committed, mutation, put


def changed_records(records: tuple[Rec, ...]) -> tuple[Rec, ...]:
    first, *rest = records
    value = bytearray(first.value or b"v")
    value[-1] ^= 1
    return (first._replace(value=bytes(value)), *rest)


@mutation(PAIR, must="replica-agreement/corrupt-batch", unknown="recording")
def crc_wrong(made: Made, rng: Random) -> None:
    """A mirrored batch has a wrong CRC, in every replica of B."""
    made.change("B", 0, put(known_committed(made, "B", rng, native=False), crc_flip=0x5A))


@mutation(PAIR, must="replica-agreement/replica-disagreement", may="leader-epochs/epoch-reuse")
def one_replica_changed(made: Made, rng: Random) -> None:
    """In a follower's replica on B, one byte of a record has changed, and the CRC was
    recomputed."""
    batch = known_committed(made, "B", rng, native=False)
    made.rewrite(made.log_keys("B", 0)[1], put(batch, records=changed_records(batch.records)))


@mutation(COPIED, must="replica-agreement/replica-disagreement leader-epochs/epoch-reuse")
def compacted_batch_of_another(made: Made, rng: Random) -> None:
    """In a cleaned segment of A's follower, a batch has another producer epoch. The log cleaner
    never writes that."""
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
    """In a cleaned segment of A's follower, the last record of a key is missing. The log cleaner
    never removes that."""
    file, entry, record = _last_of_a_key(made, rng)
    left = tuple(r for r in entry.records if r is not record)
    made.rewrite(file, lambda log: [replace(e, records=left) if e is entry else e for e in log])


@mutation(COPIED, must="replica-agreement/replica-disagreement")
def compacted_value_of_another(made: Made, rng: Random) -> None:
    """In a cleaned segment of A's follower, the last record of a key has another value."""
    file, entry, record = _last_of_a_key(made, rng)
    other = tuple(r._replace(value=b"another") if r is record else r for r in entry.records)
    made.rewrite(file, lambda log: [replace(e, records=other) if e is entry else e for e in log])


@mutation(PAIR, must="replica-agreement/replica-missing")
def one_replica_without(made: Made, rng: Random) -> None:
    """A's follower lacks a batch."""
    made.rewrite(made.log_keys("A", 0)[1], kept_out(made.log("A")[2]))


@mutation(PAIR, must="replica-agreement/log-disorder")
def file_out_of_order(made: Made, rng: Random) -> None:
    """Two batches have changed places in the file of A's follower, and keep their offsets."""
    file = made.log_keys("A", 0)[1]
    made.logs[file].edges_at = ()
    made.rewrite(file, lambda log: [log[0], log[2], log[1], *log[3:]])
