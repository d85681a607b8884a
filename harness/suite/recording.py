"""One recording: `linkflap run FILE --no-verify` in a child process. If the suite dies, the child
dies too and ends its brokers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from linkflap.harness.machine.children import Child, module, spawn
from linkflap.harness.model.errors import InputError
from linkflap.harness.rundir import RunReader

LONGEST: Final = 900.0
"""Seconds after which a recording is killed."""
ENDS_WITHIN: Final = 60.0


@dataclass(slots=True, kw_only=True)
class Recording:
    """A recording that runs or has ended. `number` is the caller's number for it."""

    number: int
    folder: Path
    child: Child
    began: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        """Whether it has ended. Kills it first if it has taken longer than LONGEST."""
        if self.child.alive and time.monotonic() - self.began > LONGEST:
            self.child.kill()
        return not self.child.alive

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def failure(self) -> str:
        """Why it ended early: a failure of the environment or of linkflap, never a violation. Empty
        if the recording is complete."""
        try:
            run = RunReader(self.folder).run
        except InputError:
            return (
                f"it exited with status {self.child.poll()} before anything was recorded; see "
                f"{self.folder.name}.log"
            )
        if run.status == "finished":
            return ""
        return run.error or f"it ended as {run.status} with exit status {self.child.poll()}"


def start(number: int, scenario: Path, folder: Path, *, runtime: str) -> Recording:
    """Starts to record a scenario file into the run directory `folder`. The output of the process
    goes to `<folder>.log`."""
    command, environment = module(
        "linkflap",
        "run",
        str(scenario.absolute()),
        "--no-verify",
        "--runtime",
        runtime,
        "--out",
        str(folder.absolute()),
    )
    log = folder.with_name(f"{folder.name}.log")
    child = spawn(
        command, name=f"run {number}", folder=scenario.parent, output=log, environment=environment
    )
    return Recording(number=number, folder=folder, child=child)


def stop(recordings: list[Recording]) -> None:
    """Sends SIGTERM to all recordings, so that each stops its brokers. Kills those that have not
    ended within ENDS_WITHIN seconds."""
    for recording in recordings:
        recording.child.signal(15)
    for recording in recordings:
        try:
            recording.child.stop(within=ENDS_WITHIN)
        except Exception:  # noqa: BLE001  (whatever it is, the process must not outlive us)
            recording.child.kill()
