"""Scripted workers of a suite, which record and judge at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from linkflap.suite.work import Finished, Task


@dataclass
class Killed(Exception):
    """The suite's process is gone."""


@dataclass
class Scripted:
    """Workers that record and judge at once. Each run's verdict is a function of its number; `dies`
    after so many steps."""

    dies: int = -1
    jobs: int = 2
    started: list[int] = field(default_factory=list)
    judged_only: list[int] = field(default_factory=list)
    recordings: list[int] = field(default_factory=list)
    waiting: list[Task] = field(default_factory=list)
    _queue: list[Task] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        return not self._queue

    @property
    def room(self) -> bool:
        return len(self._queue) < self.jobs

    def start(self, task: Task) -> None:
        self._die()
        assert task.scenario.exists()
        self.started.append(task.number)
        task.folder.mkdir(exist_ok=True)
        self._queue.append(task)

    def recorded(self, task: Task) -> None:
        self.judged_only.append(task.number)
        self._queue.append(task)

    def step(self, *, more: object, done: Callable[[Finished], None]) -> None:
        self._die()
        if self._queue:
            task = self._queue.pop(0)
            bad = self.fails(task)
            kinds = {"lost-write": 1} if bad else {}
            checks = [
                {
                    "name": "lost-write",
                    "verdict": "invalid" if bad else "valid",
                    "reason": "",
                    "kinds": kinds,
                }
            ]
            document = {
                "verdict": "invalid" if bad else "valid",
                "reason": "",
                "checks": checks,
                "cause": "",
                "causes": [],
                "anomalies": [],
                "eras": [],
            }
            done(Finished(task=task, document=document, error="", seconds=1.0, again=0))

    def fails(self, task: Task) -> bool:
        return task.number % 3 == 2

    def _die(self) -> None:
        if self.dies == 0:
            raise Killed
        self.dies -= 1
