"""A thread that works beside the caller until it is stopped: samplers and watches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from linkflap.harness.model.errors import EnvironmentFailure, LinkflapError
from linkflap.harness.model.wait import until

ENDS_WITHIN: Final = 30.0


class Background:
    """Runs `work` in a thread, which has to return soon after `stopping` is set. `name` is what it
    is called in errors."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._work, self.stopping = work, threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def ask_to_stop(self) -> None:
        self.stopping.set()

    def stop(self, *, within: float = ENDS_WITHIN) -> None:
        """Returns when the thread has ended; safe to call twice, and before start. Raises
        EnvironmentFailure if an error had ended it, and DeadlineExceeded."""
        self.stopping.set()
        if self._thread.ident is not None:
            until(lambda: not self.alive, within=within, what=f"{self._thread.name} to stop")
        error, self._error = self._error, None
        if isinstance(error, LinkflapError):
            raise EnvironmentFailure(f"{self._thread.name} ended early: {error}") from error
        if error is not None:
            raise EnvironmentFailure(
                f"{self._thread.name} ended early: {type(error).__name__}: {error}; "
                "report it as a defect"
            ) from error

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - raised by `stop`
            self._error = error


def stop_all(threads: Iterable[Background]) -> None:
    """Stops them side by side."""
    stopped = [*threads]
    for each in stopped:
        each.ask_to_stop()
    for each in stopped:
        each.stop()
