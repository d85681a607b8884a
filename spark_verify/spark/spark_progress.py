"""The progress of a Spark job in words, from Spark's own status tracker while the job runs.

A thread asks twice a second. It ends with the job, or with the JVM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkContext

EVERY: Final = 0.5
READ, JUDGED = "pieces of the logs read", "groups of partitions judged"
COMBINED = "groups of checks combined"


class JobWatch:
    """A context manager around one job: its first stage reads, the next judges, and another one may
    combine.

    `tell` gets (what, done, of), from a thread of its own, whenever that changed.
    """

    def __init__(self, context: SparkContext, tell: Callable[[str, int, int], None]) -> None:
        self._context, self._tell = context, tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="spark-progress", daemon=True)
        self._said: tuple[str, int, int] | None = None

    def __enter__(self) -> JobWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _watch(self) -> None:
        try:
            while not self._over.wait(EVERY):
                self.look()
        except (Py4JError, OSError):
            return  # the JVM is gone, and the caller of the job gets an error

    def look(self) -> None:
        """Asks once, and tells what the furthest stage is at."""
        tracker = self._context.statusTracker()
        for job in sorted(tracker.getActiveJobsIds()):
            info = tracker.getJobInfo(job)
            # Stages that have not begun have no tasks yet.
            stages = (
                [tracker.getStageInfo(stage) for stage in sorted(info.stageIds)] if info else []
            )
            begun = [
                (n, s)
                for n, s in enumerate(stages)
                if s is not None and (s.numActiveTasks or s.numCompletedTasks)
            ]
            if not begun:
                continue
            number, stage = begun[-1]
            progress = (
                (READ, JUDGED, COMBINED)[min(number, 2)],
                stage.numCompletedTasks,
                stage.numTasks,
            )
            if progress != self._said:
                self._said = progress
                self._tell(*progress)
