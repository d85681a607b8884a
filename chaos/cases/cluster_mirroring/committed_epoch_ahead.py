"""A committed offset whose leader epoch is above the leader's: the group's consumer stands still
(JR11)."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet

PATIENCE = 12.0
"""Seconds without a record after which a consumer of a local broker stands still; the control needs
one or two."""
AHEAD = 7


@case("JR11-committed-epoch-ahead", ONE, claim={"epoch": AHEAD}, control={"epoch": 0})
def committed_epoch_ahead(bench: Bench, epoch: int) -> Observation:
    """A committed offset whose leader epoch is above the leader's: the group's consumer stands
    still (JR11)."""
    topic = bench.topic()
    group = bench.name("group")
    bench.write(topic, [b"record"] * 10)
    asked = bench.ask(bench.coordinator(group, 0))
    error = asked.commit_offset(group, (topic, 0), 4, leader_epoch=epoch)
    poll = (
        _java(bench, topic, group)
        if bench.variant.client == "java"
        else _librdkafka(bench, topic, group)
    )
    began = time.monotonic()
    read = 0

    def some() -> bool:
        nonlocal read
        read += poll()
        return read > 0

    try:
        until(some, within=PATIENCE if epoch else WITHIN, what="a record")
    except DeadlineExceeded:
        read = 0
    facts = {
        "committed_epoch": epoch,
        "leader_epoch": asked.leadership(topic)[0].epoch,
        "commit": error,
        "records": read,
        "seconds": round(time.monotonic() - began, 1),
    }
    return Observation(shown=error == "none" and read == 0, facts=facts)


def _librdkafka(bench: Bench, topic: str, group: str) -> Callable[[], int]:
    consumer = Consumer(quiet(bench.bootstrap()) | {"group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    bench.closing(consumer)
    return lambda: sum(message.error() is None for message in consumer.consume(100, 0.5))


def _java(bench: Bench, topic: str, group: str) -> Callable[[], int]:
    from linkflap.chaos.cases.tools.java import RawJavaConsumer

    consumer = RawJavaConsumer(bench.java(), bench.bootstrap(), group, {})
    consumer.subscribe(topic)
    bench.closing(consumer)
    return lambda: len(consumer.poll(0.5))
