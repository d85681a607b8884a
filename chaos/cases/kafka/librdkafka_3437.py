"""librdkafka issue 3437: a static member whose session expired while it did not poll is fenced by
its own heartbeats, and gets no more records."""

from __future__ import annotations

import contextlib
import time
from functools import partial

from confluent_kafka import Consumer, KafkaError

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet

SESSION_SECONDS = 6
HEARTBEAT_SECONDS = 1
RECORDS = 10


class _Member:
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
    member = _Member(bench, topic)

    def has(records: int) -> bool:
        member.poll()
        return bool(member.fatal) or len(member.values) == records

    def over(ends: float) -> bool:
        if polls_meanwhile:
            member.poll()
        return time.monotonic() > ends

    def for_seconds(seconds: float) -> None:
        until(partial(over, time.monotonic() + seconds), within=WITHIN, what="time to pass")

    until(lambda: has(RECORDS), within=WITHIN, what="the member to read what there is")
    broker = bench.broker()
    broker.kill()
    for_seconds(SESSION_SECONDS + 2 * HEARTBEAT_SECONDS)
    broker.start()
    bench.led(topic)
    for_seconds(5 * HEARTBEAT_SECONDS)
    bench.write(topic, [b"after %d" % n for n in range(RECORDS)])
    with contextlib.suppress(DeadlineExceeded):
        until(lambda: has(2 * RECORDS), within=WITHIN, what="the member to read what came since")
    read = len(member.values) - RECORDS
    member.consumer.close()
    facts = {
        "read_after_restart": read,
        "written_after_restart": RECORDS,
        "fatal_error": member.fatal or "none",
    }
    return Observation(shown=read == 0 and "group.instance.id" in member.fatal, facts=facts)
