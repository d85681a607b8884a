"""Makes the plan of a suite from the options of `linkflap suite`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from linkflap.harness.model.clients import LIBRDKAFKA
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import DEFAULT_KAFKA

if TYPE_CHECKING:
    from linkflap.chaos.generator import GeneratorBounds
    from linkflap.harness.model.scenario import Scenario
    from linkflap.harness.suite.folder import SuiteFolder
    from linkflap.harness.suite.plan import Plan


SMOKE: Final = "smoke"


NIGHTLY: Final = "nightly"


SOAK: Final = "soak"


OWN: Final = "own"


REGRESSION: Final = "regression"


RUNS: Final = {OWN: 10}


def following(plan: Plan, last: Path | None) -> Plan:
    """The plan, with the coverage of the suite in `last` (`--after`), if one is given."""
    from linkflap.harness.suite import nights
    from linkflap.harness.suite.folder import SuiteFolder

    return plan if last is None else nights.following(plan, SuiteFolder.open(last))


def resumed_plan(path: Path, *, allow_commands: bool) -> SuiteFolder:
    """The suite directory, which somebody else may have made or changed. Raises InputError if it
    cannot be resumed, and if it would start programs without `allow_commands`."""
    from linkflap.chaos import scenario_file
    from linkflap.harness.runtimes.distribution.kafka import released
    from linkflap.harness.suite import regression
    from linkflap.harness.suite.folder import GIVEN, SuiteFolder
    from linkflap.harness.suite.reports import SMALLEST

    folder = SuiteFolder.open(path)
    plan = folder.plan
    if plan.merged:
        raise InputError(f"{path} was merged from shards; resume each shard, then merge them again")
    if allow_commands:
        return folder
    ended = {result.number for result in folder.results if not result.failed}
    for file in (
        *([path / GIVEN] if plan.given else ()),
        *(folder.scenario_path(n) for n in folder.numbers() if n not in ended),
        *(path / "failures").glob(f"*/{SMALLEST}"),
    ):
        try:
            scenario = scenario_file.read(file, seed=0)
        except InputError:
            continue  # it is named when it is to be played
        _refuse_code(str(file), scenario)
    builds = {*plan.bounds.kafka}
    if plan.name == REGRESSION:
        builds |= {one.variant.kafka for one in regression.entries(folder)}
    for build in sorted(builds - {*released()}):
        raise InputError(
            f"{path} runs a build of Kafka that is no release ({build}); allow this with "
            "--allow-commands"
        )
    return folder


def _refuse_code(name: str, scenario: Scenario) -> None:
    """Raises InputError for a scenario that starts programs, or builds of Kafka that are no
    release."""
    from linkflap.harness.recording.own_builds import own_builds
    from linkflap.harness.recording.run import commands

    if started := commands(scenario):
        first = shlex.join(next(iter(started.values())))
        raise InputError(
            f"{name} starts programs of yours ({first}); allow this with --allow-commands"
        )
    if builds := own_builds(scenario):
        what, build = next(iter(builds.items()))
        raise InputError(
            f"{name} runs a build of Kafka that is no release ({what}: {build}); allow this with "
            "--allow-commands"
        )


def created_plan(path: Path, plan: Plan) -> SuiteFolder:
    from linkflap.harness.suite import regression
    from linkflap.harness.suite.folder import SuiteFolder

    folder = SuiteFolder.create(path, plan)
    if plan.name == REGRESSION:
        regression.write_entries(folder)
    return folder


def only_of(names: Sequence[str]) -> str | None:
    if len(names) > 1:
        raise InputError(
            f"{names[1]!r} is a second name; give only one of {SMOKE}, {NIGHTLY}, {SOAK}, "
            f"{REGRESSION} or a scenario file"
        )
    return names[0] if names else None


def kind_of(
    name: str | None, *, allow_commands: bool, runtime: str | None = None
) -> tuple[str, str]:
    """The kind of suite, and the text of its scenario file if it has one. Raises InputError."""
    from linkflap.chaos import scenario_file
    from linkflap.harness import runtimes
    from linkflap.harness.recording.own_builds import anywhere, own_builds
    from linkflap.harness.recording.run import commands

    if name is not None and scenario_file.is_file(name):
        # Errors in the file are reported first.
        scenario = scenario_file.read(Path(name), seed=0)
        scenario_file.check_kafka(
            Path(name), scenario, runtime or scenario.runtime or runtimes.DEFAULT
        )
        if not allow_commands:
            _refuse_code(name, scenario)
        # From another folder, only full paths name the same programs and builds.
        return OWN, (
            scenario_file.render(anywhere(scenario))
            if commands(scenario) or own_builds(scenario)
            else Path(name).read_text()
        )
    if name is None or name not in (SMOKE, NIGHTLY, SOAK, REGRESSION):
        what = f"there is no suite {name!r}" if name else "no suite is named"
        raise InputError(
            f"{what}; give {SMOKE}, {NIGHTLY}, {SOAK}, {REGRESSION} or a scenario file, or resume "
            "a suite with --resume SUITEDIR"
        )
    return name, ""


def most_runs(kind: str, runs: int | None, lasts: str | None) -> int:
    """The number of runs after which a suite ends; 0 if only its time ends it."""
    return runs or (0 if lasts else RUNS.get(kind, 0))


def bounds_of(
    kind: str,
    *,
    topologies: Sequence[str],
    mirrors: Sequence[str],
    faults: Sequence[str],
    kafka: Sequence[str],
    clients: Sequence[str],
    runtime: str,
) -> GeneratorBounds:
    from linkflap.chaos.generator import GeneratorBounds
    from linkflap.chaos.generator.bounds import ALL
    from linkflap.harness.recording.own_builds import full_path
    from linkflap.harness.suite import rounds

    return GeneratorBounds(
        topologies=tuple(topologies) or (ALL if kind == NIGHTLY else ALL[:1]),
        mirrors=tuple(mirrors) or (("shadow", "mm2") if kind == NIGHTLY else ("shadow",)),
        faults=tuple(faults) or (rounds.faults(runtime) if kind == SOAK else ()),
        kafka=tuple(map(full_path, _named(kafka))) or (DEFAULT_KAFKA,),
        clients=_named(clients) or (LIBRDKAFKA,),
        runtime=runtime,
    )


def _named(given: Sequence[str]) -> tuple[str, ...]:
    """The names of an option that may be repeated and whose values are lists with commas; each name
    once."""
    return tuple(
        dict.fromkeys(word.strip() for text in given for word in text.split(",") if word.strip())
    )
