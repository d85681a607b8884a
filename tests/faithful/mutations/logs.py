"""Logs and their replicas: bytes that are lost, torn, changed, or where they should not be;
replicas that differ; what an unclean election loses; leader epochs that fall, or that nobody
assigned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

from linkflap.harness.model.history import EventRow, Operation, SendGroup
from linkflap.harness.model.scenario import FaultSpec
from tests.faithful.clusters import ABORT, COMMIT, Entry, Rec, compacted, states
from tests.faithful.made import LogKey, Made
from tests.faithful.mutations.base import (
    COPIED,
    FORCED,
    MM2_FORCED,
    MM2_PAIR,
    MM2_PLANNED,
    PAIR,
    PLANNED,
    ROUND_TRIP,
    V1,
    Afterwards,
    NothingToChange,
    change_mark,
    data,
    kept_out,
    known_committed,
    mapped,
    marks,
    mutation,
    promised,
    promotion,
    put,
    returned,
    torn,
)
from tests.faithful.mutations.readers import forget
from tests.faithful.mutations.writes import SEEN
from tests.faithful.observers import MS
from tests.faithful.world import values_of
from tests.kafka_log import batches_in, field_of, with_length


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
    made.change("B", 0, put(known_committed(made, rng, native=False), crc_flip=0x5A))


@mutation(PAIR, must="replica-agreement/replica-disagreement", may="leader-epochs/epoch-reuse")
def one_replica_changed(made: Made, rng: Random) -> None:
    """In a follower's replica on B, one byte of a record has changed, and the CRC was
    recomputed."""
    batch = known_committed(made, rng, native=False)
    made.rewrite(made.log_keys("B", 0)[1], put(batch, records=changed_records(batch.records)))


@mutation(PAIR, must="provenance/other-content")
def value_changed_everywhere(made: Made, rng: Random) -> None:
    """One byte of a record's value is another in every replica of both clusters, with right
    CRCs."""
    batch = rng.choice([e for e in data(made, "B", native=False) if e.pid >= 0])
    for cluster in "AB":
        there = next(e for e in made.log(cluster) if e.offset == batch.offset)
        made.change(cluster, 0, put(there, records=changed_records(there.records)))


@mutation(PAIR, must="replica-agreement/bytes-changed")
def other_bytes_when_fetched_again(made: Made, rng: Random) -> None:
    """A broker of B gave another batch at the same offset when it was asked again."""
    batch = known_committed(made, rng, native=False)
    key = made.log_keys("B", 0)[0]
    again = {
        "topic": key.topic,
        "partition": key.partition,
        "broker": key.broker,
        "offset": batch.offset,
        "crc": [1, 2],
    }
    made.events.append(
        EventRow(time=made.events[-1].time, kind="fetched-again", subject="B", data=again)
    )


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
    last = [(e, r) for e, r in mine if r.key not in later]
    if not last:
        raise NothingToChange("every key comes again above the checkpoint")
    return file, *rng.choice(last)


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


@mutation(COPIED, must="byte-equality/byte-divergence", may="marker-pairing sequence-continuity")
def compacted_batch_of_another_on_the_mirror(made: Made, rng: Random) -> None:
    """Below A's cleaner checkpoint a batch has another producer epoch on all replicas of B. No log
    cleaner writes that."""
    cleaned = min(made.logs[key].bounds.compacted for key in made.log_keys("A", 0))
    batch = next(e for e in made.log("B") if e.pid >= 0 and e.ends is None and e.end <= cleaned)
    made.change("B", 0, put(batch, epoch=batch.epoch + 1))


@mutation(COPIED, must="byte-equality/byte-divergence")
def compacted_batch_of_another_time_on_the_mirror(made: Made, rng: Random) -> None:
    """Below A's cleaner checkpoint a batch with one record has LogAppendTime, with the time that
    its record has, on all replicas of B. No log cleaner writes that."""
    cleaned = min(made.logs[key].bounds.compacted for key in made.log_keys("A", 0))
    held = {uid for e in made.log("A") for uid in e.uids}
    one = [
        e
        for e in made.log("B")
        if len(e.records) == 1 and e.end <= cleaned and e.uids[0] in held and e.appended is None
    ]
    if not one:
        raise NothingToChange("the whole topic has LogAppendTime")
    batch = one[0]
    made.change("B", 0, put(batch, appended=batch.records[0].timestamp))


@mutation(FORCED, must="marker-pairing/impossible-header")
def maximum_timestamp_of_no_record(made: Made, rng: Random) -> None:
    """A batch of B's own has a maximum timestamp above those of its records. Brokers set it."""
    batch = data(made, "B", native=True)[-1]
    made.change("B", 0, put(batch, latest=max(r.timestamp for r in batch.records) + 1))


@mutation(FORCED, must="marker-pairing/impossible-header")
def a_marker_of_two_times(made: Made, rng: Random) -> None:
    """A COMMIT of B's own has another maximum than base timestamp. Brokers write one time."""
    mark = [e for e in made.log("B") if e.ends == COMMIT][-1]
    made.change("B", 0, put(mark, latest=mark.timestamp + 1))


@mutation(PAIR, must="marker-pairing/impossible-header", may="byte-equality")
def a_delete_horizon_where_no_cleaner_was(made: Made, rng: Random) -> None:
    """A marker has a delete horizon, on both clusters alike, and nothing was cleaned."""
    mark = next(e for e in made.log("B") if e.ends == COMMIT)
    for cluster in ("A", "B"):
        made.change(cluster, 0, put(mark, horizon=mark.timestamp + 1000))


@mutation(
    FORCED, must="marker-pairing/impossible-header", unknown="record-equality", may="byte-equality"
)
def fewer_records_claimed_than_there_are(made: Made, rng: Random) -> None:
    """A batch, on both clusters alike, claims one record less than it has, with a right CRC.
    Brokers refuse it."""
    batch = next(e for e in data(made, "B", native=False) if len(e.records) > 1)
    for cluster in ("A", "B"):
        there = next(e for e in made.log(cluster) if e.offset == batch.offset)
        made.change(cluster, 0, put(there, claimed=len(there.records) - 1))


@mutation({**PAIR, "append_time": False}, must="marker-pairing/impossible-header")
def a_type_of_timestamp_that_the_topic_never_had(made: Made, rng: Random) -> None:
    """A batch has LogAppendTime, on both clusters alike, and its topic has CreateTime."""
    batch = next(e for e in data(made, "B", native=False) if len(e.records) == 1)
    for cluster in ("A", "B"):
        there = next(e for e in made.log(cluster) if e.offset == batch.offset)
        made.change(cluster, 0, put(there, appended=there.records[0].timestamp))


@mutation({**MM2_PAIR, "append_time": False}, must="marker-pairing/impossible-header")
def a_type_of_timestamp_that_the_mirrored_topic_never_had(made: Made, rng: Random) -> None:
    """MirrorMaker 2 wrote a batch with LogAppendTime, and its topic has CreateTime."""
    batch = next(e for e in data(made, "B", native=False) if len(e.records) == 1)
    made.change("B", 0, put(batch, appended=batch.records[0].timestamp))


def _clean(made: Made, cluster: str, rng: Random) -> list[Entry]:
    """Compacts a cluster's log, but for its last batch, on every replica in the same way. Returns
    what is left below."""
    made.set_on_topics(cleanup_policy="compact", delete_retention_ms="0")
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
    """Of a cleaned log, loses the last record of a key."""
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


MAY_REPEAT = {**MM2_PLANNED, "flap": True, "steps": 24}


def _clean_in_order(made: Made, rng: Random) -> None:
    """Compacts B's log. A cleaner that takes the first copies of what came again changes the order,
    and whether it did is unknown."""
    _clean(made, "B", rng)
    sent = [u for e in made.log("A") for u in e.uids]
    came = dict.fromkeys(u for e in made.log("B") for u in e.uids if u in sent)
    if list(came) != sorted(came, key=sent.index):
        raise NothingToChange("a cleaner took the first copy of a record")


@mutation(MAY_REPEAT, verdict="valid")
def compacted_behind_mm2_that_may_have_repeated(made: Made, rng: Random) -> None:
    """B's cleaners have compacted what MirrorMaker 2 copied from A before a planned failover, in
    spite of a fault on its link."""
    _clean_in_order(made, rng)


@mutation(
    MAY_REPEAT,
    must="order-equality/mirror-hole lost-write/lost-write",
    may="torn-transaction/torn-transaction",
)
def tail_lost_behind_mm2_by_compaction(made: Made, rng: Random) -> None:
    """The last records that MirrorMaker 2 copied before a planned failover are missing on all of
    B's replicas, below their checkpoints. The first of them was the only one with its key."""
    _clean_in_order(made, rng)
    end, log = promotion(made), made.log("B")
    values = values_of(made.scenario.seed)
    groups = [g for o in made.operations for g in o.sends]
    sent = [u for g in groups for u in range(g.first_uid, g.first_uid + g.count)]
    keys = [r.key for e in log for r in e.records]
    keys += [values.key(u) for u in sent if values.value(u) is None]
    alone = [
        e.offset + r.delta
        for e in log
        for r in e.records
        if e.end <= end and r.value and keys.count(r.key) == 1 and promised(made, e)
    ]
    if not alone:
        raise NothingToChange("every key has a tombstone or another record")

    def kept(entry: Entry) -> Entry:
        left = [r for r in entry.records if not alone[-1] <= entry.offset + r.delta < end]
        return replace(entry, records=tuple(left))

    made.change("B", 0, lambda log: [kept(e) for e in log])


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
    made.change("B", 0, kept_out(known_committed(made, rng, native=False)))


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
    made.change("B", 0, kept_out(known_committed(made, rng, native=True)))


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
    return torn(made.log_keys("B", 0)[0])


@mutation(PAIR, must="byte-equality/byte-divergence", unknown="recording")
def value_changed_behind_a_wrong_length(made: Made, rng: Random) -> Afterwards:
    """In every replica of B, the last mirrored batch has changed, and its CRC was recomputed; the
    length of an earlier one is wrong in the file of B's leader."""
    first, *_, last = (e for e in data(made, "B", native=False) if promised(made, e))
    made.change("B", 0, put(last, records=changed_records(last.records)))
    file = made.log_keys("B", 0)[0]

    def damage(root: Path) -> None:
        for path in sorted(file.folder(root).glob("*.log")):
            wrong = rng.choice((-1, 1 << 29))
            log = b"".join(
                with_length(batch, wrong)
                if field_of(batch, "base_offset") == first.offset
                else batch
                for _, batch in batches_in(path)
            )
            path.write_bytes(log)

    return damage


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
    batch = known_committed(made, rng, native=False)
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
    batch = known_committed(made, rng, native=False)
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
    start = known_committed(made, rng, native=False).offset
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
    batch = known_committed(made, rng, native=False)
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
    made.change("B", 0, lambda log: [kept for e in log for kept in _without(e, operation)])


def _without(entry: Entry, operation: int) -> list[Entry]:
    """A batch without the records of an operation; what is left keeps its offsets, in batches of
    one record: a broker refuses a batch with fewer records than offsets."""
    if all(r.operation != operation for r in entry.records):
        return [entry]
    return [
        replace(
            entry,
            offset=entry.offset + r.delta,
            records=(r._replace(delta=0),),
            span=1,
            sequence=entry.sequence if entry.pid < 0 else entry.sequence + r.delta,
        )
        for r in entry.records
        if r.operation != operation
    ]


@mutation({**FORCED, "tear": True}, must="torn-transaction/torn-by-failover", verdict="valid")
def torn_by_a_forced_failover(made: Made, rng: Random) -> None:
    """One partition of a committed transaction was not mirrored when A died, because each partition
    is mirrored independently."""


LOST = "lost-write/lost-write ghost-ack/ghost-ack inconsistent-offset/inconsistent-offset"


def _replaced(made: Made) -> Entry:
    """A batch of A that a new leader may have written where the deposed one had another."""
    plain = [e for e in data(made, "A", native=True, state="plain") if e.uids and e.uids[0] >= 0]
    known = [e for e in plain if returned(made, e.uids[0]).outcome == "ok"]
    if not known:
        raise NothingToChange("no client had a plain batch acknowledged")
    return known[len(known) // 2]


def _acknowledged(made: Made, entry: Entry, at: int) -> SendGroup:
    """A client sent a record at a time, and the deposed leader acknowledged it where that batch is
    now."""
    row = returned(made, entry.uids[0])
    invoke = next(o for o in made.operations if (o.number, o.phase) == (row.number, "invoke"))
    number = row.number + 100_000
    group = SendGroup(
        topic=row.sends[0].topic, partition=0, first_uid=(row.process << 40) + 700_000, count=1
    )
    acked = replace(group, acks=((0, 1, entry.offset),))
    made.operations += [
        replace(invoke, number=number, time=at, sends=(group,)),
        replace(row, number=number, time=at + MS // 2, sends=(acked,)),
    ]
    return group


def _elected(made: Made, entry: Entry, group: SendGroup, *, before: int) -> dict[str, object]:
    """The fault, whose bite lists one record of the deposed leader; it was over a moment before the
    new leader's batch was sent."""
    lost: dict[str, object] = {
        "topic": group.topic,
        "partition": 0,
        "start": entry.offset,
        "end": entry.offset + 1,
        "deposed_epoch": entry.leader_epoch,
        "elected_epoch": -1,
        "elected": before - 5,
        "records": [[group.first_uid, entry.offset, 1, entry.pid]],
        "markers": [],
    }
    bite = {"bit": True, "observable": "it", "measured": 1, "expected": 1, "lost": [lost]}
    facts: tuple[tuple[str, dict[str, object]], ...] = (
        ("fault-start", {"fault": "unclean-election", "options": {}, "restores": True}),
        ("fault-bite", bite),
        ("fault-heal", {"healed": True, "checked": []}),
        ("fault-end", {}),
    )
    made.events += [
        EventRow(time=before - 6 + n, kind=kind, subject="A", data={"id": "unclean", **rest})
        for n, (kind, rest) in enumerate(facts)
    ]
    made.events.sort(key=lambda event: event.time)
    fault = FaultSpec(id="unclean", fault="unclean-election", target="A", at=1.0, duration=0.0)
    made.scenario = replace(made.scenario, schedule=(*made.scenario.schedule, fault))
    return lost


def _sent(made: Made, entry: Entry) -> int:
    """When a batch was sent."""
    number = returned(made, entry.uids[0]).number
    return next(o.time for o in made.operations if (o.number, o.phase) == (number, "invoke"))


@mutation(PAIR, must=LOST, may="unseen/unseen-write", verdict="valid")
def lost_by_an_unclean_election(made: Made, rng: Random) -> None:
    """The deposed leader acknowledged a record that the elected replica did not have."""
    entry = _replaced(made)
    sent = _sent(made, entry)
    _elected(made, entry, _acknowledged(made, entry, sent - MS), before=sent)


@mutation(PAIR, must=LOST, may="unseen/unseen-write")
def lost_after_an_unclean_election(made: Made, rng: Random) -> None:
    """A record was acknowledged after the election, at an offset that the election had taken away,
    and is lost."""
    entry = _replaced(made)
    sent = _sent(made, entry)
    _elected(made, entry, _acknowledged(made, entry, sent + MS), before=sent)


@mutation(PAIR, must=LOST, may="unseen/unseen-write")
def lost_beside_an_unclean_election(made: Made, rng: Random) -> None:
    """A record is lost at an offset where the deposed leader had another one."""
    entry = _replaced(made)
    sent = _sent(made, entry)
    lost = _elected(made, entry, _acknowledged(made, entry, sent - MS), before=sent)
    lost["records"] = [[(9 << 40) + 1, entry.offset, 1, entry.pid]]


@mutation(PAIR, must=LOST, may="unseen/unseen-write")
def lost_on_another_cluster_than_the_election(made: Made, rng: Random) -> None:
    """A lost a record, and the election was on B."""
    entry = _replaced(made)
    sent = _sent(made, entry)
    _elected(made, entry, _acknowledged(made, entry, sent - MS), before=sent)
    made.events = [
        replace(e, subject="B") if e.data.get("id") == "unclean" else e for e in made.events
    ]


def _aborted_before(made: Made, *, listed: int = 0) -> None:
    """The first batch of a committed transaction of A was a transaction of its own, which its
    client had aborted. The deposed leader wrote the ABORT where the second batch is now, so that
    the COMMIT ends both. The bite lists that ABORT, of a producer id that is `listed` higher."""
    parts: dict[int, list[Entry]] = {}
    for entry in data(made, "A", native=True, state="committed"):
        if entry.uids and entry.uids[0] >= 0 and entry.transactional:
            parts.setdefault(returned(made, entry.uids[0]).number, []).append(entry)
    known = [
        e for e in parts.values() if len(e) > 1 and returned(made, e[0].uids[0]).outcome == "ok"
    ]
    if not known:
        raise NothingToChange("no client committed two batches of one partition")
    first, second = known[-1][:2]
    row = returned(made, first.uids[0])
    group = next(g for g in row.sends if (g.partition, g.first_uid) == (0, first.uids[0]))
    size, number, sent = len(first.uids), row.number + 100_000, _sent(made, first)
    own = replace(group, count=size, acks=((0, size, first.offset),))
    rest = replace(group, first_uid=own.first_uid + size, count=group.count - size)
    others = tuple(g for g in row.sends if g != group)

    def without(operation: Operation) -> Operation:
        acked = ((0, rest.count, second.offset),) if operation.phase == "return" else ()
        time = sent + MS if operation.phase == "invoke" else operation.time
        return replace(operation, time=time, sends=(replace(rest, acks=acked), *others))

    made.operations = [without(o) if o.number == row.number else o for o in made.operations]
    aborted = replace(row, number=number, ending="abort", sends=(own,))
    made.operations += [
        replace(aborted, phase="invoke", time=sent, sends=(replace(own, acks=()),)),
        replace(aborted, time=sent + MS // 2, ended_at=sent + MS // 4),
    ]
    made.written = [
        w._replace(time=sent + MS // 8) if w.batch.uids[0] == first.uids[0] else w
        for w in made.written
    ]
    lost = _elected(made, second, own, before=sent + MS)
    marker = [second.offset, first.pid + listed, first.epoch, False]
    lost["records"], lost["markers"] = [], [marker]


@mutation(
    {**PAIR, **V1}, must="commit-aborted/abort-committed", may="aborted-read", verdict="valid"
)
def abort_lost_by_an_unclean_election(made: Made, rng: Random) -> None:
    """The deposed leader had the ABORT of a transaction, and the elected replica lacked it; the
    producer's next COMMIT ends its records."""
    _aborted_before(made)


@mutation({**PAIR, **V1}, must="commit-aborted/abort-committed", may="aborted-read")
def abort_that_no_unclean_election_took(made: Made, rng: Random) -> None:
    """The same, and the ABORT was another producer's."""
    _aborted_before(made, listed=1)


@mutation(FORCED, must="leader-epochs/leader-epoch-regression leader-epochs/epoch-not-raised")
def epoch_of_a_batch_fell(made: Made, rng: Random) -> None:
    """B's last batch has the leader epoch of the mirrored batches."""
    log = made.log("B")
    made.change("B", 0, put(log[-1], leader_epoch=log[0].leader_epoch))


@mutation(FORCED, must="leader-epochs/epoch-not-raised")
def epoch_not_raised_by_the_promotion(made: Made, rng: Random) -> None:
    """The batches of B's clients have the leader epoch of the mirrored batches."""
    epoch = made.log("B")[0].leader_epoch
    made.change("B", 0, lambda log: [replace(e, leader_epoch=epoch) for e in log])


@mutation(PAIR, must="leader-epochs/epoch-behind")
def leader_behind_its_batches(made: Made, rng: Random) -> None:
    """The last sample of A has a leader epoch below that of batches under its high watermark."""
    made.change("A", 0, lambda log: [replace(e, leader_epoch=e.leader_epoch + 3) for e in log])


@mutation(PAIR, must="leader-epochs/sampled-epoch-regression")
def epoch_that_nobody_assigned(made: Made, rng: Random) -> None:
    """One sample of A has leader epoch 1000; the samples before and after it do not."""
    sampled = marks(made, "A")
    if len(sampled) < 3:
        raise NothingToChange("nothing later contradicts the last sample")
    change_mark(made, sampled[len(sampled) // 2], leader_epoch=1000)


@mutation(
    mapped(FORCED, leader_epochs="keep"),
    must="leader-epochs/epoch-behind",
    may="truncation-accounting/epoch-mismatch",
)
def destination_behind_its_source(made: Made, rng: Random) -> None:
    """B's leader reported an epoch below the source's, with a mirror that keeps leader epochs
    (KIP-1279: DLE >= SLE)."""
    for cluster in "AB":
        made.change(
            cluster, 0, lambda log: [replace(e, leader_epoch=e.leader_epoch + 1) for e in log]
        )
    for mark in marks(made, "A"):
        change_mark(made, mark, leader_epoch=mark.leader_epoch + 1)


@mutation(ROUND_TRIP, must="leader-epochs/epoch-reuse", may="truncation-accounting/epoch-mismatch")
def epoch_used_again(made: Made, rng: Random) -> None:
    """After the truncation of A's tail, A has other batches at these offsets in the leader epoch of
    the tail."""
    parted = promotion(made, "B")
    epoch = made.log("A", moment="1-reverse")[-1].leader_epoch
    home = promotion(made, "A")
    made.change(
        "A",
        0,
        lambda log: [
            replace(e, leader_epoch=epoch) if parted <= e.offset < home else e for e in log
        ],
    )
