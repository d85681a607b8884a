"""Captures of real clusters: while they are written to, and after they died."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.capture.logs import Captures
from linkflap.harness.log.batches import scan
from linkflap.harness.model.history import Bounds, Watermark
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import MirrorSpec, Scenario
from linkflap.harness.model.topology import CANARY, INTERNAL_TOPICS, MIRROR_STATE, topic_name
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import Run, RunReader, RunWriter
from linkflap.harness.wire.offsets import bounds, quiet

pytestmark = pytest.mark.linkflap(topology="A:3->B")

TOPIC = "A.records"
RELEASED = [topic for topic in INTERNAL_TOPICS if topic != MIRROR_STATE]
TOPIC_PARTITIONS = [(TOPIC, 0), (TOPIC, 1)]


@pytest.fixture
def writer(linkflap_deployment: Deployment, tmp_path: Path) -> Iterator[RunWriter]:
    scenario = Scenario(
        name="capture", about="", seed=1, topology=linkflap_deployment.topology,
        mirror=MirrorSpec(kind="mm2"), workloads=(),
        schedule=(),
    )  # fmt: skip
    run = replace(Run.begun(scenario, "process"), started=1)
    writer = RunWriter(tmp_path / "run", run)
    yield writer
    writer.close("finished")


def make_topics(bootstrap: str, replicas: int) -> None:
    admin = AdminClient(quiet(bootstrap))
    config = {"min.insync.replicas": str(max(1, replicas - 1)), "segment.bytes": str(1 << 20)}
    for topic in (TOPIC, topic_name("A", CANARY), "elsewhere"):
        admin.create_topics([NewTopic(topic, 2, replicas, config=config)])[topic].result(30)


def write_transactions(bootstrap: str, count: int, name: str = "t") -> None:
    producer = Producer(quiet(bootstrap) | {"transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    for number in range(count):
        producer.begin_transaction()
        for n in range(10):
            producer.produce(TOPIC, b"%d" % n * 300, partition=n % 2)
        producer.commit_transaction(30)
        if number == 0:
            commit_group(bootstrap)


def commit_group(bootstrap: str) -> None:
    with closing(
        Consumer(quiet(bootstrap) | {"group.id": "app", "enable.auto.commit": False})
    ) as consumer:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 3)], asynchronous=False)


def captured(
    folder: Path, moment: str, cluster: str
) -> tuple[defaultdict[tuple[str, int], list[Bounds]], dict[tuple[str, int, int], int]]:
    """The rows of a cluster in one capture by (topic, partition), and the end of each copy by
    (topic, partition, broker)."""
    reader = RunReader(folder)
    rows, damage = reader.bounds(moment)
    assert not damage
    by_partition, ends = defaultdict(list), {}
    for row in rows:
        if row.cluster != cluster:
            continue
        by_partition[row.topic, row.partition].append(row)
        headers = scan(reader.segments(moment, row)).headers
        last = headers.last_offset if len(headers) else [-1]
        ends[row.topic, row.partition, row.broker] = int(max(last)) + 1
    return by_partition, ends


def test_a_live_cluster_that_is_written_to(
    linkflap_deployment: Deployment, writer: RunWriter
) -> None:
    a = linkflap_deployment.clusters["A"]
    make_topics(a.bootstrap, 3)
    write_transactions(a.bootstrap, 50, "first")
    before = bounds(AdminClient(quiet(a.bootstrap)), TOPIC_PARTITIONS, "high", within=120)
    stop = threading.Event()

    def write_on() -> None:
        while not stop.is_set():
            write_transactions(a.bootstrap, 10, "second")

    thread = threading.Thread(target=write_on)
    thread.start()
    try:
        taken = Captures(linkflap_deployment, writer).take("9-end", "A")
    finally:
        stop.set()
        thread.join(60)
    by_partition, ends = captured(writer.root, "9-end", "A")
    assert {topic for topic, _ in by_partition} == {TOPIC, *RELEASED}
    assert len(taken) == sum(map(len, by_partition.values())) == 3 * (2 + 3)
    for tp, rows in by_partition.items():
        assert [row.broker for row in rows] == [1, 2, 3]
        assert sum(row.leader for row in rows) == 1, tp
        assert all(row.alive and row.log_start == 0 for row in rows)
        for row in rows:
            assert ends[*tp, row.broker] >= row.high_watermark > 0, (tp, row)
    for tp in TOPIC_PARTITIONS:
        assert all(
            row.high_watermark >= before[tp] and row.high_watermark_from == "sampled"
            for row in by_partition[tp]
        )


def test_a_dead_cluster_beside_a_live_one_in_the_same_moment(
    linkflap_deployment: Deployment, writer: RunWriter
) -> None:
    a, b = linkflap_deployment.clusters["A"], linkflap_deployment.clusters["B"]
    make_topics(a.bootstrap, 3)
    make_topics(b.bootstrap, 1)
    write_transactions(a.bootstrap, 30)
    admin = AdminClient(quiet(a.bootstrap))
    leaders = until(lambda: leaders_of(admin), within=120, what="leaders of A")
    highs = bounds(admin, TOPIC_PARTITIONS, "high", within=120)
    for broker in a.brokers.values():
        broker.kill()
    last = {tp: watermark(tp, leaders[tp], high - 1) for tp, high in highs.items()}
    captures = Captures(linkflap_deployment, writer, lambda cluster: last if cluster == "A" else {})
    captures.take("1-failover", "A")
    captures.take("1-failover", "B")
    of_a, ends = captured(writer.root, "1-failover", "A")
    of_b, _ = captured(writer.root, "1-failover", "B")
    assert all(row.alive and row.high_watermark_from == "sampled" for row in of_b[TOPIC, 0])
    for tp in TOPIC_PARTITIONS:
        assert [row.broker for row in of_a[tp] if row.leader] == [leaders[tp]]
        assert not any(row.alive for row in of_a[tp])
        for row in of_a[tp]:
            # The checkpoint file may be ahead of the last sample; it is never ahead of the log.
            assert highs[tp] - 1 <= row.high_watermark <= highs[tp] <= ends[*tp, row.broker]
    for topic in RELEASED:
        assert sum(row.leader for row in of_a[topic, 0]) == 1
    for row in of_a[TOPIC, 0]:
        folder = a.brokers[row.broker].log_dir / f"{TOPIC}-0"
        copied = RunReader(writer.root).segments("1-failover", row)
        assert [path.read_bytes() for path in copied] == [
            path.read_bytes() for path in sorted(folder.glob("*.log"))
        ]
    b.brokers[1].kill()
    captures.take("1-failover", "B")
    of_b, _ = captured(writer.root, "1-failover", "B")
    alone = [row for rows in of_b.values() for row in rows]
    assert {row.high_watermark_from for row in alone} == {"recomputed"}
    assert all(row.leader for row in alone)
    events: list[Any] = [
        event for event in RunReader(writer.root).events()[0] if event.kind == "captured"
    ]
    assert [(event.subject, event.moment) for event in events] == [
        (name, "1-failover") for name in "ABB"
    ]


def leaders_of(admin: AdminClient) -> dict[tuple[str, int], int] | None:
    found = {
        (TOPIC, n): p.leader
        for n, p in admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.items()
    }
    return found if min(found.values()) > 0 else None


def watermark(tp: tuple[str, int], leader: int, high: int) -> Watermark:
    topic, partition = tp
    return Watermark(
        time=1, returned=2, cluster="A", leader=leader, topic=topic, partition=partition,
        log_start=0, last_stable=high,
        high_watermark=high,
    )  # fmt: skip
