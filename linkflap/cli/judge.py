"""Judges run directories for the commands, with Spark in this process or on a cluster. Prints the
table, and writes the report and JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from linkflap.cli.output import annotate, options

if TYPE_CHECKING:
    from linkflap.report.progress import Progress
    from linkflap.spark_verify.verdict.judge import Judgement

spark_options = options(
    click.option(
        "--master",
        default="",
        metavar="URL",
        help="Spark master, e.g. spark://HOST:7077; by default Spark runs in this process.",
    ),
    click.option(
        "--spark",
        multiple=True,
        metavar="NAME=VALUE",
        help="A Spark setting, e.g. spark.executor.memory=4g.",
    ),
)
"""Adds the options of Spark: its master and its settings."""


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
    file: str = "",
    failed: str = "",
    **where: Unpack[SparkOptions],
) -> int:
    """Judges run directories, prints the results, and returns the exit code.

    `through` sends log messages through a progress display. `out` has other folders for the
    judgements, by run directory. `file` is the scenario that was run, which annotations name if it
    is a file. `failed`: how the command that the run was made for failed, for JUnit and the JSON.
    """
    from linkflap.harness.model.verdict import worst
    from linkflap.report import junit as junit_report
    from linkflap.report.progress import shown_on
    from linkflap.spark_verify.spark import masters, pandas_free
    from linkflap.spark_verify.verify import verify

    pandas_free.settle()
    settings = masters.given_settings(where.get("spark", ()))
    with shown_on() as progress, through(progress):
        progress.phase(
            f"judging {folders[0] if len(folders) == 1 else f'{len(folders)} runs'} in Spark"
        )
        judgements = verify(
            folders,
            master=where.get("master") or masters.LOCAL,
            settings=settings,
            tell=progress.done,
            out=out,
        )
    _show(judgements, file, as_json=as_json)
    if junit:
        junit_report.write(junit, [j.document for j in judgements], failed=failed)
    if as_json:
        also = {"failed": failed} if failed else {}
        documents = [{**j.document, **also} for j in judgements]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents))
    return worst(j.verdict for j in judgements).exit_code


def _show(judgements: Sequence[Judgement], file: str, *, as_json: bool) -> None:
    """Writes the page of each, and prints its table; of several, a line each at the end."""
    from linkflap.judging import page
    from linkflap.report import table

    for judgement in judgements:
        _annotate(judgement, file)
        for sentence in page.write(judgement):
            click.echo(f"linkflap: {sentence}", err=True)
        if not as_json:
            table.show(
                judgement.document,
                judgement.folder,
                kept=(judgement.kept,) if judgement.kept else (),
            )
    for each in judgements if len(judgements) > 1 else ():
        click.echo(f"{each.verdict.value.upper():8} {each.folder}", err=as_json)


def _annotate(judgement: Judgement, file: str) -> None:
    from linkflap.chaos.scenario_file import is_file

    found = judgement.document
    if found["verdict"] != "valid":
        why = found.get("cause") or found.get("reason") or ""
        title, path = f"{found['verdict']}, {found['scenario']}", file if is_file(file) else ""
        annotate(title, f"{why} ({judgement.folder})", path)
