"""librdkafka 5456 and 5511: send_offsets_to_transaction exceeds its timeout when the group's
coordinator is gone."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import confluent_kafka
from confluent_kafka import Consumer, ElectionType, KafkaException, Producer, TopicPartition

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import THREE, nodes
from linkflap.chaos.cases.tools import wire
from linkflap.chaos.cases.tools.clients import LOG, ignored
from linkflap.harness.model.protocols import Broker
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet

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

    return until(
        found,
        within=WITHIN,
        what=f"a group of a coordinator other than broker {than.id}",
        every=0.5,
    )


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
    consumer = Consumer(quiet(bench.bootstrap()) | {"group.id": group, "enable.auto.commit": False})
    bench.closing(consumer)
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

    until(
        forgotten,
        within=WITHIN,
        what=f"broker {coordinator.id} to be gone from metadata",
        every=0.5,
    )
    until(
        lambda: bench.ask(asked).coordinator(bench.name("relay"), wire.TRANSACTION) > 0,
        within=WITHIN,
        what="a coordinator",
    )


_REPRODUCED = f"the call has not returned after {TOO_LONG:g} s"
_CONTROL = "the same with the coordinator alive: it returns at once"
_REFUTED = "an error or a success within the timeout, in every run"
_SCHEDULE = (
    "1. three nodes; offsets of a group are sent in a transaction; 2. kill -9 of the group's "
    "coordinator, until it has left the metadata; {how}; 3. send_offsets_to_transaction with a "
    f"timeout of {ASKED:g} s"
)
