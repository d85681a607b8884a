"""The command line: `linkflap run | exec | suite | verify | case | explain | forensics | list |
docs | fetch | doctor | clean`.

Exit codes are those of `harness.model.errors`. With --json, stdout carries one document and nothing
else. Everything slow is imported inside the command that needs it, so that --help and Ctrl-C answer
at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from linkflap.cli import output
from linkflap.cli.case import case
from linkflap.cli.exec_ import exec_
from linkflap.cli.images import images
from linkflap.cli.listing import docs, list_
from linkflap.cli.logs import explain, forensics
from linkflap.cli.output import NOTES
from linkflap.cli.run import run
from linkflap.cli.suite import suite
from linkflap.cli.verify import verify
from linkflap.harness.machine.cache import OFFLINE
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import (
    FAILED,
    INTERRUPTED,
    WRONG_INPUT,
    EnvironmentFailure,
    InputError,
    LinkflapError,
)
from linkflap.harness.model.topology import DEFAULT_KAFKA

_ANYWHERE: Final = ("--debug", "--offline")


class _Linkflap(click.Group):
    """Takes its own options also behind a command, but not from the words of a user's own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = next((word for word in ("--", "exec") if word in args), None)
        ends = args.index(own) if own else len(args)
        first = [word for word in args[:ends] if word in _ANYWHERE]
        others = [word for word in args[:ends] if word not in _ANYWHERE]
        return super().parse_args(ctx, [*first, *others, *args[ends:]])


@click.group(
    cls=_Linkflap,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--offline",
    is_flag=True,
    envvar=OFFLINE,
    help="Download nothing: what is missing in the cache is an error (linkflap fetch).",
)
@click.version_option(package_name="linkflap")
def linkflap(debug: bool, offline: bool) -> None:
    """Breaks links between real Kafka clusters and proves, offset by offset, what survived.

    Exit codes: 0 valid, 1 invalid, 2 unknown, 130 interrupted, 254 wrong input, 255 the environment
    or linkflap failed.
    """
    del debug  # read by main(), before click parses
    if offline:
        os.environ[OFFLINE] = "1"  # also for the processes that it starts


linkflap.add_command(run)
linkflap.add_command(exec_)
linkflap.add_command(suite)
linkflap.add_command(verify)
linkflap.add_command(case)
linkflap.add_command(forensics)
linkflap.add_command(images)
linkflap.add_command(explain)
linkflap.add_command(list_)
linkflap.add_command(docs)


@linkflap.command()
def doctor() -> int:
    """Shows what this machine lacks, and how to fix it."""
    from linkflap.cli.doctor import show

    return show()


@linkflap.command()
@click.option(
    "--kafka",
    "releases",
    multiple=True,
    default=(DEFAULT_KAFKA,),
    show_default=True,
    help="Release; may be repeated.",
)
def fetch(releases: Sequence[str]) -> int:
    """Fills the cache with all that runs and verdicts need.

    That is Kafka, Java, toxiproxy-server, and class archives.
    """
    from linkflap.harness.machine import cache
    from linkflap.harness.runtimes.distribution.toxiproxy_server import toxiproxy_server
    from linkflap.harness.runtimes.process import for_mirrors, install
    from linkflap.spark_verify.spark import pandas_free, session

    pandas_free.settle()
    for release in releases:
        made = install(release)
        for_mirrors(made)
        click.echo(f"Kafka {release}: {len(made.kafka.jars)} jars, Java {made.java.major}")
    click.echo(f"toxiproxy-server: {toxiproxy_server()}")
    session.warm().result()
    session.keep_classes()
    session.tell_what_is_written()
    session.close()
    click.echo(f"cache: {cache.folder()}")
    return 0


@linkflap.command()
def clean() -> int:
    """Removes leftovers of killed runs, and touches nothing else. Exit code 255 if something could
    not be removed."""
    from linkflap.harness.machine import cleanup, engine_leftovers

    known, unclaimed = cleanup.clean(), engine_leftovers.unclaimed()
    removed = [*known.removed, *unclaimed.removed]
    # both searches may find the same thing
    left = list(dict.fromkeys((*known.left, *unclaimed.left)))
    for thing in removed:
        click.echo(f"removed {thing}", err=True)
    for sentence in left:
        click.echo(f"linkflap: {sentence}", err=True)
    if removed or not left:
        click.echo(
            f"{len(removed)} left-over things removed" if removed else "nothing was left behind",
            err=True,
        )
    return FAILED if left else 0


def main() -> NoReturn:
    """The console script. Always ends with an exit code; an error prints one sentence on stderr."""
    interrupts.obey()
    output.obey()
    log = logging.getLogger("linkflap")
    log.setLevel(logging.INFO)
    log.addHandler(NOTES)
    code = exit_code(debug="--debug" in sys.argv)
    with interrupts.held_off():
        with contextlib.suppress(EnvironmentFailure):  # the failure to write was reported above
            sys.stdout.flush()
        sys.stderr.flush()
    spark = sys.modules.get("linkflap.spark_verify.spark.session")
    if spark:
        # All output is written. pyspark's threads may print errors when their JVM ends: they
        # are dropped.
        spark.tell_what_is_written()
        with contextlib.suppress(KeyboardInterrupt):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            spark.close()
    # Not sys.exit: it waits for every thread of every library, and one may hang in a client whose
    # broker is gone.
    os._exit(code)


def exit_code(*, debug: bool) -> int:
    """Runs the command and returns the exit code."""
    try:
        code = _run()
        sys.stdout.flush()
        return code
    except BaseException as error:  # noqa: BLE001  (the last line of defence: one sentence and an exit code)
        code, sentence = _exit_of(error)
        if not output.annotate("failed", sentence):
            click.echo(f"linkflap: {sentence}", err=True)
        if "--json" in sys.argv:
            _say_as_json(code, sentence)
        if debug:
            traceback.print_exc()
        return code


def _say_as_json(code: int, sentence: str) -> None:
    """The document of a command that failed; none if a document has been printed already."""
    # standard output cannot be written, and the sentence reports it
    with contextlib.suppress(EnvironmentFailure):
        if not output.has_written():
            click.echo(json.dumps({"verdict": None, "error": sentence, "exit_code": code}))
            sys.stdout.flush()


def _check_words() -> None:
    """Raises InputError for an argument that is not UTF-8: it would be written to documents that
    have to be UTF-8."""
    try:
        words = [*sys.argv[1:], os.getcwd()]
    except FileNotFoundError:
        raise InputError("the working directory no longer exists; change to another") from None
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{os.fsencode(word)!r} is not UTF-8; give it a name that is"
            ) from None


def _run() -> int:
    try:
        _check_words()
        return int(linkflap.main(standalone_mode=False) or 0)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except SystemExit as leave:  # of completion, which click ends by itself
        return leave.code if isinstance(leave.code, int) else 0


def _of_click(error: click.ClickException) -> str:
    """Click's message for wrong input. If no option has a similar name, it names the command that
    lists all options."""
    message = error.format_message()
    if isinstance(error, click.NoSuchOption) and not error.possibilities and error.ctx:
        return f"{message.rstrip('.')}; {error.ctx.command_path} --help lists the options"
    return message


def _exit_of(error: BaseException) -> tuple[int, str]:
    """The exit code and the sentence for the error that ended the command."""
    # A signal during an import or a library's callback can surface as any exception.
    if interrupts.asked() or isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED, "interrupted; everything that was started is stopped"
    if isinstance(error, click.ClickException):
        return WRONG_INPUT, _of_click(error)
    if isinstance(error, LinkflapError):
        return error.exit_code, str(error)
    if isinstance(error, OSError) and error.filename:
        where = f"{error.filename}: {error.strerror}"
        return FAILED, f"{where}; check its permissions, and that its disk is not full"
    return (
        FAILED,
        f"linkflap failed: {type(error).__name__}: {error}; run again with --debug and report it",
    )
