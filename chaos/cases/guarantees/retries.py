"""KIP-98: a record that an idempotent client retries, because the answer did not come in time, is
in the log once."""

from __future__ import annotations

from confluent_kafka import Producer

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.java import RawJavaProducer
from linkflap.chaos.cases.tools.logs import records
from linkflap.harness.model.wait import pause, until
from linkflap.harness.wire.offsets import quiet

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
                until(lambda: producer.flush(1) == 0, within=WITHIN, what="the first record")
        pause(SILENCE, lambda: False)
        bench.broker().resume()
        until(
            lambda: producer.flush(1) == 0,
            within=WITHIN,
            what="the second record to be acknowledged",
        )
    found = [(record.value or b"").decode() for record in records(bench.log(topic))]
    return Observation(shown=found.count("again") > 1, facts={"log": found})
