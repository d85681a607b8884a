"""Mappings of producer ids that were proposed for mirrored records, and what they do to a
cluster's own producers."""

from __future__ import annotations

from collections.abc import Callable

from linkflap.chaos.cases.bench import ONE, PAIR, Bench, transaction
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.wire import ProducerIdentity, record_batch
from linkflap.harness.mirrors.shadow.batches import complement, negate, region

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
