"""Waits for conditions, never for time: the only module that sleeps. Also scales deadlines on a
busy machine."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

from linkflap.harness.model.errors import DeadlineExceeded

T = TypeVar("T")
_SLOWEST: Final = 10.0
"""How many times slower a machine is taken to be at most: load 20 on 2 processors."""


def until(
    condition: Callable[[], T | None],
    *,
    within: float,
    what: str,
    every: float = 0.02,
    state: Callable[[], object] | None = None,
    remaining: Callable[[], float | None] | None = None,
) -> T:
    """Polls `condition` until it returns something truthy, and returns that.

    `within` and `every` are seconds. `what` completes "waited 5 s for …"; `state` is called once at
    the end, for the error. `remaining` returns how much is left to do, None if unknown: each time
    it is less than ever before, the deadline starts again, up to ten times `within` in all. Raises
    DeadlineExceeded with the last state seen. An exception of `condition` ends the wait, and
    reaches the caller.
    """
    began = time.monotonic()
    deadline, least = began + within, math.inf
    while True:
        result = condition()
        if result:
            return result
        if remaining is not None and (rest := remaining()) is not None and rest < least:
            least = rest
            deadline = min(time.monotonic(), began + (_SLOWEST - 1) * within) + within
        if time.monotonic() >= deadline:
            seen = f"; last seen: {state()}" if state else ""
            raise DeadlineExceeded(f"waited {deadline - began:.3g} s for {what}{seen}")
        time.sleep(min(every, max(0.0, deadline - time.monotonic())))


def pause(seconds: float, stop: Callable[[], bool]) -> None:
    """Holds a fault open for `seconds`, or until `stop()` is true because the run is ending."""
    deadline = time.monotonic() + seconds
    while not stop() and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(0.05, left))


def patient(seconds: float) -> float:
    """A deadline scaled by the present load, for work that slows down when processes compete for
    processors: slowness then proves nothing."""
    return seconds * min(max(os.getloadavg()[0] / processors(), 1.0), _SLOWEST)


def processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _anchor() -> int:
    """The time of the monotonic clock's zero. A process may be suspended between its readings of
    the two clocks, so that its times would differ from those of other processes: of many readings,
    the one that took least time counts."""
    readings = []
    for _ in range(100):
        before, epoch, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after - before, epoch - before))
    return min(readings)[1]


_ANCHOR: Final = _anchor()


def now() -> int:
    """Nanoseconds since the Unix epoch, monotonic within this process."""
    return _ANCHOR + time.monotonic_ns()
