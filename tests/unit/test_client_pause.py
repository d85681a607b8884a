"""client-pause: when it bites and when it is healed. Real processes are tested in
tests/integration/test_client_failover.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos.faults import OF_CLIENTS
from linkflap.chaos.faults.clients import ClientPause
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec, Option


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


class Clients:
    def __init__(self, process: Process) -> None:
        self._process, self.done = process, 20
        self.asked = ""

    def process(self, cluster: str, *, workload: str) -> Process:
        self.asked = f"{workload} at {cluster}"
        return self._process

    def done_since_restart(self, process: str) -> int:
        assert process == "clients-1"
        return self.done


def fault(clients: Clients, *, stopping: bool = True, **options: Option) -> ClientPause:
    spec = FaultSpec(id="f", fault="client-pause", target="A", at=0, duration=0, options=options)
    return ClientPause(spec, cast(World, SimpleNamespace(clients=clients, stopping=stopping)))


def test_it_bit_when_the_process_stands_still() -> None:
    clients = Clients(Process())
    one = fault(clients, workload="relay")
    assert not one.bite().bit, "nothing was stopped yet"
    one.inject()
    assert clients.asked == "relay at A"
    assert one.bite().bit
    running = fault(Clients(Process(stubborn=True)))
    running.inject()
    assert not running.bite().bit


def test_it_is_healed_once_its_clients_got_more_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linkflap.chaos.faults.clients.WORKS_WITHIN", 0.05)
    monkeypatch.setattr("linkflap.chaos.faults.clients.patient", lambda seconds: seconds)
    clients = Clients(Process())
    one = fault(clients, stopping=False)
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


def test_one_that_stays_stopped_is_not_healed() -> None:
    process = Process()
    one = fault(Clients(process))
    one.inject()
    process.stubborn = True
    with pytest.raises(FaultError, match="is still suspended"):
        one.heal()
    assert fault(Clients(process)).heal() == ["nothing was stopped"]


def test_an_unknown_workload_is_refused_and_brokers_are_left_alone() -> None:
    with pytest.raises(InputError, match="it can be any or transactional"):
        fault(Clients(Process()), workload="nobody")
    assert "client-pause" in OF_CLIENTS
