"""`linkflap exec`: runs a command once against clusters whose links break, records its clients on
the wire, and judges what was promised to them."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from linkflap.cli import completion
from linkflap.cli.log_options import mirror_options
from linkflap.cli.output import NOTES, check_output, new_folder
from linkflap.cli.run import record_run, recording_options, show_schedule
from linkflap.cli.verify import judge
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.payload import drawn_seed
from linkflap.harness.model.scenario import (
    COMMAND,
    Minimums,
    MirrorSpec,
    Option,
    Scenario,
    WorkloadSpec,
    groups_of_program,
)
from linkflap.harness.model.topology import ANY_NAME

if TYPE_CHECKING:
    from linkflap.report.progress import Progress

RUNTIME: Final = "process"
"""The runtime of its clusters."""
LOOKS_EVERY: Final = 0.2
PROGRAM: Final = f"{COMMAND}-1"


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--topology",
    metavar="ARROWS",
    shell_complete=completion.topologies,
    help="Clusters and links, e.g. 'A:3->B'; by default the schedule's, without one A->B.",
)
@click.option(
    "--mirror",
    shell_complete=completion.mirrors,
    help="What replicates over the links (linkflap list mirrors); by default the schedule's.",
)
@click.option(
    "--schedule",
    metavar="SCENARIO",
    shell_complete=completion.scenarios,
    help="The scenario whose faults are played: a built-in one or a file; by default none.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="A topic that is made on the first cluster before COMMAND starts, and that linkflap's own "
    "readers read. May be repeated; COMMAND may make others.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    help="Partitions of each topic; by default the schedule's.",
)
@click.option("--group", help="The consumer group whose offsets are judged.")
@click.option("--share-group", help="The share group whose deliveries are judged.")
@click.option(
    "--record",
    "recorded",
    type=click.Choice(("wire", "none")),
    default="wire",
    show_default=True,
    help="Whether the requests and answers of its clients are recorded in front of the brokers.",
)
@click.option(
    "--within",
    default="10m",
    show_default=True,
    metavar="TIME",
    help="The longest time that COMMAND may run; then it is ended: seconds, or 90s, 5m, 2h.",
)
@recording_options
def exec_(
    words: Sequence[str],
    topology: str | None,
    mirror: str | None,
    options: Sequence[str],
    schedule: str | None,
    topics: Sequence[str],
    partitions: int | None,
    group: str | None,
    share_group: str | None,
    recorded: str,
    within: str,
    seed: int | None,
    out: Path | None,
    dry_run: bool,
    keep: bool,
    as_json: bool,
    junit: Path | None,
) -> int:
    """Runs a command while links break, and judges its records.

    COMMAND runs once. All topics that it makes or writes are judged, whatever their names. On
    clusters that run already it writes those of --topic alone: --topic orders is A.orders there.
    Faults that have not begun when COMMAND ends are not played, and the verdict is then unknown.

    COMMAND finds the clusters in its environment: LINKFLAP_BOOTSTRAP, LINKFLAP_BOOTSTRAP_B
    (linkflap docs own-application). The exit code is that of COMMAND if it failed, else that of the
    verdict.
    """
    from linkflap.harness.runtimes import usual
    from linkflap.suite.folder import seconds

    if not words:
        raise InputError("there is no command to run; write it last: linkflap exec -- pytest tests")
    of_program: dict[str, Option] = {
        "once": True,
        "via": "proxy",
        **_groups(group, share_group, recorded),
    }
    program = WorkloadSpec(
        kind=COMMAND,
        home="",  # the first cluster, once the topology is known
        command=tuple(words),
        folder=os.getcwd(),
        reads=(ANY_NAME, *topics),
        writes=(ANY_NAME, *topics),
        record="wire" if recorded == "wire" else "",
        options=of_program,
    )
    based = _based_on(
        schedule, topology, mirror, mirror_options(options), drawn_seed(seed), program
    )
    chosen = replace(
        based,
        name="exec",
        about=f"{shlex.join(words)}, run once",
        minimums=Minimums(committed=0, aborted=0, reads=0, afterwards=0),
        duration=seconds(within, "--within", most=86400),
        topics=replace(based.topics, partitions=partitions or based.topics.partitions),
    )
    runtime = usual(chosen.topology, RUNTIME)
    if dry_run:
        return show_schedule(chosen, runtime, as_json=as_json)
    folder = out or new_folder("exec")
    check_output(folder, out, junit)
    output = folder / "logs" / "commands" / PROGRAM / "output.log"

    @contextmanager
    def printed(progress: Progress) -> Iterator[None]:
        """Shows what the command prints, until the run ends."""
        over = threading.Event()
        shown = threading.Thread(target=_follow, args=(output, progress, over), name="output")
        shown.start()
        try:
            yield
        finally:
            over.set()
            shown.join()

    record_run(
        chosen, runtime, folder, to_repeat(words, chosen.seed), warm=True, keep=keep, beside=printed
    )
    status, failed = _ended(folder, chosen.duration)
    verdict = judge([folder], NOTES.through, as_json=as_json, junit=junit, failed=failed)
    if failed:
        click.echo(f"linkflap: {failed}", err=True)
    return status or verdict


def _groups(group: str | None, share_group: str | None, recorded: str) -> dict[str, Option]:
    """The groups that are judged. Raises InputError."""
    for option, name in (("--group", group), ("--share-group", share_group)):
        if name == "":
            raise InputError(f"{option} is empty; name a group, or leave {option} out")
    if group and group == share_group:
        raise InputError(
            f"{group!r} cannot be a consumer group and a share group; leave --group or "
            "--share-group out"
        )
    if share_group and recorded == "none":
        raise InputError(
            "--share-group is judged by what crossed the wire; leave --record none out, or "
            "--share-group"
        )
    return groups_of_program(group or "", share_group or "")


def _based_on(
    schedule: str | None,
    topology: str | None,
    mirror: str | None,
    options: dict[str, Option],
    seed: int,
    program: WorkloadSpec,
) -> Scenario:
    """The named scenario, or one without faults, with the program and linkflap's readers in the
    place of its workloads. Raises InputError."""
    from linkflap.chaos import scenario_file
    from linkflap.chaos.default_workloads import default_readers
    from linkflap.chaos.scenarios import ScenarioRequest, scenario
    from linkflap.topologies import parse
    from linkflap.topologies.notation import arrows

    given = parse(topology) if topology is not None else None
    request = ScenarioRequest(seed=seed, topology=given, mirror=mirror, mirror_options=options)
    if schedule is None:
        made = request.scenario(
            given or parse("A->B"), name="exec", about="", workloads=(), schedule=(), duration=1
        )
    elif scenario_file.is_file(schedule):
        made = scenario_file.read(
            Path(schedule), seed=seed, chosen=True, topology=given, program=program
        )
        if mirror or options:
            kept = {} if mirror else {**made.mirror.options}
            spec = MirrorSpec(kind=mirror or made.mirror.kind, options={**kept, **options})
            made = replace(made, mirror=spec)
    else:
        made = scenario(schedule, request)
    if made.topology.has_cycle:
        raise InputError(
            f"links of {arrows(made.topology)} lead back, and topics of any name would go round "
            "with them; choose a topology without a cycle, for example --topology 'A->B'"
        )
    home = made.topology.clusters[0].name
    if made.topology.attached:
        return _with_own_names(made, program, home)
    readers = default_readers(made.topology, home) if program.record and program.reads[1:] else ()
    named = (replace(reader, reads=program.reads) for reader in readers)
    return replace(
        made,
        topology=replace(made.topology, any_names=True),
        workloads=(replace(program, home=home), *named),
    )


def _with_own_names(made: Scenario, program: WorkloadSpec, home: str) -> Scenario:
    """On clusters that run already a command uses topics whose names belong to the run: those that
    are given, at home on the first cluster. Raises InputError."""
    from linkflap.chaos.default_workloads import default_readers

    named = tuple(name for name in program.reads if name != ANY_NAME)
    if not named:
        raise InputError(
            "on clusters that run already, a command writes only topics that the run makes and "
            f"removes; name them: --topic orders for the topic {home}.orders"
        )
    own = replace(program, home=home, reads=named, writes=named)
    return replace(made, workloads=(own, *default_readers(made.topology, home)))


def _follow(path: Path, progress: Progress, over: threading.Event) -> None:
    """Shows the lines of a file that grows, until `over`."""
    at, rest = 0, b""
    while True:
        last = over.wait(LOOKS_EVERY)
        if path.exists():
            with path.open("rb") as file:
                file.seek(at)
                *lines, rest = (rest + file.read()).split(b"\n")
                at = file.tell()
            for line in [*lines, rest] if last and rest else lines:
                progress.note(line.decode(errors="replace").rstrip("\r"))
        if last:
            return


def _ended(folder: Path, within: float) -> tuple[int, str]:
    """The command's exit status as a shell gives it, and how it failed, if it did. Raises
    EnvironmentFailure where it never ran."""
    from linkflap.harness.model.events import (
        ClientDied,
        ProgramStarted,
        RecorderDied,
        of_kind,
    )
    from linkflap.harness.rundir import RunReader

    events, _ = RunReader(folder).events()
    if not of_kind(events, ProgramStarted):
        raise EnvironmentFailure(f"the command was not started; see {folder}")
    died = [e for e in of_kind(events, ClientDied) if e.process == PROGRAM and e.by == "itself"]
    if not died and (recorders := of_kind(events, RecorderDied)):
        return 143, f"the recorder of {recorders[0].cluster} died, so the command was ended"
    if not died:
        return 143, (
            f"the command had not ended within {within:g} s, and was ended; give it more time with "
            "--within"
        )
    return exit_of(died[-1].status, died[-1].signal)


def exit_of(status: int, signal: str) -> tuple[int, str]:
    """A command's exit status as a shell gives it, and how the command failed, if it did."""
    if status < 0:
        return 128 - status, f"{signal} ended the command (exit status {128 - status})"
    return status, f"the command ended with status {status}" if status else ""


def to_repeat(words: Sequence[str], seed: int) -> str:
    """The command line that runs `words` again in the same way, into another folder."""
    own = sys.argv[1 : len(sys.argv) - len(words)]
    own = own[:-1] if own[-1] == "--" else own
    kept: list[str] = []
    while own:
        name, equals, _ = own[0].partition("=")
        gone = name in ("--out", "--seed")
        kept += [] if gone else own[:1]
        del own[: 2 if gone and not equals else 1]
    return shlex.join(["linkflap", *kept, "--seed", str(seed), "--", *words])
