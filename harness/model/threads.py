"""Threads: work in the background until it is stopped, and several things done side by side."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from linkflap.harness.model.errors import EnvironmentFailure, LinkflapError
from linkflap.harness.model.wait import until

ENDS_WITHIN: Final = 30.0


class Background:
    """Runs `work` in a thread; `work` must return soon after `stopping` is set. Errors call it
    `name`.
    """

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
        """Stops the thread, and returns when it has ended. May be called twice, or before start.
        Raises EnvironmentFailure if `work` had raised an error, DeadlineExceeded after `within`
        seconds.
        """
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
    """Stops all threads concurrently."""
    stopped = [*threads]
    for each in stopped:
        each.ask_to_stop()
    for each in stopped:
        each.stop()


def side_by_side(tasks: Iterable[Callable[[], object]]) -> None:
    """Runs all tasks at once and returns when all have ended, or raises the first error as soon as
    there is one.

    After an error or Ctrl-C the other tasks still run; the caller must stop whatever they wait for.
    """
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def guarded(task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            ended.put(error)
        else:
            ended.put(None)

    threads = [
        threading.Thread(
            target=guarded, args=(task,), name=f"side by side {task!r}"[:80], daemon=True
        )
        for task in tasks
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        error = ended.get()
        if error is not None:
            raise error


def all_side_by_side(tasks: Iterable[Callable[[], object]]) -> None:
    """Runs all tasks at once, waits for all of them, and raises the error of the first in order
    that has one.

    So where several fail for one reason (no network) the same one is reported each time.
    """
    failed: dict[int, Exception] = {}

    def noting(number: int, task: Callable[[], object]) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001 - raised again when all have ended
            failed[number] = error

    side_by_side(partial(noting, number, task) for number, task in enumerate(tasks))
    if failed:
        raise failed[min(failed)]
