"""Captures and samples of real clusters: while they are written to, after they died, and after
leaders moved."""

from __future__ import annotations

import os
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

from linkflap.harness.capture.live import captures
from linkflap.harness.capture.live.captures import DiskOrFetchCaptures
from linkflap.harness.capture.live.cluster import LiveCluster
from linkflap.harness.capture.live.record import Copied, Pace
from linkflap.harness.capture.logs import Captures
from linkflap.harness.capture.samplers import StallWatch, WatermarkSampler, replica_samplers
from linkflap.harness.log.batches import scan
from linkflap.harness.model.events import FetchedAgain, ReplicasSampled, of_kind
from linkflap.harness.model.history import Bounds, Watermark
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.topology import (
    CANARY,
    INTERNAL_TOPICS,
    MIRROR_STATE,
    ClusterSpec,
    Topology,
    topic_name,
)
from linkflap.harness.rundir import Run, RunReader, RunWriter
from linkflap.harness.runtimes.process import deploy
from linkflap.harness.wire.librdkafka import answered_bounds, bounds, quiet
from linkflap.topologies import parse
from tests.on_runtimes import QUIET, Events
from tests.scenarios import scenario_of
from tests.waiting import eventually

# Captures of real clusters: while they are written to, and after they died.


TOPIC = "A.records"
RELEASED = [topic for topic in INTERNAL_TOPICS if topic != MIRROR_STATE]
TOPIC_PARTITIONS = [(TOPIC, 0), (TOPIC, 1)]


@pytest.fixture
def writer(linkflap_deployment: Deployment, tmp_path: Path) -> Iterator[RunWriter]:
    scenario = scenario_of(linkflap_deployment.topology, "mm2")
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


@pytest.mark.linkflap(topology="A:3->B")
def test_a_live_cluster_that_is_written_to(
    linkflap_deployment: Deployment, writer: RunWriter, monkeypatch: pytest.MonkeyPatch
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
    fetched_are_the_bytes_on_disk(linkflap_deployment, writer)
    bytes_that_change_between_two_fetches_are_an_event(linkflap_deployment, writer, monkeypatch)


def bytes_that_change_between_two_fetches_are_an_event(
    deployment: Deployment, writer: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last byte of a log is another one on the disk of one broker, from its first answer on."""
    log = deployment.clusters["A"].brokers[2].log_dir / f"{TOPIC}-0"
    fetched_again = captures._fetched_again

    def overwritten(
        cluster: LiveCluster, copied: Copied, pace: Pace
    ) -> tuple[FetchedAgain | None, str]:
        if (copied.tp, copied.broker) == ((TOPIC, 0), 2):
            with max(log.glob("*.log")).open("r+b") as segment:
                segment.seek(-1, os.SEEK_END)
                (last,) = segment.read(1)
                segment.seek(-1, os.SEEK_END)
                segment.write(bytes([last ^ 1]))
        return fetched_again(cluster, copied, pace)

    monkeypatch.setattr(captures, "_fetched_again", overwritten)
    DiskOrFetchCaptures(deployment, writer, from_fetch=True).take("12-changed", "A")
    (changed,) = of_kind(RunReader(writer.root).events()[0], FetchedAgain)
    assert (changed.topic, changed.partition, changed.broker) == (TOPIC, 0, 2)
    first, second = changed.crc
    assert first == second, "the batch says what it said, and is another one"
    _, ends = captured(writer.root, "12-changed", "A")
    assert changed.offset == ends[TOPIC, 0, 2] - 1, "the last batch is a marker"
    assert not RunReader(writer.root).run.uncompared


def fetched_are_the_bytes_on_disk(deployment: Deployment, writer: RunWriter) -> None:
    """In a cluster without writers, the bytes that every broker gives by Fetch are those on its
    disk."""
    Captures(deployment, writer).take("10-disk", "A")
    by_fetch = DiskOrFetchCaptures(deployment, writer, from_fetch=True)
    by_fetch.take("11-fetch", "A")
    assert not list(of_kind(RunReader(writer.root).events()[0], FetchedAgain))
    on_disk, _ = captured(writer.root, "10-disk", "A")
    fetched, _ = captured(writer.root, "11-fetch", "A")
    assert fetched.keys() == on_disk.keys()
    assert RunReader(writer.root).run.fetched == {"A": (TOPIC,)}
    for tp in TOPIC_PARTITIONS:
        assert [row.broker for row in fetched[tp]] == [1, 2, 3]
        assert [row.leader for row in fetched[tp]] == [row.leader for row in on_disk[tp]]
        for broker in (1, 2, 3):
            one, other = (
                b"".join(
                    path.read_bytes()
                    for path in sorted(
                        writer.capture_folder(moment).glob(f"A/{broker}/{tp[0]}-{tp[1]}/*.log")
                    )
                )
                for moment in ("10-disk", "11-fetch")
            )
            assert one
            assert one == other, (tp, broker)


@pytest.mark.linkflap(topology="A:3->B")
def test_a_dead_cluster_beside_a_live_one_in_the_same_moment(
    linkflap_deployment: Deployment, writer: RunWriter
) -> None:
    a, b = linkflap_deployment.clusters["A"], linkflap_deployment.clusters["B"]
    make_topics(a.bootstrap, 3)
    make_topics(b.bootstrap, 1)
    write_transactions(a.bootstrap, 30)
    admin = AdminClient(quiet(a.bootstrap))
    leaders = eventually("leaders of A", lambda: leaders_of(admin))
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


# The sampler of replicas against real brokers: every replica's bounds, not only the leader's.


SAMPLED = "A.t"


def test_the_log_of_every_replica_is_sampled_while_its_broker_runs(tmp_path: Path) -> None:
    events = Events()
    with deploy(parse("A:3->B"), folder=tmp_path, recorder=events) as deployment:
        cluster = deployment.clusters["A"]
        cluster.create_topic(SAMPLED, partitions=1, replicas=3)
        # a topic that does not exist must not keep the others from being sampled
        (sampler,) = replica_samplers(deployment, {SAMPLED: 1, "A.later": 1}, events).values()
        sampler.start()
        try:
            ends: dict[int, int] = {}

            def sampled() -> dict[int, int]:
                for event in list(events.all):
                    if isinstance(event, ReplicasSampled):
                        ends.update({row.broker: row.log_end for row in event.rows})
                return ends

            def write(records: int) -> None:
                producer = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap})
                for _ in range(records):
                    producer.produce(SAMPLED, b"record", partition=0)
                assert producer.flush(60) == 0

            def wait_for(wanted: dict[int, int]) -> None:
                eventually(f"{wanted}", lambda: sampled() == wanted, state=sampled)

            write(10)
            wait_for({1: 10, 2: 10, 3: 10})
            cluster.brokers[2].kill()
            write(5)
            wait_for({1: 15, 2: 10, 3: 15})
            cluster.brokers[2].start()
            wait_for({1: 15, 2: 15, 3: 15})
        finally:
            sampler.stop()
        rows = [
            row for each in events.all if isinstance(each, ReplicasSampled) for row in each.rows
        ]
        assert {row.topic for row in rows} == {SAMPLED}
        assert all(0 == row.log_start <= row.log_end for row in rows)


# The watermark sampler against a real broker: bounds equal the broker's, and a dead cluster
# only increases a counter.


WATERMARKED = "A.t"


def run_writer(folder: Path, topology: Topology) -> RunWriter:
    scenario = scenario_of(topology)
    run = Run.begun(scenario, "process")
    return RunWriter(folder / "run", run)


def test_bounds_groups_and_a_dead_cluster(tmp_path: Path) -> None:
    topology = Topology(clusters=(ClusterSpec(name="A"),), links=())
    writer = run_writer(tmp_path, topology)
    with deploy(topology, folder=tmp_path / "clusters", recorder=writer) as deployment:
        bootstrap = deployment.clusters["A"].bootstrap
        # a topic that does not exist yet (a mirrored one) must not keep the others from being
        # sampled
        sampler = WatermarkSampler(
            {"A": bootstrap},
            {WATERMARKED: 1, "B.later": 1},
            writer,
            groups=["readers", "nobody"],
            interval=0.05,
        )
        sampler.start()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(WATERMARKED, 1, 1)])[WATERMARKED].result(timeout=60)
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for n in range(10):
            producer.produce(WATERMARKED, b"v", partition=0, key=str(n))
        producer.flush(60)
        a = sampler.clusters["A"]

        def bounds() -> tuple[int, int, int]:
            row = a.latest.get((WATERMARKED, 0))
            return (row.log_start, row.last_stable, row.high_watermark) if row else (-1, -1, -1)

        eventually("the open transaction to show", lambda: bounds() == (0, 0, 10), state=bounds)
        producer.commit_transaction(60)
        eventually(
            "the committed transaction to show", lambda: bounds() == (0, 11, 11), state=bounds
        )
        admin.delete_records([TopicPartition(WATERMARKED, 0, 4)])
        eventually("the log start to move", lambda: bounds() == (4, 11, 11), state=bounds)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition(WATERMARKED, 0, 7)], asynchronous=False)
        consumer.close()
        eventually(
            "the committed offset to show", lambda: (tmp_path / "run/groups/A.jsonl").stat().st_size
        )
        deployment.clusters["A"].brokers[1].kill()
        before = a.errors
        eventually("the dead cluster to be counted", lambda: a.errors > before)
        sampler.stop()
        sampler.stop()
    assert not [
        t.name for t in threading.enumerate() if t.name.startswith(("watermarks-", "stall-"))
    ]
    writer.close("finished")
    reader = RunReader(writer.root)
    rows, damage = reader.watermarks()
    assert not damage
    assert {row.topic for row in rows} == {WATERMARKED}
    assert all(
        row.log_start <= row.last_stable <= row.high_watermark and row.time <= row.returned
        for row in rows
    )
    assert {row.leader for row in rows} == {1}
    assert {row.leader_epoch for row in rows} == {0}
    offsets, damage = reader.groups()
    assert not damage
    assert [(row.group, row.topic, row.partition, row.offset) for row in offsets] == [
        ("readers", WATERMARKED, 0, 7)
    ]


def test_an_oversleep_beyond_a_session_timeout_is_an_event(tmp_path: Path) -> None:
    writer = run_writer(tmp_path, Topology(clusters=(ClusterSpec(name="A"),), links=()))
    watch = StallWatch(writer)
    watch.noticed(2.9)
    watch.noticed(3.25)
    watch.stop()
    writer.close("finished")
    events, damage = RunReader(writer.root).events()
    assert not damage
    assert [(e.kind, e.subject, e.row.data) for e in events] == [
        ("host-stall", "host", {"seconds": 3.25})
    ]


# Log end offsets, requested by a client that knew the partitions' leaders before they moved.


TOPIC_PARTITION = ("t", 0)


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A:3->B")
def test_a_client_that_is_kept_asks_whoever_leads(linkflap_deployment: Deployment) -> None:
    cluster = linkflap_deployment.clusters["A"]
    kept, other = (AdminClient(quiet(cluster.bootstrap)) for _ in range(2))
    kept.create_topics([NewTopic("t", 1, replica_assignment=[[1, 2, 3]])])["t"].result(60)

    def led_by(wanted: list[int]) -> None:
        def leader() -> int:
            return other.list_topics("t", timeout=60).topics["t"].partitions[0].leader

        eventually(f"one of {wanted} to lead", lambda: leader() in wanted, state=leader)

    def answered() -> None:
        eventually(
            "the end",
            lambda: (
                answered_bounds(kept, [TOPIC_PARTITION], "high", within=5) == {TOPIC_PARTITION: 0}
            ),
        )
        assert bounds(kept, [TOPIC_PARTITION], "stable", within=20) == {TOPIC_PARTITION: 0}

    led_by([1])
    answered()
    cluster.brokers[1].kill()
    led_by([2, 3])
    answered()
    cluster.brokers[1].start()
    led_by([1])
    answered()
    for broker in cluster.brokers.values():
        broker.kill()
    assert answered_bounds(kept, [TOPIC_PARTITION], "high", within=1) == {}
