"""Defects and limits of librdkafka."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import confluent_kafka
from confluent_kafka import (
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from linkflap.chaos.cases import wire
from linkflap.chaos.cases.bench import (
    ONE,
    THREE,
    WITHIN,
    Bench,
    happens,
    markers,
    nodes,
    one,
    records,
    table,
    transaction,
    wait_for,
)
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clients import (
    LOG,
    JavaTransactional,
    LibrdkafkaProducer,
    Transactional,
    ignored,
)
from linkflap.chaos.faults.leaders import reordered
from linkflap.harness.model.protocols import Broker
from linkflap.harness.wire.librdkafka import quiet

ADDS_WITHIN: Final = 0.002
"""Seconds after produce() in which librdkafka sends AddPartitionsToTxn: its timer is 1 ms."""
PARTITIONS: Final = 12
TIMEOUT_SECONDS: Final = 5
TURNS: Final = 200
SHORT: Final = 1.0
"""Seconds after which a call gives up while the connection is down."""
_LOOKS_OFTEN: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


def _ended(call: Callable[[float], None] | Callable[[], None], *within: float) -> str:
    """How a call of the producer ended: ok, or the name of its error."""
    try:
        call(*within)
    except KafkaException as error:
        cause = error.args[0]
        return f"{cause.name()}{', fatal' if cause.fatal() else ''}"
    return "ok"


@case("librdkafka-3297", one(_LOOKS_OFTEN), claim={"late": True}, control={"late": False})
def librdkafka_3297(bench: Bench, *, late: bool) -> Observation:
    """librdkafka issue 3297: after one failed commit every call of a transactional producer ends as
    fenced, although no other producer has its transactional id."""
    topic, name = bench.topic(), bench.name("producer")
    own = {
        "transactional.id": name,
        "transaction.timeout.ms": 1000 * TIMEOUT_SECONDS,
        "linger.ms": 0,
        "error_cb": lambda _: None,
    }
    producer = Producer(quiet(bench.bootstrap()) | own)
    producer.init_transactions(WITHIN)
    producer.begin_transaction()
    producer.produce(topic, b"one")
    producer.flush(WITHIN)
    if late:
        wait_for(
            "the coordinator to abort the transaction after its timeout",
            lambda: bench.ask(bench.up()).transaction_state(name)[0] == "CompleteAbort",
            every=0.2,
        )
    facts: dict[str, object] = {
        "first_commit": _ended(producer.commit_transaction, WITHIN),
        "commit_again": _ended(producer.commit_transaction, WITHIN) if late else "not called",
        "abort": _ended(producer.abort_transaction, WITHIN) if late else "not called",
        "next_transaction": _ended(producer.begin_transaction),
        "producers_of_this_id": 1,
        "read": bench.texts(topic),
    }
    after = [facts[name] for name in ("commit_again", "abort", "next_transaction")]
    return Observation(shown=after == ["_FENCED, fatal"] * len(after), facts=facts)


@case("librdkafka-4849", ONE, claim={"flushes": False}, control={"flushes": True})
def librdkafka_4849(bench: Bench, *, flushes: bool) -> Observation:
    """librdkafka issue 4849: an abort right after a commit and produce() is fatal, if the
    coordinator has not completed the commit when it is asked to add the partition."""
    topic = bench.topic(partitions=PARTITIONS)
    settings = {"transactional.id": bench.name("producer"), "error_cb": ignored}
    producer = Producer(quiet(bench.bootstrap()) | settings, logger=LOG)
    producer.init_transactions(WITHIN)
    ended: list[str] = []
    while len(ended) < TURNS and not any("fatal" in one for one in ended):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, b"committed", partition=partition)
        producer.commit_transaction(WITHIN)
        producer.begin_transaction()
        producer.produce(topic, b"aborted", partition=0)
        if flushes:
            wait_for("the record to be acknowledged", partial(_flushed, producer))
        else:
            producer.poll(ADDS_WITHIN)
        ended.append(_ended(producer.abort_transaction, WITHIN))
    facts = {"aborts": len(ended), "ended": dict(Counter(ended))}
    return Observation(shown="INVALID_TXN_STATE, fatal" in ended, facts=facts)


def _flushed(producer: Producer) -> bool:
    return producer.flush(1) == 0


OWNER: Final = "case"


@case(
    "librdkafka-reused-sequences",
    ONE,
    claim={"aborts_while_down": True},
    control={"aborts_while_down": False},
)
def librdkafka_reused_sequences(bench: Bench, *, aborts_while_down: bool) -> Observation:
    """A broker appends records, their answer is lost with the connection, and the transaction is
    aborted before librdkafka has sent them again, or after."""
    topic = bench.topic()
    link = bench.deployment.links["*->A"]
    acknowledged: list[int] = []
    settings = {
        "transactional.id": bench.name("producer"),
        "error_cb": ignored,
        "linger.ms": 1000,  # the records of a transaction are one batch, which flush() sends
    }
    producer = Producer(quiet(link.bootstrap) | settings, logger=LOG)
    producer.init_transactions(WITHIN)

    def produced(name: str, on_delivery: Callable[[object, Message], None] | None = None) -> None:
        for number in range(RECORDS):
            producer.produce(topic, f"{name} {number}", on_delivery=on_delivery)
        producer.flush(0)

    def delivered(error: object, message: Message) -> None:
        if error is None:
            acknowledged.append(message.offset() or 0)

    producer.begin_transaction()
    producer.produce(topic, b"adds the partition to the transaction")
    wait_for("the record to be acknowledged", partial(_flushed, producer))
    link.add_toxic("timeout", "responses", {"timeout": 0}, owner=OWNER)
    try:
        produced("aborted")
        wait_for("the broker to append them", lambda: len(bench.logged(topic)) == 1 + RECORDS)
        link.cut(owner=OWNER)
        link.clear(owner=OWNER)
        aborts = [_ended(producer.abort_transaction, SHORT)] if aborts_while_down else []
    finally:
        link.clear(owner=OWNER)
        link.restore(owner=OWNER)
    if not aborts_while_down:
        wait_for("the records to be acknowledged", partial(_flushed, producer))
    aborts.append(_ended(producer.abort_transaction, WITHIN))
    producer.begin_transaction()
    produced("committed", delivered)
    wait_for("the records to be acknowledged", partial(_flushed, producer))
    commit = _ended(producer.commit_transaction, WITHIN)
    read = bench.texts(topic)
    facts = {
        "aborts": aborts,
        "commit": commit,
        "acknowledged_at": acknowledged,
        "read": read,
        "log": table(bench.log(topic)),
    }
    lost = commit == "ok" and len(acknowledged) == RECORDS and not read
    return Observation(shown=lost, facts=facts)


SESSION_SECONDS = 6
HEARTBEAT_SECONDS = 1
RECORDS = 10


class _StaticMember:
    """A static member of a group, and the records that it got."""

    def __init__(self, bench: Bench, topic: str) -> None:
        own = {
            "group.id": bench.name("group"),
            "group.instance.id": "one",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 1000 * SESSION_SECONDS,
            "heartbeat.interval.ms": 1000 * HEARTBEAT_SECONDS,
        }
        self.consumer = Consumer(quiet(bench.bootstrap()) | own)
        self.consumer.subscribe([topic])
        self.values: set[bytes | None] = set()
        self.fatal = ""

    def poll(self) -> None:
        """One poll of a tenth of a second."""
        message = self.consumer.poll(0.1)
        error = None if message is None else message.error()
        if error is not None and (error.fatal() or error.code() == KafkaError._FATAL):
            self.fatal = error.str()
        elif message is not None and error is None:
            self.values.add(message.value())


@case("librdkafka-3437", ONE, claim={"polls_meanwhile": False}, control={"polls_meanwhile": True})
def librdkafka_3437(bench: Bench, *, polls_meanwhile: bool) -> Observation:
    """librdkafka issue 3437: a static member whose session expired while it did not poll is fenced
    by its own heartbeats, and gets no more records."""
    topic = bench.topic()
    bench.write(topic, [b"before %d" % n for n in range(RECORDS)])
    member = _StaticMember(bench, topic)

    def has(records: int) -> bool:
        member.poll()
        return bool(member.fatal) or len(member.values) == records

    def over(ends: float) -> bool:
        if polls_meanwhile:
            member.poll()
        return time.monotonic() > ends

    def for_seconds(seconds: float) -> None:
        wait_for("time to pass", partial(over, time.monotonic() + seconds))

    wait_for("the member to read what there is", lambda: has(RECORDS))
    broker = bench.broker()
    broker.kill()
    for_seconds(SESSION_SECONDS + 2 * HEARTBEAT_SECONDS)
    broker.start()
    bench.led(topic)
    for_seconds(5 * HEARTBEAT_SECONDS)
    bench.write(topic, [b"after %d" % n for n in range(RECORDS)])
    happens("the member to read what came since", lambda: has(2 * RECORDS))
    read = len(member.values) - RECORDS
    member.consumer.close()
    facts = {
        "read_after_restart": read,
        "written_after_restart": RECORDS,
        "fatal_error": member.fatal or "none",
    }
    return Observation(shown=read == 0 and "group.instance.id" in member.fatal, facts=facts)


BUSY_SECONDS = 0.5
"""Processor time above which ending a consumer is not healthy; the control uses a few
milliseconds."""


@case(
    "librdkafka-3740", ONE, claim={"commit_while_dead": True}, control={"commit_while_dead": False}
)
def librdkafka_3740(bench: Bench, *, commit_while_dead: bool) -> Observation:
    """librdkafka issue 3740: a commit that waits for a dead coordinator blocks the destruction of a
    consumer, with a busy thread."""
    topic = bench.topic()
    bench.write(topic, [b"record"] * 10)
    errors: list[int] = []
    own = {
        "group.id": bench.name("group"),
        "enable.auto.commit": False,
        "session.timeout.ms": 1000 * SESSION_SECONDS,
    }
    consumer = Consumer(
        quiet(bench.bootstrap()) | own | {"error_cb": lambda error: errors.append(error.code())}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    # so that it knows its coordinator
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    broker = bench.broker()
    broker.kill()
    down = partial(_noticed, consumer, errors)
    wait_for("the consumer to notice that every broker is down", down)
    del down
    if commit_while_dead:
        consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=True)
    wall, busy = time.monotonic(), time.process_time()
    del consumer  # destroyed without close(), which would block too
    wall, busy = time.monotonic() - wall, time.process_time() - busy
    broker.start()
    bench.led(topic)
    facts = {
        "seconds_to_destroy": round(wall, 2),
        "processor_seconds": round(busy, 2),
        "session_timeout_seconds": SESSION_SECONDS,
    }
    return Observation(shown=wall > SESSION_SECONDS / 2 and busy > BUSY_SECONDS, facts=facts)


def _noticed(consumer: Consumer, errors: list[int]) -> bool:
    consumer.poll(0.1)
    return KafkaError._ALL_BROKERS_DOWN in errors


SECONDS: Final = 12.0
EVERY: Final = 0.4


@case("librdkafka-4953", THREE, claim={"moves": True}, control={"moves": False})
def librdkafka_4953(bench: Bench, *, moves: bool) -> Observation:
    """Writes records with distinct values to every partition, as fast as they are acknowledged,
    while all leaders move."""
    topic = bench.topic(partitions=PARTITIONS)
    brokers = sorted(bench.cluster().brokers)
    addresses = [broker.client_address for broker in bench.cluster().brokers.values()]
    outcomes: Counter[str] = Counter()
    producer = bench.producer(enable_idempotence=True, linger_ms=5, message_timeout_ms=120_000)
    written = moved = 0
    began = last = time.monotonic()
    while (at := time.monotonic()) - began < SECONDS:
        for partition in range(PARTITIONS):
            producer.produce(
                topic,
                b"%d" % written,
                partition=partition,
                on_delivery=lambda error, _: outcomes.update(
                    [error.name() if error else "acknowledged"]
                ),
            )
            written += 1
        wait_for("the producer's queue to have room", partial(_room, producer), every=0.005)
        if moves and at - last > EVERY:
            moved += 1
            order = tuple(brokers[(moved + nth) % len(brokers)] for nth in range(len(brokers)))
            asyncio.run(
                reordered(addresses, {(topic, partition): order for partition in range(PARTITIONS)})
            )
            last = time.monotonic()
    wait_for("everything to be acknowledged", lambda: producer.flush(1) == 0, within=2 * WITHIN)
    found: Counter[bytes] = Counter()
    for partition in range(PARTITIONS):
        leader = bench.ask(bench.up()).leadership(topic)[partition].leader
        found.update(
            record.value or b"" for record in records(bench.log(topic, partition, broker=leader))
        )
    twice = sorted(int(value) for value, count in found.items() if count > 1)
    facts = {
        "written": written,
        "outcomes": dict(outcomes),
        "moves": moved,
        "in_the_log_twice": len(twice),
        "first": twice[:5],
    }
    return Observation(shown=bool(twice), facts=facts)


def _room(producer: object) -> bool:
    producer.poll(0)  # type: ignore[attr-defined]
    return len(producer) < 500  # type: ignore[arg-type]


TRANSACTIONS = 3


@case("librdkafka-5423", ONE, claim={"java": False}, control={"java": True})
def librdkafka_epochs(bench: Bench, *, java: bool) -> Observation:
    """librdkafka 5423: without the client side of KIP-890, consecutive transactions share one
    epoch, even on clusters with transactions V2."""
    topic, name = bench.topic(), bench.name("writer")
    made: Transactional = (
        JavaTransactional(bench.java(), bench.bootstrap(), name, {})
        if java
        else LibrdkafkaProducer(bench.bootstrap(), name, {})
    )
    bench.closing(made)
    for number in range(TRANSACTIONS):
        transaction(made, topic, b"%d" % number)
    wait_for("the markers", lambda: len(markers(bench.log(topic))) == TRANSACTIONS, every=0.1)
    epochs = [one.producer_epoch for one in markers(bench.log(topic))]
    level = bench.ask(bench.up()).features().get("transaction.version", 0)
    facts = {"epochs_of_the_markers": epochs, "transaction.version": level}
    return Observation(shown=level >= 2 and len(set(epochs)) < len(epochs), facts=facts)


ASKED, TOO_LONG = 3.0, 15.0
AFTERWARDS = 20.0
"""Seconds within which the call returns once the coordinator is back."""


def _group_elsewhere(bench: Bench, than: Broker) -> tuple[str, Broker]:
    """A group whose coordinator is another broker than the transaction's coordinator, and that
    broker."""

    def found() -> tuple[str, Broker] | None:
        # After a run that killed brokers, one broker may lead all of __consumer_offsets until
        # preferred leaders are elected.
        with suppress(KafkaException):
            bench.admin().elect_leaders(ElectionType.PREFERRED, None).result(WITHIN)
        groups = [bench.name(f"group{number}") for number in range(20)]
        coordinators = ((group, bench.coordinator(group, wire.GROUP)) for group in groups)
        return next(
            ((group, broker) for group, broker in coordinators if broker.id != than.id), None
        )

    return wait_for(f"a group of a coordinator other than broker {than.id}", found, every=0.5)


@case(
    "librdkafka-5456",
    nodes(3, {"offsets.topic.replication.factor": "1"}),
    claim={"gone": True},
    control={"gone": False},
)
@case("librdkafka-5511", THREE, claim={"gone": True}, control={"gone": False})
def librdkafka_group_coordinator(bench: Bench, *, gone: bool) -> Observation:
    """Sends the offsets of a second transaction, after those of the first went through and the
    coordinator was killed, or was not."""
    topic = bench.topic()
    settings = {
        "transactional.id": bench.name("relay"),
        "topic.metadata.refresh.interval.ms": 1000,
        "error_cb": ignored,
    }
    producer = Producer(quiet(bench.bootstrap()) | settings, logger=LOG)
    producer.init_transactions(WITHIN)
    group, coordinator = _group_elsewhere(bench, bench.coordinator(bench.name("relay")))
    consumer = bench.consumer(group)
    member = consumer.consumer_group_metadata()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], member, WITHIN)
    producer.commit_transaction(WITHIN)
    if gone:
        _removed(bench, coordinator, producer)
    producer.begin_transaction()
    errors: list[str] = []

    def send() -> None:
        try:
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], member, ASKED)
            errors.append("none")
        except KafkaException as error:
            errors.append(error.args[0].name())

    began = time.monotonic()
    call = threading.Thread(target=send, name="send-offsets", daemon=True)
    call.start()
    call.join(TOO_LONG)
    hung = call.is_alive()
    took = round(time.monotonic() - began, 1)
    if coordinator.state == "stopped":
        coordinator.start()
    call.join(AFTERWARDS)
    facts = {
        "librdkafka": confluent_kafka.libversion()[0],
        "asked_seconds": ASKED,
        "returned_within": None if hung else took,
        "at_last": errors[0] if errors else "never",
        "seconds_at_last": round(time.monotonic() - began, 1),
    }
    return Observation(shown=hung, facts=facts)


def _removed(bench: Bench, coordinator: Broker, producer: Producer) -> None:
    """Kills the coordinator, and waits until the cluster and the producer have forgotten it."""
    coordinator.kill()
    asked = bench.up()

    def forgotten() -> bool:
        known = producer.list_topics(timeout=10).brokers
        return coordinator.id not in known

    wait_for(f"broker {coordinator.id} to be gone from metadata", forgotten, every=0.5)
    wait_for(
        "a coordinator",
        lambda: bench.ask(asked).coordinator(bench.name("relay"), wire.TRANSACTION) > 0,
    )
