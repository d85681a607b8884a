"""Idempotent and transactional producers: retries, recovery and fencing (KIP-98, KIP-360)."""

from __future__ import annotations

from datetime import timedelta

from confluent_kafka import Producer

from linkflap.chaos.cases.bench import ONE, Bench, wait_for
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.tools.clients import ClientFailed, RawJavaProducer
from linkflap.chaos.cases.tools.logs import records
from linkflap.chaos.cases.tools.wire import record_batch
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.model.wait import pause
from linkflap.harness.wire import messages
from linkflap.harness.wire.offsets import quiet


@case("KIP-98-repeat", ONE, claim={"idempotent": True}, control={"idempotent": False})
def sent_twice(bench: Bench, *, idempotent: bool) -> Observation:
    topic = bench.topic()
    asked = bench.ask(bench.up())
    batch = record_batch(
        [b"once"] * 3,
        producer=asked.init_producer_id() if idempotent else None,
        sequence=0 if idempotent else -1,
    )
    answers = [asked.produce((topic, 0), batch) for _ in range(2)]
    high = bench.bound("high", topic)
    return Observation(shown=high != 3, facts={"answers": answers, "high_watermark": high})


@case("KIP-98-old-repeat", ONE, claim={"idempotent": True}, control={"idempotent": False})
def older(bench: Bench, *, idempotent: bool) -> Observation:
    """Repeats the first of eight batches: a broker keeps the last five of a producer."""
    topic = bench.topic()
    asked = bench.ask(bench.up())
    producer = asked.init_producer_id() if idempotent else None
    batches = [
        record_batch([b"%d" % n], producer=producer, sequence=n if idempotent else -1)
        for n in range(8)
    ]
    for batch in batches:
        asked.produce((topic, 0), batch)
    answer = asked.produce((topic, 0), batches[0])
    high = bench.bound("high", topic)
    return Observation(shown=high != 8, facts={"repeat": answer, "high_watermark": high})


SILENCE = 2.5
"""Seconds for which the broker is suspended: more than twice the clients' request timeout."""


@case("KIP-98-retries", ONE, claim={"idempotent": True}, control={"idempotent": False})
def retries(bench: Bench, *, idempotent: bool) -> Observation:
    """The broker is suspended when the request arrives. The client times out and retries; then the
    broker reads both."""
    topic = bench.topic()
    settings: dict[str, str | int | bool] = {
        "enable.idempotence": idempotent,
        "acks": "all",
        "request.timeout.ms": 1000,
    }
    if bench.variant.client == "java":
        java = RawJavaProducer(
            bench.java(),
            bench.bootstrap(),
            settings | {"delivery.timeout.ms": 60_000, "retries": 1000},
        )
        bench.closing(java)
        java.send(topic, b"first")
        java.flush()
        bench.broker().pause()
        java.send(topic, b"again")
        pause(SILENCE, lambda: False)
        bench.broker().resume()
        java.flush()
    else:
        acknowledged: list[bool] = []
        producer = Producer(
            quiet(bench.bootstrap()) | settings | {"linger.ms": 0, "socket.timeout.ms": 1000}
        )
        for value in (b"first", b"again"):
            if value == b"again":
                bench.broker().pause()
            producer.produce(
                topic,
                value,
                partition=0,
                on_delivery=lambda error, _: acknowledged.append(error is None),
            )
            if value == b"first":
                wait_for("the first record", lambda: producer.flush(1) == 0)
        pause(SILENCE, lambda: False)
        bench.broker().resume()
        wait_for("the second record to be acknowledged", lambda: producer.flush(1) == 0)
    found = [(record.value or b"").decode() for record in records(bench.log(topic))]
    return Observation(shown=found.count("again") > 1, facts={"log": found})


@case("KIP-360-stale-recovery", ONE, claim={"names_itself": True}, control={"names_itself": False})
def producer_recovery(bench: Bench, *, names_itself: bool) -> Observation:
    """The old producer's InitProducerId arrives after its successor's."""
    topic = bench.topic()
    old = WireTransactional(bench)
    new = WireTransactional(bench)
    m = messages.request("init_producer_id", 4)
    answer = old.wire.call(
        "init_producer_id",
        4,
        m.InitProducerIdRequest(
            transactional_id=old.id,
            transaction_timeout=timedelta(seconds=60),
            producer_id=old.producer.id if names_itself else -1,
            producer_epoch=old.producer.epoch if names_itself else -1,
        ),
    )
    added = new.add((topic, 0))
    facts = {
        "recovery_of_the_old": str(answer.error_code.name),
        "epochs_old_new": [old.producer.epoch, new.producer.epoch],
        "epoch_given": int(answer.producer_epoch),
        "add_partitions_of_the_new": added,
    }
    return Observation(
        shown=answer.error_code == messages.Error.none and added != "none", facts=facts
    )


@case("KIP-98-zombie", ONE, claim={"same_id": True}, control={"same_id": False})
def _zombie(bench: Bench, *, same_id: bool) -> Observation:
    """A new producer takes the transactional id of the old one in mid-transaction, or has another
    id."""
    topic = bench.topic()
    old = WireTransactional(bench, "writer")
    old.add((topic, 0))
    old.write((topic, 0), b"before")
    new = WireTransactional(bench, "writer" if same_id else "other")
    written = old.write((topic, 0), b"of the zombie")
    ended = old.end(commit=True)
    new.add((topic, 0))
    new.write((topic, 0), b"of the new one")
    new.end(commit=True)
    read = bench.texts(topic)
    facts = {"produce_of_the_old": written[0], "commit_of_the_old": ended, "read_committed": read}
    return Observation(shown="of the zombie" in read or "before" in read, facts=facts)


@case("KIP-98-zombie-client", ONE, claim={"same_id": True}, control={"same_id": False})
def clients(bench: Bench, *, same_id: bool) -> Observation:
    """The same with two real clients."""
    topic = bench.topic()
    old = bench.transactional("writer")
    old.begin()
    old.send(topic, b"of the zombie")
    old.flush()
    new = bench.transactional("writer" if same_id else "other")
    try:
        old.commit()
        ended = "none"
    except ClientFailed as error:
        ended = error.name
    new.begin()
    new.send(topic, b"of the new one")
    new.commit()
    read = bench.texts(topic)
    return Observation(
        shown="of the zombie" in read, facts={"commit_of_the_old": ended, "read_committed": read}
    )
