"""Failovers of the shadow with a second fault: brokers of B that die, topics that change, A, the
link, or its own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.mirrors.shadow.journal import PAUSE_AT
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.wire.librdkafka import quiet
from tests import shadows
from tests.events import Rows
from tests.on_runtimes import active_controller, deployed, pending
from tests.shadow_sides import Shadowed, Watch, assert_failed_over, forgotten, mirroring, shadow
from tests.shadows import TOPIC, TOPIC_PARTITIONS, ends
from tests.waiting import eventually

pytestmark = pytest.mark.nightly


# Clusters that these tests share, one broker of A and three of B, and a shadow between them.


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed("A->B:3", tmp_path_factory.mktemp("wide")) as up:
        yield up


@pytest.fixture
def mirror(wide: Deployment, request: pytest.FixtureRequest) -> Iterator[Shadowed]:
    """Not started; its options are the parameter, if there is one."""
    made = shadow(wide, **getattr(request, "param", {}))
    yield made
    made.resume()
    if made.alive:
        made.crash()
    for cluster in wide.clusters.values():
        for broker in cluster.brokers.values():
            if broker.state == "stopped":
                broker.start()


# Brokers of B that die and come back, and a controller that moves, before and during a
# failover.


@pytest.mark.parametrize(
    "step", ["", "settling", "settled", "before-epoch", "appended", "handing-over", "reassigned"]
)
def test_a_broker_of_b_that_dies_is_left_behind_and_comes_back(
    wide: Deployment, mirror: Shadowed, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before (no step) and at each step of the failover; afterwards it truncates, catches up and
    joins every ISR."""
    if step:
        monkeypatch.setenv(PAUSE_AT, step)
    markers, mirrored = mirroring(wide, mirror)
    broken = wide.clusters["B"].brokers[2]
    with (
        ThreadPoolExecutor(1) as pool,
        Watch(mirror, wide.clusters["B"].bootstrap).watching() as watch,
    ):
        if not step:
            broken.kill()
        stopping = pool.submit(mirror.stop)
        if step:
            mirror.come_to(step)
            broken.kill()
            mirror.go_on()
        stopping.result(160)
        eventually("B to take writes", lambda: watch.written)
        broken.start()
    assert watch.seen == []
    assert_failed_over(wide, mirror, markers=markers, mirrored=mirrored)


def test_a_broker_that_was_away_and_has_more_is_truncated(
    wide: Deployment, mirror: Shadowed
) -> None:
    """It was dead when the others settled: the records that only it had are not in the promoted
    log."""
    mirroring(wide, mirror)
    a, b = wide.clusters["A"], wide.clusters["B"]
    for broker in (1, 3):
        b.brokers[broker].pause()
    shadows.own_write(a.bootstrap)
    tp = TOPIC_PARTITIONS[0]
    eventually(
        "2 to have more",
        lambda: shadows.headers(b.brokers[2], tp)["last_offset"][-1] + 1 == ends(a)[tp],
    )
    b.brokers[2].kill()
    for broker in (1, 3):
        b.brokers[broker].resume()
    mirror.stop()
    b.brokers[2].start()
    eventually("B to take writes", lambda: shadows.own_write(b.bootstrap) is not None)
    markers = sum(len(note.appended) for note in mirror.notes().partitions[TOPIC].values())
    assert_failed_over(wide, mirror, markers=markers, mirrored=mirror.promotion())


def test_a_broker_that_comes_back_with_less_is_not_elected(
    wide: Deployment, mirror: Shadowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was dead when the others settled, and comes back for the hand-over of a shadow that was
    killed there."""
    b = wide.clusters["B"]
    mirror.start()
    b.brokers[2].kill()
    markers, mirrored = mirroring(wide, mirror)
    monkeypatch.setenv(PAUSE_AT, "handing-over")
    mirror.crash()
    mirror.restart()
    shadows.drained(mirror)
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(mirror.stop)
        mirror.come_to("handing-over")
        monkeypatch.delenv(PAUSE_AT)
        b.brokers[2].start()
        mirror.crash()
        stopping.result(160)
    assert_failed_over(wide, mirror, markers=markers, mirrored=mirrored)


@pytest.mark.parametrize("step", ["mirroring", "before-epoch", "handing-over", "reassigned"])
def test_the_controller_of_b_moves(
    wide: Deployment, mirror: Shadowed, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if step != "mirroring":
        monkeypatch.setenv(PAUSE_AT, step)
    markers, mirrored = mirroring(wide, mirror)
    b = wide.clusters["B"]
    active = b.brokers[active_controller(b)]
    with ThreadPoolExecutor(1) as pool, Watch(mirror, b.bootstrap).watching() as watch:
        if step == "mirroring":
            active.kill()
            shadows.own_write(wide.clusters["A"].bootstrap)
            shadows.drained(mirror)
            mirrored = ends(wide.clusters["A"])
            mirror.stop()
        else:
            stopping = pool.submit(mirror.stop)
            mirror.come_to(step)
            active.kill()
            mirror.go_on()
            stopping.result(160)
        eventually("B to take writes", lambda: watch.written)
        active.start()
    assert watch.seen == []
    assert_failed_over(wide, mirror, markers=markers, mirrored=mirrored)


# Failovers of the shadow with a second fault: of A, the link, its own process, or another
# failover at the same time.


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
        assert time.monotonic() - began < 30
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
    eventually("its session to end", forgotten(wide.clusters["B"]))
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

    eventually("commits to be synced", lambda: committed() == mirrored, state=committed)
    mirror.stop()
    promoted = mirror.promotion()
    assert all(promoted[tp] < mirrored[tp] for tp in TOPIC_PARTITIONS)
    assert committed() == promoted


def test_two_links_into_one_cluster_fail_over_at_once(tmp_path: Path) -> None:
    with deployed("A->C, B->C", tmp_path) as up:
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


# Partitions that are added and topics that are deleted, before and during a failover.


OTHER = "A.other"
SESSION_SECONDS = 2.0
"""A shadow's session may end after this long without heartbeats (broker.session.timeout.ms, less
the interval between two)."""


def test_growth_is_narrowed_by_the_next_process(
    wide: Deployment, mirror: Shadowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Added partitions have real brokers in their ISR until the shadow removes them: it died in
    between, and was restarted."""
    monkeypatch.setenv(PAUSE_AT, "grown")
    mirroring(wide, mirror)
    grow(wide)
    mirror.come_to("grown")
    monkeypatch.delenv(PAUSE_AT)
    with Watch(mirror, wide.clusters["B"].bootstrap, window=True).watching() as watch:
        began = time.monotonic()
        mirror.crash()
        mirror._spawn()
        eventually(
            "the shadow to be back",
            lambda: (now := mirror._ask()) and not now.fenced,
            state=mirror._state,
        )
        away = time.monotonic() - began
        lost = f"{TOPIC}-2 is led by broker"
        eventually(
            "its end",
            lambda: lost in mirror.log.read_text() or mirror.lag() == 0,
            state=mirror._state,
        )
    if lost in mirror.log.read_text() and away > SESSION_SECONDS:
        pytest.skip(
            f"this machine took {away:.1f} s to start a process: its session had ended, as in the "
            "next test"
        )
    assert not watch.written
    mirror.stop()
    assert mirror.promotion()[TOPIC, 2] == 1


def test_growth_that_was_lost_is_reported_and_holds_up_nothing(
    wide: Deployment, mirror: Shadowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was suspended in the window for longer than its session: a real broker leads an empty
    partition, which is not mirrored."""
    monkeypatch.setenv(PAUSE_AT, "grown")
    markers, mirrored = mirroring(wide, mirror)
    grow(wide)
    mirror.come_to("grown")
    mirror.pause()
    eventually("its session to end", forgotten(wide.clusters["B"]))
    mirror.resume()
    mirror.go_on()
    message = f"{TOPIC}-2 is led by broker"
    eventually("the shadow to tell", lambda: message in mirror.log.read_text(), state=mirror._state)
    assert mirror.lag()
    mirror.stop()
    assert mirror.promotion()[TOPIC, 2] == 0
    assert {tp: mirror.promotion()[tp] for tp in TOPIC_PARTITIONS} == mirrored
    assert markers == 3


@pytest.mark.parametrize(
    ("step", "then"),
    [
        *(
            (step, "")
            for step in ("settled", "before-epoch", "appended", "handing-over", "reassigned")
        ),
        *((step, "made again") for step in ("before-epoch", "handing-over", "reassigned")),
        *((step, "killed") for step in ("before-epoch", "reassigned")),
    ],
)
def test_a_topic_that_is_deleted_on_b_in_the_middle_holds_no_other_up(
    wide: Deployment, mirror: Shadowed, step: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported once; a new topic with that name is not the mirror's, and does not block the
    next process."""
    a, b = (wide.clusters[name].bootstrap for name in "AB")
    shadows.make_topic(wide, "A", OTHER)
    writer = shadows.Writer(a, OTHER)
    writer.begin()  # this transaction is open in the failover too
    monkeypatch.setenv(PAUSE_AT, step)
    markers, mirrored = mirroring(wide, mirror)
    admin = AdminClient(quiet(b))
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(mirror.stop)
        mirror.come_to(step)
        admin.delete_topics([OTHER])[OTHER].result(20)
        if then == "made again":
            eventually(
                "the topic to be gone", lambda: OTHER not in admin.list_topics(timeout=60).topics
            )
            new = NewTopic(OTHER, 2, replica_assignment=[[1, 2], [2, 3]])
            admin.create_topics([new])[OTHER].result(20)
        monkeypatch.delenv(PAUSE_AT)
        if then == "killed":
            mirror.crash()
        mirror.go_on()
        stopping.result(160)
    mirror.stop()
    reported = [data for kind, _, data in cast(Rows, mirror._recorder) if kind == "topic-given-up"]
    assert [one["topic"] for one in reported] == [OTHER]
    assert f"topic {OTHER} was deleted " in str(reported[0]["reason"])
    assert [kind for kind, _, _ in cast(Rows, mirror._recorder)].count("mirror-stopped") == 1
    promoted = mirror.promotion()
    assert {tp: promoted[tp] for tp in TOPIC_PARTITIONS} == mirrored
    eventually("reassignments to end", lambda: not pending(wide.clusters["B"]))
    if then == "made again":
        there = admin.list_topics(timeout=60).topics[OTHER].partitions
        assert [sorted(there[n].replicas) for n in (0, 1)] == [[1, 2], [2, 3]]
        assert shadows.own_write(b, OTHER) == 0
    else:
        assert OTHER not in admin.list_topics(timeout=60).topics
    gone = {tp: end for tp, end in promoted.items() if tp[0] == OTHER}
    assert_failed_over(wide, mirror, markers=markers, mirrored=mirrored | gone)


def grow(wide: Deployment) -> None:
    """A third partition on A, with one record."""
    shadows.grow(wide, 3)
    eventually(
        "the new partition of A",
        lambda: isinstance(shadows.own_write(wide.clusters["A"].bootstrap, partition=2), int),
    )
