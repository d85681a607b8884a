"""Processes of clients: their reports and commands, and what happens when one dies. No broker runs
here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest

from linkflap.harness.machine.children import Child
from linkflap.harness.machine.process_identity import identify
from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.model.history import Fetched, Operation, Poll, SendGroup
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import Appender, RunWriter, last_rows
from linkflap.harness.workloads import worker as workers
from linkflap.harness.workloads.clients import WorkloadClients
from linkflap.harness.workloads.context import Numbers
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
from tests.unit.processes.commands import killed, producers


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
        until(partial(gone, child), within=60, what="a process without its harness to end")
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
    until(
        lambda: (clients.progress(), producers(clients).members[0].answered)[1] > 0,
        within=20,
        what="answers",
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
    died = clients.kill("A", workload="readers", moment="any", by="f", within=20)
    assert (died.by, died.clients, died.status, died.expected) == (
        "f",
        ("readers-1",),
        -signal.SIGKILL,
        0,
    )
    killed(producers(clients))
    assert clients.deaths()[-1].by == "itself", "the order that did not come true was taken back"


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
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
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
        "import sys; from pathlib import Path; from linkflap.harness.workloads.context import "
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


def test_of_a_long_history_the_end_is_read(tmp_path: Path) -> None:
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
