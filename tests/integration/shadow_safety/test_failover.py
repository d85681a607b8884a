"""Failovers of the shadow with a second fault: of A, the link, its own process, or another failover
at the same time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes import runtime
from linkflap.harness.wire.offsets import quiet
from linkflap.topologies import parse
from tests import shadows
from tests.events import Rows
from tests.shadow_sides import Shadowed, forgotten
from tests.shadow_watch import assert_failed_over, mirroring
from tests.shadows import TOPIC_PARTITIONS

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("dead", [False, True], ids=["black-hole", "dead"])
def test_a_failover_does_not_wait_for_its_source(
    wide: Deployment, mirror: Shadowed, dead: bool
) -> None:
    """A source costs at most two seconds, for the last group offsets
    (`failover.GROUPS_SECONDS`)."""
    markers, mirrored = mirroring(wide, mirror)
    link = wide.links["A->B"]
    for direction in ("requests", "responses"):
        link.add_toxic("timeout", direction, {"timeout": 0})
    if dead:
        wide.clusters["A"].brokers[1].pause()
    try:
        began = time.monotonic()
        mirror.stop()
        assert time.monotonic() - began < 12
    finally:
        wide.clusters["A"].brokers[1].resume()
        link.clear()
    assert_failed_over(wide, mirror, markers=markers, mirrored=mirrored)


def test_two_concurrent_failovers_after_a_suspension_are_one(
    wide: Deployment, mirror: Shadowed
) -> None:
    """SIGSTOP, then two concurrent requests for a failover: only one happens."""
    markers, mirrored = mirroring(wide, mirror)
    mirror.pause()
    until(forgotten(wide.clusters["B"]), within=120, every=0.1, what="its session to end")
    with ThreadPoolExecutor(2) as pool:
        for stopping in [pool.submit(mirror.stop), pool.submit(mirror.stop)]:
            stopping.result(160)
    mirror.stop()
    assert [kind for kind, _, _ in cast(Rows, mirror._recorder)].count("mirror-stopped") == 1
    assert_failed_over(wide, mirror, markers=markers, mirrored=mirrored)


@pytest.mark.parametrize(
    "mirror",
    [{"open_transactions": rule} for rule in ("truncate-once", "truncate-stable")],
    ids=str,
    indirect=True,
)
def test_commits_beyond_the_end_are_taken_back(wide: Deployment, mirror: Shadowed) -> None:
    rule = str(mirror.spec.options["open_transactions"])
    _, mirrored = mirroring(wide, mirror)
    a, b = (wide.clusters[name].bootstrap for name in "AB")
    group = Consumer(quiet(a) | {"group.id": rule, "enable.auto.commit": False})
    beyond = [TopicPartition(topic, number, end) for (topic, number), end in mirrored.items()]
    group.commit(offsets=beyond, asynchronous=False)
    group.close()

    admin = AdminClient(quiet(b))

    def committed() -> dict[tuple[str, int], int]:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(rule)])[
            rule
        ].result(20)
        return {(p.topic, p.partition): p.offset for p in asked.topic_partitions}

    until(
        lambda: committed() == mirrored,
        within=120,
        every=0.2,
        what="commits to be synced",
        state=committed,
    )
    mirror.stop()
    promoted = mirror.promotion()
    assert all(promoted[tp] < mirrored[tp] for tp in TOPIC_PARTITIONS)
    assert committed() == promoted


def test_two_links_into_one_cluster_fail_over_at_once(tmp_path: Path) -> None:
    events = EventLog(tmp_path / "events.jsonl")
    with runtime("process")(parse("A->C, B->C"), folder=tmp_path, recorder=events) as up:
        topics = {"A->C": "A.records", "B->C": "B.records"}
        made = []
        for link, topic in topics.items():
            shadows.make_topic(up, link[0], topic)
            writer = shadows.Writer(up.clusters[link[0]].bootstrap, topic)
            writer.write(5)
            writer.begin()
            made.append((shadows.shadow(up, link), writer))
        mirrors = [one for one, _ in made]
        for one in mirrors:
            one.start()
        shadows.drained(*mirrors)
        barrier = threading.Barrier(2)

        def stop(one: ShadowMirror) -> None:
            barrier.wait(30)
            one.stop()

        with ThreadPoolExecutor(2) as pool:
            for stopping in [pool.submit(stop, one) for one in mirrors]:
                stopping.result(160)
        for one, topic in zip(mirrors, topics.values(), strict=True):
            partitions = [(topic, 0), (topic, 1)]
            promoted = one.promotion()
            assert promoted == shadows.ends(up.clusters[topic[0]], partitions=partitions)
            shadows.assert_equal(up, topic[0], "C", partitions, below=promoted)
            stable = shadows.ends(up.clusters["C"], "stable", partitions)
            assert (
                stable
                == shadows.ends(up.clusters["C"], partitions=partitions)
                == {tp: end + 1 for tp, end in promoted.items()}
            )
        producer = Producer(quiet(up.clusters["C"].bootstrap) | {"transactional.id": "own"})
        producer.init_transactions(60)
    events.close()
