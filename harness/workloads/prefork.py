"""Forks processes of clients from one that has imported all they need, so that not each imports it
again.

An import costs 0.2 CPU seconds, a fork a tenth of that, and a run has seven such processes or more.
The harness has one process per run to fork from (harness.workloads.forks), started with the first
client and ended with the last. The forked processes are children of that process, not of the
harness, so it reports how each ended. It dies with the harness, and its children die with it (by
the kernel, as in harness.machine.children).
"""

from __future__ import annotations

import contextlib
import queue
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.machine import children
from linkflap.harness.machine.process_identity import identify
from linkflap.harness.model.errors import SetupError
from linkflap.harness.workloads.forks import FORKS, MESSAGE, SERVES, Ended, Fork, Forked, Reaped

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
    """A forked process, as `harness.machine.children.Child` needs it."""

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
