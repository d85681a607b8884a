"""Judges many run directories with one Spark, in a thread of its own, while other runs are
recorded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from linkflap.harness.judging.batch import BatchOutcome, judged
from linkflap.spark_verify.spark import pandas_free, session


class SuiteJudge:
    """Judges one batch at a time. While it judges, call only `busy` and `take`."""

    def __init__(self) -> None:
        pandas_free.settle()
        self._thread: threading.Thread | None = None
        self._done: list[BatchOutcome] = []
        self._crash: BaseException | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, folders: Sequence[Path]) -> None:
        """Starts to judge a batch of run directories."""
        self._thread = threading.Thread(
            target=self._work, args=(list(folders),), name="judge", daemon=True
        )
        self._thread.start()

    def take(self) -> list[BatchOutcome]:
        """The new verdicts; none while a batch is being judged. Raises the exception that ended a
        batch, if any."""
        if self.busy:
            return []
        if self._crash is not None:
            raise self._crash
        done, self._done = self._done, []
        return done

    def _work(self, folders: list[Path]) -> None:
        try:
            self._done.extend(judged(folders))
        except BaseException as crash:  # noqa: BLE001  (handed to the main thread by take)
            self._crash = crash


def warm() -> None:
    """Starts Spark in the background."""
    session.warm()
