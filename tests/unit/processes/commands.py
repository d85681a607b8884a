"""Producers of a worker, how its process is killed, and events of its run."""

from __future__ import annotations

import os
import signal

from linkflap.harness.model.wait import until
from linkflap.harness.rundir import RunReader, RunWriter
from linkflap.harness.workloads.clients import WorkloadClients
from linkflap.harness.workloads.worker import Worker


def producers(clients: WorkloadClients) -> Worker:
    return clients.workloads[0].workers[0]


def killed(worker: Worker, number: int = signal.SIGKILL) -> int:
    """Kills the process of a worker, and returns once it is replaced; returns the dead one's
    pid."""
    pid, before = worker.pid, len(worker.deaths)
    os.kill(pid, number)
    until(lambda: len(worker.deaths) > before, within=20, what="the death to be noticed")
    until(
        lambda: worker.given_up or (worker.pid != pid and worker.alive),
        within=20,
        what="another process",
    )
    return pid


def events(writer: RunWriter, *kinds: str) -> list[tuple[str, str, dict[str, object]]]:
    return [
        (e.kind, e.subject, dict(e.row.data))
        for e in RunReader(writer.root).events()[0]
        if e.kind in kinds
    ]
