"""librdkafka issue 3740: a commit that waits for a dead coordinator blocks the destruction of a
consumer, with a busy thread."""

from __future__ import annotations

import time
from functools import partial

from confluent_kafka import Consumer, KafkaError, TopicPartition

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet

SESSION_SECONDS = 6
BUSY_SECONDS = 0.5
"""Processor time above which ending a consumer is not healthy; the control uses a few
milliseconds."""


def _played(bench: Bench, *, commit_while_dead: bool) -> Observation:
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
    until(down, within=WITHIN, what="the consumer to notice that every broker is down")
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


CASE = Case(
    name="librdkafka-3740",
    title=(
        "A consumer with a pending commit cannot be destroyed while its cluster is dead, and "
        "keeps a core busy meanwhile"
    ),
    kind="defect",
    claim_text=(
        "An asynchronous commit without a coordinator waits for one as long as the session "
        "timeout. A consumer that is destroyed meanwhile waits too, while librdkafka's main "
        "thread spins. So a client that fails over to another cluster is blocked for that long, "
        "with a core at full load."
    ),
    sources=(
        "librdkafka issue 3740 (GitHub): consumer close keeps retrying the coordinator query",
    ),
    expected=(Expected(shows=True, clients=("librdkafka",), basis="runs"),),
    schedule=(
        "1. one node; a consumer of a group, with an assignment, commits once; 2. kill -9 of the "
        "broker; 3. the consumer notices it; 4. commit, asynchronous; 5. the consumer is destroyed"
    ),
    reproduced=(
        "destroying it takes more than half of the session timeout, and more than half a second "
        "of processor time"
    ),
    control_text="the same without the commit after the kill: destroyed at once",
    refuted=(
        "with the pending commit, the consumer is destroyed at once as well, or waits without "
        "using a processor"
    ),
    topology=ONE,
    claim=lambda bench: _played(bench, commit_while_dead=True),
    control=lambda bench: _played(bench, commit_while_dead=False),
)
