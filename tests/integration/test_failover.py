"""Failovers on real clusters and a real mirror: planned loses nothing, forced reports what was
open and where B begins; and mirrors that are killed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.chaos.faults import FAULTS
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.errors import FaultError
from linkflap.harness.model.protocols import Deployment, FaultWorld, Mirror
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec
from linkflap.harness.model.wait import now
from linkflap.harness.wire.librdkafka import bounds, quiet
from tests.shadows import TOPIC, TOPIC_PARTITIONS, drained, ends, make_topic, own_write, shadow
from tests.waiting import eventually


class OneClient:
    """The clients of a run: one transactional producer that is moved by hand and has at most one
    open transaction."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self.calls: list[tuple[object, ...]] = []
        self._open = 0
        self._acknowledged: list[tuple[int, str]] = []
        self._connect("A")

    def _connect(self, cluster: str) -> None:
        self._cluster = cluster
        settings = {
            "transactional.id": f"client-{cluster}",
            "transaction.timeout.ms": 1000,
            "linger.ms": 0,
        }
        self._producer = Producer(quiet(self._deployment.clusters[cluster].bootstrap) | settings)
        self._producer.init_transactions(30)

    def write(self, transactions: int) -> None:
        for _ in range(transactions):
            self.begin()
            self._producer.commit_transaction(30)
            self._open = 0
            self._acknowledged.append((now(), self._cluster))

    def begin(self) -> None:
        self._producer.begin_transaction()
        for n in range(10):
            self._producer.produce(TOPIC, b"%d" % n, partition=n % 2)
        self._producer.flush(30)
        self._open = 1

    @property
    def transactional(self) -> bool:
        return True

    def open_transactions(self, cluster: str) -> int:
        return self._open if cluster == self._cluster else 0

    def pause(self, cluster: str) -> None:
        self.calls.append(("pause", cluster))

    def move(self, source: str, destination: str, *, drained: bool) -> None:
        self.calls.append(("move", source, destination, drained))
        self._open = 0
        self._connect(destination)
        self.write(3)

    def acknowledged_since(self, time: int, cluster: str) -> int:
        return sum(1 for at, where in self._acknowledged if at > time and where == cluster)


@dataclass
class Stage:
    """The FaultWorld of these tests."""

    deployment: Deployment
    mirrors: dict[str, Mirror]
    clients: OneClient
    events: list[tuple[str, str, Any]] = field(default_factory=list)
    captured: list[tuple[str, str]] = field(default_factory=list)
    stopping: bool = False

    @property
    def recorder(self) -> Stage:
        return self

    def write(self, event: Any) -> Any:
        self.events.append((event.kind, event.subject, event.row.data))
        return event

    def capture(self, moment: str, cluster: str) -> None:
        self.captured.append((moment, cluster))

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        return [data for known, subject, data in self.events if known == kind and subject == "A->B"]


@pytest.fixture
def stage(linkflap_deployment: Deployment) -> Stage:
    deployment = linkflap_deployment
    admin = AdminClient(quiet(deployment.clusters["A"].bootstrap))
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
    made = Stage(deployment, {}, OneClient(deployment))
    made.mirrors["A->B"] = make_mirror(
        MirrorSpec(kind="mm2"), deployment.topology.links[0], deployment, made
    )
    made.mirrors["A->B"].start()
    return made


def spec(kind: str) -> FaultSpec:
    return FaultSpec(id="f", fault=kind, target="A->B", at=0, duration=0)


KILL = FaultSpec(id="crash", fault="mirror-kill", target="A->B", at=0, duration=1)


def stage_ends(stage: Stage, cluster: str) -> dict[tuple[str, int], int]:
    return bounds(
        AdminClient(quiet(stage.deployment.clusters[cluster].bootstrap)),
        TOPIC_PARTITIONS,
        "high",
        within=120,
    )


@pytest.mark.linkflap(topology="A->B")
def test_a_killed_worker_comes_back_and_planned_drains_even_what_an_open_transaction_hid(
    stage: Stage,
) -> None:
    """Commits after an open transaction are no lag for a mirror that reads committed, and must be
    mirrored all the same."""
    mirror, kill = stage.mirrors["A->B"], FAULTS["mirror-kill"](KILL, cast(FaultWorld, stage))
    try:
        kill.inject()
        killed, alive = kill.bite(), mirror.alive
    finally:
        checked = kill.heal()
    assert (killed.bit, killed.measured) == (True, {"before": "alive", "during": "gone"})
    assert (alive, mirror.alive) == (False, True)
    assert kill.heal() == checked
    stage.clients.write(20)
    stage.clients.begin()  # left open: the coordinator aborts it, within ten seconds
    other = Producer(
        quiet(stage.deployment.clusters["A"].bootstrap) | {"transactional.id": "behind"}
    )
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(TOPIC, b"behind", partition=0)
    other.commit_transaction(30)
    fault = FAULTS["failover-planned"](spec("failover-planned"), cast(FaultWorld, stage))
    fault.inject()
    bite = fault.bite()
    assert (bite.bit, bite.measured) == (True, 3)
    assert fault.heal() == ["mirror A->B down", "clients of A are at B"]
    assert stage.clients.calls == [("pause", "A"), ("move", "A", "B", True)]
    promoted = {
        (data["topic"], data["partition"]): data["offset"] for data in stage.events_of("promotion")
    }
    # 20 committed transactions of 5 records per partition, and the one behind; at-least-once writes
    # no markers.
    assert promoted == {(TOPIC, 0): 101, (TOPIC, 1): 100}
    (failover,) = stage.events_of("failover")
    assert (failover["kind"], failover["open_transactions"]) == ("planned", 0)
    assert stage.events_of("mirror-stopped") == [{"drained": True}]
    assert not stage.captured


@pytest.mark.linkflap(topology="A->B")
@pytest.mark.nightly
def test_planned_is_given_up_when_the_run_ends_before_the_mirror_drained(stage: Stage) -> None:
    stage.deployment.links["A->B"].cut()
    stage.clients.write(1)
    fault = FAULTS["failover-planned"](spec("failover-planned"), cast(FaultWorld, stage))
    stage.stopping = True
    with pytest.raises(FaultError, match="was abandoned: the run is ending"):
        fault.inject()
    with pytest.raises(FaultError, match="clients were not moved"):
        fault.heal()
    assert stage.mirrors["A->B"].alive
    assert not stage.events_of("promotion")


@pytest.mark.linkflap(topology="A->B")
def test_forced_kills_the_source_with_transactions_open_and_captures_the_dead(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    (broker,) = {type(broker) for broker in stage.deployment.clusters["A"].brokers.values()}
    kill = broker.kill
    monkeypatch.setattr(broker, "kill", lambda self: (kill(self), cast(Any, killed).append(now())))
    stage.clients.write(20)
    eventually("the mirror to catch up", lambda: stage.mirrors["A->B"].lag() == 0)
    stage.clients.begin()
    fault = FAULTS["failover-forced"](spec("failover-forced"), cast(FaultWorld, stage))
    before = now()
    fault.inject()
    bite = fault.bite()
    assert bite.bit, bite.measured
    assert bite.measured == {"answering": [], "open_transactions": 1}
    assert "brokers of A down" in fault.heal()
    assert stage.captured == [("1-f", "A")]
    assert stage.clients.calls == [("move", "A", "B", False)]
    promoted = {
        (data["topic"], data["partition"]): data["offset"] for data in stage.events_of("promotion")
    }
    assert promoted == {(TOPIC, 0): 100, (TOPIC, 1): 100}
    assert all(end > promoted[tp] for tp, end in stage_ends(stage, "B").items())
    (failover,) = stage.events_of("failover")
    assert failover["kind"] == "forced"
    # A commit requested during the kill may have been acknowledged: it is lost, and no promise is
    # broken.
    assert before < max(killed) <= failover["fault_time"] < now()
    kinds = [kind for kind, _, _ in stage.events]
    assert kinds.index("mirror-stopped") < kinds.index("promotion") < kinds.index("failover")


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A->B")
def test_the_shadow_of_a_reversed_link_dies_and_comes_back(linkflap_deployment: Deployment) -> None:
    up = linkflap_deployment
    make_topic(up, "A")
    mirror = shadow(up, "A->B")
    mirror.start()
    assert [own_write(up.clusters["A"].bootstrap) for _ in range(3)] == [0, 1, 2]
    drained(mirror)
    mirror.stop()
    mirrors: dict[str, Mirror] = {"A->B": mirror}
    here = SimpleNamespace(
        deployment=up,
        mirrors=mirrors,
        recorder=mirror._recorder,
        stopping=False,
        take_up=lambda one: mirrors.update({one.link.name: one}),
        capture=lambda moment, cluster: None,
    )
    reverse = FAULTS["mirror-reverse"](
        FaultSpec(id="back", fault="mirror-reverse", target="A->B", at=0, duration=0), here
    )
    reverse.inject()
    assert reverse.bite().bit
    fault = FAULTS["mirror-kill"](replace(KILL, target="B->A"), here)
    fault.inject()
    try:
        assert fault.bite().bit
        assert own_write(up.clusters["B"].bootstrap) == 3
    finally:
        assert fault.heal() == ["mirror B->A alive, records go through"]
    back = mirrors["B->A"]
    assert isinstance(back, ShadowMirror)
    drained(back)
    assert reverse.heal()
    mirrors["B->A"].stop()
    assert (
        ends(up.clusters["A"], partitions=[(TOPIC, 0)])
        == {(TOPIC, 0): 4}
        == ends(up.clusters["B"], partitions=[(TOPIC, 0)])
    )
