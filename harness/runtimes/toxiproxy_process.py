"""One toxiproxy-server as a child process on loopback: started, seen to answer, killed.

Promises: `start` returns when the control port takes connections, `kill` when the process is gone, and the process does not
outlive the harness.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from harness.model.errors import DeadlineExceeded, SetupError
from harness.model.wait import until

START_WITHIN: Final = 30.0
_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ToxiproxyProcess:
    """A server that can be started again on the same port after it was killed."""

    def __init__(self, server: Path, *, port: int, folder: Path) -> None:
        self.port, self.log = port, folder / "toxiproxy.log"
        self._server = server
        self._process: subprocess.Popen[bytes] | None = None
        # PR_SET_PDEATHSIG fires when the *thread* that forked ends, and a rebuild is asked for by a fault's short-lived
        # thread: so one thread that lives as long as the link starts every process of it.
        self._spawner = ThreadPoolExecutor(1, thread_name_prefix="toxiproxy")

    def start(self) -> None:
        """Raises SetupError when it cannot be started, or does not listen in time."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._process = process = self._spawner.submit(self._spawn).result()
        try:
            until(
                lambda: process.poll() is not None or self._listens(),
                within=START_WITHIN,
                what=f"toxiproxy-server to listen on port {self.port}",
                every=0.005,
            )
        except DeadlineExceeded as error:
            self.kill()
            raise SetupError(f"{error}; see {self.log}") from error
        if process.poll() is not None:
            raise SetupError(f"toxiproxy-server ended with {process.returncode}; is port {self.port} free? See {self.log}")

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [str(self._server), "-host", "127.0.0.1", "-port", str(self.port)]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "LOG_LEVEL": "warn"},
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def _listens(self) -> bool:
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def pid(self) -> int | None:
        """The running server's process id."""
        return self._process.pid if self._process is not None else None

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Kills it and lets its spawner go; nothing can be started afterwards."""
        self.kill()
        self._spawner.shutdown()
