"""Verdicts on many run directories by one Spark, in a thread of its own, while others are being recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linkflap.harness.model.errors import LinkflapError
from linkflap.spark_verify.spark import pandas_free, session
from linkflap.spark_verify.verify import verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came out for one run directory: its document, or why there is none."""

    folder: Path
    document: Mapping[str, Any] | None
    error: str = ""


class Judge:
    """Judges one batch at a time. Only `busy` and `take` may be called while it does."""

    def __init__(self) -> None:
        pandas_free.settle()
        self._thread: threading.Thread | None = None
        self._done: list[Verdict] = []
        self._crash: BaseException | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, folders: Sequence[Path]) -> None:
        """Begins with a batch."""
        self._thread = threading.Thread(target=self._work, args=(list(folders),), name="judge", daemon=True)
        self._thread.start()

    def take(self) -> list[Verdict]:
        """The verdicts that are new; raises what went wrong with a batch."""
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


def judged(folders: Sequence[Path], verify: Callable[[Sequence[Path]], Sequence[Any]] = verify) -> list[Verdict]:
    """The verdicts on a batch; where it cannot be judged as one, on each alone, so that no directory spoils another's."""
    try:
        return [Verdict(folder=j.folder, document=j.document) for j in verify(folders)]
    except LinkflapError as error:
        if len(folders) == 1:
            return [Verdict(folder=folders[0], document=None, error=str(error))]
    return [verdict for folder in folders for verdict in judged([folder], verify)]


def warm() -> None:
    """Starts Spark beside other work."""
    session.warm()
