"""A JVM besides the brokers, for instance a MirrorMaker worker, with its files in its own
folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from linkflap.harness.model.protocols import Spawn
from linkflap.harness.runtimes.kraft.program import ServiceProgram


class KafkaService(ServiceProgram):
    """`harness.model.protocols.Service`. Not started when made."""

    def __init__(self, name: str, *, folder: Path, files: Mapping[str, str], spawn: Spawn) -> None:
        super().__init__(name, folder=folder.absolute(), log="service.log", spawn=spawn)
        self._folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (self._folder / file).write_text(text)

    @property
    def folder(self) -> Path:
        """The folder with its files, which is its working directory."""
        return self._folder

    def start(self) -> None:
        """Starts it unless it runs already. The owner waits until it is ready."""
        self.launch()
