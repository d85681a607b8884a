"""Child processes that cannot outlive the harness.

Each child asks the kernel to kill it when its parent dies (PR_SET_PDEATHSIG, prctl(2)); that also
ends a stopped child. The ledger lists each child for the watchdog. Each leads its own session, so
that Ctrl-C reaches only the harness, which then ends its children in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Protocol

import psutil

from linkflap.harness.machine import cleanup, ledger, process_identity
from linkflap.harness.model.errors import DeadlineExceeded, SetupError
from linkflap.harness.model.wait import until
from linkflap.harness.version import INSTALLED

# Runs in the child, between fork and the real program: a fresh interpreter, because code between
# fork and exec in a process with threads can deadlock. The second look at the parent closes the
# race with a parent that died before prctl took effect.
_LAUNCH = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""

# The same for a program of the user's, which may start others: it stays the parent of the program,
# in whose process group all of them are, and kills the group when the harness dies. Other signals
# go to the whole group (killpg); it ignores them.
_SUPERVISE = """
import ctypes, os, signal, sys
signal.signal(signal.SIGHUP, lambda *_: os.killpg(0, signal.SIGKILL))
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda *_: None)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGHUP)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
every = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ, setsigdef=every)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if status < 0 and -status not in (signal.SIGKILL, signal.SIGSTOP):
    signal.signal(-status, signal.SIG_DFL)
if status < 0:
    os.kill(os.getpid(), -status)
os._exit(status if status >= 0 else 1)
"""

_ROOT = str(INSTALLED)
_spawners: dict[int, ThreadPoolExecutor] = {}
_spawners_lock = threading.Lock()


def _spawner() -> ThreadPoolExecutor:
    """The one thread that forks: the death signal fires when the *thread* that forked ends, so it
    must live as long as we."""
    with _spawners_lock:
        return _spawners.setdefault(
            os.getpid(), ThreadPoolExecutor(max_workers=1, thread_name_prefix="linkflap-spawner")
        )


class ChildProcess(Protocol):
    """The part of `subprocess.Popen` that `Child` needs. Until `poll` has returned a status, the
    pid is not reused.
    """

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...


class Child:
    """One child process, running or exited. All methods are idempotent."""

    def __init__(
        self, process: ChildProcess, identity: process_identity.Identity, name: str
    ) -> None:
        self._process = process
        self._identity = identity
        self._lock = threading.Lock()
        self.name = name

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, negative for a signal, or None while it runs."""
        with self._lock:
            before = self._process.returncode
            status = self._process.poll()
        if before is None and status is not None:
            ledger.remove_child(self._identity)
        return status

    @property
    def alive(self) -> bool:
        return self.poll() is None

    @property
    def paused(self) -> bool:
        try:
            return self.alive and _stopped(self._seen)
        except psutil.NoSuchProcess:
            return False

    @cached_property
    def _seen(self) -> psutil.Process:
        """Made once: a new one reads when the process began, which takes longer than its status."""
        return psutil.Process(self.pid)

    @property
    def any_suspended(self) -> bool:
        """Whether the process, or one that it started, is stopped (SIGSTOP), whoever did that."""
        try:
            return self.alive and any(
                _stopped(each) for each in (self._seen, *self._seen.children(recursive=True))
            )
        except psutil.NoSuchProcess:
            return False

    def signal(self, number: int) -> None:
        """Sends a signal to the child and whatever it started; nothing when it has ended."""
        with self._lock:
            if self._process.poll() is None:  # not reaped by anyone, so the pid is still its own
                os.killpg(self.pid, number)

    def pause(self) -> None:
        """SIGSTOP; returns when it is suspended."""
        self.signal(signal.SIGSTOP)
        until(lambda: self.paused or not self.alive, within=10, what=f"{self.name} to be stopped")

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        until(lambda: not self.paused, within=10, what=f"{self.name} to go on")

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.signal(signal.SIGKILL)
        self._gone(within=30, what="die")

    def stop(self, *, within: float) -> None:
        """Sends SIGTERM, also to a suspended child, and returns when it has exited. Raises
        DeadlineExceeded after `within` seconds; the child then still runs.
        """
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        self._gone(within=within, what="end after SIGTERM")

    def end_group(self) -> int | None:
        """As `poll`; of a child that has ended, what it started and left in its process group is
        killed too.

        The dead child is not reaped before: until then no other process group can have its number.
        """
        with self._lock, contextlib.suppress(ChildProcessError, ProcessLookupError):
            if self._process.returncode is None and os.waitid(
                os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
            ):
                os.killpg(self.pid, signal.SIGKILL)
        return self.poll()

    def kill_supervised(self) -> None:
        """SIGKILL of a supervised program, of which no zombie is left: its supervisor takes its
        exit status. If both died at once, only process 1 could, and in a container it may not."""
        with contextlib.suppress(psutil.NoSuchProcess, DeadlineExceeded):
            for program in self._seen.children():
                program.kill()
            until(
                lambda: self.end_group() is not None,
                within=1,
                what=f"the supervisor of {self.name} to end",
                every=0.01,
            )

    def group(self) -> frozenset[int]:
        """The processes of its process group that live, itself included while it does."""
        return frozenset(pid for pid in psutil.pids() if _group_of(pid) == self.pid)

    def _gone(self, *, within: float, what: str) -> None:
        until(
            lambda: not self.alive,
            within=within,
            what=f"{self.name} (pid {self.pid}) to {what}",
            every=0.01,
        )


def _stopped(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def _group_of(pid: int) -> int:
    try:
        return -1 if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else os.getpgid(pid)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return -1


def spawn(
    command: Sequence[str],
    *,
    name: str,
    folder: Path,
    output: Path,
    environment: Mapping[str, str] | None = None,
    handles: Sequence[int] = (),
    supervised: bool = False,
) -> Child:
    """Starts `command` (its first word an absolute path) in `folder`; what it prints is appended to
    the file `output`.

    `environment` is added to this process' own; `handles` are open files that it inherits, under
    the same numbers. `supervised`: it may start others, which must not outlive this process either.
    Raises SetupError when it cannot be started.
    """
    if not os.access(command[0], os.X_OK):
        raise SetupError(
            f"cannot start {name}: {command[0]} is not an executable file; give its full path, or "
            "install it again"
        )
    cleanup.start_watchdog()
    launch = _SUPERVISE if supervised else _LAUNCH
    return (
        _spawner()
        .submit(_start, command, name, folder, output, environment, handles, launch)
        .result()
    )


def run(
    command: Sequence[str],
    *,
    name: str,
    folder: Path,
    output: Path,
    within: float,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Runs a child to its end and returns its exit status. Arguments as of `spawn`;
    DeadlineExceeded after `within` seconds."""
    child = spawn(command, name=name, folder=folder, output=output, environment=environment)
    try:
        return (
            until(
                lambda: (child.poll(),) if not child.alive else None,
                within=within,
                what=f"{name} to end",
            )[0]
            or 0
        )
    finally:
        child.kill()


def _start(
    command: Sequence[str],
    name: str,
    folder: Path,
    output: Path,
    environment: Mapping[str, str] | None,
    handles: Sequence[int],
    launch: str,
) -> Child:
    with output.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", launch, str(os.getpid()), *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            pass_fds=handles,
        )
    return adopt(process, name)


def adopt(process: ChildProcess, name: str) -> Child:
    """Registers in the ledger a process that was just started and leads its own process group."""
    # Not reaped yet, so the pid is still its own: if it has ended already, there is nothing to
    # record.
    identity = process_identity.identify(process.pid) or process_identity.Identity(
        pid=process.pid, born="ended"
    )
    ledger.add_child(identity)
    return Child(process, identity, name)


def module(name: str, *arguments: str) -> tuple[Sequence[str], Mapping[str, str]]:
    """The command that runs a module of linkflap's own in a fresh interpreter, and the environment
    in which it is found."""
    path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
    return [sys.executable, "-P", "-m", name, *arguments], {"PYTHONPATH": path}
