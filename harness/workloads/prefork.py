"""Forks processes of clients from one that has imported all they need, so that not each imports it
again.

An import costs 0.2 CPU seconds, a fork a tenth of that, and a run has seven such processes or more.
The harness has one process per run to fork from, started with the first client and ended with the
last. The forked processes are children of that process, not of the harness, so it reports how each
ended. It dies with the harness, and its children die with it (by the kernel, as in
harness.machine.children).

That process has one thread, so that it may fork. It does not reap a dead child until the harness
has read how the child ended. So no other process gets the same pid meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import queue
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from linkflap.harness.machine import children
from linkflap.harness.machine.process_identity import identify
from linkflap.harness.model.errors import SetupError

FORKS: Final = "forks"
SERVES: Final = "serves"
"""What a program does with its socket: fork processes as requested there, or serve it itself."""
MESSAGE: Final = 1 << 12
"""The size limit of a message, in bytes."""
_PR_SET_PDEATHSIG: Final = 1


class Fork(msgspec.Struct, frozen=True, tag=True):
    """Fork a process that works in `folder`. The message carries its socket, and the file for its
    output."""

    folder: str


class Reaped(msgspec.Struct, frozen=True, tag=True):
    """The harness has read the end of this process, so its pid may be reused."""

    pid: int


class Forked(msgspec.Struct, frozen=True, tag=True):
    """The process that was forked for the oldest unanswered request."""

    pid: int


class Ended(msgspec.Struct, frozen=True, tag=True):
    """How a process ended: its exit status, negative for a signal."""

    pid: int
    status: int


_requests: Final = msgspec.json.Decoder(Fork | Reaped)

Serve = Callable[[socket.socket], int]


def serve_forks(control: socket.socket, serve: Serve) -> None:
    """Forks a process for each request, until the other end of `control` is closed. The process
    calls `serve` with its socket and exits with its result. To be called after all imports, in the
    only thread."""
    gc.collect()
    gc.freeze()  # keeps garbage collection off existing objects, so that their pages stay shared
    _Forks(control, serve).serve()


class _Forks:
    """The running forked processes, and the wake-up at each death."""

    def __init__(self, control: socket.socket, serve: Serve) -> None:
        self._control, self._serve = control, serve
        self._running: set[int] = set()
        self._wakes, self._woken = socket.socketpair()
        for end in (self._wakes, self._woken):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # otherwise a death would not wake the loop
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wakes, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._wakes in ready:
                    self._wakes.recv(MESSAGE)
                if self._control in ready and not self._obey():
                    return
                self._report_the_dead()

    def _obey(self) -> bool:
        """Handles a request. False when the other end is closed."""
        packet, handles, _, _ = socket.recv_fds(self._control, MESSAGE, 2)
        if not packet:
            return False
        match _requests.decode(packet):
            case Fork(folder=folder):
                self._fork(folder, handles)
            case Reaped(pid=pid):
                os.waitpid(pid, 0)
        return True

    def _fork(self, folder: str, handles: Sequence[int]) -> None:
        source = os.getpid()
        pid = os.fork()
        if pid == 0:
            for each in (self._control, self._wakes, self._woken):
                each.close()
            _become(source, folder, handles, self._serve)
        # it did so itself, or has ended
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        for handle in handles:
            os.close(handle)
        self._running.add(pid)
        self._control.send(msgspec.json.encode(Forked(pid)))

    def _report_the_dead(self) -> None:
        for pid in list(self._running):
            # WNOWAIT: the pid stays its own
            end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is not None:
                self._running.remove(pid)
                status = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
                self._control.send(msgspec.json.encode(Ended(pid, status)))


def _become(source: int, folder: str, handles: Sequence[int], serve: Serve) -> NoReturn:
    """In the forked process: first what harness.machine.children does between fork and exec, then
    the program."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == source:  # else it died before the kernel knew
            end, output = handles
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            os.chdir(folder)
            status = serve(socket.socket(fileno=end))
    except Exception:  # noqa: BLE001 - whatever it is, it is in the log, and no stack of the process forked from goes on here
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # Not sys.exit: threads of a client library may still run, and everything that matters is
        # written.
        os._exit(status)


PROGRAM: Final = "linkflap.harness.workloads.process"
STARTS_WITHIN: Final = 120.0
_reports: Final = msgspec.json.Decoder(Forked | Ended)


class Prefork:
    """Starts processes of `program`, a module of linkflap's with FORKS and SERVES. Thread-safe.

    Where forking is not safe (any system but Linux), each process is a separate program.
    """

    def __init__(self, program: str = PROGRAM) -> None:
        self._program = program
        self._lock = threading.Lock()
        self._users = 0
        self._source: _Source | None = None

    def start(self, name: str, end: socket.socket, *, folder: Path, log: Path) -> children.Child:
        """Starts a process that serves `end` and appends what it prints to `log`. Raises
        SetupError."""
        if sys.platform != "linux":
            return _program(self._program, SERVES, end, name=name, folder=folder, log=log)
        with self._lock:
            if self._source is not None and self._source.gone:
                self._source.close()
                self._source = None
            if self._source is None:
                self._source = _Source(self._program, folder, log)
            process = self._source.fork(name, end, folder, log)
        return children.adopt(process, name)

    def enter(self) -> None:
        """Announces a user, who may call `start` repeatedly until it calls `leave`."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """Removes a user. With the last one, the process that forks ends."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._source is not None:
                self._source.close()
                self._source = None


def _program(
    module: str, role: str, end: socket.socket, *, name: str, folder: Path, log: Path
) -> children.Child:
    command, environment = children.module(module, role, str(end.fileno()))
    return children.spawn(
        command,
        name=name,
        folder=folder,
        output=log,
        environment=environment,
        handles=[end.fileno()],
    )


class _Source:
    """The process that is forked from."""

    def __init__(self, program: str, folder: Path, log: Path) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._forked: queue.SimpleQueue[Forked | None] = queue.SimpleQueue()
        self._ended: dict[int, int] = {}
        self.gone = False
        try:
            with theirs:
                self._child = _program(
                    program,
                    FORKS,
                    theirs,
                    name="the process that clients are forked from",
                    folder=folder,
                    log=log,
                )
        except BaseException:
            self._control.close()
            raise
        self._reader = threading.Thread(target=self._read, name="forked clients", daemon=True)
        self._reader.start()

    def fork(self, name: str, end: socket.socket, folder: Path, log: Path) -> _Process:
        """Asks for a process, and returns it. Raises SetupError."""
        try:
            with log.open("ab") as output:
                request = msgspec.json.encode(Fork(str(folder.absolute())))
                socket.send_fds(self._control, [request], [end.fileno(), output.fileno()])
            forked = self._forked.get(timeout=STARTS_WITHIN)
        except (OSError, queue.Empty):
            forked = None
        if forked is None:
            raise SetupError(
                f"cannot start {name}: the process that clients are forked from has ended or "
                f"hangs; see {log}"
            )
        return _Process(forked.pid, self)

    def _read(self) -> None:
        while True:
            try:
                packet = self._control.recv(MESSAGE)
            except OSError:
                packet = b""
            if not packet:
                self.gone = True
                self._forked.put(None)
                return
            match _reports.decode(packet):
                case Forked() as forked:
                    self._forked.put(forked)
                case Ended(pid=pid, status=status):
                    self._ended[pid] = status

    def status(self, pid: int) -> int | None:
        """The exit status of a process that it forked, or None while that runs. When this process
        dies, the processes that it forked are killed."""
        status = self._ended.get(pid)
        if status is None and self.gone and identify(pid) is None:
            # it may have reported the end just before its own
            return self._ended.get(pid, -signal.SIGKILL)
        return status

    def reap(self, pid: int) -> None:
        with contextlib.suppress(OSError):  # it is gone, and the kernel has reaped for it
            self._control.send(msgspec.json.encode(Reaped(pid)))

    def close(self) -> None:
        self._child.kill()
        self._reader.join()
        self._control.close()


class _Process:
    """What was forked, as harness.machine.children.Child wants a process."""

    def __init__(self, pid: int, source: _Source) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._source = source

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._source.status(self.pid)
            if self.returncode is not None:
                self._source.reap(self.pid)
        return self.returncode
