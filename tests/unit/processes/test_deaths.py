"""Clients whose process dies, repeatedly or while it stops, and their successors."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
import psutil
import pytest

from linkflap.harness.machine.process_identity import identify
from linkflap.harness.model.history import Operation
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import RunWriter
from linkflap.harness.workloads import members
from linkflap.harness.workloads.clients import WorkloadClients
from linkflap.harness.workloads.members import DEATHS_IN_A_ROW
from linkflap.harness.workloads.worker import Worker
from tests.unit.processes.commands import events, killed, producers


def test_a_process_that_dies_is_an_event_and_its_clients_go_on(
    clients: WorkloadClients, writer: RunWriter
) -> None:
    clients.start()
    history = writer.root / "operations" / "transactional-1.jsonl"
    until(
        lambda: history.exists() and history.read_bytes(), within=20, what="an operation to begin"
    )
    pid = killed(producers(clients), signal.SIGABRT)
    (died,) = clients.deaths()
    assert (died.process, died.pid, died.by, died.clients, died.status) == (
        "clients-1",
        pid,
        "itself",
        ("transactional-1", "transactional-2"),
        -signal.SIGABRT,
    )
    assert {str(flying.kind) for flying in died.in_flight} == {"init"}
    assert (
        "clients-1 of transactional-1, transactional-2 died by itself (killed by SIGABRT)"
        in died.sentence
    )
    event, again = events(writer, "client-died", "client-restarted")
    assert event[:2] == ("client-died", "clients-1")
    assert event[2]["signal"] == "SIGABRT"
    assert event[2]["again"] is True
    names = ["transactional-1", "transactional-2"]
    assert again == (
        "client-restarted",
        "clients-1",
        {"pid": producers(clients).pid, "clients": names},
    )

    def first_and_next() -> list[int]:
        rows = [
            msgspec.json.decode(line, type=Operation) for line in history.read_bytes().splitlines()
        ]
        return sorted({row.process for row in rows})

    numbers = until(
        lambda: n if len(n := first_and_next()) > 1 else None,
        within=20,
        what="a new incarnation to begin",
    )
    assert len(set(numbers)) == len(numbers)
    assert clients.crashes == []


def test_commands_of_a_client_apply_to_its_successor(clients: WorkloadClients) -> None:
    clients.start()
    clients.pause("A")
    killed(producers(clients))
    crew = clients.workloads[0]
    until(
        lambda: crew.look() == 0 and all(member.settled for member in crew.members),
        within=20,
        what="a pause",
    )
    clients.move("A", "B", drained=False)
    killed(producers(clients))
    clients.workloads[0].look()
    states = [member.state for member in clients.workloads[0].members]
    assert [state.cluster for state in states] == ["B", "B"]
    assert {member.cluster for crew in clients.workloads for member in crew.members} == {"B"}


def test_a_death_during_a_move_does_not_hold_it_up(clients: WorkloadClients) -> None:
    clients.start()
    worker = producers(clients)
    os.kill(worker.pid, signal.SIGSTOP)  # so that it does not act on it before it dies
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(clients.move, "A", "B", drained=False)
        until(
            lambda: all(member.cluster == "B" for member in worker.members),
            within=20,
            what="the order to move",
        )
        assert not moving.done()
        killed(worker)
        moving.result(20)
    worker.look()
    assert [member.state.cluster for member in worker.members] == ["B", "B"]


def test_if_the_fork_server_dies_all_clients_die_and_are_restarted(
    clients: WorkloadClients, writer: RunWriter
) -> None:
    clients.start()
    workers = [worker for crew in clients.workloads for worker in crew.workers]

    def another(worker: Worker, pid: int) -> bool:
        return worker.pid != pid and worker.alive

    before = [worker.pid for worker in workers]
    (source,) = {psutil.Process(pid).ppid() for pid in before}
    os.kill(source, signal.SIGKILL)
    for worker, pid in zip(workers, before, strict=True):
        until(partial(another, worker, pid), within=60, what="another process")
    assert len({psutil.Process(worker.pid).ppid() for worker in workers} - {source}) == 1
    assert [event[2]["signal"] for event in events(writer, "client-died")] == ["SIGKILL"] * 2
    assert not any(identify(pid) for pid in before)


def test_a_process_that_dies_again_and_again_is_given_up(
    clients: WorkloadClients, writer: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a busy machine may take seconds between a start and the kill
    monkeypatch.setattr(members, "SOON", 10**12)
    clients.start()
    for _ in range(DEATHS_IN_A_ROW):
        killed(producers(clients))
    assert not producers(clients).alive
    (reason,) = clients.crashes
    assert reason.startswith(
        "process clients-1 of transactional-1, transactional-2 died by itself (killed by SIGKILL)"
    )
    assert f"{DEATHS_IN_A_ROW} times in a row" in reason
    assert [event[2]["again"] for event in events(writer, "client-died")] == [True] * (
        DEATHS_IN_A_ROW - 1
    ) + [False]
    clients.move("A", "B", drained=True)  # a dead process blocks nothing
    clients.pause("B")


def test_a_death_while_stopping_is_reported_and_has_no_successor(
    clients: WorkloadClients, writer: RunWriter
) -> None:
    clients.start()
    worker = producers(clients)
    os.kill(worker.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(clients.stop)
        until(
            lambda: not clients.workloads[1].workers[0].alive,
            within=30,
            what="the other process to stop",
        )
        os.kill(worker.pid, signal.SIGKILL)
        stopping.result(20)
    assert [died.process for died in clients.deaths()] == ["clients-1"]
    assert [event[2]["again"] for event in events(writer, "client-died", "client-restarted")] == [
        False
    ]
    assert clients.crashes == []
