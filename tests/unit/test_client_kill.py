"""client-kill: when it bites and when it is healed. Real processes are tested in
tests/integration/test_client_deaths.py."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos.faults.clients import COMES_WITHIN, ClientKill
from linkflap.chaos.schedule import check
from linkflap.chaos.triggers import TRIGGERS
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError
from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.recording.unexpected_exits import ends_broker
from linkflap.topologies import parse

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
        self.death = SimpleNamespace(
            process="clients-1",
            clients=("transactional-1",),
            status=status,
            expected=expected,
            in_flight=[SimpleNamespace(operation=number) for number in in_flight],
        )

    def kill(self, cluster: str, **asked: object) -> SimpleNamespace:
        self.asked = {"cluster": cluster, **asked}
        return self.death

    def done_since_restart(self, process: str) -> int:
        assert process == "clients-1"
        return self.done


def fault(clients: Clients, *, stopping: bool = False, **options: Option) -> ClientKill:
    spec = FaultSpec(id="f", fault="client-kill", target="A", at=0, duration=0, options=options)
    return ClientKill(spec, cast(World, SimpleNamespace(clients=clients, stopping=stopping)))


def test_it_asks_for_the_clients_and_the_moment_that_its_options_name(
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
    with pytest.raises(InputError, match="it can be any or transaction or commit"):
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
def test_it_bit_when_the_process_was_killed_with_what_it_saw_in_flight(
    clients: Clients, bit: bool
) -> None:
    one = fault(clients)
    assert not one.bite().bit, "no process was killed yet"
    one.inject()
    assert one.bite().bit is bit


def test_it_is_healed_once_those_that_were_started_again_got_something_done(
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


def test_brokers_and_mirrors_are_not_its_doing() -> None:
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
            spec, cast(World, SimpleNamespace(clients=clients))
        ) is (count > 0)
