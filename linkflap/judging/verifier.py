"""Chooses the Spark that judges: one of this process, or the machine's verifier service, which
several processes share.

By default each process has its own Spark. The pytest fixtures call `share` to use the service, and
$LINKFLAP_VERIFIER (own, shared) overrides both. If the service fails, the process judges by itself,
so that a run never loses its verdict.

A user finds or starts the service, and sends it run directories to judge.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from filelock import FileLock, Timeout

from linkflap.harness.machine import ledger, process_identity
from linkflap.harness.machine.process_identity import Identity
from linkflap.harness.model.errors import EnvironmentFailure, InputError, SetupError
from linkflap.harness.model.verdict import Anomaly, Document
from linkflap.harness.model.wait import until
from linkflap.harness.version import INSTALLED
from linkflap.judging import messages
from linkflap.judging.messages import Busy, Bye, Failed, Hello, Judge, JudgedRun, Lines, Reply

_STARTS_WITHIN: Final = 120.0
_GREETS_WITHIN: Final = 60.0
_SILENT: Final = 300.0
"""Seconds of silence after which a service counts as hung. A live service sends a sign every few
seconds."""
_ATTEMPTS: Final = 3
_KEPT: Final = 7 * 86400.0
"""Seconds for which the log of an ended service is kept."""
_MODULE: Final = "linkflap.judging.service"
_ERRORS: Final = {each.__name__: each for each in (InputError, SetupError)}


class ServiceFailure(EnvironmentFailure):
    """There is no verifier service, or it ended before it answered; the message has the reason and
    the path of its log."""


class User:
    """One process's connection to the service, held until `close`. The service runs at least until
    then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: Lines | None = None
        self._hello: Hello | None = None

    def connect(self) -> Hello:
        """Finds or starts the service. Raises ServiceFailure."""
        with self._lock:
            return self._connected()[1]

    def judge(self, folder: Path) -> JudgedRun:
        """The verdict on a run directory. Raises what `spark_verify.verify` raises, and
        ServiceFailure."""
        with self._lock:
            lines, hello = self._connected()
            try:
                lines.send(Judge(folder=str(folder.absolute())))
                reply = _reply(lines)
                while isinstance(reply, Busy):
                    reply = _reply(lines)
            except (OSError, EOFError, msgspec.DecodeError) as error:
                self._drop()
                why = "hangs" if isinstance(error, TimeoutError) else "ended"
                raise ServiceFailure(
                    f"the verifier service (process {hello.pid}) {why}; its log is {hello.log}"
                ) from None
        if isinstance(reply, Failed):
            raise _ERRORS.get(reply.kind, ServiceFailure)(reply.sentence)
        assert isinstance(reply, JudgedRun)
        return reply

    def close(self) -> None:
        """Lets go of the service, which may then end. Safe to call twice."""
        with self._lock:
            if self._lines is not None:
                with contextlib.suppress(OSError):  # it has ended
                    self._lines.send(Bye())
                self._drop()

    def _drop(self) -> None:
        if self._lines is not None:
            self._lines.close()
        self._lines = self._hello = None

    def _connected(self) -> tuple[Lines, Hello]:
        if self._lines is None or self._hello is None:
            self._lines, self._hello = _connection(messages.key())
        return self._lines, self._hello


def _reply(lines: Lines) -> Reply:
    line = lines.next()
    if line is None:
        raise EOFError
    reply: Reply = msgspec.json.decode(line, type=Reply)
    return reply


def _connection(key: str) -> tuple[Lines, Hello]:
    """A service may end while a user connects: then another is found, or started."""
    for _ in range(_ATTEMPTS):
        path = ledger.service(key) or _started(key)
        try:
            lines = Lines(messages.connect(path), _GREETS_WITHIN)
        except OSError:
            continue
        try:
            hello = _reply(lines)
            if isinstance(hello, Hello) and hello.key == key:
                lines.patience(_SILENT)
                return lines, hello
            lines.send(Bye())
        except (OSError, EOFError, msgspec.DecodeError):
            pass
        lines.close()
    raise ServiceFailure(f"no verifier service takes a connection; its log is {log_of(key)}")


def log_of(key: str) -> Path:
    """The log of the services of a key."""
    return ledger.folder() / f"verifier-{key}.log"


def _started(key: str) -> Path:
    """Starts a service. Of several processes that want one, the first starts it; the others wait
    and then find it."""
    log = log_of(key)
    try:
        with FileLock(ledger.folder() / "verifier.lock", timeout=_STARTS_WITHIN):
            if found := ledger.service(key):
                return found
            _forget_old_logs()
            child = _spawn(log)
            # An ended child is a zombie of this process, and counts as dead.
            path = until(
                lambda: ledger.service(key) or not process_identity.alive(child),
                within=_STARTS_WITHIN,
                what="the verifier service to listen",
            )
    except (Timeout, EnvironmentFailure, OSError) as error:
        raise ServiceFailure(
            f"the verifier service did not start ({error}); its log is {log}"
        ) from None
    if not isinstance(path, Path):
        raise ServiceFailure(f"the verifier service ended at its start; its log is {log}")
    return path


def _forget_old_logs() -> None:
    """Every version of linkflap's sources has its own key and log."""
    for log in ledger.folder().glob("verifier-*.log"):
        if time.time() - log.stat().st_mtime > _KEPT:
            log.unlink(missing_ok=True)


def _spawn(log: Path) -> Identity:
    """Starts the service process. It does not die with this process, because others use it later.
    It ends by itself when it has no users."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(INSTALLED), os.environ.get("PYTHONPATH")))),
    }
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    command = [sys.executable, "-P", "-m", _MODULE, str(log)]
    pid = os.posix_spawn(sys.executable, command, environment, file_actions=actions, setsid=True)
    return process_identity.identify(pid) or Identity(pid=pid, born="ended")


LOG: Final = logging.getLogger("linkflap")
VARIABLE: Final = "LINKFLAP_VERIFIER"
OWN: Final = "own"
SHARED: Final = "shared"
_user = User()
_default = OWN


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierAnswer:
    """The verdict on a run directory: the document, and all anomalies, uncapped."""

    folder: Path
    document: Document
    anomalies: tuple[Anomaly, ...]

    @property
    def values(self) -> Mapping[str, Any]:
        """The document as plain JSON values: what verdict.json holds."""
        plain: Mapping[str, Any] = msgspec.json.decode(msgspec.json.encode(self.document))
        return plain


def share() -> None:
    """From now on this process judges through the service, unless the environment overrides it."""
    global _default
    _default = SHARED


def _shared() -> bool:
    asked = os.environ.get(VARIABLE) or _default
    if asked not in (OWN, SHARED):
        raise InputError(f"{VARIABLE} is {asked!r}; set it to {OWN} or {SHARED}")
    return asked == SHARED


def warm() -> None:
    """Starts Spark in the background, in this process or in the service."""
    if not _shared():
        from linkflap.spark_verify.spark import session

        session.warm()
        return
    threading.Thread(target=_connect, name="verifier", daemon=True).start()


def _connect() -> None:
    try:
        _user.connect()
    except ServiceFailure as failure:
        LOG.info("%s", failure)


def judge(folder: Path) -> VerifierAnswer:
    """Judges a run directory, and writes verdict.json and report.html into it if possible.

    Raises InputError if it is no run directory, SetupError if Spark does not start.
    """
    if _shared():
        try:
            answer = _user.judge(folder)
        except ServiceFailure as failure:
            LOG.warning("%s; %s is judged by a Spark of this process", failure, folder)
        else:
            for warning in answer.left_out:
                LOG.warning("%s", warning)
            return VerifierAnswer(
                folder=folder, document=answer.document, anomalies=answer.anomalies
            )
    return _alone(folder)


def _alone(folder: Path) -> VerifierAnswer:
    from linkflap.judging import page
    from linkflap.spark_verify.verify import verify

    (judgement,) = verify([folder])
    for warning in page.write(judgement):
        LOG.warning("%s", warning)
    return VerifierAnswer(
        folder=folder, document=judgement.judged, anomalies=tuple(judgement.anomalies)
    )


def close() -> None:
    """Ends this process's own Spark, and releases the service."""
    _user.close()
    session = sys.modules.get("linkflap.spark_verify.spark.session")
    if session:
        session.close()
