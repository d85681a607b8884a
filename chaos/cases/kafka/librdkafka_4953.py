"""librdkafka 4953: an idempotent producer writes a record twice while leaders move."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import THREE
from linkflap.chaos.cases.tools.logs import records
from linkflap.chaos.faults.leaders import reordered
from linkflap.harness.model.wait import until

PARTITIONS: Final = 12
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
        until(
            partial(_room, producer),
            within=WITHIN,
            what="the producer's queue to have room",
            every=0.005,
        )
        if moves and at - last > EVERY:
            moved += 1
            order = tuple(brokers[(moved + nth) % len(brokers)] for nth in range(len(brokers)))
            asyncio.run(
                reordered(addresses, {(topic, partition): order for partition in range(PARTITIONS)})
            )
            last = time.monotonic()
    until(lambda: producer.flush(1) == 0, within=2 * WITHIN, what="everything to be acknowledged")
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
