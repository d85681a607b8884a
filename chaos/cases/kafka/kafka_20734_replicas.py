"""KAFKA-20734 with replication: both members of the ISR, which acknowledged the write, die before
the commit."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import nodes
from linkflap.chaos.cases.kafka.kafka_20734 import RECORDS, completed
from linkflap.chaos.cases.tools import wire
from linkflap.chaos.cases.tools.clients import Transactional
from linkflap.chaos.cases.tools.logs import markers, table
from linkflap.harness.model.wait import until

TRANSACTIONS = "__transaction_state"


def _send_unfinished(producer: Transactional, topic: str) -> None:
    """A transaction whose records are delivered and that is not ended."""
    producer.begin()
    for number in range(RECORDS):
        producer.send(topic, b"committed %d" % number)
    producer.flush()


@case(
    "KAFKA-20734-three-replicas",
    nodes(7),
    claim={"replicas": 3, "commit_while_down": True},
    control={"replicas": 3, "commit_while_down": False},
)
@case(
    "KAFKA-20734-replicas",
    nodes(5),
    claim={"replicas": 2, "commit_while_down": True},
    control={"replicas": 2, "commit_while_down": False},
)
def kafka_20734_replicas(bench: Bench, *, replicas: int, commit_while_down: bool) -> Observation:
    """With more than two replicas, the others leave the ISR first, so that only the two that
    acknowledge the write remain."""
    producer = bench.transactional("writer")
    coordinator = bench.coordinator(bench.name("writer"))
    asked = bench.ask(coordinator)
    busy = asked.leadership(TRANSACTIONS)[0].replicas
    first, second, *others = [
        broker for broker in bench.cluster().brokers.values() if broker.id not in busy
    ][:replicas]
    everyone = (first, second, *others)
    topic = bench.topic(
        replicas=[broker.id for broker in everyone], config={"min.insync.replicas": "2"}
    )
    for broker in others:
        broker.kill()
    until(
        lambda: len(asked.leadership(topic)[0].in_sync) == 2,
        within=WITHIN,
        what=f"two replicas of {topic} to be in sync",
    )
    _send_unfinished(producer, topic)
    second.kill()
    first.kill()
    until(
        lambda: wire.leader(coordinator.client_address, topic) == -1,
        within=WITHIN,
        what=f"{topic} to have no leader",
    )
    if commit_while_down:
        producer.commit()
    for broker in everyone:
        broker.start()
    bench.led(topic, by=coordinator)
    until(
        lambda: len(asked.leadership(topic)[0].in_sync) == replicas,
        within=WITHIN,
        what="every replica to be in sync",
    )
    if not commit_while_down:
        producer.commit()
    completed(bench, asked)
    before = {broker.id: markers(bench.log(topic, broker=broker.id)) for broker in everyone}
    stable, high = bench.bound("stable", topic), bench.bound("high", topic)
    producer.begin()
    producer.send(topic, b"aborted")
    producer.flush()
    producer.abort()
    until(
        lambda: bench.bound("stable", topic) == bench.bound("high", topic) > high,
        within=WITHIN,
        what="the LSO to move on",
    )
    read = bench.read(topic)
    facts = {
        "replicas": [broker.id for broker in everyone],
        "markers_after_commit": {
            str(number): [one.words for one in found] for number, found in before.items()
        },
        "last_stable_offset": stable,
        "high_watermark": high,
        "read_committed_after_the_next_abort": len(read),
        "log": table(bench.log(topic, broker=first.id)),
    }
    return Observation(shown=not any(before.values()) and stable < high and not read, facts=facts)
