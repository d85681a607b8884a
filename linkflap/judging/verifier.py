"""Chooses the Spark that judges: one of this process, or the machine's verifier service, which
several processes share.

It is this process's own, unless `share` was called (by the pytest fixtures), or $LINKFLAP_VERIFIER
is own or shared. If the service fails, this process judges by itself: a run never loses its
verdict.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.verdict import Anomaly, Document
from linkflap.judging.shared import ServiceFailure, User

LOG: Final = logging.getLogger("linkflap")
VARIABLE: Final = "LINKFLAP_VERIFIER"
OWN: Final = "own"
SHARED: Final = "shared"
_user = User()
_default = OWN


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierAnswer:
    """What came out for a run directory: the document, and all anomalies, which are not capped."""

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
    """Starts Spark beside other work, wherever it is going to be."""
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
    """Judges a run directory, and leaves verdict.json and report.html in it, where it can be
    written.

    Raises InputError where it is none, SetupError where Spark does not start.
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
    """Ends what this process has of Spark, and lets go of the service."""
    _user.close()
    session = sys.modules.get("linkflap.spark_verify.spark.session")
    if session:
        session.close()
