"""One toxiproxy-server as a child process on loopback: started, seen to answer, killed.

Promises: `start` returns when the control port takes connections, `kill` when the process is gone, and the process does not
outlive the harness (`harness.runtimes.children`).
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from harness.model.errors import DeadlineExceeded, SetupError
from harness.model.wait import until
from harness.runtimes.children import Child, spawn

START_WITHIN: Final = 30.0


class ToxiproxyProcess:
    """A server that can be started again on the same port after it was killed."""

    def __init__(self, server: Path, *, port: int, folder: Path) -> None:
        self.port, self.log = port, folder / "toxiproxy.log"
        self._server = server
        self._child: Child | None = None

    def start(self) -> None:
        """Raises SetupError when it cannot be started, or does not listen in time."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._child = child = spawn(
            [str(self._server.absolute()), "-host", "127.0.0.1", "-port", str(self.port)],
            name=f"toxiproxy-server on port {self.port}",
            folder=self.log.parent,
            output=self.log,
            environment={"LOG_LEVEL": "warn"},
        )
        try:
            until(
                lambda: not child.alive or self._listens(),
                within=START_WITHIN,
                what=f"{child.name} to listen",
                every=0.005,
            )
        except DeadlineExceeded as error:
            self.kill()
            raise SetupError(f"{error}; see {self.log}") from error
        if not child.alive:
            raise SetupError(f"{child.name} ended with status {child.poll()}: is that port free? See {self.log}")

    def _listens(self) -> bool:
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def child(self) -> Child | None:
        """The running server, if it was started."""
        return self._child

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        if self._child is not None:
            self._child.kill()
            self._child = None
