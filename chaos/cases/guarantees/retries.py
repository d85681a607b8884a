"""KIP-98: a record that an idempotent client retries, because the answer did not come in time, is
in the log once."""

from __future__ import annotations

from functools import partial

from confluent_kafka import Producer

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.java import RawJavaProducer
from linkflap.chaos.cases.tools.logs import records
from linkflap.harness.model.wait import pause, until
from linkflap.harness.wire.offsets import quiet

SILENCE = 2.5
"""Seconds for which the broker is suspended: more than twice the clients' request timeout."""


def _retried(bench: Bench, *, idempotent: bool) -> Observation:
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


CASE = Case(
    name="KIP-98-retries",
    title="A record that an idempotent client retries after a timeout is in the log once",
    kind="guarantee",
    claim_text=(
        "Anomaly: a record whose request timed out at the client is in the log twice, once from "
        "the request and once from its retry."
    ),
    sources=("KIP-98, idempotent producer guarantees",),
    expected=(Expected(shows=False, basis="runs"),),
    schedule=(
        "1. a record is acknowledged; 2. SIGSTOP of the broker; 3. a second record; "
        f"request.timeout.ms=1000; 4. {SILENCE:g} s later SIGCONT: the broker reads the request "
        "and its retries"
    ),
    reproduced="the second record is in the log more than once",
    control_text="the same with enable.idempotence=false: it is in the log more than once",
    refuted="a second copy in the log",
    topology=ONE,
    claim=partial(_retried, idempotent=True),
    control=partial(_retried, idempotent=False),
    control_shows=True,
    clients=("librdkafka", "java"),
)
