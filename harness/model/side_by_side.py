"""Runs several functions at once, in threads that never delay the end of the process.

A ThreadPoolExecutor would: leaving one waits for every task, and the interpreter waits again when
it exits. A task can hang until somebody ends the processes that it waits for.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from functools import partial


def side_by_side(tasks: Iterable[Callable[[], object]]) -> None:
    """Runs all tasks at once and returns when all have ended, or raises the first error as soon as
    there is one.

    After an error (or Ctrl-C) the other tasks still run: the caller ends what they wait for, and
    they end with it.
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
