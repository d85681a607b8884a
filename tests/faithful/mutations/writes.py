"""Producer ids that collide, on a cluster and across links; sequence numbers; records that are on a
cluster twice, in another order, or although they were refused."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import SendGroup
from linkflap.harness.model.payload import PROCESS_SHIFT
from tests.faithful.clusters import WRAP, Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    CHAIN,
    FORCED,
    MM2_PAIR,
    PAIR,
    V1,
    NothingToChange,
    change_return,
    data,
    mapped,
    mutation,
    promised,
    put,
    returned,
)
from tests.faithful.mutations.readers import forget

COLLISION = "producer-id-uniqueness/producer-id-collision"


def _idempotent(made: Made) -> list[Entry]:
    """The batches of one idempotent producer in B's own era."""
    mine = [e for e in data(made, "B", native=True, state="plain") if e.pid >= 0]
    found = [e for e in mine if e.pid == mine[0].pid]
    if len(found) < 2:
        raise NothingToChange(f"B has {len(found)} batches of an idempotent producer")
    return found


def _taken(made: Made, clusters: str, old: int, new: int) -> None:
    """Every batch of one id has another."""
    for cluster in clusters:
        for partition in range(made.scenario.topics.partitions):
            made.change(
                cluster,
                partition,
                lambda log: [replace(e, pid=new) if e.pid == old else e for e in log],
            )
    made.operations = [
        replace(o, producer_id=new) if o.producer_id == old else o for o in made.operations
    ]


@mutation(FORCED, must=COLLISION)
def id_of_a_mirrored_producer(made: Made, rng: Random) -> None:
    """B assigned a producer id that had been mirrored from A, as in Redpanda's shadow links."""
    mirrored = next(e for e in data(made, "B", native=False, state="plain") if e.pid >= 0)
    _taken(made, "B", _idempotent(made)[0].pid, mirrored.pid)


@mutation(
    FORCED,
    must=COLLISION,
    may=(
        "marker-pairing/not-transactional marker-pairing/stale-data "
        "sequence-continuity/epoch-regression sequence-continuity/sequence-gap "
        "sequence-continuity/sequence-repeat sequence-continuity/sequence-start"
    ),
)
def id_of_another_producer(made: Made, rng: Random) -> None:
    """Two of B's own producers, one of them transactional, have the same producer id."""
    other = next(e for e in data(made, "B", native=True) if e.transactional)
    _taken(made, "B", _idempotent(made)[0].pid, other.pid)


@mutation(CHAIN, must=COLLISION)
def id_of_two_clusters_upstream(made: Made, rng: Random) -> None:
    """A and B assigned the same producer id, and both producers' records reached C."""
    mirrored = next(e for e in data(made, "B", native=False, state="plain") if e.pid >= 0)
    _taken(made, "BC", _idempotent(made)[0].pid, mirrored.pid)


@mutation(
    FORCED,
    must=f"ghost-ack/ghost-ack lost-write/lost-write {COLLISION}",
    may=(
        "inconsistent-offset/inconsistent-offset last-stable-offset/high-watermark-above-log "
        "poll-continuity/position-beyond-end read-committed-visibility/phantom-read"
    ),
)
def taken_for_a_repeat(made: Made, rng: Random) -> None:
    """B took a new producer's batch for a duplicate of a mirrored batch with the same id. It
    acknowledged the mirrored batch's offset and appended nothing."""
    mirrored = next(e for e in data(made, "B", native=False, state="plain") if e.pid >= 0)
    mine = _idempotent(made)
    row = returned(made, mine[0].uids[0])
    made.change("B", 0, lambda log: [e for e in log if e.offset not in {b.offset for b in mine}])
    _taken(made, "B", mine[0].pid, mirrored.pid)
    answer = next(o for o in made.operations if (o.number, o.phase) == (row.number, "return"))
    acks = tuple(
        replace(g, acks=((0, g.count, mirrored.offset),)) if g.partition == 0 else g
        for g in answer.sends
    )
    change_return(made, answer, sends=acks)


@mutation(FORCED, must="ghost-ack/ghost-ack", may="inconsistent-offset/inconsistent-offset")
def acknowledged_at_an_old_offset(made: Made, rng: Random) -> None:
    """B acknowledged a client's record at an offset that has another record."""
    batch = [e for e in data(made, "B", native=True, state="plain") if promised(made, e)][-1]
    row = returned(made, batch.uids[0])
    first = data(made, "B", native=True)[0].offset
    sends = tuple(
        replace(g, acks=((0, 1, first), *_rest(g.acks))) if batch.uids[0] in _uids(g) else g
        for g in row.sends
    )
    change_return(made, row, sends=sends)


def _rest(acks: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
    (index, count, offset), *rest = acks
    return (((index + 1, count - 1, offset + 1),) if count > 1 else ()) + tuple(rest)


def _uids(group: SendGroup) -> range:
    return range(group.first_uid, group.first_uid + group.count)


@mutation(FORCED, must="ghost-ack/ghost-ack lost-write/lost-write")
def acknowledged_beyond_the_end(made: Made, rng: Random) -> None:
    """B acknowledged a client's record, outside of a transaction, and the record is in no log."""
    row = [
        o
        for o in made.operations
        if (o.phase, o.kind, o.cluster, o.outcome) == ("return", "send", "B", "ok")
    ][-1]
    invoke = next(o for o in made.operations if (o.number, o.phase) == (row.number, "invoke"))
    end = made.log("B")[-1].end
    first = (row.process << PROCESS_SHIFT) + 5000
    group = replace(row.sends[0], partition=0, first_uid=first, count=1, acks=())
    change_return(made, invoke, sends=(*invoke.sends, group))
    change_return(made, row, sends=(*row.sends, replace(group, acks=((0, 1, end + 3),))))


@mutation(FORCED, must="sequence-continuity/sequence-gap")
def sequence_gap(made: Made, rng: Random) -> None:
    """From the second batch on, the sequence numbers of an idempotent producer of B's own are one
    too high."""
    later = {e.offset for e in _idempotent(made)[1:]}
    made.change(
        "B",
        0,
        lambda log: [replace(e, sequence=e.sequence + 1) if e.offset in later else e for e in log],
    )


@mutation(FORCED, must="sequence-continuity/sequence-start")
def sequence_starts_late(made: Made, rng: Random) -> None:
    """The sequence numbers of all batches of an idempotent producer of B's own are three too
    high."""
    all_of = {e.offset for e in _idempotent(made)}
    made.change(
        "B",
        0,
        lambda log: [replace(e, sequence=e.sequence + 3) if e.offset in all_of else e for e in log],
    )


@mutation(
    FORCED, must="sequence-continuity/sequence-repeat", may="sequence-continuity/sequence-gap"
)
def sequence_repeated(made: Made, rng: Random) -> None:
    """The second batch of an idempotent producer of B's own has the sequence number of the
    first."""
    first, second = _idempotent(made)[:2]
    made.change("B", 0, put(second, sequence=first.sequence))


@mutation(FORCED, must="sequence-continuity/no-sequence", may="sequence-continuity/sequence-gap")
def without_a_sequence(made: Made, rng: Random) -> None:
    """The second batch of an idempotent producer of B's own has the sequence number -1."""
    made.change("B", 0, put(_idempotent(made)[1], sequence=-1))


@mutation({**PAIR, **V1, "begun": 17, "steps": 90}, must="sequence-continuity/sequence-gap")
def gap_at_the_wrap(made: Made, rng: Random) -> None:
    """After sequence number 2^31 - 1, a producer continued with 1 and not with 0, on both
    clusters."""
    for partition in range(2):
        mine = [e for e in data(made, "A", partition, native=True) if e.pid >= 0]
        high = {(e.pid, e.epoch) for e in mine if e.sequence >= WRAP // 2}
        first = next((e for e in mine if (e.pid, e.epoch) in high and e.sequence < WRAP // 2), None)
        if first is not None:
            later = {
                e.offset
                for e in mine
                if e.offset >= first.offset and (e.pid, e.epoch) == (first.pid, first.epoch)
            }
            for cluster in "AB":
                how = [
                    replace(e, sequence=e.sequence + 1) if e.offset in later else e
                    for e in made.log(cluster, partition)
                ]
                made.change(cluster, partition, lambda _, how=how: list(how))  # type: ignore[misc]
            return
    raise NothingToChange("nobody's sequence wrapped")


@mutation(PAIR, must="byte-equality/byte-divergence")
def id_made_negative(made: Made, rng: Random) -> None:
    """The mirror wrote a producer's batches under a negative id, without having declared that."""
    pid = next(e for e in data(made, "B", native=False, state="plain") if e.pid >= 0).pid
    _mirrored_as(made, pid, -(pid + 2))


@mutation(mapped(PAIR, producer_ids="complement"), must="byte-equality/byte-divergence")
def id_not_mapped(made: Made, rng: Random) -> None:
    """The mirror wrote one producer's batches under their id on A, although it maps producer
    ids."""
    pid = next(e for e in data(made, "A", native=True, state="plain") if e.pid >= 0).pid
    _mirrored_as(made, 2**63 - 1 - pid - 1, pid)


def _mirrored_as(made: Made, old: int, new: int) -> None:
    made.change("B", 0, lambda log: [replace(e, pid=new) if e.pid == old else e for e in log])


def _batch(made: Made, state: str) -> Entry:
    """A batch of A that was acknowledged, of a transaction that was committed, or of none."""
    found = [
        e
        for e in data(made, "A", native=True, state=state)[2:-2]
        if promised(made, e) and e.pid >= 0
    ]
    if not found:
        raise NothingToChange(f"A has no {state} batch that was acknowledged")
    return found[0]


def _not_acknowledged(made: Made, entry: Entry, *, refused: bool) -> None:
    """The client has no acknowledgement of a batch's records; `refused`: but the word that they
    were not written."""
    row = returned(made, entry.uids[0])
    sends = tuple(_without(group, entry, refused=refused) for group in row.sends)
    change_return(
        made, row, sends=sends, outcome=row.outcome if row.kind == "transaction" else "info"
    )


def _without(group: SendGroup, entry: Entry, *, refused: bool) -> SendGroup:
    gone = {
        uid - group.first_uid
        for uid in entry.uids
        if group.first_uid <= uid < group.first_uid + group.count
    }
    if not gone:
        return group
    single = [(i + n, 1, offset + n) for i, count, offset in group.acks for n in range(count)]
    acks = tuple(ack for ack in single if ack[0] not in gone)
    return replace(
        group, acks=acks, refused=tuple((i, 1) for i in sorted(gone)) if refused else group.refused
    )


@mutation(PAIR, must="provenance/refused-write aborted-read/refused-read")
def refused_was_written(made: Made, rng: Random) -> None:
    """A send outside of a transaction was refused for certain, and is in A's log; readers got
    it."""
    _not_acknowledged(made, _batch(made, "plain"), refused=True)


@mutation(PAIR, must="provenance/refused-write aborted-read/refused-read")
def refused_in_a_committed_transaction(made: Made, rng: Random) -> None:
    """Some records of a committed transaction were refused for certain, and are in A's log; readers
    got them."""
    _not_acknowledged(made, _batch(made, "committed"), refused=True)


@mutation(PAIR, must="provenance/refused-write", may="poll-continuity read-committed-visibility")
def refused_was_written_and_not_read(made: Made, rng: Random) -> None:
    """A send outside of a transaction was refused for certain, and is in A's log; no reader got
    it."""
    batch = _batch(made, "plain")
    _not_acknowledged(made, batch, refused=True)
    for cluster in "AB":
        forget(made, set(range(batch.offset, batch.end)), cluster)


@mutation(PAIR, verdict="valid")
def given_up_and_written(made: Made, rng: Random) -> None:
    """A send outside of a transaction was given up in flight, so its outcome is unknown. It is in
    A's log, and readers got it."""
    _not_acknowledged(made, _batch(made, "plain"), refused=False)


@mutation(
    PAIR, must="commit-aborted/abort-committed aborted-read/aborted-read", may="torn-transaction"
)
def never_asked_for_and_committed(made: Made, rng: Random) -> None:
    """A commit was certainly never requested, and the transaction ends in COMMIT."""
    row = returned(made, _batch(made, "committed").uids[0])
    change_return(made, row, outcome="fail")


SEEN = "read-committed-visibility/phantom-read"
"""Further findings about a record that readers got and that is gone, or not visible."""


@mutation(FORCED, must="duplicate/duplicate sequence-continuity/sequence-repeat")
def native_batch_repeated(made: Made, rng: Random) -> None:
    """An idempotent batch of B's own is repeated at the end of the log."""
    batch = next(e for e in data(made, "B", native=True, state="plain") if e.pid >= 0)
    made.change(
        "B",
        0,
        lambda log: [*log, replace(batch, offset=log[-1].end, leader_epoch=log[-1].leader_epoch)],
    )


@mutation(MM2_PAIR, must="order-equality/mirrored-duplicate duplicate/mirrored-duplicate")
def moved_batch_repeated(made: Made, rng: Random) -> None:
    """MirrorMaker 2 wrote a batch again, although nothing had failed."""
    mirrored = data(made, "B", native=False)
    again = mirrored[rng.randrange(len(mirrored))]
    sequence = mirrored[-1].sequence + len(mirrored[-1].records)
    made.change("B", 0, lambda log: [*log, replace(again, offset=log[-1].end, sequence=sequence)])


@mutation(
    {**MM2_PAIR, "flap": True},
    must="order-equality/mirrored-duplicate",
    may="duplicate/mirrored-duplicate",
)
def one_batch_repeated_after_a_fault(made: Made, rng: Random) -> None:
    """After a fault MirrorMaker 2 wrote an earlier batch again, and did not go on from there."""
    mirrored = data(made, "B", native=False)
    again = mirrored[-2]
    sequence = mirrored[-1].sequence + len(mirrored[-1].records)
    made.change("B", 0, lambda log: [*log, replace(again, offset=log[-1].end, sequence=sequence)])


@mutation(
    MM2_PAIR,
    must="order-equality/mirror-inversion",
    may="send-order inconsistent-offset last-stable-offset/high-watermark-above-log " + SEEN,
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
    may="inconsistent-offset send-order last-stable-offset/high-watermark-above-log " + SEEN,
)
def batches_swapped(made: Made, rng: Random) -> None:
    """Two sends of a producer without an id are on B in the wrong order."""
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
