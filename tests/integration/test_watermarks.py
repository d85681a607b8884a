"""The watermark sampler against a real broker: bounds equal the broker's, and a dead cluster only
increases a counter."""

from __future__ import annotations

import threading
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.capture.watermarks import StallWatch, WatermarkSampler
from linkflap.harness.model.scenario import MirrorSpec, Scenario
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import Run, RunReader, RunWriter
from linkflap.harness.runtimes.process import deploy

TOPIC = "A.t"


def run_writer(folder: Path, topology: Topology) -> RunWriter:
    scenario = Scenario(
        name="w",
        about="",
        seed=1,
        topology=topology,
        mirror=MirrorSpec(kind="none"),
        workloads=(),
        schedule=(),
    )
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
            {TOPIC: 1, "B.later": 1},
            writer,
            groups=["readers", "nobody"],
            interval=0.05,
        )
        sampler.start()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(timeout=60)
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for n in range(10):
            producer.produce(TOPIC, b"v", partition=0, key=str(n))
        producer.flush(60)
        a = sampler.clusters["A"]

        def bounds() -> tuple[int, int, int]:
            row = a.latest.get((TOPIC, 0))
            return (row.log_start, row.last_stable, row.high_watermark) if row else (-1, -1, -1)

        until(
            lambda: bounds() == (0, 0, 10),
            within=60,
            what="the open transaction to show",
            state=bounds,
        )
        producer.commit_transaction(60)
        until(
            lambda: bounds() == (0, 11, 11),
            within=60,
            what="the committed transaction to show",
            state=bounds,
        )
        admin.delete_records([TopicPartition(TOPIC, 0, 4)])
        until(
            lambda: bounds() == (4, 11, 11), within=60, what="the log start to move", state=bounds
        )
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
        consumer.close()
        until(
            lambda: (tmp_path / "run/groups/A.jsonl").stat().st_size,
            within=60,
            what="the committed offset to show",
        )
        deployment.clusters["A"].brokers[1].kill()
        before = a.errors
        until(lambda: a.errors > before, within=60, what="the dead cluster to be counted")
        sampler.stop()
        sampler.stop()
    assert not [
        t.name for t in threading.enumerate() if t.name.startswith(("watermarks-", "stall-"))
    ]
    writer.close("finished")
    reader = RunReader(writer.root)
    rows, damage = reader.watermarks()
    assert not damage
    assert {row.topic for row in rows} == {TOPIC}
    assert all(
        row.log_start <= row.last_stable <= row.high_watermark and row.time <= row.returned
        for row in rows
    )
    assert {row.leader for row in rows} == {1}
    assert {row.leader_epoch for row in rows} == {0}
    offsets, damage = reader.groups()
    assert not damage
    assert [(row.group, row.topic, row.partition, row.offset) for row in offsets] == [
        ("readers", TOPIC, 0, 7)
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
