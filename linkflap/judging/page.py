"""Writes report.html of a judgement beside its verdict.json, for the command and the pytest
fixture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, TypeVar

from linkflap.harness.rundir import NOT_WRITABLE

if TYPE_CHECKING:
    from linkflap.harness.model.verdict import Anomaly
    from linkflap.report.html import About
    from linkflap.spark_verify.verdict.judge import Judgement

Part = TypeVar("Part")
MOST_EXPLAINED: Final = 12
"""Kinds of anomalies whose bytes the report shows; the command for the others stands beside
them."""
MOST_HISTORY: Final = 64 << 20
"""Bytes of a history that is held to explain several anomalies at once: of a longer one, the report
has the logs' bytes alone."""


def write(judgement: Judgement) -> Sequence[str]:
    """Writes the page; where it, or a part, cannot be drawn or written, it is left out, and the
    verdict stands.

    Returns a sentence for each that is left out.
    """
    from linkflap.report import html

    folder, kept = judgement.folder, judgement.kept
    if kept is None:
        problem = f"{folder} cannot be written, so that this verdict is printed and not kept"
        return [f"{problem}; linkflap verify {quote(str(folder))} --out FOLDER keeps it"]
    left_out: list[str] = []
    try:
        html.write(folder, judgement.document, about(judgement, left_out), into=kept)
    except OSError as error:
        if error.errno not in NOT_WRITABLE:
            raise
        left_out.append(
            f"{kept / html.NAME} cannot be written ({error.strerror}); the verdict stands without "
            "it"
        )
    except Exception as error:  # noqa: BLE001  (any number in a run directory may be one that no picture can have)
        with suppress(OSError):
            (kept / html.NAME).unlink()  # of an older judgement
        problem = (
            f"{kept / html.NAME} is not written: the run directory has values that cannot be drawn"
        )
        left_out.append(
            f"{problem} ({type(error).__name__}: {error}); the verdict stands without it"
        )
    return left_out


def about(judgement: Judgement, left_out: list[str]) -> About:
    """The report's content beside the document, read again from the bytes: the logs, and an
    explanation of the first anomaly of each kind. A part that the run directory does not allow is
    left out, and a sentence for each goes into `left_out`.
    """
    from linkflap.report.html import About
    from linkflap.spark_verify.checks import REGISTRY
    from linkflap.spark_verify.checks.base import RUN_GUARANTEES
    from linkflap.spark_verify.inspect.explain import bytes_of_history, explain_several
    from linkflap.spark_verify.inspect.log_lanes import commits, lanes_around

    folder, shown = judgement.folder, judgement.judged.anomalies
    promises = {check.name: check.guarantee for check in REGISTRY.values()} | dict(RUN_GUARANTEES)
    firsts, history = _first_of_each_kind(shown), bytes_of_history(folder) <= MOST_HISTORY
    return About(
        meanings={
            kind.name: kind.meaning for check in REGISTRY.values() for kind in check.anomalies
        },
        promises=promises,
        facts={check.name: check.facts for check in REGISTRY.values()},
        kinds={
            check.name: {kind.name: (kind.meaning, kind.smallest) for kind in check.anomalies}
            for check in REGISTRY.values()
        },
        lanes=_if_drawn(
            "the offsets", folder, left_out, lambda: lanes_around(folder, judgement.anomalies)
        ),
        explained=_if_drawn(
            "the bytes beside anomalies",
            folder,
            left_out,
            lambda: explain_several(folder, shown, firsts, history=history),
        ),
        commits=next(
            iter(_if_drawn("acknowledged commits", folder, left_out, lambda: [commits(folder)])),
            None,
        ),
    )


def _if_drawn(
    what: str, folder: Path, left_out: list[str], make: Callable[[], Sequence[Part]]
) -> Sequence[Part]:
    """A part of the report; empty if the run directory does not allow it."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001  (as for the report as a whole)
        left_out.append(
            f"the report of {folder} is without {what} ({type(error).__name__}: {error})"
        )
        return ()


def _first_of_each_kind(anomalies: Sequence[Anomaly]) -> Sequence[int]:
    """Numbers of the anomalies whose bytes the page shows."""
    found: dict[tuple[str, str], int] = {}
    for number, anomaly in enumerate(anomalies, start=1):
        if not anomaly.allowed:
            found.setdefault((anomaly.check, anomaly.kind), number)
    return list(found.values())[:MOST_EXPLAINED]
