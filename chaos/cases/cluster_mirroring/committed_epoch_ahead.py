"""A committed offset whose leader epoch is above the leader's: the group's consumer stands still
(JR11)."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet

PATIENCE = 12.0
"""Seconds without a record after which a consumer of a local broker stands still; the control needs
one or two."""
AHEAD = 7


def _started(bench: Bench, epoch: int) -> Observation:
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


CASE = Case(
    name="JR11-committed-epoch-ahead",
    title=(
        "A consumer whose committed offset has a leader epoch above the leader's stands still "
        "without an error"
    ),
    kind="proposal",
    claim_text=(
        "A group offset that was copied from a cluster with higher leader epochs has an epoch that "
        "the destination's leader has not. The consumer waits for metadata of that epoch, which "
        "never comes, or its validation is refused again and again."
    ),
    sources=(
        "KIP-1279 discussion, JR11 (Jun Rao); test_epoch_bump of its branch",
        "KIP-320, truncation detection by consumers",
    ),
    expected=(
        Expected(shows=True, clients=("java",), basis="runs"),
        Expected(shows=False, clients=("librdkafka",), basis="runs"),
    ),
    schedule=(
        "1. ten records under leader epoch 0; 2. offset 4 is committed with leader epoch 7; 3. the "
        "group's consumer starts"
    ),
    reproduced=f"no record within {PATIENCE:g} s",
    control_text="the same commit with leader epoch 0: six records at once",
    refuted="records within the time of a metadata refresh",
    tried=(
        "with librdkafka, whose consumer does not stand still: it goes on at the committed offset. "
        "The Java consumer does stand still"
    ),
    topology=ONE,
    claim=lambda bench: _started(bench, AHEAD),
    control=lambda bench: _started(bench, 0),
    clients=("java", "librdkafka"),
)
