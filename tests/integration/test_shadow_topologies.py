"""The shadow mirror in every topology and between releases: in a chain it reads what the middle's
brokers really have."""

from __future__ import annotations

import secrets
from itertools import pairwise
from typing import cast

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from linkflap.api.fixtures import FixtureRun
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Broker, Deployment
from linkflap.harness.model.threads import side_by_side
from linkflap.harness.wire.librdkafka import quiet
from tests.events import Rows
from tests.shadows import (
    SAME,
    TOPIC,
    TOPIC_PARTITIONS,
    Writer,
    all_end,
    assert_equal,
    drained,
    ends,
    headers,
    make_topic,
    own_write,
    shadow,
    stray,
)
from tests.waiting import eventually


def chain(deployment: Deployment, **options: str) -> tuple[Writer, ShadowMirror, ShadowMirror]:
    """Topic, writer on A, and both mirrors of A->B->C, started."""
    make_topic(deployment, "A")
    writer = Writer(deployment.clusters["A"].bootstrap)
    first, second = (shadow(deployment, link, **options) for link in ("A->B", "B->C"))
    first.start()
    second.start()
    return writer, first, second


@pytest.mark.linkflap(topology="A->B:3->C")
def test_a_chain_is_equal_under_flaps_and_goes_on_when_its_middle_is_promoted(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    writer, first, second = chain(up)
    with writer.writing():
        for link in up.topology.links:
            path = up.links[link.name]
            path.add_toxic("bandwidth", "responses", {"rate": 300})
            assert path.transfer(size=100_000, within=10)
            path.cut()
            path.restore()
        first.crash()
        first.restart()
        up.clusters["B"].brokers[2].stop()
        up.clusters["B"].brokers[2].start()
        second.crash()
        second.restart()
    drained(first, second)
    assert ends(up.clusters["A"]) == ends(up.clusters["B"]) == ends(up.clusters["C"])
    for cluster in "BC":
        assert_equal(up, "A", cluster)
        assert not stray(up, cluster)
    admin, begin = AdminClient(quiet(up.clusters["A"].bootstrap)), TopicPartition(TOPIC, 1, 22)
    admin.delete_records([begin])[begin].result(20)
    eventually(
        "C to begin where A does",
        lambda: ends(up.clusters["C"], "start") == {(TOPIC, 0): 0, (TOPIC, 1): 22},
    )
    writer.begin()
    drained(first)
    first.stop()
    promoted = first.promotion()
    # after the marker of what was open
    assert own_write(up.clusters["B"].bootstrap) == promoted["A.records", 0] + 1
    all_end(up, "C", ends(up.clusters["B"]))
    assert_equal(up, "A", "C", below=promoted)
    assert_equal(up, "B", "C")
    second.stop()
    assert second.promotion() == ends(up.clusters["C"])
    assert own_write(up.clusters["C"].bootstrap) == promoted["A.records", 0] + 2


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A->B->C")
def test_records_truncated_on_b_at_its_failover_leave_c_too(
    linkflap_deployment: Deployment,
) -> None:
    """X begins before Y, and Y commits before X does: B is truncated at X's beginning, and then at
    Y's."""
    up = linkflap_deployment
    a, b = (up.clusters[name].bootstrap for name in "AB")
    writer, first, second = chain(up, open_transactions="truncate-stable")
    writer.write(2)
    begun = ends(up.clusters["A"])
    y, x = (Producer(quiet(a) | {"transactional.id": name, "linger.ms": 0}) for name in "yx")
    for producer in (y, x):
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in (0, 1):
            producer.produce(TOPIC, b"begun", partition=number)
        producer.flush(60)
    y.commit_transaction(60)
    drained(first, second)
    assert ends(up.clusters["C"]) == ends(up.clusters["A"]) != begun
    first.stop()
    assert first.promotion() == begun
    all_end(up, "C", begun)
    assert own_write(b) == begun[TOPIC, 0]
    all_end(up, "C", ends(up.clusters["B"]))
    assert_equal(up, "B", "C")
    epochs = headers(up.clusters["C"].brokers[1], (TOPIC, 0))["leader_epoch"]
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[-2]


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A->B:3->C")
def test_c_had_read_what_only_a_dead_broker_of_b_had(linkflap_deployment: Deployment) -> None:
    """Everything above what the survivors have is lost on B, and therefore on C."""
    up = linkflap_deployment
    a, b = up.clusters["A"], up.clusters["B"]
    writer, first, second = chain(up)
    writer.write(5)
    drained(first, second)
    common = ends(up.clusters["B"])
    for broker in (2, 3):
        b.brokers[broker].kill()
    writer.write(5)  # one broker of B lives, without a controller, and continues to follow
    there = ends(up.clusters["A"])
    lone, end = up.clusters["C"].brokers[1], b.brokers[1]
    for one in (end, lone):

        def level(n: Broker = one) -> bool:
            return _ends(n) == there

        eventually("the lone broker and C to have all", level)
    a.brokers[1].kill()
    b.brokers[1].kill()
    side_by_side(b.brokers[broker].start for broker in (2, 3))  # neither is ready without the other
    first.stop()
    assert first.promotion() == common != there
    assert own_write(b.bootstrap) == common[TOPIC, 0]
    all_end(up, "C", ends(up.clusters["B"]))
    b.brokers[1].start()
    second.stop()
    for tp in TOPIC_PARTITIONS:
        wanted = headers(b.brokers[2], tp)
        assert [headers(lone, tp)[name] for name in SAME] == [wanted[name] for name in SAME]


def _ends(broker: Broker) -> dict[tuple[str, int], int]:
    return {tp: max(headers(broker, tp)["last_offset"], default=-1) + 1 for tp in TOPIC_PARTITIONS}


@pytest.mark.nightly
@pytest.mark.parametrize("bound", ["hw", "lso"])
@pytest.mark.linkflap(topology="A->B->C")
def test_a_hidden_chain_and_a_failover_of_its_last_hop(
    linkflap_deployment: Deployment, bound: str
) -> None:
    """In hidden mode the link's listener advertises no shadow, and no leader: B's brokers are read
    all the same."""
    up = linkflap_deployment
    writer, first, second = chain(up, clients="hidden", bound=bound)
    with writer.writing():
        first.crash()
        first.restart()
    second.crash()
    writer.write(2)
    drained(first)
    second._start_process()
    there = ends(up.clusters["A"])
    drained(second)
    for cluster in "BC":
        assert _ends(up.clusters[cluster].brokers[1]) == there
        assert_equal(up, "A", cluster)
    second.stop()
    assert [
        data["drained"]
        for kind, _, data in cast(Rows, second._recorder)
        if kind == "mirror-stopped"
    ] == [True]
    assert second.promotion() == there == ends(up.clusters["C"])
    assert own_write(up.clusters["C"].bootstrap) == there[TOPIC, 0]
    writer.write(3)
    # A commit returns before its markers are written; until then A's LSO, up to which records are
    # due, is below the log end.
    eventually(
        "A's last transaction to have its markers",
        lambda: ends(up.clusters["A"], "stable") == ends(up.clusters["A"]),
    )
    drained(first)
    assert_equal(up, "A", "B")
    first.stop()
    assert first.promotion() == ends(up.clusters["A"]) != there


@pytest.mark.linkflap(topology="A->B->C->A")
@pytest.mark.nightly
def test_a_ring_under_one_topic_is_refused(linkflap_deployment: Deployment) -> None:
    """Topics have a home and are never mirrored back to it; a topic with that name on every cluster
    would be mirrored into itself."""
    up = linkflap_deployment
    for cluster in "ABC":
        make_topic(up, cluster)
    with pytest.raises(
        InputError,
        match=r"^[^.]*topic A\.records exists on the destination of A->B already; remove it there",
    ):
        shadow(up, "A->B").start()


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(
            topology,
            marks=pytest.mark.linkflap(
                topology=topology, scenario="chain-flap", seed=secrets.randbits(32)
            ),
        )
        for topology in ("A->B->C", "A<->B", "A->C, B->C", "A->B, A->C", "A->B->C->A", "A->B:3->C")
    ],
)
def test_every_hop_of_every_topology_breaks_in_turn(
    linkflap_run: FixtureRun, topology: str
) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    assert next(c for c in linkflap_run.document["checks"] if c["name"] == "byte-equality")[
        "examined"
    ]


# Shadows between releases: each as source and as destination, and three in one chain.


def mirrored(deployment: Deployment) -> None:
    """Mirrors through a kill and a failover over the first link; open transactions are aborted on
    B, and B is written to."""
    make_topic(deployment, "A")
    writer = Writer(deployment.clusters["A"].bootstrap)
    mirrors = [shadow(deployment, link.name) for link in deployment.topology.links]
    for mirror in mirrors:
        mirror.start()
    with writer.writing():
        for mirror in mirrors:
            mirror.crash()
            mirror.restart()
    writer.begin()
    drained(*mirrors)
    clusters = [link.destination for link in deployment.topology.links]
    for cluster in clusters:
        assert ends(deployment.clusters[cluster]) == ends(deployment.clusters["A"])
        assert (
            ends(deployment.clusters[cluster], "stable")
            == ends(deployment.clusters["A"], "stable")
            != ends(deployment.clusters["A"])
        )
        assert_equal(deployment, "A", cluster)
    mirrors[0].stop()
    promoted = mirrors[0].promotion()
    assert promoted == ends(deployment.clusters["A"])
    assert own_write(deployment.clusters["B"].bootstrap) == promoted["A.records", 0] + 1
    for earlier, later in pairwise(clusters):
        all_end(deployment, later, ends(deployment.clusters[earlier]))
        assert_equal(deployment, earlier, later)
    for cluster in clusters:
        assert ends(deployment.clusters[cluster], "stable") == ends(deployment.clusters["B"])
        assert not stray(deployment, cluster)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(topology, marks=pytest.mark.linkflap(topology=topology))
        for topology in (
            "A@3.9.2->B",
            "A->B@3.9.2",
            "A@4.1.2->B",
            "A->B@4.1.2",
            "A@4.1.2->B@3.9.2",
            "A@3.9.2->B@4.1.2->C",
            "A->B@4.1.2->C@3.9.2",
        )
    ],
)
def test_releases_mirror_each_other(linkflap_deployment: Deployment, topology: str) -> None:
    mirrored(linkflap_deployment)
