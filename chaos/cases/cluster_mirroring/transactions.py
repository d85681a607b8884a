"""Transactions that are open at a failover, producers' state behind it, and the mappings of
producer ids that were proposed for mirrored records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from linkflap.chaos.cases import wire
from linkflap.chaos.cases.bench import ONE, PAIR, Bench, happens, markers, records, transaction
from linkflap.chaos.cases.branch_mirror import STOPPED, branch_mirror, one_coordinator
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.wire import ProducerIdentity, Wire, record_batch
from linkflap.harness.mirrors.shadow.batches import complement, negate, region
from linkflap.topologies import parse

Formula = Callable[[int], int]
FIRST_HOP, SECOND_HOP = "cluster-of-A", "cluster-of-B"


def _ids(formula: str, own: int) -> dict[str, int]:
    """The id on C of A's, B's and C's own producer; each drew `own` from its own cluster."""
    hops: dict[str, tuple[Formula, Formula]] = {
        "keep": (lambda pid: pid, lambda pid: pid),
        "negate": (negate, negate),
        "complement": (complement, complement),
        "region": (region(FIRST_HOP), region(SECOND_HOP)),
        "advance": (lambda pid: pid, lambda pid: pid),
    }
    first, second = hops[formula]
    # `advance` keeps ids, and each destination's own allocation begins past those that were
    # mirrored.
    step = 1000 if formula == "advance" else 0
    return {"A": second(first(own)), "B": second(own + step), "C": own + 2 * step}


@case("RS12-keep-ids-on-a-chain", ONE, claim={"formula": "keep"}, control={"formula": "advance"})
@case(
    "RS12-negate-ids-on-a-chain", ONE, claim={"formula": "negate"}, control={"formula": "advance"}
)
@case(
    "RS12-complement-ids-on-a-chain",
    ONE,
    claim={"formula": "complement"},
    control={"formula": "advance"},
)
@case(
    "RS12-region-ids-on-a-chain", ONE, claim={"formula": "region"}, control={"formula": "advance"}
)
def ids_on_a_chain(bench: Bench, formula: str) -> Observation:
    """A broker's view of a producer is what its log says. So what two hops of mirroring leave is
    written to one stock broker: a batch of A's producer by way of B and one of B's own, each under
    the id that the formula gives it, and then one of C's own first producer, with the id that a
    fresh cluster hands out."""
    topic = bench.topic()
    asked = bench.ask(bench.up())
    drawn = asked.init_producer_id().id
    ids = _ids(formula, drawn)
    answers, lost = {}, []
    for who, pid in ids.items():
        before = bench.bound("high", topic)
        batch = record_batch(
            [f"of {who}".encode()] * 2, producer=ProducerIdentity(id=pid, epoch=0), sequence=0
        )
        error, offset = asked.produce((topic, 0), batch)
        grown = bench.bound("high", topic) - before
        answers[who] = f"id {pid}: {error}, offset {offset}, {grown} records appended"
        if error == "none" and not grown:
            lost.append(who)
    log = bench.log(topic)
    untracked = [who for who, pid in ids.items() if pid < 0]
    same = sorted({f"{a}={b}" for a in ids for b in ids if a < b and ids[a] == ids[b]})
    facts = {
        "ids_on_C": ids,
        "same_id": same,
        "answers": answers,
        "acknowledged_and_not_appended": lost,
        "tracked_by_no_broker": untracked,
        "log": [f"{one.base_offset}-{one.last_offset} producer {one.producer_id}" for one in log],
    }
    return Observation(shown=bool(same and (lost or untracked)), facts=facts)


@case("kept-ids", PAIR, claim={"ids": "keep"}, control={"ids": "jump"})
@case("reset-on-stock-brokers", PAIR, claim={"ids": "reset"}, control={"ids": "jump"})
def ids_after_failover(bench: Bench, ids: str) -> Observation:
    topic = bench.topic()
    mirror = bench.mirror("shadow", producer_ids=ids)
    mirror.start()
    source = bench.ask(bench.up("A"))
    drawn = source.init_producer_id()
    source.produce((topic, 0), record_batch([b"of A"] * 2, producer=drawn, sequence=0))
    bench.drained(mirror)
    mirror.stop()
    bench.led(topic, cluster="B")
    destination = bench.ask(bench.up("B"))
    before = bench.bound("high", topic, cluster="B")
    own = destination.init_producer_id()
    error, offset = destination.produce(
        (topic, 0), record_batch([b"of B"] * 2, producer=own, sequence=0)
    )
    after = bench.bound("high", topic, cluster="B")
    read = bench.texts(topic, cluster="B")
    facts = {
        "id_on_A": drawn.id,
        "id_on_B": own.id,
        "promoted_at": before,
        "produce_on_B": [error, offset],
        "high_watermark_before_and_after": [before, after],
        "records_on_B": read,
    }
    return Observation(shown=error == "none" and "of B" not in read, facts=facts)


@case("VK4-negative-ids", ONE, claim={"mapped": True}, control={"mapped": False})
def negative_ids(bench: Bench, *, mapped: bool) -> Observation:
    """A batch of a transaction that is open; with the id as it is, or as the draft would have
    mapped it."""
    topic = bench.topic()
    writer = bench.wire_transactional()
    own = writer.producer
    if mapped:
        batch = record_batch(
            [b"open"] * 3,
            producer=ProducerIdentity(id=negate(own.id), epoch=own.epoch),
            sequence=0,
            transactional=True,
        )
        answer = writer.wire.produce((topic, 0), batch, transactional_id=writer.id)
    else:
        writer.add((topic, 0))
        answer = writer.write((topic, 0), *[b"open"] * 3)
    stable, high = bench.bound("stable", topic), bench.bound("high", topic)
    read = len(bench.read(topic))
    if not mapped:
        writer.end(commit=False)
    facts = {
        "producer_id": bench.log(topic)[0].producer_id if high else None,
        "produce": answer,
        "last_stable_offset": stable,
        "high_watermark": high,
        "read_committed": read,
    }
    return Observation(shown=high > 0 and stable == high and read > 0, facts=facts)


@case("VK4-mirrored", PAIR, claim={"ids": "negate"}, control={"ids": "jump"})
def negative_ids_mirrored(bench: Bench, ids: str) -> Observation:
    """VK4 end to end: a mirror that negates producer ids, and what read_committed consumers of the
    destination get."""
    topic = bench.topic()
    mirror = bench.mirror("shadow", producer_ids=ids)
    mirror.start()
    writer = bench.transactional()
    for value, commit in ((b"kept", True), (b"aborted", False)):
        transaction(writer, topic, value, commit=commit)
    bench.drained(mirror)
    bench.led(topic, cluster="B")
    there = bench.texts(topic)
    read = bench.texts(topic, cluster="B")
    return Observation(
        shown="aborted" in read, facts={"A_read_committed": there, "B_read_committed": read}
    )


Y_RECORDS = 3


@case("RS4-truncate-once", PAIR, claim={"how": "truncate-once"}, control={"how": "abort"})
@case("RS4-truncate-stable", PAIR, claim={"how": "truncate-stable"}, control={"how": "abort"})
def failover_ends(bench: Bench, how: str) -> Observation:
    """Y writes first, X writes and stays open, then Y commits: the last stable offset is behind Y's
    records and before Y's marker."""
    topic = bench.topic()
    mirror = bench.mirror("shadow", open_transactions=how)
    mirror.start()
    y, x = bench.wire_transactional("Y"), bench.wire_transactional("X")
    for writer, values in ((y, [b"of Y"] * Y_RECORDS), (x, [b"of X"])):
        writer.add((topic, 0))
        writer.write((topic, 0), *values)
    committed = y.end(commit=True)
    on_a = (bench.bound("stable", topic), bench.bound("high", topic))
    bench.drained(mirror)
    bench.led(topic, cluster="B")
    mirrored = bench.bound("high", topic, cluster="B")
    mirror.stop()
    bench.led(topic, cluster="B")
    stable, high = (
        bench.bound("stable", topic, cluster="B"),
        bench.bound("high", topic, cluster="B"),
    )
    log = bench.log(topic, cluster="B")
    facts = {
        "commit_on_A": committed,
        "A_stable_and_high": list(on_a),
        "mirrored_before_the_failover": mirrored,
        "B_stable_and_high": [stable, high],
        "B_records": len(records(log)),
        "B_markers": [one.words for one in markers(log)],
        "B_read_committed": len(bench.read(topic, cluster="B")),
    }
    return Observation(
        shown=committed == "none" and facts["B_read_committed"] != Y_RECORDS, facts=facts
    )


RECORDS = 3


@case(
    "AS30-outcome-split",
    PAIR,
    claim={"open_at_the_failover": True},
    control={"open_at_the_failover": False},
)
def outcome_split(bench: Bench, *, open_at_the_failover: bool) -> Observation:
    """The source stays up, as in a planned failover whose producers were not stopped, or behind a
    link that is down."""
    topic = bench.topic()
    mirror = bench.mirror("shadow")
    mirror.start()
    writer = bench.wire_transactional("X")
    writer.add((topic, 0))
    writer.write((topic, 0), *[b"of X"] * RECORDS)
    commit_error = "" if open_at_the_failover else writer.end(commit=True)
    bench.drained(mirror)
    bench.led(topic, cluster="B")
    mirror.stop()
    bench.led(topic, cluster="B")
    if open_at_the_failover:
        commit_error = writer.end(commit=True)
    read = {name: len(bench.read(topic, cluster=name)) for name in ("A", "B")}
    facts = {
        "commit_on_A": commit_error,
        "A_read_committed": read["A"],
        "B_read_committed": read["B"],
        "A_markers": bench.markers(topic),
        "B_markers": bench.markers(topic, cluster="B"),
    }
    return Observation(
        shown=commit_error == "none" and read["A"] == RECORDS and not read["B"], facts=facts
    )


PARTITIONS: Final = 12
"""Enough partitions that the broker that keeps their states also leads some of them."""
ENDED_WITHIN: Final = 30.0


@case(
    "KIP-1279-marker-refused",
    parse("A->B:3"),
    claim={"promoted": True},
    control={"promoted": False},
)
def marker_refused(bench: Bench, *, promoted: bool) -> Observation:
    """A transaction at B in every partition; before it commits a broker of B dies. `promoted`: of a
    topic that was mirrored and stopped, and else of one of B's own."""
    if not promoted:
        return _ended(bench, bench.topic(cluster="B", partitions=PARTITIONS))
    topic = bench.topic(partitions=PARTITIONS)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(PARTITIONS)
        mirror.promoted(PARTITIONS)
        return _ended(bench, topic)


def _ended(bench: Bench, topic: str) -> Observation:
    producer = bench.transactional(cluster="B", transaction_timeout_ms="60000")
    producer.begin()
    for partition in range(PARTITIONS):
        producer.send(topic, b"of B", partition)
    producer.flush()
    coordinator = bench.coordinator(bench.name("producer"), cluster="B")
    dead = bench.other(coordinator, "B")
    dead.kill()
    producer.commit()
    for broker in bench.cluster("B").brokers.values():
        if broker.state == "running":
            bench.led(topic, partitions=PARTITIONS, by=broker)
    happens(
        "the transaction to end everywhere",
        lambda: not _open(bench, topic),
        within=ENDED_WITHIN,
        every=0.5,
    )
    left = _open(bench, topic)
    facts = {"partitions": PARTITIONS, "commit": "acknowledged", "without_a_marker": left}
    return Observation(shown=0 < len(left) < PARTITIONS, facts=facts)


def _open(bench: Bench, topic: str) -> list[int]:
    """The partitions of B in which a transaction is open."""
    return [
        number
        for number in range(PARTITIONS)
        if bench.bound("stable", topic, number, "B") < bench.bound("high", topic, number, "B")
    ]


@case("KIP-1279-reset-forgotten", PAIR, claim={"rebuilt": True}, control={"rebuilt": False})
def reset_forgotten(bench: Bench, *, rebuilt: bool) -> Observation:
    """A's producer and B's have one id; B's writes first to the topic after the promotion."""
    topic = bench.topic()
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        source, destination = bench.ask(bench.up("A")), bench.ask(bench.up("B"))
        of_a, of_b = _of_one_id(source, destination)
        source.produce((topic, 0), record_batch([b"of A"] * 2, producer=of_a, sequence=0))
        bench.ends_at(2, topic)
        mirror.promoted(1)
    if rebuilt:
        broker = bench.up("B")
        broker.kill()
        broker.start()
        bench.led(topic, cluster="B")
    resets = [marker.kind for marker in markers(bench.log(topic, cluster="B"))].count("other")
    before = bench.bound("high", topic, cluster="B")
    error, offset = bench.ask(bench.up("B")).produce(
        (topic, 0), record_batch([b"of B"] * 2, producer=of_b, sequence=0)
    )
    after = bench.bound("high", topic, cluster="B")
    read = bench.texts(topic, cluster="B")
    facts = {
        "producer_id": of_b.id,
        "resets_in_the_log": resets,
        "produce_on_B": [error, offset],
        "high_watermark_before_and_after": [before, after],
        "records_on_B": read,
    }
    return Observation(shown=error == "none" and "of B" not in read, facts=facts)


def _of_one_id(source: Wire, destination: Wire) -> tuple[ProducerIdentity, ProducerIdentity]:
    """A producer of each cluster, with the same producer id: both hand them out from 0 on."""
    of_a, of_b = source.init_producer_id(), destination.init_producer_id()
    while of_a.id != of_b.id:
        if of_a.id < of_b.id:
            of_a = source.init_producer_id()
        else:
            of_b = destination.init_producer_id()
    return of_a, of_b


_REPLICAS: Final = 3
SHORT_FOR: Final = 15.0
"""Seconds for which the in-sync replicas are too few: the reset is tried again every five."""


@case(
    "KIP-1279-stop-below-min-isr",
    parse("A->B:3"),
    claim={"needed": _REPLICAS},
    control={"needed": _REPLICAS - 1},
)
def stop_below_min_isr(bench: Bench, *, needed: int) -> Observation:
    """A transaction is open on A; a follower of B's leader is dead, which coordinates nothing.
    `needed`: min.insync.replicas of the topic on B when stop is asked for; after that, 1."""
    topic = bench.topic()
    writer = bench.wire_transactional("X", timeout=900.0)
    writer.add((topic, 0))
    writer.write((topic, 0), *[b"of X"] * RECORDS)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1, between=(partial(one_coordinator, bench),))
        bench.ends_at(RECORDS, topic)
        brokers = bench.cluster("B").brokers
        leader = brokers[wire.leader(bench.up("B").client_address, topic)]
        asked = bench.ask(leader)
        follower = next(one for one in brokers.values() if one.id not in {leader.id, 1})
        follower.kill()
        others = [one for one in brokers.values() if one.id != follower.id]
        bench.in_sync(topic, *others, by=asked)
        mirror.mirroring(1)
        bench.ends_at(RECORDS, topic)
        bench.topic_setting(topic, "min.insync.replicas", str(needed), cluster="B")
        mirror.stopping()
        early = happens(
            STOPPED, lambda: mirror.states() == {STOPPED: 1}, within=SHORT_FOR, every=0.2
        )
        bench.topic_setting(topic, "min.insync.replicas", "1", cluster="B")
        mirror.stopped(1)
    log = bench.log(topic, broker=leader.id, cluster="B")
    stable, high = (bench.bound(which, topic, cluster="B") for which in ("stable", "high"))
    facts = {
        "stopped_while_replicas_were_too_few": early,
        "B_markers": [one.words for one in markers(log)],
        "B_stable_and_high": [stable, high],
    }
    return Observation(shown=stable < high, facts=facts)
