"""The command line: `linkflap run | verify | explain | forensics | list | doctor | clean`.

Exit codes are those of `harness.model.errors`. With --json, stdout carries one document and nothing else. Everything slow is
imported inside the command that needs it, so that --help and Ctrl-C answer at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import secrets
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Unpack

import click

from harness.cli import output
from harness.cli.images import images, runtime_option, usual_runtime
from harness.cli.logs import LogOptions, asked_live, asked_logs, copied_logs, explain, forensics
from harness.cli.verify import judge, spark_options
from harness.model import interrupts
from harness.model.errors import FAILED, INTERRUPTED, WRONG_INPUT, EnvironmentFailure, InputError, LinkflapError
from harness.model.scenario import Option, Scenario

if TYPE_CHECKING:
    from chaos.scenarios import Wish
    from harness.capture.live.record import LiveAsked
    from harness.report.progress import Progress

RUNS = Path("linkflap-runs")


class Notes(logging.Handler):
    """What linkflap's logger says (first use: something is fetched or made), as lines on standard error."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.progress: Progress | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.progress:
            self.progress.note(record.getMessage())
        else:
            click.echo(f"linkflap: {record.getMessage()}", err=True)

    @contextlib.contextmanager
    def through(self, progress: Progress) -> Iterator[None]:
        """While a progress display is up, notes go through it."""
        self.progress = progress
        try:
            yield
        finally:
            self.progress = None


NOTES = Notes()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="linkflap")
def linkflap(debug: bool) -> None:
    """Breaks links between real Kafka clusters and proves, offset by offset, what survived.

    Exit codes: 0 valid, 1 invalid, 2 unknown, 130 interrupted, 254 wrong input, 255 the environment or linkflap failed.
    """
    del debug  # read by main(), before click parses


def option_value(text: str) -> tuple[str, Option]:
    """`name=value` as an option, numbers and true/false as such; InputError when it has no `=`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"--set {text!r} is not of the form name=value, for example --set producer_ids=keep")
    if value in ("true", "false"):
        return name, value == "true"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return name, number(value)
    return name, value


def mirror_options(texts: Sequence[str]) -> dict[str, Option]:
    """All of `--set`; InputError for a name that is given twice."""
    given: dict[str, Option] = {}
    for name, value in map(option_value, texts):
        if name in given:
            raise InputError(f"--set {name} is given twice, as {given[name]} and as {value}; give it once")
        given[name] = value
    return given


@linkflap.command()
@click.argument("scenario_name", metavar="SCENARIO")
@click.option(
    "--topology", metavar="ARROWS", help="Other clusters and links than the scenario's, e.g. 'A:3->B:3' or 'A@3.9.2->B'."
)
@runtime_option
@click.option("--mirror", help="What replicates over the links (linkflap list).")
@click.option("--set", "options", multiple=True, metavar="NAME=VALUE", help="An option of the mirror, e.g. producer_ids=keep.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Gives the schedule and the payloads; by default a new one.")
@click.option("--duration", type=click.FloatRange(min=1.0, max=86400.0), help="Seconds of workload.")
@click.option("--out", type=click.Path(path_type=Path), help=f"The run directory to make; by default a new one in {RUNS}/.")
@click.option("--dry-run", is_flag=True, help="Print the topology and the schedule, start nothing.")
@click.option("--no-verify", is_flag=True, help="Only record; judge later with linkflap verify.")
@click.option("--keep", is_flag=True, help="Leave the brokers' data folders in the run directory's logs/.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--junit", type=click.Path(path_type=Path), help="Also write JUnit XML there.")
def run(
    scenario_name: str,
    topology: str | None,
    runtime: str | None,
    mirror: str | None,
    options: Sequence[str],
    seed: int | None,
    duration: float | None,
    out: Path | None,
    dry_run: bool,
    no_verify: bool,
    keep: bool,
    as_json: bool,
    junit: Path | None,
) -> int:
    """Runs SCENARIO and judges what it left behind."""
    from chaos.scenarios import Wish, scenario
    from harness.rundir import RunReader
    from topologies import parse

    if duration is not None and math.isnan(duration):  # which no range excludes
        raise InputError("--duration nan is not a number of seconds; give one from 1 to 86400")
    wish = Wish(
        seed=secrets.randbits(32) if seed is None else seed,
        topology=parse(topology) if topology is not None else None,
        mirror=mirror,
        mirror_options=mirror_options(options),
        duration=duration,
    )
    chosen = scenario(scenario_name, wish)
    runtime = runtime or usual_runtime(chosen.topology)
    if dry_run:
        return _dry_run(chosen, runtime, as_json=as_json)
    folder = out or RUNS / f"{chosen.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    _check_places(folder, out, junit)
    _record(chosen, runtime, folder, _again(wish, chosen, runtime, topology), warm=not no_verify, keep=keep)
    if no_verify:
        click.echo(f"recorded in {folder}; judge it with: linkflap verify {folder}", err=True)
        if as_json:
            click.echo(json.dumps({"verdict": None, "run": str(folder), "seed": chosen.seed, "scenario": chosen.name}))
        ended = RunReader(folder).run
        if ended.status != "finished":
            raise EnvironmentFailure(f"the run failed, and what it left is in {folder}: {ended.error}")
        return 0
    return judge([folder], NOTES.through, as_json=as_json, junit=junit)


def _check_places(folder: Path, out: Path | None, junit: Path | None) -> None:
    """Raises InputError when what a run writes has no place, before it takes its time."""
    if os.path.lexists(folder):
        raise InputError(f"{folder} exists already; name a folder that does not, or leave --out away")
    if out:
        _check_parent("--out", out)
    if junit:
        _check_junit(junit)


def _check_junit(junit: Path) -> None:
    _check_parent("--junit", junit)
    if junit.is_dir():
        raise InputError(f"--junit {junit} is a folder; name a file in it")


def _check_parent(option: str, path: Path) -> None:
    parent = path.absolute().parent
    if not parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {parent} to make it in; make that folder, or name another place")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{option} {path}: the folder {parent} cannot be written; name another place")


def _dry_run(chosen: Scenario, runtime: str, *, as_json: bool) -> int:
    import msgspec

    from chaos.schedule import describe
    from harness.recording.run import check
    from topologies import draw

    check(chosen, runtime)
    if as_json:
        click.echo(msgspec.json.encode(chosen))
        return 0
    click.echo(f"{chosen.name}: {chosen.about}\nseed {chosen.seed}\n\n{draw(chosen.topology)}\n")
    for id, line in describe(chosen.schedule).items():
        click.echo(f"  {id:10} {line}")
    return 0


def _again(wish: Wish, chosen: Scenario, runtime: str, topology: str | None) -> str:
    """The command that runs the same scenario again."""
    words = ["linkflap", "run", chosen.name, "--runtime", runtime, "--seed", str(wish.seed)]
    words += ["--topology", f"'{topology}'"] if topology else []
    words += ["--mirror", wish.mirror] if wish.mirror else []
    words += [f"--set {name}={value}" for name, value in wish.mirror_options.items()]
    words += ["--duration", str(wish.duration)] if wish.duration else []
    return " ".join(words)


def _record(chosen: Scenario, runtime: str, folder: Path, command: str, *, warm: bool, keep: bool) -> None:
    from harness.recording.run import check, record
    from harness.report.progress import Progress
    from spark_verify import session

    check(chosen, runtime)
    click.echo(f"{chosen.name} with seed {chosen.seed}; run directory {folder}", err=True)
    with Progress() as progress, NOTES.through(progress):
        if warm:
            session.warm()
        record(chosen, runtime=runtime, folder=folder, command=command, progress=progress, keep=keep)


@linkflap.command()
@click.argument("folders", metavar="[RUNDIR]...", nargs=-1, type=click.Path(path_type=Path))
@copied_logs
@click.option("--out", type=click.Path(path_type=Path), help=f"Of logs: the folder to make; by default a new one in {RUNS}/.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout (a list when several directories are given).")
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
    """Judges run directories again, or logs that linkflap did not record.

    RUNDIR: the same verdict on any machine, at any time. --logs A=DIR --logs B=DIR --link 'A->B': Kafka log directories, or
    folders of copied partition folders; what needs a history is not due then. The logs are only read. --bootstrap A=HOST:PORT
    --bootstrap B=HOST:PORT --topics REGEX --link 'A->B': live clusters, from which all that is fetched as a consumer fetches.
    """
    if junit:
        _check_junit(junit)
    asked, live = asked_logs(**copied), asked_live(**copied)
    if (asked is None and live is None) is (not folders):
        raise InputError(
            "give run directories to judge, or logs (--logs A=DIR --logs B=DIR --link 'A->B'), or live clusters "
            "(--bootstrap A=HOST:PORT), and not both"
        )
    judged = partial(judge, through=NOTES.through, as_json=as_json, junit=junit, master=master, spark=spark)
    if asked is None and live is None:
        return _judge_again(folders, judged)
    folder = out or RUNS / f"logs-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    _check_places(folder, out, junit)
    command = shlex.join(["linkflap", *sys.argv[1:]])
    if live:
        _fetch(folder, live, command)
    elif asked:
        from harness.capture.folders import record as link_logs

        link_logs(folder, asked, command)
    return judged([folder])


def _fetch(folder: Path, live: LiveAsked, command: str) -> None:
    from harness.capture.live.record import record
    from harness.report.progress import Progress
    from spark_verify import session

    with Progress() as progress, NOTES.through(progress):
        session.warm()
        record(folder, live, command, progress)


def _judge_again(folders: Sequence[Path], judged: Callable[[Sequence[Path]], int]) -> int:
    from harness.rundir import RunReader

    readable, refused = [], []
    for folder in dict.fromkeys(folders):
        try:
            RunReader(folder)  # before Spark takes its time
            readable.append(folder)
        except InputError as unreadable:
            refused.append(unreadable)
    if not readable:
        raise refused[0]
    code = judged(readable)
    for reason in refused:
        click.echo(f"linkflap: {reason}", err=True)
    return WRONG_INPUT if refused else code


linkflap.add_command(forensics)
linkflap.add_command(images)
linkflap.add_command(explain)


@linkflap.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def list_(as_json: bool) -> int:
    """Lists scenarios, topologies, mirrors, workloads, faults, triggers and checks."""
    from chaos.catalogue import catalogue

    known = catalogue()
    if as_json:
        click.echo(json.dumps(known))
        return 0
    for title, entries in known.items():
        click.echo(f"{title}:")
        for name, about in entries.items():
            click.echo(f"  {name:28} {about}")
        click.echo()
    return 0


@linkflap.command()
def doctor() -> int:
    """Tells what this machine lacks for which runtime, and how to mend it."""
    from harness.cli import doctor as examination

    return examination.show()


@linkflap.command()
def clean() -> int:
    """Removes what harnesses that died left behind, and touches nothing else. Exit code 255 if something is still there."""
    from harness.cli import clean

    return clean.show()


def main() -> NoReturn:
    """The console script. Every way out has its exit code, and its one sentence on stderr."""
    interrupts.obey()
    output.obey()
    log = logging.getLogger("linkflap")
    log.setLevel(logging.INFO)
    log.addHandler(NOTES)
    code = _ended(debug="--debug" in sys.argv)
    with interrupts.held_off():
        with contextlib.suppress(EnvironmentFailure):  # of what could not be written it was told
            sys.stdout.flush()
        sys.stderr.flush()
        spark = sys.modules.get("spark_verify.session")
        if spark:
            # All is said. What pyspark's threads print when their JVM ends in the middle of something is none of it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            spark.close()
        # Not sys.exit: it waits for every thread of every library, and one may hang in a client whose broker is gone.
        os._exit(code)


def _ended(*, debug: bool) -> int:
    """Runs the command and returns the exit code."""
    try:
        code = _run()
        sys.stdout.flush()
        return code
    except BaseException as error:  # noqa: BLE001  (the last line of defence: one sentence and an exit code)
        code, sentence = _told(error)
        click.echo(f"linkflap: {sentence}", err=True)
        if debug:
            traceback.print_exc()
        return code


def _run() -> int:
    try:
        return int(linkflap.main(standalone_mode=False) or 0)
    except click.exceptions.Exit as leave:
        return leave.exit_code


def _told(error: BaseException) -> tuple[int, str]:
    """Exit code and sentence of what ended the command."""
    # A signal in the middle of an import or of somebody's callback comes out as any error at all.
    if interrupts.asked() or isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED, "interrupted; everything that was started is stopped"
    if isinstance(error, click.ClickException):
        return WRONG_INPUT, error.format_message()
    if isinstance(error, LinkflapError):
        return error.exit_code, str(error)
    if isinstance(error, OSError) and error.filename:
        where = f"{error.filename}: {error.strerror}"
        return FAILED, f"{where}; see that it can be read and written and that its disk has room"
    return FAILED, f"linkflap failed: {type(error).__name__}: {error}; run again with --debug and report it"
