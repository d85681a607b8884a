"""The end of a run, however it was interrupted: its last events, its status, and how its processes
ended."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from linkflap.harness.machine.disk_full import is_full, unwritable
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import EnvironmentFailure, InputError, LinkflapError
from linkflap.harness.model.events import Interrupted, NotEnded
from linkflap.harness.model.interrupts import held_off
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.rundir import Run, RunWriter, Status
from linkflap.recording.world import RunWorld
from linkflap.report.progress import Progress


def remove_data(deployment: Deployment) -> None:
    """Removes what brokers left on disk: what is judged was captured."""
    for cluster in deployment.clusters.values():
        for broker in cluster.brokers.values():
            shutil.rmtree(broker.log_dir, ignore_errors=True)


def broken_off(
    world: RunWorld, progress: Progress, kind: type[BaseException] | None, *_: object
) -> None:
    """The first step of the end of a run: everyone is asked to stop. When it breaks off, brokers
    are ended first.

    Clients and faults that wait for brokers end soon when these are gone.
    """
    world.ending.set()
    if kind is not None:
        progress.phase("stopping")
        for workload in world.clients.workloads:
            workload.ask_to_stop()
        ended(world.recorder, "deployment", world.deployment.close)


def ended(writer: RunWriter, what: str, end: Callable[[], None]) -> None:
    """Ends something while a run breaks off. A failure is recorded, and hides neither the first
    reason nor later ones."""
    try:
        with held_off():
            end()
    except LinkflapError as error:
        writer.write(NotEnded(what=what, reason=str(error)))


@contextmanager
def written(folder: Path, run: Run) -> Iterator[tuple[RunWriter, list[str]]]:
    """Yields the writer of a new run directory, and at the end writes how the run ended; unexpected
    exits make it failed."""
    try:
        writer = RunWriter(folder, run)
    except OSError as error:
        if is_full(error):
            raise unwritable(folder, error) from error
        raise InputError(
            f"the run directory {folder} cannot be made ({error.strerror}); name another place with"
            " --out"
        ) from error
    status: Status = "failed"
    why = ""
    exits: list[str] = []
    useless = False
    try:
        yield writer, exits
        status, why = ("failed", "; ".join(exits)) if exits else ("finished", "")
    except KeyboardInterrupt:
        status, why = "interrupted", "interrupted by the user"
        writer.write(Interrupted(by="signal"))
        raise
    except LinkflapError as failure:
        why = str(failure)
        useless = isinstance(failure, InputError) or not any(writer.logs.rglob("*.log"))
        raise
    except BaseException as defect:
        why = repr(defect)
        raise
    finally:
        # a signal can come out of a library as any other error
        if interrupts.asked() and status != "finished":
            status, why, useless = "interrupted", "interrupted by the user", False
        with held_off():
            try:
                writer.close(status, error=why)
            except EnvironmentFailure:
                if status != "interrupted":
                    raise
            finally:
                # nothing ran: there is nothing to read, and the same command can be given again
                if useless:
                    shutil.rmtree(folder)


@contextmanager
def with_room(writer: RunWriter) -> Iterator[None]:
    """Whatever fails on a full disk, the full disk is reported as the reason."""
    try:
        yield
    except LinkflapError:
        writer.check()
        raise
    except OSError as error:
        writer.check()
        if is_full(error):
            raise writer.breakage.because(error) from error
        raise
