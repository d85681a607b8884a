"""Command line for judging run directories: in Spark, here or on a cluster; with table, report and JUnit XML of what came out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

import click

from linkflap.harness.model.errors import InputError

if TYPE_CHECKING:
    from linkflap.harness.model.verdict import Anomaly
    from linkflap.harness.report.html import About
    from linkflap.harness.report.progress import Progress
    from linkflap.spark_verify.judge import Judgement

Command = TypeVar("Command", bound=Callable[..., Any])
Part = TypeVar("Part")
MOST_EXPLAINED: Final = 12
"""Kinds of anomalies whose bytes the report shows; the command for the others stands beside them."""
_OPTIONS: Final = (
    click.option(
        "--master", default="", metavar="URL", help="Where Spark runs, e.g. spark://HOST:7077; by default in this process."
    ),
    click.option("--spark", multiple=True, metavar="NAME=VALUE", help="A setting of Spark, e.g. spark.executor.memory=4g."),
)


def spark_options(command: Command) -> Command:
    """Adds the options that say where Spark runs and how."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class SparkOptions(TypedDict, total=False):
    """What `spark_options` adds to a command."""

    master: str
    spark: Sequence[str]


def judge(
    folders: Sequence[Path],
    through: Callable[[Progress], AbstractContextManager[None]],
    *,
    as_json: bool,
    junit: Path | None,
    out: Mapping[Path, Path] | None = None,
    **where: Unpack[SparkOptions],
) -> int:
    """Judges run directories, says what came out, and returns the exit code. `through` sends notes through a progress display.

    `out`: by run directory, where the judgement is written instead.
    """
    from linkflap.harness.model.verdict import worst
    from linkflap.harness.report import junit as junit_report
    from linkflap.harness.report import table
    from linkflap.harness.report.progress import Progress
    from linkflap.spark_verify import masters, pandas_free
    from linkflap.spark_verify.verify import verify

    pandas_free.settle()
    settings = masters.given_settings(where.get("spark", ()))
    with Progress() as progress, through(progress):
        progress.phase(f"judging {folders[0] if len(folders) == 1 else f'{len(folders)} runs'} in Spark")
        judgements = verify(folders, master=where.get("master") or masters.LOCAL, settings=settings, tell=progress.done, out=out)
    for judgement in judgements:
        _report(judgement)
        if not as_json:
            table.show(judgement.document, judgement.folder, kept=(judgement.kept,) if judgement.kept else ())
    if junit:
        junit_report.write(junit, [j.document for j in judgements])
    if as_json:
        documents = [dict(j.document) for j in judgements]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents))
    return worst(j.verdict for j in judgements).exit_code


def _report(judgement: Judgement) -> None:
    """Writes report.html; where that cannot be drawn there is none, and this verdict and those of other runs stand."""
    from linkflap.harness.report import html

    folder, kept = judgement.folder, judgement.kept
    if kept is None:
        said = f"{folder} cannot be written, so that this verdict is printed and not kept"
        click.echo(f"linkflap: {said}; linkflap verify {shlex.quote(str(folder))} --out FOLDER keeps it", err=True)
        return
    try:
        html.write(folder, judgement.document, about(judgement), into=kept)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  (any number in a run directory may be one that no picture can have)
        (kept / html.NAME).unlink(missing_ok=True)  # of an older judgement
        said = f"{kept / html.NAME} is left out, for what the run directory says cannot be drawn"
        click.echo(f"linkflap: {said} ({type(error).__name__}: {error}); the verdict stands without it", err=True)


def about(judgement: Judgement) -> About:
    """What the report shows beside the document, from the bytes again: the logs, and the first anomaly of each kind explained."""
    from linkflap.harness.report.html import About
    from linkflap.spark_verify.checks import REGISTRY
    from linkflap.spark_verify.explain import explain_several
    from linkflap.spark_verify.lanes import lanes_around
    from linkflap.spark_verify.recording import GUARANTEES

    folder, shown = judgement.folder, judgement.judged.anomalies
    promises = {check.name: (check.guarantee, check.source) for check in REGISTRY.values()}
    promises |= {name: (guarantee, "") for name, guarantee in GUARANTEES.items()}
    firsts = _first_of_each_kind(shown)
    return About(
        drawing=_drawing(folder),
        meanings={kind.name: kind.meaning for check in REGISTRY.values() for kind in check.anomalies},
        promises=promises,
        lanes=_if_drawn("the offsets", folder, lambda: lanes_around(folder, judgement.anomalies)),
        explained=_if_drawn("the bytes beside anomalies", folder, lambda: explain_several(folder, shown, firsts)),
    )


def _if_drawn(what: str, folder: Path, make: Callable[[], Sequence[Part]]) -> Sequence[Part]:
    """A part of the report; none where it cannot be made of what the run directory says."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001  (as for the report as a whole)
        click.echo(f"linkflap: the report of {folder} is without {what} ({type(error).__name__}: {error})", err=True)
        return ()


def _first_of_each_kind(anomalies: Sequence[Anomaly]) -> Sequence[int]:
    """Numbers of the anomalies whose bytes the page shows."""
    found: dict[tuple[str, str], int] = {}
    for number, anomaly in enumerate(anomalies, start=1):
        if not anomaly.allowed:
            found.setdefault((anomaly.check, anomaly.kind), number)
    return list(found.values())[:MOST_EXPLAINED]


def _drawing(folder: Path) -> str:
    """Empty where the topology is none: the report then has it in words."""
    from linkflap.harness.rundir import RunReader
    from linkflap.topologies import draw

    try:
        return draw(RunReader(folder).run.scenario.topology)
    except InputError:
        return ""
