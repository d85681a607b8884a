"""One toxiproxy-server: starts it, polls until it answers, and kills it. It is a child process on
loopback unless a runtime runs it elsewhere.

Promises: `start` returns when the control API answers on loopback, `kill` when the server has
ended, and it does not outlive the harness (`harness.machine.children`).
"""

from __future__ import annotations

import contextlib
import http.client
from functools import partial
from pathlib import Path
from typing import Final

from linkflap.harness.machine.children import spawn
from linkflap.harness.model.errors import DeadlineExceeded, SetupError
from linkflap.harness.model.protocols import Running, Spawn
from linkflap.harness.model.wait import until

START_WITHIN: Final = 30.0


class ToxiproxyServer:
    """A server that can be restarted on the same port after a kill. Its output goes to `log`.
    `spawn` starts it with its control API on `port` of loopback. `listens_on` is the address on
    which its proxies listen."""

    def __init__(
        self, spawn: Spawn, *, port: int, log: Path, listens_on: str = "127.0.0.1"
    ) -> None:
        self.port, self.log, self.listens_on = port, log, listens_on
        self._spawn = spawn
        self._child: Running | None = None

    def start(self) -> None:
        """Raises SetupError when it cannot be started, or does not listen in time."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._child = child = self._spawn()
        name = f"toxiproxy-server on port {self.port}"
        try:
            until(
                lambda: not child.alive or self._answers(),
                within=START_WITHIN,
                what=f"{name} to answer",
                every=0.005,
            )
        except DeadlineExceeded as error:
            self.kill()
            raise SetupError(f"{error}; see {self.log}") from error
        if not child.alive:
            raise SetupError(
                f"{name} ended with status {child.poll()}: is that port free? See {self.log}"
            )

    def _answers(self) -> bool:
        """Asks over HTTP: a published port accepts connections before the server listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        with (
            contextlib.closing(connection),
            contextlib.suppress(OSError, http.client.HTTPException),
        ):
            connection.request("GET", "/version")
            return connection.getresponse().status == 200
        return False

    @property
    def child(self) -> Running | None:
        """The running server, if it was started."""
        return self._child

    def kill(self) -> None:
        """SIGKILL; returns when it has ended."""
        if self._child is not None:
            self._child.kill()
            self._child = None


class ToxiproxyProcess(ToxiproxyServer):
    """A server that is a child of this process; `folder` gets its log."""

    def __init__(self, server: Path, *, port: int, folder: Path) -> None:
        log = folder / "toxiproxy.log"
        command = [str(server.absolute()), "-host", "127.0.0.1", "-port", str(port)]
        name = f"toxiproxy-server on port {port}"
        super().__init__(
            partial(
                spawn,
                command,
                name=name,
                folder=folder,
                output=log,
                environment={"LOG_LEVEL": "warn"},
            ),
            port=port,
            log=log,
        )
