"""Replicas of one log that are not the same, and bytes that are not what their CRC says."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.faithful.clusters import compacted
from tests.faithful.entries import Entry, Rec
from tests.faithful.made import LogKey, Made
from tests.faithful.mutations.base import (
    COPIED,
    MM2_PAIR,
    PAIR,
    kept_out,
    known_committed,
    mapped,
    mutation,
    promised,
    put,
    states,
)


def changed_records(records: tuple[Rec, ...]) -> tuple[Rec, ...]:
    first, *rest = records
    value = bytearray(first.value or b"v")
    value[-1] ^= 1
    return (first._replace(value=bytes(value)), *rest)


@mutation(
    PAIR, must="replica-agreement/corrupt-batch byte-equality/byte-divergence", unknown="recording"
)
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


@mutation(COPIED, must="byte-equality/byte-divergence")
def compacted_batch_of_another_on_the_mirror(made: Made, rng: Random) -> None:
    """Below A's cleaner checkpoint a batch has another producer epoch on all replicas of B. No log
    cleaner writes that."""
    cleaned = min(made.logs[key].bounds.compacted for key in made.log_keys("A", 0))
    batch = next(e for e in made.log("B") if e.pid >= 0 and e.ends is None and e.end <= cleaned)
    made.change("B", 0, put(batch, epoch=batch.epoch + 1))


def _clean(made: Made, cluster: str, rng: Random) -> list[Entry]:
    """Compacts a cluster's log, but for its last batch, on every replica in the same way. Returns
    what is left below."""
    config = {"cleanup.policy": "compact", "delete.retention.ms": "0"}
    made.scenario = replace(made.scenario, topics=replace(made.scenario.topics, config=config))
    log = made.log(cluster)
    below = log[-1].offset
    ended = states(log)
    below = min([below, *(o for o, state in ended.state.items() if state == "open")])
    aborted = frozenset(o for o, state in ended.state.items() if state == "aborted")
    left = compacted(log, below, aborted, rng)
    for key in made.log_keys(cluster, 0):
        made.logs[key].entries = list(left)
        made.logs[key].bounds = replace(made.logs[key].bounds, compacted=below)
    return [e for e in left if e.end <= below]


@mutation(PAIR, verdict="valid")
def compacted_while_mirrored(made: Made, rng: Random) -> None:
    """A's cleaners have compacted what B still has: replaced and aborted records, expired
    tombstones."""
    _clean(made, "A", rng)


@mutation(PAIR, verdict="valid")
def compacted_on_the_mirror(made: Made, rng: Random) -> None:
    """B's cleaners have compacted what A still has."""
    _clean(made, "B", rng)


def _lose_a_key(made: Made, cluster: str, rng: Random) -> None:
    outcome = states(made.log(cluster)).state
    newest: dict[bytes | None, tuple[Entry, Rec]] = {}
    for entry in made.log(cluster):
        for record in entry.records if outcome.get(entry.offset) != "aborted" else ():
            newest[record.key] = entry, record
    cleaned = _clean(made, cluster, rng)
    offsets = {e.offset for e in cleaned}
    entry, record = rng.choice(
        [
            (e, r)
            for key, (e, r) in newest.items()
            if key and r.value and e.offset in offsets and promised(made, e)
        ]
    )
    made.change(
        cluster,
        0,
        lambda log: [
            replace(e, records=tuple(r for r in e.records if r.delta != record.delta))
            if e.offset == entry.offset
            else e
            for e in log
        ],
    )


@mutation(
    PAIR,
    must="record-equality/record-stranger lost-write/lost-write ghost-ack/ghost-ack",
    may="torn-transaction/torn-transaction",
)
def key_lost_at_the_source_by_compaction(made: Made, rng: Random) -> None:
    """The last record of a key is missing on all of A's replicas, below their checkpoints; A had
    acknowledged it, and B has it."""
    _lose_a_key(made, "A", rng)


@mutation(PAIR, must="record-equality/record-hole")
def key_lost_on_the_mirror_by_compaction(made: Made, rng: Random) -> None:
    """The last record of a key is missing on all of B's replicas, below their checkpoints, and A
    has it."""
    _lose_a_key(made, "B", rng)


@mutation(mapped(PAIR, producer_ids="complement"), must="record-equality/record-hole")
def key_lost_by_compaction_where_ids_are_mapped(made: Made, rng: Random) -> None:
    """The last record of a key is missing on all of B's replicas, below their checkpoints, where
    the mirror maps producer ids."""
    _lose_a_key(made, "B", rng)


@mutation(MM2_PAIR, verdict="valid")
def compacted_while_mirrored_by_mm2(made: Made, rng: Random) -> None:
    """A's cleaners have compacted what MirrorMaker 2 copied before."""
    _clean(made, "A", rng)


@mutation(MM2_PAIR, verdict="valid")
def compacted_behind_mm2(made: Made, rng: Random) -> None:
    """B's cleaners have compacted what MirrorMaker 2 copied from A, which still has it."""
    _clean(made, "B", rng)


@mutation(
    MM2_PAIR,
    must="order-equality/mirror-phantom lost-write/lost-write ghost-ack/ghost-ack",
    may="torn-transaction/torn-transaction",
)
def key_lost_at_the_source_of_mm2_by_compaction(made: Made, rng: Random) -> None:
    """The last record of a key is missing on all of A's replicas, below their checkpoints; A had
    acknowledged it, and B has it."""
    _lose_a_key(made, "A", rng)


@mutation(MM2_PAIR, must="order-equality/mirror-hole lost-write/lost-write")
def key_lost_behind_mm2_by_compaction(made: Made, rng: Random) -> None:
    """The last record of a key is missing on all of B's replicas, below their checkpoints, and A
    has it."""
    _lose_a_key(made, "B", rng)


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
