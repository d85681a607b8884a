"""`linkflap suite --dry-run`: prints the scenarios that a suite would run; starts nothing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linkflap.chaos import scenario_file
from linkflap.chaos.cases.regression import reproduced
from linkflap.chaos.generator import Coverage, cells_of, generate
from linkflap.chaos.schedule import describe
from linkflap.harness.recording.own_builds import own_builds
from linkflap.harness.recording.run import commands
from linkflap.harness.suite.regression import REGRESSION

if TYPE_CHECKING:
    from linkflap.harness.model.scenario import Scenario
    from linkflap.harness.suite.plan import Plan


def show(plan: Plan, name: str | None) -> int:
    """Prints the cases of the suite, the scenario of the file `name`, or the first generated
    scenarios. Returns the exit code."""
    if plan.given and name is not None:
        _given(Path(name), plan.runs)
    elif plan.name == REGRESSION:
        _cases(plan)
    else:
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
