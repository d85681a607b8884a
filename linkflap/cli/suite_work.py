"""Runs a suite to its end, merges its shards, or only prints the scenarios that it would run
(`--dry-run`). Prints the disk space that it may use, and the results."""

from __future__ import annotations

import errno
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linkflap.chaos import scenario_file
from linkflap.chaos.cases.results import reproduced, run_missing
from linkflap.chaos.cases.runner import needs
from linkflap.chaos.generator import Coverage, cells_of, generate
from linkflap.chaos.schedule import describe
from linkflap.cli.case import benches_in
from linkflap.cli.output import annotate, check_output, new_folder, say
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.scenario import Scenario, libraries
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.verdict import Verdict, worst
from linkflap.harness.runtimes.distribution.kafka import released
from linkflap.recording.run import commands
from linkflap.suite import merge as shards
from linkflap.suite import page as pages
from linkflap.suite import regression, rounds
from linkflap.suite import summary as summaries
from linkflap.suite.folder import CASES, SuiteFolder
from linkflap.suite.regression import REGRESSION
from linkflap.suite.triage import triage
from linkflap.suite.work import Suite, Workers

if TYPE_CHECKING:
    from linkflap.suite.folder import Plan


def own_builds(scenario: Scenario) -> dict[str, str]:
    """Cluster or client that runs a build of the user's own -> its folder or image. Raises
    InputError."""
    known = released()
    of_clients = {
        f"clients of workload {number} at {spec.home}": each.release
        for number, spec in enumerate(scenario.workloads, start=1)
        for each in libraries(spec.library)
        if each.release and each.release not in known
    }
    clusters = scenario.topology.clusters
    return {
        **{f"cluster {each.name}": each.kafka for each in clusters if each.kafka not in known},
        **of_clients,
    }


def full_path(asked: str) -> str:
    """A Kafka that can be named in any folder: a folder of jars with its full path, releases and
    images as they are."""
    path = Path(asked).expanduser()
    return str(path.absolute()) if asked and asked not in released() and path.is_dir() else asked


def placed(topology: Topology) -> Topology:
    """The same topology, each folder with its full path."""
    return replace(
        topology,
        clusters=tuple(replace(each, kafka=full_path(each.kafka)) for each in topology.clusters),
    )


def anywhere(scenario: Scenario) -> Scenario:
    """The same scenario, each folder of jars with its full path: a suite runs it from a folder of
    its own."""
    workloads = tuple(
        replace(
            spec,
            library=",".join(
                str(replace(each, release=full_path(each.release)))
                for each in libraries(spec.library)
            ),
        )
        for spec in scenario.workloads
    )
    return replace(scenario, topology=placed(scenario.topology), workloads=workloads)


def work(folder: SuiteFolder, junit: Path | None, before: SuiteFolder | None = None) -> int:
    """Runs a suite to its end, prints the results, also against those of an earlier suite, and
    returns the exit code. An interrupted suite prints what it has, and passes KeyboardInterrupt
    on."""
    resumes = f"resume it: linkflap suite --resume {shlex.quote(str(folder.root))}"
    with folder.held(), full_disk_named(folder):
        _say_disk(folder)
        try:
            _play(folder)
        except KeyboardInterrupt:
            found = _against(folder, before)
            text = f"{found.text}\nIncomplete: the suite was interrupted; {resumes}.\n"
            _written(folder, replace(found, text=text), None, resumes)
            raise
        return _said(folder, _against(folder, before), junit, resumes)


def _play(folder: SuiteFolder) -> None:
    """Plays what a suite plays: cases, then generated runs, whose failures are shrunk."""
    if folder.plan.name == regression.REGRESSION:
        regression.run(folder, say)
        return
    with benches_in(None) as benches:
        for _ in run_missing(
            folder.plan.played_cases, folder.root / CASES, benches=benches, report=say
        ):
            pass
    _explore(folder)


def _against(folder: SuiteFolder, before: SuiteFolder | None) -> SuiteOutcome:
    """The results of a suite, compared with those of an earlier one if it is given; the comparison
    is written, too."""
    found = _came_to(folder)
    if before is None:
        return found
    compared = summaries.compare(folder, before)
    summaries.write_comparison(compared, folder.root)
    return replace(found, text=f"{found.text}\n{summaries.comparison(compared)}")


@contextmanager
def full_disk_named(folder: SuiteFolder) -> Iterator[None]:
    """Turns a write that fails because the disk is full (ENOSPC) into an EnvironmentFailure: it is
    no defect of linkflap."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise EnvironmentFailure(
            f"the disk of {folder.root} is full; make room, then resume the suite with --resume"
        ) from error


def _said(folder: SuiteFolder, found: SuiteOutcome, junit: Path | None, also: str) -> int:
    """Writes and prints the results; returns the exit code."""
    _written(folder, found, junit, also)
    if found.verdict is not Verdict.VALID:
        annotate(f"suite {folder.plan.name} is {found.verdict}", found.text.split("\n")[2])
    return found.verdict.exit_code


def _written(folder: SuiteFolder, found: SuiteOutcome, junit: Path | None, also: str) -> None:
    """Writes and prints the results."""
    (folder.root / "summary.md").write_text(found.text)
    page = pages.write(folder)
    if junit:
        junit.write_bytes(found.junit)
    click.echo(found.text)
    click.echo(f"suite {folder.root}, page {page}; {also}", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOutcome:
    """The results of a suite."""

    text: str
    junit: bytes
    verdict: Verdict


def _came_to(folder: SuiteFolder) -> SuiteOutcome:
    """The results of a suite: of a regression suite by case, of any other suite by run."""
    if folder.plan.name != regression.REGRESSION:
        return SuiteOutcome(
            text=summaries.summary(folder),
            junit=summaries.junit(folder),
            verdict=summaries.came_to(folder),
        )
    names = {entry.number: entry.title for entry in regression.entries(folder)}
    return SuiteOutcome(
        text=regression.summary(folder),
        junit=summaries.junit(folder, names),
        verdict=regression.verdict_of(folder),
    )


def _explore(folder: SuiteFolder) -> None:
    """Records and judges the runs of a suite that is not a regression suite, and shrinks the
    failures."""
    plan, runtime = folder.plan, folder.plan.bounds.runtime
    with ExitStack() as ends:
        works = Workers(
            jobs=plan.jobs, batch=1 if plan.name == rounds.SOAK else plan.batch, runtime=runtime
        )
        suite = Suite(folder=folder, works=works, say=say)
        if not plan.fresh:
            kept = ends.enter_context(closing(rounds.Rounds(folder)))
            works.record, suite.fits = kept.start, kept.fits
        ends.callback(works.close)
        suite.run()
    if plan.replays:
        with closing(Workers(jobs=plan.jobs, batch=plan.batch, runtime=runtime)) as replays:
            triage(folder, replays, say)


def merge(paths: Sequence[Path], out: Path | None, junit: Path | None) -> int:
    """Merges the shards of a suite, prints their joint results, and returns the exit code."""
    root = out or new_folder("suite-merged")
    check_output(root, out, None)
    with ExitStack() as held:
        parts = [SuiteFolder.open(path) for path in paths]
        for part in parts:
            held.enter_context(part.held())
        folder = shards.merge(parts, root)
    found = _came_to(folder)
    if missing := shards.missing(folder.plan):
        text = f"{found.text}\nIncomplete: shard {', '.join(missing)} was not merged.\n"
        found = replace(found, text=text, verdict=worst([found.verdict, Verdict.UNKNOWN]))
    return _said(folder, found, junit, f"merged from {len(parts)} shards")


def _say_disk(folder: SuiteFolder) -> None:
    """Prints the disk space that the suite may use. Raises InputError if the disk has less."""
    plan, free = folder.plan, shutil.disk_usage(folder.root).free
    needed, also = plan.disk, ""
    if plan.name == rounds.SOAK:
        disk, memory = rounds.bound(folder)
        needed, also = (
            needed + disk,
            f"; the brokers use at most {memory >> 20} MiB of memory",
        )
    click.echo(
        f"suite {plan.name} with seed {plan.seed} in {folder.root}: {plan.jobs} at once for "
        f"{plan.seconds:,.0f} s; uses at most {needed >> 20} MiB of the {free >> 20} MiB that its "
        f"disk has free{also}",
        err=True,
    )
    if free < needed:
        raise InputError(
            f"the disk of {folder.root} has {free >> 20} MiB free, and the suite may use "
            f"{needed >> 20}; give a folder on another disk with --out, or fewer --jobs"
        )


def show_scenarios(plan: Plan, name: str | None) -> int:
    """Prints the cases of the suite, the scenario of the file `name`, or the first generated
    scenarios. Returns the exit code."""
    if plan.given and name is not None:
        _given(Path(name), plan.runs)
    elif plan.name == REGRESSION:
        _cases(plan)
    else:
        for each, variant in plan.played_cases:
            wanted = needs(each, variant)
            click.echo(f"{each.name} on {variant.title}{f': NEEDS {wanted}' if wanted else ''}")
        _generated(plan)
    return 0


def _cases(plan: Plan) -> None:
    part, of = plan.shard
    for known in reproduced()[part::of]:
        click.echo(
            f"{known.case.name} on {known.variant.title}: {known.shown} of {known.runs} before"
        )


def _generated(plan: Plan) -> None:
    coverage = Coverage(hits=plan.before)
    for number in range(1, (plan.runs or 5) + 1):
        made = generate(plan.seed, number, coverage, plan.bounds, guided=plan.guided)
        coverage = coverage.with_run(cells_of(made))
        whose = f"; clients of {made.workloads[0].library}" if len(plan.bounds.clients) > 1 else ""
        click.echo(f"{made.name}: {made.mirror.kind} {dict(made.mirror.options)}{whose}")
        _faults(made)


def _given(path: Path, runs: int) -> None:
    """Prints the scenario of a file, and the programs that it starts."""
    made = scenario_file.read(path, seed=0)
    click.echo(
        f"{made.name}, {runs or 'any number of'} times: {made.mirror.kind} "
        f"{dict(made.mirror.options)}"
    )
    _faults(made)
    for name, program in commands(made).items():
        click.echo(f"    starts {name}: {shlex.join(program)}")
    for name, build in own_builds(made).items():
        click.echo(f"    runs {name} on {build}")


def _faults(made: Scenario) -> None:
    for words in describe(made.schedule).values():
        click.echo(f"    {words}")
