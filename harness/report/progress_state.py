"""The state of a run's progress, consistent at any moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Totals so far: records acknowledged, transactions aborted, transactions open right now,
    records read."""

    acknowledged: int = 0
    aborted: int = 0
    open: int = 0
    read: int = 0


Sign = Literal["phase", "done", "fault", "end", "note", "count"]


MARKS: Final[Mapping[str, tuple[str, str]]] = {
    "done": ("✓", "green"),
    "fault": ("⚡", "yellow"),
    "end": ("✚", "cyan"),
    "note": ("•", "blue"),
    "count": ("#", "dim"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    fault: str
    target: str
    started: float
    seconds: float | None


class ProgressState:
    """The state reported so far, consistent at any moment.

    `say` is called without the lock: rich's refresh thread holds its own lock while it asks for a
    frame, and a frame needs ours, so printing (which needs rich's) while holding ours would
    deadlock.
    """

    def __init__(self, clock: Callable[[], float], say: Callable[[Sign, str], None]) -> None:
        self._clock, self._say = clock, say
        self._lock = threading.Lock()
        self._began = clock()
        self._phase, self._phase_began = "", self._began
        self._faults: dict[str, Active] = {}
        self._counters = Counters()
        self._lags: dict[str, int | None] = {}
        self._rate_from: tuple[float, Counters] = (self._began, self._counters)
        self._rates = (0.0, 0.0)
        self._done = ""

    def phase(self, name: str) -> None:
        with self._lock:
            over, began, now = self._phase, self._phase_began, self._clock()
            self._phase, self._phase_began, self._done = name, now, ""
        if over:
            self._say("done", f"{over}  {now - began:.1f} s")
        if name:
            self._say("phase", name)

    def fault_started(self, id: str, fault: str, target: str, seconds: float | None) -> None:
        with self._lock:
            self._faults[id] = Active(
                fault=fault, target=target, started=self._clock(), seconds=seconds
            )
        planned = " for good" if seconds is None else f" for {seconds:g} s" if seconds > 0 else ""
        self._say("fault", f"{id}: {fault} on {target}{planned}")

    def fault_ended(self, id: str, outcome: str = "ended") -> None:
        with self._lock:
            active = self._faults.pop(id, None)
        if active:
            after = self._clock() - active.started
            self._say(
                "end", f"{id}: {active.fault} on {active.target} {outcome} after {after:.1f} s"
            )

    def counters(self, counters: Counters) -> None:
        with self._lock:
            now, (then, before) = self._clock(), self._rate_from
            if now - then >= 1.0:
                acknowledged, read = (
                    counters.acknowledged - before.acknowledged,
                    counters.read - before.read,
                )
                self._rates = (max(0.0, acknowledged / (now - then)), max(0.0, read / (now - then)))
                self._rate_from = (now, counters)
            self._counters = counters

    def lag(self, link: str, records: int | None) -> None:
        with self._lock:
            self._lags[link] = records

    def done(self, what: str, count: int, total: int) -> None:
        with self._lock:
            self._done = f"{count} of {total} {what}"

    def note(self, text: str) -> None:
        self._say("note", text)
