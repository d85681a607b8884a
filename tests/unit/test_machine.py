"""The machine: leases of ports and memory, the engine's address, signals, deadlines, and tasks
side by side."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import psutil
import pytest

from linkflap.harness.machine import cleanup, docker_package, leases, ledger, process_identity
from linkflap.harness.machine.attached_leftovers import Attached
from linkflap.harness.machine.leases import Lease
from linkflap.harness.model import wait
from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.model.interrupts import held_off
from linkflap.harness.model.threads import all_side_by_side, side_by_side
from linkflap.harness.model.wait import patient, until
from linkflap.harness.runtimes.kraft.deployment import SERVICE_MEMORY, DeploymentParts
from tests.waiting import eventually

# Ports and memory of concurrent harnesses: real processes, real sockets, real ledger entries.


# A hundred ports for each worker of pytest-xdist: their ledgers are separate, so they do not see
# each other's leases.
FIRST = 16000 + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))

HOLD = """
import sys
from linkflap.harness.machine.attached_leftovers import Attached
from linkflap.harness.machine.leases import Lease
print(*Lease().ports(int(sys.argv[1])), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("LINKFLAP_PORTS", f"{FIRST}-{FIRST + 99}")
    # Resources that this worker's other tests hold in this process (Spark's JVM) are not in an
    # entry of this folder.
    monkeypatch.setattr(ledger, "_own", None)


Holder = Callable[[int], subprocess.Popen[str]]


@pytest.fixture
def lease() -> Iterator[Lease]:
    lease = leases.Lease()
    yield lease
    lease.release()


@pytest.fixture
def holder() -> Iterator[Holder]:
    """Starts processes that hold ports until they are asked to exit, or killed."""
    started = []

    def start(count: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ports_of(process: subprocess.Popen[str]) -> set[int]:
    assert process.stdout is not None
    return {int(port) for port in process.stdout.readline().split()}


def test_harnesses_that_lease_at_the_same_time_never_share_a_port(holder: Holder) -> None:
    processes = [holder(20) for _ in range(4)]
    held = [ports_of(process) for process in processes]
    assert [len(ports) for ports in held] == [20] * 4
    assert len(set().union(*held)) == 80


def test_a_port_with_a_listener_is_not_leased(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The watchdog is started first: the kernel lets us run on before a new program's inherited
    # sockets are closed, and one that is started while we listen would hold the port a moment
    # longer than we.
    cleanup.start_watchdog()
    with socket.socket() as taken:
        port = FIRST + 42
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        monkeypatch.setenv("LINKFLAP_PORTS", f"{port}-{port}")
        with pytest.raises(SetupError):
            lease.ports(1)
    assert lease.ports(1) == [port]


def test_exhausted_ports_are_one_sentence_that_names_the_fix(lease: Lease) -> None:
    lease.ports(90)
    with pytest.raises(
        SetupError,
        match=(
            rf"^20 ports are needed and \d+ of {FIRST}-{FIRST + 99} are free; .*linkflap"
            r" clean.*LINKFLAP_PORTS"
        ),
    ) as raised:
        lease.ports(20)
    assert "\n" not in str(raised.value)
    assert len(ledger.own().ports) == 90, "a refused lease must hold nothing"


def test_release_gives_back_and_leaves_no_entry(lease: Lease) -> None:
    lease.ports(90)
    lease.reserve(1 << 30)
    lease.release()
    lease.release()
    assert ledger.entries() == []
    assert len(lease.ports(90)) == 90


def test_the_lease_of_a_killed_harness_is_free_again(holder: Holder, lease: Lease) -> None:
    process = holder(95)
    assert len(ports_of(process)) == 95
    with pytest.raises(SetupError):
        lease.ports(50)
    process.kill()
    process.wait()
    assert len(lease.ports(95)) == 95
    eventually(
        "the watchdog to remove the dead one's entry",
        lambda: len(ledger.entries()) == 1,
        state=ledger.entries,
    )


def test_a_pid_that_was_reused_is_not_the_owner(lease: Lease) -> None:
    lease.ports(1)
    mine = ledger.own()
    other = dataclasses.replace(
        mine,
        owner=process_identity.Identity(pid=os.getpid(), born=mine.owner.born + "1"),
        ports=(FIRST,),
    )
    path = ledger.folder() / f"{os.getpid()}-other.json"
    path.write_bytes(msgspec.json.encode(other))
    assert process_identity.alive(mine.owner)
    assert not process_identity.alive(other.owner)


def test_clean_removes_leftovers_of_dead_processes_only(lease: Lease, tmp_path: Path) -> None:
    lease.ports(3)
    left = tmp_path / "left"
    left.mkdir()
    bystander = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    # the dead one's child had this pid before
    reused = process_identity.Identity(pid=bystander.pid, born=ledger.own().owner.born)
    dead = ledger.OwnerEntry(
        owner=process_identity.Identity(pid=os.getpid(), born=ledger.own().owner.born[:-1] + "x"),
        ports=(FIRST,),
        children=(reused,),
        folders=(str(left),),
    )
    (ledger.folder() / f"{dead.owner.pid}-{dead.owner.born.rpartition('/')[2]}.json").write_bytes(
        msgspec.json.encode(dead)
    )
    removed = cleanup.clean().removed
    assert any(str(left) in line for line in removed)
    assert not left.exists()
    assert [entry.owner for entry in ledger.entries()] == [ledger.own().owner]
    assert bystander.poll() is None
    bystander.communicate()
    assert cleanup.clean().removed == []


def test_clean_names_the_entry_of_what_it_cannot_remove(lease: Lease, tmp_path: Path) -> None:
    theirs = Attached(
        name="A", bootstrap="127.0.0.1:1", id="i", clusters=("A",), had_heartbeats=False,
        properties=str(tmp_path / "gone.properties"),
    )  # fmt: skip
    owner = process_identity.Identity(pid=2**30, born="0/1")
    path = ledger.path_of(owner)
    path.write_bytes(msgspec.json.encode(ledger.OwnerEntry(owner=owner, attached=(theirs,))))
    cannot, forget = cleanup.clean().left
    assert "cannot be entered" in cannot
    assert forget == f"to forget what is left there, delete {path}"
    path.unlink()
    assert cleanup.clean().left == []


def test_a_deployment_waits_for_memory_and_then_gives_up_politely(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Memory:
        total = 8 << 30
        available = 2 << 30

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    lease.memory(1 << 30, within=1)
    second = leases.Lease()
    with pytest.raises(
        SetupError,
        match=r"waited 0.3 s for 1536 MB of memory and 1024 MB are left; .*fewer brokers",
    ):
        second.memory(1536 << 20, within=0.3)
    lease.release()
    second.memory(1536 << 20, within=1)
    second.release()


def test_more_memory_than_the_machine_has_is_refused_at_once(lease: Lease) -> None:
    with pytest.raises(SetupError, match=r"the machine has \d+ MB; use fewer brokers"):
        lease.memory(1 << 60)


def test_a_service_that_replaces_another_uses_its_memory(lease: Lease, tmp_path: Path) -> None:
    """A mirror is a new service of the same name in each run on kept clusters."""
    closed: list[str] = []
    deployment = SimpleNamespace(
        _folder=tmp_path,
        _installation=str,
        _make_service=lambda _installation, plan: SimpleNamespace(
            close=lambda: closed.append(plan.arguments[0])
        ),
        _lock=threading.Lock(),
        _closed=False,
        _services={},
        _lease=lease,
    )
    for name, run in (("mm2-A-B", "1"), ("mm2-A-B", "2"), ("mm2-B-C", "2")):
        DeploymentParts.service(
            cast(DeploymentParts, deployment),
            name,
            main="Main",
            kafka="4.3.1",
            files={},
            arguments=[run],
        )
    assert closed == ["1"]
    assert ledger.own().memory == 2 * SERVICE_MEMORY


@pytest.mark.parametrize("text", ["", "17000", "17000-", "20000-17000", "80-90", "a-b"])
def test_a_malformed_range_is_the_users_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("LINKFLAP_PORTS", text)
    if not text:
        first, last = leases.port_range()
        assert 1024 <= first < last < 65536
        return
    with pytest.raises(InputError, match="LINKFLAP_PORTS"):
        leases.port_range()


def test_a_temporary_folder_is_gone_after_its_block(tmp_path: Path) -> None:
    with cleanup.temporary_folder() as folder:
        (folder / "file").write_text("content")
        assert ledger.own().folders == (str(folder),)
    assert not folder.exists()
    assert ledger.entries() == []


# The address of the Docker engine, as every user of it sees it: local, on another machine, or
# one that cannot be named.


@pytest.mark.parametrize(
    "host",
    ["unix:///run/docker.sock", "tcp://127.0.0.1:2375", "tcp://localhost:1", "tcp://[::1]:2375"],
)
def test_an_engine_of_this_machine_is_near(host: str) -> None:
    assert docker_package.not_near(host) is None


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (
            "tcp://engine.example:2375",
            "the Docker engine at tcp://engine.example:2375 is another machine's",
        ),
        (
            "ssh://me@engine.example",
            "the Docker engine at ssh://me@engine.example is another machine's",
        ),
        ("foo", "DOCKER_HOST is 'foo', which names no engine"),
        ("unix://", "DOCKER_HOST is 'unix://', which names no engine"),
        ("tcp://[::1:2375", "DOCKER_HOST is 'tcp://[::1:2375', which names no engine"),
        ("tcp://127.0.0.1:many", "DOCKER_HOST is 'tcp://127.0.0.1:many', which names no engine"),
        ("tcp://127.0.0.1:1", "no Docker engine answers"),
    ],
)
def test_an_unavailable_engine_is_an_error_of_one_sentence(
    host: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from linkflap.harness.runtimes.docker import engine

    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setattr(engine, "_clients", {})
    with pytest.raises(SetupError) as refused:
        engine.client()
    assert str(refused.value).startswith(said)


# Signals that arrive while something is being stopped wait until it has stopped.


def test_a_signal_waits_for_the_end_of_the_block() -> None:
    done = []

    def stop() -> None:
        with held_off():
            signal.raise_signal(signal.SIGINT)
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_block_may_fail_and_blocks_may_be_in_blocks() -> None:
    done = []

    def stop() -> None:
        with held_off():
            with held_off():
                signal.raise_signal(signal.SIGINT)
                done.append("inner")
            done.append("outer")
            raise ValueError("could not be stopped")

    with pytest.raises(KeyboardInterrupt) as raised:
        stop()
    assert done == ["inner", "outer"]
    assert isinstance(raised.value.__context__, ValueError)


def test_a_thread_is_never_asked() -> None:
    done = []

    def stop() -> None:
        with held_off():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=stop)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]


# Deadlines: how long a busy machine may take, and extensions for work that makes progress.


@pytest.mark.parametrize(
    ("load", "processors", "seconds"),
    [(0.0, 2, 6), (2.0, 2, 6), (5.0, 2, 15), (20.0, 2, 60), (500.0, 2, 60), (20.0, 32, 6)],
)
def test_a_deadline_grows_with_the_processes_that_want_each_processor(
    monkeypatch: pytest.MonkeyPatch, load: float, processors: int, seconds: int
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)), raising=False)
    assert patient(6.0) == seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that have passed: every sleep takes one."""
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += 1.0

    monkeypatch.setattr(time, "monotonic", lambda: passed[0])
    monkeypatch.setattr(time, "sleep", sleep)
    return passed


@pytest.mark.parametrize(
    ("remaining", "seconds"),
    [
        ([9, 9, 9, 9, 9], 3),  # no progress
        ([9, 8, 8, 8, 8, 8], 4),  # then stuck
        ([9, 8, 7, 6, 5, 5, 5, 5, 5], 7),  # longer than the deadline, then stuck
        ([5, 9, 9, 5, 5, 5], 3),  # no better than before
        ([None, 9, 9, 9, 9, 9], 4),  # unknown at first
        (range(1000, 0, -1), 30),  # slow for ever
    ],
    ids=repr,
)
def test_the_deadline_counts_from_the_last_progress(
    clock: list[float], remaining: list[int | None], seconds: int
) -> None:
    counts = iter(remaining)
    with pytest.raises(DeadlineExceeded, match=f"waited {seconds} s for the end"):
        until(lambda: False, within=3, what="the end", remaining=lambda: next(counts))
    assert clock == [seconds]


def test_without_progress_to_measure_the_deadline_is_fixed(clock: list[float]) -> None:
    with pytest.raises(DeadlineExceeded, match="waited 3 s for the end; last seen: a lag of 4"):
        until(lambda: False, within=3, what="the end", state=lambda: "a lag of 4")
    assert clock == [3]


# Concurrent tasks: all results, and the first error: as soon as there is one, or in order.


def test_side_by_side_runs_all_functions_at_once() -> None:
    together = threading.Barrier(3)
    side_by_side([lambda: together.wait(30)] * 3)


def test_side_by_side_accepts_no_functions() -> None:
    side_by_side([])


def test_the_first_error_does_not_wait_for_tasks_that_hang() -> None:
    release, hung = threading.Event(), []

    def hang() -> None:
        hung.append(threading.current_thread())
        release.wait(60)

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        side_by_side([hang, fail])
    assert hung[0].is_alive()
    assert hung[0].daemon
    release.set()


def test_side_by_side_raises_the_first_error_in_order() -> None:
    later = threading.Event()

    def first() -> None:
        later.wait(60)
        raise ValueError("first")

    def second() -> None:
        later.set()
        raise ValueError("second")

    with pytest.raises(ValueError, match="first"):
        all_side_by_side([first, second])
    all_side_by_side([later.set, later.set])


def test_a_process_that_is_suspended_between_its_clocks_tells_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its clients and samplers are other processes, whose times are compared with its own."""
    steady, epoch, delays = wait._anchor(), time.time_ns, iter([0.05, 0.02])

    def suspended() -> int:
        for delay in delays:
            threading.Event().wait(delay)
            break
        return epoch()

    monkeypatch.setattr(time, "time_ns", suspended)
    assert abs(wait._anchor() - steady) < 5_000_000
