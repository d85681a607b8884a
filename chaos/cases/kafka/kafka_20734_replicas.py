"""KAFKA-20734 with replication: both members of the ISR, which acknowledged the write, die before
the commit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
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


def _played(bench: Bench, *, replicas: int, commit_while_down: bool) -> Observation:
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


_TWO: Final = Case(
    name="KAFKA-20734-replicas",
    title=(
        "An acknowledged commit loses its marker, and the records, when the whole ISR is down: "
        "acks=all, min.insync.replicas=2"
    ),
    kind="defect",
    claim_text=(
        "Replication does not protect from KAFKA-20734. Two in-sync replicas acknowledged every "
        "record before both died. The commit is acknowledged, both come back with all their "
        "data, and the next abort aborts the committed records."
    ),
    sources=(
        "KAFKA-20734 (Apache JIRA)",
        "KIP-98, atomicity and durability of an acknowledged commit",
    ),
    expected=(
        Expected(shows=True, since="4.3.0", until="4.4.0", basis="runs"),
        Expected(shows=False, until="4.2.1", basis="reading"),
    ),
    schedule=(
        "1. five nodes; a topic with two replicas and min.insync.replicas=2, neither on a broker "
        "with a replica of the coordinator's partition; 2. a transaction writes 10 records, "
        "acks=all, flush; 3. kill -9 of both; 4. commit; 5. both start; 6. one more transaction, "
        "aborted"
    ),
    reproduced=(
        "neither replica has a COMMIT marker, LSO < high watermark, and after the next abort "
        "read_committed gets nothing"
    ),
    control_text=(
        "the same kills and starts, and the commit once both replicas are in sync again: 10 records"
        " are read"
    ),
    refuted="a COMMIT marker on both replicas once they are back",
    topology=nodes(5),
    claim=partial(_played, replicas=2, commit_while_down=True),
    control=partial(_played, replicas=2, commit_while_down=False),
    clients=("librdkafka", "java"),
    protocols=("", "V1"),
)
_THREE: Final = replace(
    _TWO,
    name="KAFKA-20734-three-replicas",
    title=(
        "An acknowledged commit loses its marker, and the records, on a topic with three replicas "
        "whose ISR of two is down"
    ),
    claim_text=(
        "Three replicas do not protect from KAFKA-20734 either. One is down, the two in sync "
        "acknowledge every record (acks=all, min.insync.replicas=2), and both die. The commit is "
        "acknowledged, all three come back with all their data, and the next abort aborts the "
        "committed records."
    ),
    schedule=(
        "1. seven nodes; a topic with three replicas and min.insync.replicas=2, none on a broker "
        "with a replica of the coordinator's partition; 2. kill -9 of one replica: an ISR of "
        "two; 3. a transaction writes 10 records, acks=all, flush; 4. kill -9 of both; 5. "
        "commit; 6. all three start; 7. one more transaction, aborted"
    ),
    reproduced=(
        "no replica has a COMMIT marker, LSO < high watermark, and after the next abort "
        "read_committed gets nothing"
    ),
    control_text=(
        "the same kills and starts, and the commit once all three replicas are in sync again: 10 "
        "records are read"
    ),
    refuted="a COMMIT marker on every replica once they are back",
    topology=nodes(7),
    claim=partial(_played, replicas=3, commit_while_down=True),
    control=partial(_played, replicas=3, commit_while_down=False),
)
CASES: Final = (_TWO, _THREE)
