"""A program with its own folder. It can be started repeatedly until it is closed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.protocols import Running, Spawn

STOP_WITHIN: Final = 60.0


class ServiceProgram:
    """Not started when made. `folder` has its input and output files, `log` is its log file
    there."""

    def __init__(self, name: str, *, folder: Path, log: str, spawn: Spawn) -> None:
        self._name, self._folder, self._log, self._spawn = name, folder, log, spawn
        self._child: Running | None = None
        self._starting = threading.Lock()
        self._closed = False

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    @property
    def log(self) -> Path:
        return self._folder / self._log

    @property
    def output(self) -> Path:
        """The JVM's output besides its log: its only messages if it could not start."""
        return self._folder / "output.log"

    def launch(self) -> None:
        """Starts it without waiting, unless it runs already. Raises SetupError once it is
        closed."""
        with self._starting:
            if self.alive:
                return
            if self._closed:
                raise SetupError(f"{self._name} cannot be started: its deployment is closed")
            self.log.touch()
            self._child = self._spawn()

    def run_by(self, spawn: Spawn) -> None:
        """Uses this to start it from the next start on."""
        with self._starting:
            self._spawn = spawn

    def stop(self, *, within: float = STOP_WITHIN) -> None:
        """SIGTERM, and waits. Raises DeadlineExceeded when it does not end in time."""
        if self._child is not None:
            self._child.stop(within=within)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def close(self) -> None:
        """Like `kill`, and it cannot be started again: a closed deployment must not start
        anything."""
        self._closed = True
        with self._starting:
            self.kill()

    def pause(self) -> None:
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        if self._child is not None:
            self._child.resume()
