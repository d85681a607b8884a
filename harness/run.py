"""The first half of linkflap on one page: make things happen, and write down everything.

    Scenario -> deployment -> topics -> mirrors and workloads -> schedule -> settle -> capture -> run directory

Judging what was written is the other half (`spark_verify.verify`); the two share nothing but the run directory. Whatever
happens in here, the directory is left readable and nothing that was started is left running.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chaos.schedule import Player, check
from harness import mirrors, runtimes, workloads
from harness.capture import logs, watermarks
from harness.model.clock import now
from harness.model.errors import EnvironmentFailure, LinkflapError
from harness.model.protocols import Clients, Deployment, Mirror
from harness.model.scenario import Scenario
from harness.model.wait import until
from harness.report.progress import Progress
from harness.rundir import FORMAT, Run, RunWriter, Status
from harness.version import VERSION

SETTLE = 60.0
"""Seconds that mirrors and readers may take to reach the end once producers have stopped."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """The World that faults see, and what the run itself needs of it."""

    deployment: Deployment
    mirrors: Mapping[str, Mirror]
    clients: Clients
    recorder: RunWriter
    captures: logs.Captures
    ending: threading.Event = field(default_factory=threading.Event)

    @property
    def stopping(self) -> bool:
        return self.ending.is_set()

    def capture(self, moment: str, cluster: str) -> None:
        self.captures.take(moment, cluster)


def record(scenario: Scenario, *, runtime: str, folder: Path, command: str, progress: Progress) -> Path:
    """Runs a scenario and returns its run directory, `folder`, which must not exist yet.

    Raises InputError before anything is started, EnvironmentFailure or FaultError when the machine or a process failed, and
    KeyboardInterrupt as it is; in every case run.json says how it ended.
    """
    check(scenario.schedule, scenario.topology)
    deploy = runtimes.named(runtime)
    run = Run(
        format=FORMAT,
        linkflap=VERSION,
        command=command,
        runtime=runtime,
        status="running",
        started=now(),
        ended=0,
        scenario=scenario,
    )
    with _written(folder, run) as writer, ExitStack() as stack:
        progress.phase("starting clusters and links")
        deployment = stack.enter_context(deploy(scenario.topology, folder=writer.logs, recorder=writer))
        _perform(scenario, deployment, writer, stack, progress)
        progress.phase("stopping")
    return folder


@contextmanager
def _written(folder: Path, run: Run) -> Iterator[RunWriter]:
    """A run directory that says how the run ended, whatever happened."""
    writer = RunWriter(folder, run)
    status: Status = "failed"
    error = ""
    try:
        yield writer
        status = "finished"
    except KeyboardInterrupt:
        status, error = "interrupted", "interrupted by the user"
        writer.event("interrupted", "run", by="signal")
        raise
    except LinkflapError as failure:
        error = str(failure)
        raise
    except BaseException as defect:
        error = repr(defect)
        raise
    finally:
        writer.close(status, error=error)
