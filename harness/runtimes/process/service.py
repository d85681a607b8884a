"""A JVM beside the brokers, for instance a MirrorMaker worker, with files of its own in a folder of its own.

Its class archive is written by the first one that ends in good order, beside the final place, and renamed: a service that
is killed leaves none, and two that end at the same time leave the same.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.runtimes import children
from harness.runtimes.distribution import cache
from harness.runtimes.process import jvm
from harness.runtimes.process.cluster import Installation

STOP_WITHIN: Final = 60.0


class ProcessService:
    """`harness.model.protocols.Service`. Not started when made."""

    def __init__(
        self,
        name: str,
        installation: Installation,
        *,
        main: str,
        folder: Path,
        files: Mapping[str, str],
        arguments: Sequence[str],
    ) -> None:
        self._name = name
        self._installation = installation
        self._main = main
        self._folder = folder.absolute()
        self._arguments = arguments
        self._child: children.Child | None = None
        self._archive: Path | None = None
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
        if self.alive:
            return
        self.log.touch()
        self._child = children.spawn(self._command(), name=self._name, folder=self._folder, output=self.output)

    def _command(self) -> list[str]:
        kafka, java = self._installation.kafka, self._installation.java
        archive = jvm.archive_of(kafka, java, self._main)
        self._archive = None if archive else self._folder / "classes"
        return jvm.command(
            kafka,
            java,
            main=self._main,
            arguments=self._arguments,
            memory=jvm.SERVICE_MEMORY,
            log=self.log,
            archive=jvm.make(java, self._archive) if self._archive else jvm.use(java, archive),
        )

    def stop(self) -> None:
        """SIGTERM, and waits; DeadlineExceeded when it does not end in time."""
        if self._child is None:
            return
        self._child.stop(within=STOP_WITHIN)
        if self._archive is not None and self._archive.is_file():
            self._keep(self._archive)

    def _keep(self, archive: Path) -> None:
        folder = cache.folder() / jvm.archive_name(self._installation.kafka, self._installation.java, self._main)
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f".classes-{uuid.uuid4().hex}"
        with contextlib.suppress(OSError):  # a cache that is full or gone costs the next start a second, no more
            beside.write_bytes(archive.read_bytes())
            beside.replace(folder / "classes")
        archive.unlink()

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def pause(self) -> None:
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        if self._child is not None:
            self._child.resume()
