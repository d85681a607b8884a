"""librdkafka issue 3740: a commit that waits for a dead coordinator blocks the destruction of a
consumer, with a busy thread."""

from __future__ import annotations

import time
from functools import partial

from confluent_kafka import Consumer, KafkaError, TopicPartition

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet

SESSION_SECONDS = 6
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
