"""The recorder of one cluster, seen from the harness (`harness.wire.recorder` is the program): one
process before all of its brokers, with two ports for each: one that the listener RECORDED
advertises, and one behind the proxy `*->X`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.machine import children
from linkflap.harness.model.errors import DeadlineExceeded, SetupError
from linkflap.harness.model.events import WireRecorded
from linkflap.harness.model.protocols import Recorder, WireRecording
from linkflap.harness.model.wait import until
from linkflap.harness.rundir.files import write_whole
from linkflap.harness.runtimes.kraft.broker import ServiceProgram
from linkflap.harness.wire.recorder.settings import SETTINGS, Settings, read_report

_MODULE: Final = "linkflap.harness.wire.recorder"
_READY: Final = "records at"
_LOG: Final = "recorder.log"
READY_WITHIN: Final = 60.0
END_WITHIN: Final = 10.0


class ClusterRecorder(ServiceProgram):
    """Not started when made. `bootstrap`: the addresses that its clients are given."""

    def __init__(
        self,
        cluster: str,
        number: int,
        wire: WireRecording,
        *,
        folder: Path,
        listens: Mapping[int, str],
        bootstrap: str,
        recorder: Recorder,
    ) -> None:
        """`listens`: port -> the listener behind it; `number`: the place of the cluster in its
        topology."""
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        settings = Settings(
            cluster=cluster,
            number=number,
            root=str(wire.root.absolute()),
            topics=wire.topics,
            reads=wire.reads,
            groups=wire.groups,
            listens=listens,
        )
        write_whole(folder / SETTINGS, msgspec.json.encode(settings))
        command, environment = children.module(_MODULE, str(folder))
        name = f"recorder of {cluster}"
        spawn = partial(
            children.spawn,
            command,
            name=name,
            folder=folder,
            output=folder / _LOG,
            environment=environment,
        )
        super().__init__(name, folder=folder, log=_LOG, spawn=spawn)
        self.cluster, self.bootstrap, self._recorder = cluster, bootstrap, recorder

    def start(self) -> None:
        """Returns when it listens. Raises SetupError."""
        self.launch()
        try:
            until(self._ready, within=READY_WITHIN, what=f"the {self._name} to listen")
        except DeadlineExceeded as error:
            raise SetupError(f"{error}; see {self.log}") from error

    def _ready(self) -> bool:
        if not self.alive:
            raise SetupError(f"the {self._name} ended while starting; see {self.log}")
        return _READY in self.log.read_text(errors="replace")

    def finish(self) -> None:
        """Ends it, and writes down what it reports; does nothing where it has died, or was never
        started."""
        if self.alive:
            self.stop(within=END_WITHIN)
            if (report := read_report(self._folder)) is not None:
                self._recorder.write(
                    WireRecorded(cluster=self.cluster, **msgspec.structs.asdict(report))
                )
        self.close()
