"""The verifier service: one Spark that judges for several processes of this user, whichever of them
recorded the run.

    python -m linkflap.judging.service        started by its first user
                                                      (`linkflap.judging.verifier`)

The ledger lists the service with a socket in a folder that only this user can enter. All waiting
run directories are judged as one batch. The service ends half a minute after its last user, or at
once if that user was killed, because a process that was started for a user dies with that user. Its
errors go to a file beside the ledger.
"""

from __future__ import annotations

import logging
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, TimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from linkflap.harness.machine import cleanup, ledger
from linkflap.harness.model.errors import LinkflapError
from linkflap.judging.messages import (
    SOCKET,
    Busy,
    Bye,
    Failed,
    Hello,
    Judge,
    JudgedRun,
    Lines,
    Request,
    key,
    listen,
)
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import verify


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """The outcome for one run directory: its judgement, or the reason why it was not judged."""

    folder: Path
    judgement: Judgement | None = None
    error: LinkflapError | None = None


def judged(
    folders: Sequence[Path], verify: Callable[[Sequence[Path]], Sequence[Any]] = verify
) -> list[BatchOutcome]:
    """The outcomes of a batch. If the batch cannot be judged as a whole, each directory is judged
    alone, so that a bad one does not affect the others."""
    try:
        return [BatchOutcome(folder=each.folder, judgement=each) for each in verify(folders)]
    except LinkflapError as error:
        if len(folders) == 1:
            return [BatchOutcome(folder=folders[0], error=error)]
    return [outcome for folder in folders for outcome in judged([folder], verify)]


FIRST_WITHIN: Final = 60.0
"""Additional seconds within which the first user must connect."""
LINGERS: Final = 30.0
"""Seconds for which the service runs without a user."""
SAYS_SO_EVERY: Final = 5.0
"""Seconds between two signs that the service is alive while it is busy."""
LOG: Final = logging.getLogger("linkflap")
Verdicts = Callable[[Sequence[Path]], Sequence[JudgedRun | Failed]]
"""Judges run directories: an answer for each, in their order."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A run directory that waits for its verdict."""

    folder: Path
    answer: Future[JudgedRun | Failed] = field(default_factory=Future)


class VerifierService:
    """Accepts users until it has had none for a while. Each user has a thread, and one more thread
    judges batch after batch."""

    def __init__(
        self, listener: socket.socket, hello: Hello, verdicts: Verdicts, *, lingers: float = LINGERS
    ) -> None:
        self._listener, self._hello, self._verdicts, self._lingers = (
            listener,
            hello,
            verdicts,
            lingers,
        )
        self._waiting: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._users = 0
        self._left = time.monotonic() + FIRST_WITHIN
        self._killed = False
        self._asked = ""

    def serve(self) -> str:
        """Returns the reason when the service has ended. A client that connects too late is
        refused."""
        with self._listener:
            return self._serve()

    def _serve(self) -> str:
        threading.Thread(target=self._judge, name="judge", daemon=True).start()
        while not (over := self._over()):
            if select.select([self._listener], [], [], 0.2)[0]:
                connection, _ = self._listener.accept()
                with self._lock:
                    self._users += 1
                threading.Thread(
                    target=self._user, args=(connection,), name="user", daemon=True
                ).start()
        return over

    @property
    def waiting(self) -> int:
        """Run directories whose turn has not come."""
        return self._waiting.qsize()

    def end(self, why: str) -> None:
        """Makes `serve` return soon, even if it has users."""
        self._asked = why

    def _over(self) -> str:
        with self._lock:
            if self._users or self._asked:
                return self._asked
            if self._killed:
                return "its last user was killed"
            return (
                f"nobody used it for {self._lingers:g} s"
                if time.monotonic() - self._left > self._lingers
                else ""
            )

    def _user(self, connection: socket.socket) -> None:
        good = False
        try:
            lines = Lines(connection)
            lines.send(self._hello)
            while not good and (line := lines.next()) is not None:
                match msgspec.json.decode(line, type=Request):
                    case Judge(folder=folder):
                        self._answer(lines, _Task(Path(folder)))
                    case Bye():
                        good = True
        except (OSError, msgspec.DecodeError) as error:
            LOG.info("a user is gone: %s", error)
        finally:
            with self._lock:
                self._users, self._left, self._killed = self._users - 1, time.monotonic(), not good
            connection.close()

    def _answer(self, lines: Lines, task: _Task) -> None:
        self._waiting.put(task)
        while True:
            with suppress(TimeoutError):
                lines.send(task.answer.result(timeout=SAYS_SO_EVERY))
                return
            lines.send(Busy())

    def _judge(self) -> None:
        while True:
            batch = [self._waiting.get()]
            with suppress(queue.Empty):
                while True:
                    batch.append(self._waiting.get_nowait())
            # Two users may ask for the same folder; one verdict is written into it, and both get
            # it.
            folders = list(dict.fromkeys(task.folder for task in batch))
            LOG.info("judging %s", ", ".join(map(str, folders)))
            try:
                answers = dict(zip(folders, self._verdicts(folders), strict=True))
            except Exception as error:
                LOG.exception("the batch could not be judged")
                sentence = (
                    f"the verifier failed ({type(error).__name__}: {error}); its log is "
                    f"{self._hello.log}"
                )
                answers = dict.fromkeys(
                    folders, Failed(kind="EnvironmentFailure", sentence=sentence)
                )
            for task in batch:
                task.answer.set_result(answers[task.folder])


def verdicts(folders: Sequence[Path]) -> list[JudgedRun | Failed]:
    """Judges through this process's Spark, and leaves verdict.json and report.html in the
    folders."""
    from linkflap.harness.model.errors import SetupError
    from linkflap.judging import page
    from linkflap.judging.service import judged
    from linkflap.spark_verify.spark import session

    answers: dict[Path, JudgedRun | Failed] = {}
    for outcome in judged(folders):
        if outcome.judgement is not None:
            left_out = tuple(page.write(outcome.judgement))
            answers[outcome.folder] = JudgedRun(
                document=outcome.judgement.judged,
                anomalies=tuple(outcome.judgement.anomalies),
                left_out=left_out,
            )
            continue
        if isinstance(outcome.error, SetupError):
            session.close()  # a Spark that did not start is started again for the next
        answers[outcome.folder] = Failed(
            kind=type(outcome.error).__name__, sentence=str(outcome.error)
        )
    return [answers[folder] for folder in folders]


def main() -> None:
    """Serves until it is over. Standard output and error are its log."""
    os.chdir("/")
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s {os.getpid()} %(name)s: %(message)s"
    )
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    mine = key()
    with cleanup.temporary_folder("linkflap-verifier-") as folder:
        listener = listen(folder / SOCKET)
        ledger.add_service(mine, folder / SOCKET)
        try:
            LOG.info("serving %s at %s", mine, folder / SOCKET)
            _warm()
            hello = Hello(key=mine, pid=os.getpid(), log=sys.argv[1])
            service = VerifierService(listener, hello, verdicts)
            signal.signal(signal.SIGTERM, lambda *_: service.end("it was asked to by SIGTERM"))
            LOG.info("ends: %s", service.serve())
        finally:
            ledger.remove_service(mine)
            listener.close()


def _warm() -> None:
    from linkflap.spark_verify.spark import pandas_free, session

    pandas_free.settle()
    session.warm()


if __name__ == "__main__":
    main()
