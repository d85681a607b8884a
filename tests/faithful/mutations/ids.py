"""Producer ids that collide, on a cluster, across a link and across two; sequence numbers; ids and
acknowledgements that lie."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import SendGroup
from linkflap.harness.model.payload import PROCESS_SHIFT
from tests.faithful.entries import WRAP, Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    CHAIN,
    FORCED,
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

COLLISION = "producer-id-uniqueness/producer-id-collision"


def _idempotent(made: Made, cluster: str = "B", *, least: int = 2) -> list[Entry]:
    """The batches of one idempotent producer in a cluster's own era."""
    mine = [e for e in data(made, cluster, native=True, state="plain") if e.pid >= 0]
    found = [e for e in mine if e.pid == mine[0].pid]
    if len(found) < least:
        raise NothingToChange(f"{cluster} has {len(found)} batches of an idempotent producer")
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
