"""The shadow's process, seen from the harness: start it, ask for its status, pause it, kill it, and
read its journal."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Final

from linkflap.harness.mirrors.shadow import control, settings
from linkflap.harness.mirrors.shadow.journal import JournalNotes, read_notes
from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.model.protocols import Running, Sidecar
from linkflap.harness.model.wait import until

FAILOVER_SECONDS: Final = 150.0
END_SECONDS: Final = 30.0
ASK_SECONDS: Final = 2.0


class ShadowProcess:
    """A sequence of processes, one at a time, that share one folder. `port` is their control
    port."""

    def __init__(self, link: str, folder: Path, port: int) -> None:
        self._link, self._folder, self._port = link, folder, port
        self._sidecar: Sidecar | None = None
        self._child: Running | None = None
        self._closed = False
        self._starting = threading.Lock()

    @property
    def log(self) -> Path:
        """The output of the processes."""
        return self._folder / "shadow.log"

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.alive else None

    def notes(self) -> JournalNotes:
        """The shadow's journal."""
        return read_notes(self._folder / settings.JOURNAL) or JournalNotes(
            directory_id="", incarnation_id=""
        )

    def _handed_over(self) -> bool:
        return self.notes().phase == "handed-over"

    def _spawn(self) -> None:
        with self._starting:
            if self._closed:
                raise SetupError(
                    f"the shadow of {self._link} is not started: its deployment has ended"
                )
            if not self.alive:
                self._start_process()

    def _start_process(self) -> None:
        if self._sidecar is None:
            raise SetupError(f"the shadow of {self._link} was never started; start it first")
        self._child = self._sidecar.spawn()

    def _raise_if_ended(self) -> None:
        if not self.alive:
            last = _tail(self.log, 1).partition("ended: ")
            wrong = self._child is not None and self._child.poll() == InputError.exit_code
            kind = InputError if wrong else SetupError
            raise kind(f"the shadow of {self._link} ended: {last[2] or _tail(self.log)}")

    def _ask(self, verb: control.Verb = "status") -> control.Status | None:
        return control.ask(self._port, verb, folder=self._folder, within=ASK_SECONDS)

    def _state(self) -> str:
        return (
            f"process {'alive' if self.alive else 'dead'}, {self._ask()}; its log "
            f"ends:\n{_tail(self.log)}"
        )

    def pause(self) -> None:
        """SIGSTOP."""
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        if self._child is not None:
            self._child.resume()

    def _fail_over(self) -> None:
        """Returns once the process has handed over and ended. Restarts it if it is killed
        meanwhile. Raises DeadlineExceeded."""
        self._spawn()

        def done() -> bool:
            if self._handed_over():
                return True
            if self._killed():
                self._spawn()  # each step of a failover is repeatable
            self._raise_if_ended()
            self._ask("fail-over")
            return False

        try:
            until(
                done,
                within=FAILOVER_SECONDS,
                every=0.05,
                what=f"the failover of {self._link}",
                state=self._state,
            )
        except DeadlineExceeded:
            self._kill()
            raise
        self._end()

    def _killed(self) -> bool:
        return self._child is not None and (self._child.poll() or 0) < 0

    def _end(self) -> None:
        """A process that has handed over ends by itself. If it does not end in time, it is killed,
        which loses nothing."""
        self.resume()
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: not self.alive,
                within=END_SECONDS,
                what=f"the shadow of {self._link} to end",
            )
        self._kill()

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _close(self) -> None:
        """Kills the process at the end of the deployment, and prevents that another thread starts
        it again."""
        with self._starting:
            self._closed = True
        self._kill()


def _tail(log: Path, lines: int = 15) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"(no log: {error.strerror})"
