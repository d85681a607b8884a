"""`linkflap verify`: judges run directories, copied logs and live clusters."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

import click

from linkflap.cli import completion
from linkflap.cli.judge import judge, spark_options
from linkflap.cli.log_options import LogOptions, copied_logs, live_logs_request, logs_request
from linkflap.cli.output import NOTES, RUNS, check_junit, check_output, new_folder
from linkflap.harness.model.errors import WRONG_INPUT, InputError
from linkflap.harness.model.verdict import Verdict

if TYPE_CHECKING:
    from linkflap.harness.capture.live.record import LiveLogsRequest


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
        raise refused[0]
    return readable, refused
