"""Faults of clients and mirrors: what bites, what heals, and what is refused."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos.faults import FAULTS, OF_CLIENTS, mirrors
from linkflap.chaos.faults.clients import COMES_WITHIN, ClientKill, ClientPause
from linkflap.chaos.faults.mirrors import MirrorSourceMoved
from linkflap.chaos.schedule import check
from linkflap.chaos.triggers import TRIGGERS
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError
from linkflap.harness.model.protocols import Administered, FaultWorld, PlayedVerbs
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec, Option
from linkflap.harness.model.topology import LinkSpec
from linkflap.recording.unexpected_exits import ends_broker
from linkflap.topologies import parse

# client-kill: when it bites and when it is healed. Real processes are tested in
# tests/integration/test_workloads.py.


PAIR = parse("A->B")


class Clients:
    """Clients with one process that can be killed, once."""

    def __init__(
        self,
        status: int = -signal.SIGKILL,
        expected: int | None = 7,
        in_flight: tuple[int, ...] = (7,),
    ) -> None:
        self.asked: dict[str, object] = {}
        self.done = 0
        event = SimpleNamespace(
            process="clients-1",
            clients=("transactional-1",),
            status=status,
            in_flight=[SimpleNamespace(operation=number) for number in in_flight],
        )
        self.death = SimpleNamespace(event=event, expected=expected)

    def kill(self, cluster: str, **asked: object) -> SimpleNamespace:
        self.asked = {"cluster": cluster, **asked}
        return self.death

    def done_since_restart(self, process: str) -> int:
        assert process == "clients-1"
        return self.done


def fault(clients: Clients, *, stopping: bool = False, **options: Option) -> ClientKill:
    spec = FaultSpec(id="f", fault="client-kill", target="A", at=0, duration=0, options=options)
    return ClientKill(spec, cast(FaultWorld, SimpleNamespace(clients=clients, stopping=stopping)))


def test_client_kill_chooses_clients_and_moment_by_its_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("linkflap.chaos.faults.clients.patient", lambda seconds: 2 * seconds)
    clients = Clients()
    fault(clients, workload="relay", moment="commit").inject()
    assert clients.asked == {
        "cluster": "A",
        "workload": "relay",
        "moment": "commit",
        "by": "f",
        "within": 2 * COMES_WITHIN,
    }
    with pytest.raises(InputError, match="give one of any, transaction, commit"):
        fault(clients, moment="midnight")


@pytest.mark.parametrize(
    ("clients", "bit"),
    [
        (Clients(), True),
        (Clients(in_flight=(5, 7)), True),
        (Clients(expected=0, in_flight=()), True),
        (Clients(in_flight=()), False),
        (Clients(in_flight=(8,)), False),
        (Clients(expected=None), False),
        (Clients(status=0), False),
        (Clients(status=-signal.SIGABRT), False),
    ],
)
def test_client_kill_bites_when_the_process_died_with_the_seen_operation_in_flight(
    clients: Clients, bit: bool
) -> None:
    one = fault(clients)
    assert not one.bite().bit, "no process was killed yet"
    one.inject()
    assert one.bite().bit is bit


def test_client_kill_is_healed_when_restarted_clients_made_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = Clients()
    one = fault(clients)
    one.inject()
    monkeypatch.setattr("linkflap.chaos.faults.clients.WORKS_WITHIN", 0.1)
    with pytest.raises(DeadlineExceeded, match="clients transactional-1 to work again"):
        one.heal()
    clients.done = 20
    assert one.heal() == [
        "clients transactional-1 started again",
        "20 records acknowledged or read by them",
    ]
    late = fault(Clients(), stopping=True)
    late.inject()
    with pytest.raises(FaultError, match="had made no progress since the kill when the run ended"):
        late.heal()


def test_client_kill_ends_no_broker_and_no_mirror() -> None:
    kill = FaultSpec(id="kill", fault="client-kill", target="A", at=5, duration=0)
    assert not ends_broker(kill, "A/1")
    failover = FaultSpec(id="failover", fault="failover-forced", target="A->B", at=1, duration=0)
    check([failover, kill], PAIR)  # a heal of clients starts no broker of the dead source


def test_a_commit_in_flight_is_a_trigger() -> None:
    spec = FaultSpec(id="f", fault="client-kill", target="A/1", at=0, duration=0)
    for count in (0, 2):
        clients = SimpleNamespace(
            commits_in_flight=lambda cluster, count=count: count if cluster == "A" else 9
        )
        assert TRIGGERS["commit-in-flight"](
            spec, cast(FaultWorld, SimpleNamespace(clients=clients))
        ) is (count > 0)


# client-pause: when it bites and when it is healed. Real processes are tested in
# tests/integration/test_workloads.py.


class Process:
    """A process that can be suspended."""

    name = "clients-1"

    def __init__(self, *, stubborn: bool = False) -> None:
        self.frozen = False
        self.stubborn = stubborn

    def freeze(self) -> None:
        self.frozen = not self.stubborn

    def thaw(self) -> None:
        self.frozen = self.stubborn


class PausedClients:
    def __init__(self, process: Process) -> None:
        self._process, self.done = process, 20
        self.asked = ""

    def process(self, cluster: str, *, workload: str) -> Process:
        self.asked = f"{workload} at {cluster}"
        return self._process

    def done_since_restart(self, process: str) -> int:
        assert process == "clients-1"
        return self.done


def pause(clients: PausedClients, *, stopping: bool = True, **options: Option) -> ClientPause:
    spec = FaultSpec(id="f", fault="client-pause", target="A", at=0, duration=0, options=options)
    return ClientPause(spec, cast(FaultWorld, SimpleNamespace(clients=clients, stopping=stopping)))


def test_client_pause_bites_when_the_process_is_suspended() -> None:
    clients = PausedClients(Process())
    one = pause(clients, workload="relay")
    assert not one.bite().bit, "nothing was stopped yet"
    one.inject()
    assert clients.asked == "relay at A"
    assert one.bite().bit
    running = pause(PausedClients(Process(stubborn=True)))
    running.inject()
    assert not running.bite().bit


def test_client_pause_is_healed_when_its_clients_made_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("linkflap.chaos.faults.clients.WORKS_WITHIN", 0.05)
    monkeypatch.setattr("linkflap.chaos.faults.clients.patient", lambda seconds: seconds)
    clients = PausedClients(Process())
    one = pause(clients, stopping=False)
    one.inject()
    with pytest.raises(FaultError, match="clients-1 to work again"):
        one.heal()
    clients.done = 21
    assert one.heal() == [
        "clients-1 runs",
        "its clients have acknowledged or read 21 records, 20 before",
    ]
    clients.done = 3  # killed meanwhile, and restarted: it counts from 0
    assert one.heal()


def test_client_pause_of_a_process_that_stays_suspended_is_not_healed() -> None:
    process = Process()
    one = pause(PausedClients(process))
    one.inject()
    process.stubborn = True
    with pytest.raises(FaultError, match="is still suspended"):
        one.heal()
    assert pause(PausedClients(process)).heal() == ["nothing was stopped"]


def test_an_unknown_workload_is_refused_and_brokers_are_left_alone() -> None:
    with pytest.raises(InputError, match="give one of any, transactional"):
        pause(PausedClients(Process()), workload="nobody")
    assert "client-pause" in OF_CLIENTS


# Faults of mirrors that run inside brokers: what bites, what does not, and the errors for other
# mirrors.


@dataclass
class AdministeredByRule:
    """A mirror that runs inside brokers, and obeys."""

    spec: MirrorSpec = field(default_factory=lambda: MirrorSpec(kind="cluster-mirroring"))
    link: LinkSpec = field(default_factory=lambda: LinkSpec(source="A", destination="B"))
    alive: bool = True
    played: PlayedVerbs | None = field(default_factory=lambda: PlayedVerbs(asked=6, changed=2))
    addresses: Sequence[str] = ("p:1", "p:2")
    deaf: bool = False

    def coordinator(self) -> int | None:
        return 2

    def source_addresses(self) -> Sequence[str]:
        return self.addresses

    def move_source(self, addresses: Sequence[str]) -> None:
        if not self.deaf or self.addresses[0].startswith("p"):
            self.addresses = tuple(addresses)

    def play_verbs(self, seed: str, steps: int) -> PlayedVerbs:
        if self.played is None:
            raise DeadlineExceeded("not all is MIRRORING")
        return self.played

    def resume_all(self) -> Sequence[str]:
        if self.deaf:
            raise DeadlineExceeded("x is PAUSED")
        return ["A.x"]


@dataclass
class Proxies:
    wanted: list[str] = field(default_factory=list)

    def cut(self, *, owner: str) -> None:
        self.wanted.append(owner)

    def restore(self, *, owner: str) -> None:
        if owner in self.wanted:
            self.wanted.remove(owner)


def world(mirror: object, proxies: Proxies | None = None) -> FaultWorld:
    def cluster(name: str) -> SimpleNamespace:
        brokers = {1: SimpleNamespace(client_address=f"{name}:9", state="running")}
        return SimpleNamespace(name=name, bootstrap=name, brokers=brokers)

    deployment = SimpleNamespace(
        links={"A->B": proxies or Proxies()},
        clusters={name: cluster(name) for name in "AB"},
        topology=parse("A->B"),
    )
    return cast(
        FaultWorld,
        SimpleNamespace(
            deployment=deployment,
            mirrors={"A->B": mirror},
            topics={"A.x": 1},
            stopping=True,
            recorder=None,
        ),
    )


def spec(fault: str, target: str = "A->B") -> FaultSpec:
    return FaultSpec(id="f", fault=fault, target=target, at=0, duration=1)


@pytest.mark.parametrize(
    ("played", "bit"),
    [
        (PlayedVerbs(asked=6, changed=2), True),
        (PlayedVerbs(asked=1, changed=0, wrong="pause was refused"), True),
        (PlayedVerbs(asked=1, changed=0, unanswered="pause: NO_ANSWER"), False),
    ],
)
def test_verbs_bite_where_one_changed_something_or_was_wrong(
    played: PlayedVerbs, bit: bool
) -> None:
    fault = FAULTS["mirror-verbs"](spec("mirror-verbs"), world(AdministeredByRule(played=played)))
    fault.inject()
    bite = fault.bite()
    assert bite.bit is bit
    assert cast(dict[str, object], bite.measured)["asked"] == played.asked
    assert fault.heal() == ["1 topics are mirrored"]


def test_verbs_are_not_asked_of_a_mirror_that_does_not_mirror_and_a_paused_topic_is_no_heal() -> (
    None
):
    fault = FAULTS["mirror-verbs"](spec("mirror-verbs"), world(AdministeredByRule(played=None)))
    with pytest.raises(FaultError, match="not all is MIRRORING; no verb was requested"):
        fault.inject()
    assert not fault.bite().bit
    assert fault.heal() == ["no verb was requested"]
    fault = FAULTS["mirror-verbs"](spec("mirror-verbs"), world(AdministeredByRule(deaf=True)))
    fault.inject()
    with pytest.raises(FaultError, match="x is PAUSED"):
        fault.heal()


def test_a_source_move_bites_once_later_records_are_mirrored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = {"A": 5, "B": 5}

    def bounds(self: MirrorSourceMoved, address: str) -> Mapping[tuple[str, int], int]:
        return {("A.x", 0): ends[address]}

    monkeypatch.setattr(MirrorSourceMoved, "_ends", bounds)
    mirror, proxies = AdministeredByRule(), Proxies()
    fault = FAULTS["mirror-source-moved"](spec("mirror-source-moved"), world(mirror, proxies))
    fault.inject()
    assert (mirror.addresses, proxies.wanted) == (("A:9",), ["f"])
    assert not fault.bite().bit, "nothing was written since the cut"
    ends["A"] = 7
    assert not fault.bite().bit, "it has not arrived"
    ends["B"] = 7
    assert fault.bite().bit
    checked = fault.heal()
    assert (mirror.addresses, proxies.wanted) == (("p:1", "p:2"), [])
    assert checked == ["the mirror's source is p:1, p:2 again", "1 partitions caught up"]


def test_a_mirror_that_keeps_the_new_addresses_or_never_catches_up_is_not_healed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        MirrorSourceMoved, "_ends", lambda self, address: {("A.x", 0): 9 if address == "A" else 1}
    )
    monkeypatch.setattr(mirrors, "CROSSES_WITHIN", 0.05)
    for deaf, words in (
        (True, "names A:9 as its source, not p:1, p:2"),
        (False, "what A has to be on B"),
    ):
        fault = FAULTS["mirror-source-moved"](
            spec("mirror-source-moved"), world(AdministeredByRule(deaf=deaf))
        )
        fault.inject()
        with pytest.raises(FaultError, match=words):
            fault.heal()


def test_coordinator_is_looked_up_by_the_mirror_that_leads_to_the_cluster() -> None:
    assert FAULTS["mirror-coordinator-loss"].applies_to("B", parse("A->B")) is None
    assert mirrors.mirror_to("B", world(AdministeredByRule())).coordinator() == 2
    with pytest.raises(FaultError, match="leads to cluster A now"):
        mirrors.mirror_to("A", world(AdministeredByRule()))
    with pytest.raises(FaultError, match="leads to cluster B now"):
        mirrors.mirror_to("B", world(AdministeredByRule(alive=False)))


def test_a_mirror_that_is_a_process_is_refused_in_one_sentence() -> None:
    process = SimpleNamespace(spec=MirrorSpec(kind="shadow"), alive=True)
    assert not isinstance(process, Administered)
    for name in ("mirror-verbs", "mirror-source-moved"):
        with pytest.raises(InputError, match="asks a mirror for what shadow has not"):
            FAULTS[name](spec(name), world(process))
        with pytest.raises(
            InputError, match=r"targets the mirror 'B->A', but the mirrors are A->B"
        ):
            FAULTS[name](spec(name, "B->A"), world(AdministeredByRule()))
