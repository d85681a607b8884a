"""The sampler of replicas against real brokers: every replica's bounds, not only the leader's."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from linkflap.harness.capture.replica_ends import samplers
from linkflap.harness.model.events import ReplicasSampled
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.process import deploy
from linkflap.topologies import parse
from tests.on_runtimes import QUIET, Events

TOPIC = "A.t"


def test_the_log_of_every_replica_is_sampled_while_its_broker_runs(tmp_path: Path) -> None:
    events = Events()
    with deploy(parse("A:3->B"), folder=tmp_path, recorder=events) as deployment:
        cluster = deployment.clusters["A"]
        cluster.create_topic(TOPIC, partitions=1, replicas=3)
        # a topic that does not exist must not keep the others from being sampled
        (sampler,) = samplers(deployment, {TOPIC: 1, "A.later": 1}, events).values()
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
                    producer.produce(TOPIC, b"record", partition=0)
                assert producer.flush(60) == 0

            def wait_for(wanted: dict[int, int]) -> None:
                until(lambda: sampled() == wanted, within=60, what=f"{wanted}", state=sampled)

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
        assert {row.topic for row in rows} == {TOPIC}
        assert all(0 == row.log_start <= row.log_end for row in rows)
