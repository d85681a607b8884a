"""`linkflap verify`: judges run directories, copied logs and live clusters. `judge` does it for
every command: it prints the table, and writes the report and JUnit XML."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from linkflap.cli import completion
from linkflap.cli.log_options import LogOptions, copied_logs, live_logs_request, logs_request
from linkflap.cli.output import (
    NOTES,
    RUNS,
    annotate,
    check_junit,
    check_output,
    new_folder,
    options,
)
from linkflap.harness.model.errors import WRONG_INPUT, InputError
from linkflap.harness.model.verdict import Verdict

if TYPE_CHECKING:
    from linkflap.harness.capture.live.record import LiveLogsRequest

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
    """The arguments that `spark_options` adds to a command."""

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
    judgements, by run directory. `file` is the file of the scenario that was run, which annotations
    name. `failed`: how the command that the run was made for failed, for JUnit and the JSON.
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
    found = judgement.document
    if found["verdict"] != "valid":
        why = found.get("cause") or found.get("reason") or ""
        annotate(f"{found['verdict']}, {found['scenario']}", f"{why} ({judgement.folder})", file)


_OUT: Final = (
    f"The folder to make: for logs, their run directory (by default a new one in {RUNS}/); for "
    "RUNDIR, the folder of the verdict."
)


@click.command()
@click.argument(
    "folders",
    metavar="[RUNDIR]...",
    nargs=-1,
    type=click.Path(path_type=Path),
    shell_complete=completion.run_directories,
)
@copied_logs
@click.option("--out", type=click.Path(path_type=Path), help=_OUT)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON document on stdout (a list when several directories are given).",
)
@click.option("--junit", type=click.Path(path_type=Path), help="Also write JUnit XML there.")
@spark_options
def verify(
    folders: tuple[Path, ...],
    out: Path | None,
    as_json: bool,
    junit: Path | None,
    master: str,
    spark: tuple[str, ...],
    **copied: Unpack[LogOptions],
) -> int:
    """Judges run directories again, or other logs.

    RUNDIR: a run directory gives the same verdict on any machine, at any time. --logs A=DIR --logs
    B=DIR --link 'A->B': Kafka log directories, or folders of copied partition folders, are judged
    read-only; checks that need a client history are skipped. --bootstrap A=HOST:PORT --bootstrap
    B=HOST:PORT --topics REGEX --link 'A->B': live clusters are read with Fetch requests only.
    """
    if junit:
        check_junit(junit)
    asked, live = logs_request(**copied), live_logs_request(**copied)
    if (asked is None and live is None) is (not folders):
        raise InputError(
            "give run directories to judge, or logs (--logs A=DIR --logs B=DIR --link 'A->B'), or "
            "live clusters (--bootstrap A=HOST:PORT); only one of these"
        )
    judged = partial(
        judge, through=NOTES.through, as_json=as_json, junit=junit, master=master, spark=spark
    )
    if asked is None and live is None:
        readable, refused = _readable(folders)
        code = judged(readable, out=_outs(readable, out))
        for reason in refused:
            click.echo(f"linkflap: {reason}", err=True)
        return WRONG_INPUT if refused and code != Verdict.INVALID.exit_code else code
    folder = out or new_folder("logs")
    check_output(folder, out, junit)
    command = shlex.join(["linkflap", *_without_out(sys.argv[1:])])
    if live:
        _fetch(folder, live, command)
    elif asked:
        from linkflap.harness.capture.folders import record as link_logs

        link_logs(folder, asked, command)
    return judged([folder])


def _fetch(folder: Path, live: LiveLogsRequest, command: str) -> None:
    from linkflap.harness.capture.live.record import record
    from linkflap.report.progress import shown_on
    from linkflap.spark_verify.spark import session

    with shown_on() as progress, NOTES.through(progress):
        session.warm()
        record(folder, live, command, progress)


def _without_out(words: Sequence[str]) -> list[str]:
    """The command without --out, so that running it again makes another folder."""
    kept = [word for word in words if not word.startswith("--out=")]
    while "--out" in kept:
        at = kept.index("--out")
        del kept[at : at + 2]
    return kept


def _outs(folders: Sequence[Path], out: Path | None) -> dict[Path, Path]:
    """The folder of each judgement: `out` itself for one run, a subfolder of `out` for each of
    several runs."""
    if out is None:
        return {}
    check_output(out, out, None)
    if len(folders) == 1:
        return {folders[0]: out}
    names = Counter(folder.resolve().name for folder in folders)
    if twice := [name for name, count in names.items() if count > 1]:
        raise InputError(
            f"--out {out}: two run directories are called {twice[0]}; judge each with its own --out"
        )
    return {folder: out / folder.resolve().name for folder in folders}


def _readable(folders: Sequence[Path]) -> tuple[list[Path], list[InputError]]:
    """The run directories that can be judged, and why the others cannot. Raises InputError if none
    can."""
    from linkflap.harness.rundir import RunReader
    from linkflap.spark_verify.read.plan import plan

    readable, refused = [], []
    for folder in dict.fromkeys(folders):
        try:
            # Before Spark takes its time; and none of several spoils the verdicts of the others.
            RunReader(folder) if len(folders) == 1 else plan(folder)
            readable.append(folder)
        except InputError as unreadable:
            refused.append(unreadable)
    if not readable:
        raise InputError("; ".join(map(str, refused)))
    return readable, refused
