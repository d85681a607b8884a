"""A JVM beside the brokers, for instance a MirrorMaker worker, with files of its own in a folder of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness.model.errors import SetupError
from harness.runtimes.kraft.running import Running, Spawn

STOP_WITHIN: Final = 60.0


class KafkaService:
    """`harness.model.protocols.Service`. Not started when made."""

    def __init__(self, name: str, *, folder: Path, files: Mapping[str, str], spawn: Spawn) -> None:
        self._name = name
        self._folder = folder.absolute()
        self._spawn = spawn
        self._child: Running | None = None
        self._starting = threading.Lock()
        self._closed = False
        self._folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (self._folder / file).write_text(text)

    @property
    def folder(self) -> Path:
        """Where its files are, and where it runs."""
        return self._folder

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    @property
    def log(self) -> Path:
        return self._folder / "service.log"

    @property
    def output(self) -> Path:
        """What the JVM printed beside its log."""
        return self._folder / "output.log"

    def start(self) -> None:
        """Starts the process; nothing when it runs already. What it does then is its owner's to wait for."""
        with self._starting:
            if self.alive:
                return
            if self._closed:
                raise SetupError(f"{self._name} cannot be started: its deployment is closed")
            self.log.touch()
            self._child = self._spawn()

    def stop(self, *, within: float = STOP_WITHIN) -> None:
        """SIGTERM, and waits; DeadlineExceeded when it does not end in time."""
        if self._child is not None:
            self._child.stop(within=within)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def close(self) -> None:
        """As `kill`, and it cannot be started again."""
        self._closed = True
        with self._starting:
            self.kill()

    def pause(self) -> None:
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        if self._child is not None:
            self._child.resume()
