"""Processes of clients: their reports and commands, deaths and successors. No broker runs here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from linkflap.harness.machine.children import Child
from linkflap.harness.machine.process_identity import identify
from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.model.history import Fetched, Operation, Poll, SendGroup
from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.rundir import Appender, Run, RunReader, RunWriter, last_rows
from linkflap.harness.workloads import worker as workers
from linkflap.harness.workloads.client import Numbers
from linkflap.harness.workloads.clients import WorkloadClients
from linkflap.harness.workloads.forks import SERVES
from linkflap.harness.workloads.prefork import Prefork
from linkflap.harness.workloads.process import ORPHANED
from linkflap.harness.workloads.protocol import (
    AskState,
    Channel,
    ClientState,
    Command,
    Counts,
    Report,
    State,
)
from linkflap.harness.workloads.worker import DEATHS_IN_A_ROW, Worker
from tests.command_line import ran
from tests.scenarios import scenario_of
from tests.waiting import eventually
from tests.workload_rig import clients_of

# Producers of a worker, how its process is killed, and events of its run.


def producers(clients: WorkloadClients) -> Worker:
    return clients.workloads[0].workers[0]


def killed(worker: Worker) -> int:
    """Kills the process of a worker, and returns once it is replaced; returns the dead one's
    pid."""
    pid, before = worker.pid, len(worker.deaths)
    os.kill(pid, signal.SIGKILL)
    eventually("the death to be noticed", lambda: len(worker.deaths) > before)
    eventually("another process", lambda: worker.given_up or (worker.pid != pid and worker.alive))
    return pid


def events(writer: RunWriter, *kinds: str) -> list[tuple[str, str, dict[str, object]]]:
    return [
        (e.kind, e.subject, dict(e.row.data))
        for e in RunReader(writer.root).events()[0]
        if e.kind in kinds
    ]


# Clients in processes, of clusters that do not answer.


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunWriter]:
    """A run directory as a user may name it: relative to the directory in which the harness
    started."""
    monkeypatch.chdir(tmp_path)
    topology = Topology(clusters=(ClusterSpec(name="A"), ClusterSpec(name="B")), links=())
    scenario = scenario_of(topology)
    run = Run.begun(scenario, "process")
    writer = RunWriter(Path("run"), run)
    yield writer
    writer.close("finished")


@pytest.fixture
def clients(writer: RunWriter) -> Iterator[WorkloadClients]:
    """Two producers in one process and a reader in another, of clusters that do not answer."""
    addresses = SimpleNamespace(
        clusters={n: SimpleNamespace(bootstrap="127.0.0.1:1") for n in "AB"}, links={}
    )
    specs = (
        WorkloadSpec(kind="transactional", home="A", clients=2),
        WorkloadSpec(kind="readers", home="A", options={"group": "g"}),
    )
    clients = clients_of(specs, addresses, writer, {"A.t": 2})
    yield clients
    clients.stop()
    assert not [
        worker.name for crew in clients.workloads for worker in crew.workers if worker.alive
    ]


# Processes of clients: their reports and commands, and what happens when one dies. No broker
# runs here.


def test_processes_are_forked_from_one_with_a_single_thread_that_ends_with_the_last(
    tmp_path: Path,
) -> None:
    forks = Prefork()
    forks.enter()
    started = [forked(forks, tmp_path) for _ in range(3)]
    (source,) = {psutil.Process(child.pid).ppid() for child, _ in started}
    assert psutil.Process(source).num_threads() == 1, (
        "else its forks may hold locks of threads that are not there"
    )

    def gone(child: Child) -> bool:
        return not child.alive

    for child, end in started:
        assert os.getpgid(child.pid) == child.pid
        end.close()
        eventually("a process without its harness to end", partial(gone, child))
        assert child.poll() == ORPHANED
    forks.leave()
    assert identify(source) is None


def forked(forks: Prefork, folder: Path) -> tuple[Child, socket.socket]:
    """A process, and our end of its socket."""
    ours, theirs = socket.socketpair()
    with theirs:
        return forks.start("a process", theirs, folder=folder, log=folder / "log"), ours


def test_a_program_that_cannot_start_ends_as_a_named_failure(
    writer: RunWriter, tmp_path: Path
) -> None:
    forks, log = Prefork("linkflap.harness.no_such_module"), tmp_path / "clients.log"
    ours, theirs = socket.socketpair()
    forks.enter()
    with ours, theirs, pytest.raises(SetupError, match=f"cannot start producers: .* see {log}"):
        forks.start("producers", theirs, folder=tmp_path, log=log)
    forks.leave()
    assert "No module named linkflap.harness.no_such_module" in log.read_text()


def test_a_process_that_does_not_answer_delays_questions_only_briefly(
    clients: WorkloadClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "ANSWERS_WITHIN", 0.01)
    clients.start()
    os.kill(producers(clients).pid, signal.SIGSTOP)
    for _ in range(20):
        clients.progress()
    os.kill(producers(clients).pid, signal.SIGCONT)
    monkeypatch.setattr(workers, "ANSWERS_WITHIN", 20.0)
    eventually(
        "answers", lambda: (clients.progress(), producers(clients).members[0].answered)[1] > 0
    )


def test_clients_that_are_not_there_cannot_be_killed(clients: WorkloadClients) -> None:
    clients.start()
    with pytest.raises(
        InputError, match="no client of workload relay that can have anything in flight is at A"
    ):
        clients.kill("A", workload="relay", moment="any", by="f", within=1)
    with pytest.raises(InputError, match="that can have a commit in flight is at A"):
        clients.kill("A", workload="readers", moment="commit", by="f", within=1)
    with pytest.raises(DeadlineExceeded, match="killed with a commit in flight"):
        clients.kill("A", workload="any", moment="commit", by="f", within=0.1)
    died = clients.kill("A", workload="readers", moment="any", by="f", within=60)
    assert (died.event.by, died.event.clients, died.event.status, died.expected) == (
        "f",
        ("readers-1",),
        -signal.SIGKILL,
        0,
    )
    killed(producers(clients))
    assert clients.deaths()[-1].event.by == "itself", (
        "the order that did not come true was taken back"
    )


def test_a_process_without_its_harness_ends(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [
            sys.executable,
            "-m",
            "linkflap.harness.workloads.process",
            SERVES,
            str(theirs.fileno()),
        ]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    ours.close()
    assert process.wait(20) == 3


def test_a_client_process_imports_little() -> None:
    program = "import linkflap.harness.workloads.process, sys; print(*sys.modules)"
    loaded = ran([sys.executable, "-c", program], check=True).stdout.split()
    assert "confluent_kafka" in loaded
    assert not {
        "pyspark",
        "pandas",
        "numpy",
        "numba",
        "psutil",
        "rich",
        "docker",
        "kio",
        "pyarrow",
    } & set(loaded)


def test_messages_arrive_whole_and_in_order() -> None:
    one, other = socket.socketpair()
    with one, other:
        harness: Channel[Command, Report] = Channel(one, Report)
        process: Channel[Report, Command] = Channel(other, Command)
        states = [
            State(
                number=n,
                clients=(
                    ClientState(name="x" * n, cluster="A", counts=Counts(acknowledged={"A": n})),
                ),
            )
            for n in (1, 200_000, 3)
        ]
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(lambda: [process.send(state) for state in states])
            assert [harness.receive() for _ in states] == states
            assert sent.result() == [True] * 3
        assert harness.receive(0.01) is None
        assert harness.send(AskState(number=7))
        assert process.receive() == AskState(number=7)
        process.close()
        with pytest.raises(EOFError):
            harness.receive()
        assert not harness.send(AskState(number=8))


def test_numbers_are_given_once_whoever_asks(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    program = (
        "import sys; from pathlib import Path; from linkflap.harness.workloads.client import "
        "Numbers\nn = Numbers(Path(sys.argv[1])); print(*(n.next() for _ in range(200)))"
    )
    others = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    mine = Numbers(path)
    with ThreadPoolExecutor(3) as pool:
        given = list(pool.map(lambda _: mine.next(), range(300)))
    theirs = [int(number) for other in others for number in other.communicate()[0].split()]
    assert sorted(given + theirs) == list(range(1, 701))


def operation(number: int, **more: object) -> Operation:
    sends = (SendGroup(topic="A.t", partition=0, first_uid=1, count=2),)
    values = {
        "phase": "invoke",
        "client": "c",
        "process": 1,
        "cluster": "A",
        "kind": "send",
        "sends": sends,
    } | more
    return Operation(number=number, time=5, **values)  # type: ignore[arg-type]


def test_a_row_that_its_dead_writer_did_not_finish_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "operations" / "c.jsonl"
    appender: Appender[Operation] = Appender(path)
    rows = [operation(n) for n in range(3)]
    for row in rows:
        appender.write(row)
    appender.close()
    complete = path.read_bytes()
    assert last_rows(tmp_path, "c").operations == rows
    assert (last_rows(tmp_path, "c").torn, path.read_bytes()) == (0, complete)
    path.write_bytes(complete + b'{"number":3,')
    found = last_rows(tmp_path, "c")
    assert (found.operations, found.polls, found.torn) == (rows, [], 12)
    assert path.read_bytes() == complete


def test_last_rows_of_a_long_history_are_read_from_its_end(tmp_path: Path) -> None:
    polls: Appender[Poll] = Appender(tmp_path / "polls" / "r.jsonl")
    part = (
        Fetched(
            topic="A.t", partition=0, runs=tuple((n, n, 1) for n in range(2000)), position=2000
        ),
    )
    row = Poll(
        time=1,
        returned=2,
        reader="r",
        process=1,
        cluster="A",
        isolation="read_committed",
        kind="poll",
        fetched=part,
    )
    for _ in range(60):
        polls.write(row)
    polls.close()
    found = last_rows(tmp_path, "r")
    assert 1 < len(found.polls) < 60
    assert set(found.polls) == {row}


# Clients whose process dies, repeatedly or while it stops, and their successors.


def test_commands_of_a_client_apply_to_its_successor(clients: WorkloadClients) -> None:
    clients.start()
    clients.pause("A")
    killed(producers(clients))
    crew = clients.workloads[0]
    eventually(
        "a pause", lambda: crew.look() == 0 and all(member.settled for member in crew.members)
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
        eventually(
            "the order to move", lambda: all(member.cluster == "B" for member in worker.members)
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
        eventually("another process", partial(another, worker, pid))
    assert len({psutil.Process(worker.pid).ppid() for worker in workers} - {source}) == 1
    assert [event[2]["signal"] for event in events(writer, "client-died")] == ["SIGKILL"] * 2
    assert not any(identify(pid) for pid in before)


def test_a_process_that_dies_again_and_again_is_given_up(
    clients: WorkloadClients, writer: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a busy machine may take seconds between a start and the kill
    monkeypatch.setattr(workers, "SOON", 10**12)
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
        eventually("the other process to stop", lambda: not clients.workloads[1].workers[0].alive)
        os.kill(worker.pid, signal.SIGKILL)
        stopping.result(20)
    assert [died.event.process for died in clients.deaths()] == ["clients-1"]
    assert [event[2]["again"] for event in events(writer, "client-died", "client-restarted")] == [
        False
    ]
    assert clients.crashes == []
