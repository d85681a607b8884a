"""Every fault of a link on a real broker behind a real Toxiproxy: it bites measurably, it heals,
and faults share the link; one that never took effect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.chaos.faults import FAULTS
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.protocols import Deployment, Link
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes import probe
from linkflap.harness.runtimes.toxiproxy.link import ToxiproxyLink
from linkflap.harness.wire.access import NoAnswer, host_and_port
from linkflap.harness.wire.peer import BlockingConnection
from tests.idle_world import real_world as world
from tests.on_runtimes import deployed
from tests.waiting import eventually


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed("A->B", tmp_path_factory.mktemp("links")) as up:
        yield up


def spec(
    fault: str,
    target: str,
    options: dict[str, Option],
    *,
    id: str = "a fault",
    duration: float = 2.0,
) -> FaultSpec:
    return FaultSpec(id=id, fault=fault, target=target, at=0, duration=duration, options=options)


CASES: list[tuple[str, str, dict[str, Option]]] = [
    ("link-cut", "A->B", {}),
    ("link-cut", "*->A", {}),
    ("link-flap", "A->B", {"down": 0.3, "up": 0.3, "jitter": 0.2, "seed": 7}),
    ("link-latency", "A->B", {"latency": 120, "jitter": 30}),
    ("link-latency", "*->A", {"latency": 60, "delayed": "requests"}),
    ("link-bandwidth", "A->B", {"rate": 50}),
    ("link-half-open", "A->B", {"stalled": "responses"}),
    ("link-half-open", "A->B", {"stalled": "requests"}),
    ("link-half-open", "*->A", {"stalled": "responses"}),
    ("link-reset", "A->B", {}),
]


@pytest.mark.xdist_group("link-faults")
@pytest.mark.parametrize(("name", "target", "options"), CASES)
def test_a_fault_bites_and_heals(
    deployment: Deployment, name: str, target: str, options: dict[str, Option]
) -> None:
    link = deployment.links[target]
    fault = FAULTS[name](spec(name, target, options), world(deployment))
    try:
        fault.inject()
        bite = fault.bite()
        others = {
            other: way.round_trip(within=60)
            for other, way in deployment.links.items()
            if other != target
        }
    finally:
        checked = fault.heal()
    assert bite.bit, bite.measured
    assert all(others.values()), "a fault of one link must not be felt on another"
    assert any("round trip" in line for line in checked), checked
    assert (list(link.toxics()), link.enabled, link.holders()) == ([], True, frozenset())
    assert link.round_trip(within=60) is not None
    assert fault.heal() is not None


@pytest.mark.xdist_group("link-faults")
@pytest.mark.parametrize(("name", "target", "options"), CASES)
def test_a_fault_that_is_never_applied_is_seen_not_to_bite(
    deployment: Deployment, name: str, target: str, options: dict[str, Option]
) -> None:
    fault = FAULTS[name](spec(name, target, options), world(deployment, unhurt=True, stopping=True))
    fault.inject()
    bite = fault.bite()
    fault.heal()
    assert not bite.bit, bite.measured


@pytest.mark.xdist_group("link-faults")
def test_latency_and_a_flap_share_a_link(deployment: Deployment) -> None:
    link, here = deployment.links["A->B"], world(deployment)
    flap = FAULTS["link-flap"](
        spec("link-flap", "A->B", {"down": 0.3, "up": 0.5}, id="flap", duration=4), here
    )
    slow = FAULTS["link-latency"](spec("link-latency", "A->B", {"latency": 150}, id="slow"), here)
    try:
        flap.inject()
        slow.inject()
        flapped = flap.bite()
        slowed = slow.bite()
    finally:
        flap_checked = flap.heal()
        still = link.round_trip(within=60)
        slow_checked = slow.heal()
    assert (flapped.bit, slowed.bit) == (True, True), (flapped.measured, slowed.measured)
    assert any("held by slow" in line for line in flap_checked), (
        "the flap must not claim that the link is as it was"
    )
    assert still is not None
    assert still >= 0.14, "the end of the flap must not end the latency"
    assert any("round trip" in line for line in slow_checked)


def answered(path: BlockingConnection, *, within: float = 60) -> float | None:
    """Seconds of one more round trip on an open connection; None if it ended or stays silent."""
    path.extend(within)
    start = time.perf_counter()
    try:
        path.send(probe.API_VERSIONS)
        path.receive()
    except NoAnswer:
        return None
    return time.perf_counter() - start


@pytest.mark.xdist_group("link-faults")
@pytest.mark.parametrize(
    ("name", "options", "least"),
    [
        ("link-cut", {}, None),
        ("link-reset", {}, None),
        ("link-half-open", {"stalled": "responses"}, None),
        ("link-half-open", {"stalled": "requests"}, None),
        ("link-latency", {"latency": 200}, 0.18),
        ("link-bandwidth", {"rate": 1}, 0.2),
    ],
)
def test_a_fault_takes_hold_of_connections_that_are_open_already(
    deployment: Deployment, name: str, options: dict[str, Option], least: float | None
) -> None:
    """A mirror's connections live for hours: a fault of new connections only would never affect
    it."""
    fault = FAULTS[name](spec(name, "A->B", options), world(deployment))
    with BlockingConnection(
        host_and_port(deployment.links["A->B"].bootstrap), within=60, access=probe.PLAIN
    ) as path:
        eventually(
            "the link without a fault to answer sooner than with it",
            lambda: (before := answered(path)) is not None and before < (least or 1),
        )
        try:
            fault.inject()
            during = answered(path, within=60 if least else 2)
        finally:
            fault.heal()
    assert (during is None) if least is None else (during is not None and during >= least)


def consumer(link: Link) -> Consumer:
    settings = {
        "bootstrap.servers": link.bootstrap,
        "group.id": "load",
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
        "enable.auto.commit": False,
    }
    loaded = Consumer(settings)
    loaded.assign([TopicPartition("A.load", 0, 0)])
    return loaded


@pytest.mark.xdist_group("link-faults")
def test_toxics_come_and_go_under_a_consumers_load(deployment: Deployment) -> None:
    """Toxiproxy issue 412: the API for a Kafka listener's proxy hung for good when toxics changed
    under load."""
    link, cluster = deployment.links["A->B"], deployment.clusters["A"]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("A.load", 1, 1)])["A.load"].result(timeout=60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for _ in range(300):
        producer.produce("A.load", b"x" * 100_000)
    assert producer.flush(60) == 0
    loaded = consumer(link)

    def reads() -> bool:
        """Fetches records over the link, from the start again once all are read, so that the load
        never ends."""
        message = loaded.poll(0.5)
        if message is not None and message.error() is None and cast(int, message.offset()) > 250:
            loaded.seek(TopicPartition("A.load", 0, 0))
        return message is not None and message.error() is None

    try:
        eventually("the first record over the link", reads)
        for kind, attributes in [
            ("latency", {"latency": 20}),
            ("bandwidth", {"rate": 50}),
            ("timeout", {"timeout": 0}),
        ] * 3:
            for _ in range(20):
                reads()
            link.add_toxic(kind, "responses", attributes, owner="load")
            assert link.toxics(owner="load")
            link.clear(owner="load")
            assert not link.toxics()
            eventually(f"records over the link after {kind}", reads)
    finally:
        loaded.close()
    assert link.enabled


@pytest.mark.xdist_group("link-faults")
def test_half_open_leaves_nothing_on_the_cluster(deployment: Deployment) -> None:
    """A client quota shows that requests arrive: no topic and no group, nothing that a mirror could
    copy."""
    cluster = deployment.clusters["A"]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    before = set(admin.list_topics(timeout=60).topics)
    assert deployment.links["A->B"].delivers_requests(within=60)
    assert set(admin.list_topics(timeout=60).topics) == before
    assert not admin.list_consumer_groups().result(timeout=60).valid


@pytest.mark.xdist_group("link-faults")
def test_every_link_was_proven(deployment: Deployment, tmp_path: Path) -> None:
    for link in deployment.links.values():
        assert isinstance(link, ToxiproxyLink)
        events = EventLog(tmp_path / "events.jsonl")
        try:
            link.prove()
        finally:
            events.close()
        assert not link.toxics()
        assert link.enabled


@pytest.mark.xdist_group("link-faults")
def test_a_path_that_kafka_does_not_advertise_is_not_proven(
    deployment: Deployment, tmp_path: Path
) -> None:
    """The classic mistake: proxies in front of a listener that advertises its own address, so that
    clients leave at once."""
    broker = deployment.clusters["A"].brokers[1]
    port, api = deployment.free_port(), deployment.free_port()
    events = EventLog(tmp_path / "events.jsonl")
    link = ToxiproxyLink(
        "A->B",
        "A",
        {1: (port, broker.client_address)},
        api,
        tmp_path,
        events,
        broker.client_address,
    )
    link.start()
    try:
        with pytest.raises(SetupError) as error:
            link.prove()
    finally:
        link.close()
        events.close()
    assert (
        str(error.value)
        == f"link A->B: broker 1 is advertised at {broker.client_address}, which is not proxied;"
        f" its listener for this link must advertise 127.0.0.1:{port}"
    )


@pytest.mark.xdist_group("link-faults")
def test_a_link_to_a_dead_cluster_bites_nothing_and_heals(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last, because it kills B. A silent path proves nothing about a cut, and a dead cluster
    answers no round trip."""
    monkeypatch.setattr("linkflap.chaos.faults.links.ANSWERS_WITHIN", 0.5)
    broker = deployment.clusters["B"].brokers[1]
    broker.kill()
    eventually("B to be gone", lambda: deployment.links["*->B"].round_trip(within=1) is None)
    fault = FAULTS["link-cut"](spec("link-cut", "*->B", {}), world(deployment))
    fault.inject()
    bite = fault.bite()
    checked = fault.heal()
    assert not bite.bit
    assert any("no broker of B runs" in line for line in checked), checked
