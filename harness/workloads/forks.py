"""The process that forks the processes of clients (harness.workloads.prefork): its requests, its
reports, and its loop.

It has one thread, so that it may fork. It does not reap a dead child until the harness has read how
the child ended. So no other process gets the same pid meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import msgspec

FORKS: Final = "forks"
SERVES: Final = "serves"
"""The two uses of a program's socket: it forks processes as requested there, or serves the socket
itself."""
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
