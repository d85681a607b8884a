"""One recording: `linkflap run FILE --no-verify` in a process of its own, which dies with us and
takes its brokers along."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from linkflap.harness.machine.children import Child, module, spawn
from linkflap.harness.model.errors import INTERRUPTED, InputError
from linkflap.harness.rundir import RunReader

LONGEST: Final = 900.0
"""Seconds that a recording may take before it is given up."""
ENDS_WITHIN: Final = 60.0


@dataclass(slots=True, kw_only=True)
class Recording:
    """A recording that runs or has ended. `number` is its caller's."""

    number: int
    folder: Path
    child: Child
    began: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        """Whether it has ended; one that takes too long is ended."""
        if self.child.alive and time.monotonic() - self.began > LONGEST:
            self.child.kill()
        return not self.child.alive

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def failure(self) -> str:
        """Why the environment, and not what was tested, made it end early; empty where it did
        not."""
        try:
            run = RunReader(self.folder).run
        except InputError:
            return (
                f"it ended with status {self.child.poll()} before anything was recorded; see "
                f"{self.folder.name}.log"
            )
        if run.status == "finished":
            return ""
        return run.error or f"it ended as {run.status} with status {self.child.poll()}"


def start(number: int, scenario: Path, folder: Path, *, runtime: str) -> Recording:
    """Starts to record a scenario file. Its output goes beside the run directory that it makes."""
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
    """Ends recordings in order: they stop what they started; those that do not in time are
    killed."""
    for recording in recordings:
        recording.child.signal(15)
    for recording in recordings:
        try:
            recording.child.stop(within=ENDS_WITHIN)
        except Exception:  # noqa: BLE001  (whatever it is, the process must not outlive us)
            recording.child.kill()


def interrupted(recording: Recording) -> bool:
    """Whether somebody ended it by a signal."""
    return recording.child.poll() == INTERRUPTED
