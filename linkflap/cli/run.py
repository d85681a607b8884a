"""`linkflap run`: records and judges a scenario."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from linkflap.cli import completion
from linkflap.cli.images import runtime_option
from linkflap.cli.log_options import mirror_options
from linkflap.cli.output import NOTES, RUNS, check_output, new_folder
from linkflap.cli.output import options as several
from linkflap.cli.verify import judge
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.payload import drawn_seed
from linkflap.harness.model.scenario import LIBRDKAFKA, Budgets, Scenario, add_readers, unread

if TYPE_CHECKING:
    from linkflap.chaos.scenarios import ScenarioRequest
    from linkflap.report.progress import Progress


def show_schedule(chosen: Scenario, runtime: str, *, as_json: bool) -> int:
    import msgspec

    from linkflap.chaos.schedule import describe, untouched_links
    from linkflap.recording.run import check, commands
    from linkflap.topologies.notation import rows

    check(chosen, runtime)
    if as_json:
        click.echo(msgspec.json.encode(chosen))
        return 0
    whose = ", ".join(dict.fromkeys(spec.library for spec in chosen.workloads if not spec.command))
    clients = f"; clients of {whose}" if whose not in ("", LIBRDKAFKA) else ""
    click.echo(
        f"{chosen.name}: {chosen.about}\nseed {chosen.seed}; runtime "
        f"{runtime}{clients}\n\n{rows(chosen.topology)}\n"
    )
    for id, line in describe(chosen.schedule).items():
        click.echo(f"  {id:10} {line}")
    click.echo(f"  {'then':10} {_promised(chosen)}{_budgets(chosen.budgets)}")
    for link, passed in untouched_links(chosen).items():
        traffic = "" if passed else ", and no client writes records that pass over it"
        click.echo(f"  {link}: this schedule has no fault on it{traffic}")
    if not chosen.acknowledged and not any(spec.command for spec in chosen.workloads):
        click.echo("  no workload writes records, so the verdict will be unknown")
    for cluster, home in unread(chosen).items():
        click.echo(
            f"  no reader reads {home}'s records on {cluster}, so what readers see there is not "
            f"judged: {add_readers(cluster, home, chosen)}"
        )
    _show_code(chosen, commands(chosen))
    return 0


def _show_code(chosen: Scenario, started: Mapping[str, Sequence[str]]) -> None:
    """Prints the code of the user's that a run starts."""
    from linkflap.chaos.scenario_file import LOADS_CLASSES

    if started:
        click.echo("\ncommands of yours that it starts, each without a shell:")
    for what, words in started.items():
        click.echo(f"  {what:26} {shlex.join(words)}")
    loaded = [
        f"  {cluster.name:10} {name} = {value}"
        for cluster in chosen.topology.clusters
        for name, value in cluster.config.items()
        if LOADS_CLASSES.fullmatch(name)
    ]
    if loaded:
        click.echo("\nclasses of your build that its brokers load:")
        click.echo("\n".join(loaded))


def _promised(chosen: Scenario) -> str:
    """By when clients must go on after the last fault."""
    own = {
        spec.progress_within for spec in chosen.workloads if spec.progress_within is not None
    } - {chosen.progress_within}
    others = (
        f" (of some workloads {', '.join(f'{each:g}' for each in sorted(own))} s)" if own else ""
    )
    return (
        f"every client with work makes progress within {chosen.progress_within:g} s{others}"
        if chosen.progress_within or own
        else "no client promises to go on (progress_within = 0)"
    )


def _budgets(budgets: Budgets) -> str:
    """The most that a failover, and what is allowed, may cost; empty if nothing is limited."""
    parts = [f"{most} {kind} on a cluster" for kind, most in sorted(budgets.allowed.items())]
    if budgets.rto_seconds is not None:
        parts.insert(0, f"RTO {budgets.rto_seconds:g} s")
    if budgets.rpo_records is not None:
        parts.insert(0, f"RPO {budgets.rpo_records} records")
    return f"; at most {', '.join(parts)}" if parts else ""


recording_options = several(
    click.option(
        "--set",
        "options",
        multiple=True,
        metavar="NAME=VALUE",
        shell_complete=completion.mirror_options,
        help="An option of the mirror, e.g. producer_ids=keep.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**32 - 1),
        help="Seed of the schedule and the payloads; by default a new one.",
    ),
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        help=f"The run directory to make; by default a new one in {RUNS}/.",
    ),
    click.option(
        "--dry-run", is_flag=True, help="Print the topology and the schedule; start nothing."
    ),
    click.option(
        "--keep", is_flag=True, help="Leave the brokers' data folders in the run directory's logs/."
    ),
    click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout."),
    click.option("--junit", type=click.Path(path_type=Path), help="Also write JUnit XML there."),
)
"""Adds the options of all commands that record a run."""


@click.command()
@click.argument("scenario_name", metavar="SCENARIO", shell_complete=completion.scenarios)
@click.option(
    "--topology",
    metavar="ARROWS",
    shell_complete=completion.topologies,
    help=(
        "Clusters and links instead of the scenario's, e.g. 'A:3->B:3' or 'A@3.9.2->B'; with "
        "A@bootstrap:HOST:PORT clusters that run already (linkflap docs attach)."
    ),
)
@runtime_option
@click.option(
    "--mirror",
    shell_complete=completion.mirrors,
    help="What replicates over the links (linkflap list mirrors).",
)
@click.option(
    "--clients",
    metavar="LIBRARY",
    shell_complete=completion.libraries,
    help=(
        "Client library: librdkafka, java or java@3.9.2; several, with commas, alternate (linkflap "
        "list clients)."
    ),
)
@click.option(
    "--stall-source",
    is_flag=True,
    help=(
        "In forced failovers, suspend the source (SIGSTOP) until the mirror is promoted, then kill "
        "it."
    ),
)
@click.option(
    "--record",
    "recorded",
    type=click.Choice(("wire", "none")),
    help=(
        "Whether programs of yours are recorded on the wire; by default as the scenario says "
        "(linkflap docs own-application)."
    ),
)
@click.option("--duration", metavar="TIME", help="Length of the workload: seconds, or 90s, 5m, 2h.")
@click.option(
    "--save",
    "saved",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --dry-run: write the scenario to a new file.",
)
@click.option(
    "--count",
    type=click.IntRange(2, 100_000),
    help="Run it this many times, each with another seed, and count the verdicts.",
)
@click.option("--until-fail", is_flag=True, help="With --count: stop at the first invalid run.")
@recording_options
@click.option("--no-verify", is_flag=True, help="Only record; judge later with linkflap verify.")
def run(
    scenario_name: str,
    topology: str | None,
    runtime: str | None,
    mirror: str | None,
    options: Sequence[str],
    clients: str | None,
    stall_source: bool,
    recorded: str | None,
    seed: int | None,
    duration: str | None,
    out: Path | None,
    dry_run: bool,
    saved: Path | None,
    count: int | None,
    until_fail: bool,
    no_verify: bool,
    keep: bool,
    as_json: bool,
    junit: Path | None,
) -> int:
    """Runs SCENARIO and judges what was recorded.

    SCENARIO is a built-in one (linkflap list scenarios) or a file (my.toml). Judged are the logs of
    all brokers, and what every client did.
    """
    from linkflap.chaos import scenario_file
    from linkflap.chaos.scenarios import ScenarioRequest, scenario
    from linkflap.cli.suite import run_repeatedly
    from linkflap.harness import runtimes
    from linkflap.recording.run import with_programs_recorded
    from linkflap.suite.folder import seconds
    from linkflap.topologies import parse

    lasts = None if duration is None else seconds(duration, "--duration", most=86400)
    request = ScenarioRequest(
        seed=drawn_seed(seed),
        topology=parse(topology) if topology is not None else None,
        mirror=mirror,
        mirror_options=mirror_options(options),
        duration=lasts,
        clients=clients,
        stall_source=stall_source,
    )
    if scenario_file.is_file(scenario_name):
        _check_alone(
            topology=topology,
            mirror=mirror,
            set=options,
            duration=lasts,
            clients=clients,
            stall_source=stall_source,
        )
        chosen = scenario_file.read(Path(scenario_name), seed=request.seed, chosen=seed is not None)
    else:
        chosen = scenario(scenario_name, request)
    asked = click.get_current_context().get_parameter_source("runtime")
    if asked is ParameterSource.COMMANDLINE:
        chosen = replace(chosen, runtime=runtime)
    if runtime is None or asked is not ParameterSource.COMMANDLINE:
        runtime = runtimes.usual(chosen.topology, runtime, chosen.runtime)
    if recorded is not None:
        chosen = with_programs_recorded(chosen, recorded)
    file = ""
    if scenario_file.is_file(scenario_name):
        file = scenario_name
        scenario_file.check_kafka(Path(file), chosen, runtime)
    _save(chosen, runtime, saved, dry_run=dry_run)
    single = {"keep": keep, "json": as_json, "no_verify": no_verify}
    _check_repeated(chosen, runtime, count, until_fail=until_fail, single=single)
    if dry_run:
        return show_schedule(chosen, runtime, as_json=as_json)
    if count:
        return run_repeatedly(
            chosen, runtime=runtime, count=count, until_fail=until_fail, out=out, junit=junit
        )
    folder = out or new_folder(chosen.name)
    check_output(folder, out, junit)
    record_run(
        chosen,
        runtime,
        folder,
        _command_to_repeat(scenario_name, request, chosen, runtime, topology)
        + (f" --record {recorded}" if recorded else ""),
        warm=not no_verify,
        keep=keep,
    )
    if no_verify:
        return _leave_unjudged(chosen, folder, as_json=as_json)
    return judge([folder], NOTES.through, as_json=as_json, junit=junit, file=file)


def _check_repeated(
    chosen: Scenario,
    runtime: str,
    count: int | None,
    *,
    until_fail: bool,
    single: Mapping[str, bool],
) -> None:
    """Raises InputError for what cannot be run several times, if it is to be. `single`: which
    options are given that are for one run."""
    from linkflap.recording.run import check

    if not count and not until_fail:
        return
    check(chosen, runtime)
    if count is None:
        raise InputError(
            "--until-fail ends a series of runs early; give the highest number of runs, for "
            "example --count 20"
        )
    for name, value in single.items():
        if value:
            raise InputError(
                f"--{name.replace('_', '-')} is for one run, and --count makes several; give only "
                "one of them"
            )
    if chosen.topology.attached:
        raise InputError(
            "--count makes several runs side by side, and clusters that run already have one at a "
            "time; repeat the command instead"
        )


def _check_alone(**given: object) -> None:
    """Raises InputError for an option that would change a scenario file, which is complete."""
    for name, value in given.items():
        if value or value == "":
            raise InputError(
                f"--{name.replace('_', '-')} changes a built-in scenario only; write the value into"
                " the scenario file"
            )


def _save(chosen: Scenario, runtime: str, path: Path | None, *, dry_run: bool) -> None:
    from linkflap.chaos.scenario_file import save
    from linkflap.recording.run import check

    if path is None:
        return
    if not dry_run:
        raise InputError(
            "--save writes a scenario instead of running it; add --dry-run, then run the file"
        )
    check(chosen, runtime)
    save(chosen, path)
    click.echo(f"written to {path}; run it with: linkflap run {shlex.quote(str(path))}", err=True)


def _command_to_repeat(
    name: str, request: ScenarioRequest, chosen: Scenario, runtime: str, topology: str | None
) -> str:
    """The command that runs the same scenario again."""
    words = ["linkflap", "run", shlex.quote(name), "--runtime", runtime, "--seed", str(chosen.seed)]
    words += ["--topology", shlex.quote(topology)] if topology else []
    words += ["--mirror", request.mirror] if request.mirror is not None else []
    words += [
        f"--set {shlex.quote(f'{name}={value}')}" for name, value in request.mirror_options.items()
    ]
    words += ["--duration", str(request.duration)] if request.duration else []
    words += ["--clients", shlex.quote(request.clients)] if request.clients else []
    words += ["--stall-source"] if request.stall_source else []
    return " ".join(words)


def _leave_unjudged(chosen: Scenario, folder: Path, *, as_json: bool) -> int:
    """Prints the path of a recorded run. Raises EnvironmentFailure if it did not finish."""
    from linkflap.harness.rundir import RunReader

    click.echo(
        f"recorded in {folder}; judge it with: linkflap verify {shlex.quote(str(folder))}", err=True
    )
    if as_json:
        click.echo(
            json.dumps(
                {"verdict": None, "run": str(folder), "seed": chosen.seed, "scenario": chosen.name}
            )
        )
    ended = RunReader(folder).run
    if ended.status != "finished":
        raise EnvironmentFailure(f"the run failed; its run directory is {folder}: {ended.error}")
    return 0


def record_run(
    chosen: Scenario,
    runtime: str,
    folder: Path,
    command: str,
    *,
    warm: bool,
    keep: bool,
    beside: Callable[[Progress], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Records a run, and shows its progress. `beside` does more while it is recorded."""
    from linkflap.recording.run import check, record
    from linkflap.report.progress import shown_on

    check(chosen, runtime)
    click.echo(f"{chosen.name} with seed {chosen.seed}; run directory {folder}", err=True)
    with shown_on() as progress, NOTES.through(progress), beside(progress):
        if warm:
            from linkflap.spark_verify.spark import pandas_free, session

            pandas_free.settle()
            session.warm()
        record(
            chosen, runtime=runtime, folder=folder, command=command, progress=progress, keep=keep
        )
