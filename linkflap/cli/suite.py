"""`linkflap suite`: records many generated scenarios in parallel and judges them in batches; or
plays every known case. Lists failures first."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from linkflap.cli.output import check_junit, check_output, new_folder
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.payload import drawn_seed
from linkflap.harness.model.scenario import LIBRDKAFKA
from linkflap.harness.model.topology import DEFAULT_KAFKA

if TYPE_CHECKING:
    from linkflap.chaos.generator import GeneratorBounds
    from linkflap.harness.model.scenario import Scenario
    from linkflap.suite.folder import Plan, SuiteFolder

SMOKE: Final = "smoke"
NIGHTLY: Final = "nightly"
SOAK: Final = "soak"
KIP: Final = "kip"
OWN: Final = "own"
REGRESSION: Final = "regression"
MERGE: Final = "merge"
RUNS: Final = {OWN: 10}
LASTS: Final = {SMOKE: "3m", NIGHTLY: "8h", SOAK: "8h", KIP: "1h", OWN: "336h", REGRESSION: "336h"}
SHRINK: Final = {SMOKE: 90.0, NIGHTLY: 1200.0, SOAK: 600.0, KIP: 1200.0, OWN: 1.0, REGRESSION: 0.0}
"""Seconds for shrinking, for each failure."""
ALIKE: Final = {SMOKE: 1, NIGHTLY: 3, SOAK: 3, KIP: 3, OWN: 3, REGRESSION: 1}
"""How many failures of one kind are shrunk."""
_NAMED: Final = (SMOKE, NIGHTLY, SOAK, KIP, REGRESSION)
_WIDE: Final = (NIGHTLY, KIP)
"""The suites that draw from all topologies, and from two mirrors."""


def following(plan: Plan, last: Path | None) -> Plan:
    """The plan, with the coverage of the suite in `last` (`--after`), if one is given."""
    from linkflap.suite import summary
    from linkflap.suite.folder import SuiteFolder

    return plan if last is None else summary.following(plan, SuiteFolder.open(last))


def earlier(path: Path | None) -> SuiteFolder | None:
    """The suite to compare with (`--against`), if one is given. Raises InputError if it is none."""
    from linkflap.suite.folder import SuiteFolder

    return None if path is None else SuiteFolder.open(path)


def resumed_plan(path: Path, *, allow_commands: bool) -> SuiteFolder:
    """The suite directory, which somebody else may have made or changed. Raises InputError if it
    cannot be resumed, and if it would start programs without `allow_commands`."""
    from linkflap.chaos import scenario_file
    from linkflap.harness.runtimes.distribution.kafka import released
    from linkflap.suite import regression
    from linkflap.suite.failures import SMALLEST
    from linkflap.suite.folder import GIVEN, SUITE, SuiteFolder

    folder = SuiteFolder.open(path)
    plan = folder.plan
    if plan.merged:
        raise InputError(f"{path} was merged from shards; resume each shard, then merge them again")
    if allow_commands:
        return folder
    if plan.bounds.like:
        _refuse_code(str(path / SUITE), plan.bounds.like)
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


def _refuse_code(name: str, scenario: Scenario, *, named: Sequence[str] = ()) -> None:
    """Raises InputError for a scenario that starts programs, or builds of Kafka that are no
    release and not `named` by the user."""
    from linkflap.cli.suite_work import own_builds
    from linkflap.recording.run import commands

    if started := commands(scenario):
        first = shlex.join(next(iter(started.values())))
        raise InputError(
            f"{name} starts programs of yours ({first}); allow this with --allow-commands"
        )
    for what, build in own_builds(scenario).items():
        if build in named:
            continue
        raise InputError(
            f"{name} runs a build of Kafka that is no release ({what}: {build}); allow this with "
            "--allow-commands"
        )


def created_plan(path: Path, plan: Plan) -> SuiteFolder:
    from linkflap.suite import regression
    from linkflap.suite.folder import SuiteFolder

    folder = SuiteFolder.create(path, plan)
    if plan.name == REGRESSION:
        regression.write_entries(folder)
    return folder


def only_of(names: Sequence[str]) -> str | None:
    if len(names) > 1:
        raise InputError(
            f"{names[1]!r} is a second name; give only one of {', '.join(_NAMED)} or "
            "a scenario file"
        )
    return names[0] if names else None


def kind_of(
    name: str | None, *, allow_commands: bool, runtime: str | None = None
) -> tuple[str, str]:
    """The kind of suite, and the text of its scenario file if it has one. Raises InputError."""
    from linkflap.chaos import scenario_file
    from linkflap.cli.suite_work import anywhere, own_builds
    from linkflap.harness import runtimes
    from linkflap.recording.run import commands

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
    if name is None or name not in _NAMED:
        what = f"there is no suite {name!r}" if name else "no suite is named"
        raise InputError(
            f"{what}; give {', '.join(_NAMED)} or a scenario file, or resume a "
            "suite with --resume SUITEDIR"
        )
    return name, ""


def most_runs(kind: str, runs: int | None, lasts: str | None) -> int:
    """The number of runs after which a suite ends; 0 if only its time ends it."""
    return runs or (0 if lasts else RUNS.get(kind, 0))


def own_clusters(kind: str, *, fresh: bool) -> bool:
    """Whether each run of a suite starts clusters of its own."""
    return fresh or kind in (OWN, REGRESSION)


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
    from linkflap.cli.suite_work import full_path
    from linkflap.suite import rounds

    return GeneratorBounds(
        topologies=tuple(topologies) or (ALL if kind in _WIDE else ALL[:1]),
        mirrors=tuple(mirrors) or (("shadow", "mm2") if kind in _WIDE else ("shadow",)),
        faults=tuple(faults) or (rounds.faults(runtime) if kind == SOAK else ()),
        kafka=tuple(map(full_path, _named(kafka))) or (DEFAULT_KAFKA,),
        clients=_named(clients) or (LIBRDKAFKA,),
        runtime=runtime,
    )


def like(
    path: Path | None,
    bounds: GeneratorBounds,
    *,
    kind: str,
    kafka: Sequence[str],
    given: Mapping[str, Sequence[str]],
    allow_commands: bool,
) -> GeneratorBounds:
    """The bounds of a suite whose runs are like the scenario of a file (`--like`), if one is given,
    but for its faults; on `kafka`, if it is named. `given`: the options that the file would
    contradict. Raises InputError."""
    from linkflap.chaos import scenario_file
    from linkflap.chaos.generator.bounds import of_scenario
    from linkflap.cli.suite_work import anywhere, full_path

    if path is None:
        return bounds
    if kind in (OWN, REGRESSION):
        raise InputError("--like is for suites that draw faults: smoke, nightly, soak, kip")
    for option in (name for name, values in given.items() if values):
        raise InputError(f"{option} contradicts --like {path}, which says that; leave it out")
    named = [*map(full_path, _named(kafka))]
    if len(named) > 1:
        raise InputError(
            f"--kafka names {len(named)}, and all clusters of --like {path} run one; name one"
        )
    scenario = scenario_file.read(path, seed=0, kafka="".join(named))
    scenario_file.check_kafka(path, scenario, bounds.runtime)
    if not allow_commands:
        _refuse_code(str(path), scenario, named=named)
    for what, found in {
        "budgets of failovers": scenario.budgets.of_failovers,
        "a workload that starts with a fault": any(each.starts for each in scenario.workloads),
    }.items():
        if found:
            raise InputError(
                f"{path} has {what}, and with --like the faults are drawn; use another file, or "
                f"play this one as it is: linkflap suite {shlex.quote(str(path))}"
            )
    return of_scenario(anywhere(scenario), bounds)


def cases_of(kind: str, names: Sequence[str], kafka: Sequence[str]) -> tuple[str, ...]:
    """The names of the cases that a suite plays too. Raises InputError for a case that does not
    exist, and where no suite or no single Kafka would play them."""
    from linkflap.chaos.cases import cases_named

    if kind != KIP:
        if names:
            raise InputError(
                f"--cases is for suite {KIP}, and suite {kind} plays no cases of your choice; "
                "leave it out, or play them alone: linkflap case matrix"
            )
        return ()
    if len(_named(kafka)) > 1:
        raise InputError(
            f"suite {KIP} is about one Kafka, and --kafka names {len(_named(kafka))}; play a suite "
            "for each, the later one with --against the directory of the earlier one"
        )
    found = (each.name for name in names or ("KIP-*",) for each in cases_named(name))
    return tuple(dict.fromkeys(found))


def _named(given: Sequence[str]) -> tuple[str, ...]:
    """The names of an option that may be repeated and whose values are lists with commas; each name
    once."""
    return tuple(
        dict.fromkeys(word.strip() for text in given for word in text.split(",") if word.strip())
    )


@click.command()
@click.argument(
    "names", metavar="smoke|nightly|soak|kip|regression|FILE|merge DIR DIR...", nargs=-1
)
@click.option(
    "--for",
    "lasts",
    metavar="TIME",
    help="How long to generate runs: 20m, 8h; smoke has 3m, kip 1h, nightly 8h.",
)
@click.option(
    "--shrink",
    metavar="TIME",
    help="How long to shrink each failure, up to three of a kind; smoke has 90s, others 20m.",
)
@click.option("--runs", type=click.IntRange(min=1), help="End after this many runs; 10 for a FILE.")
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), help="Seed of all scenarios; by default a new one."
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    help="Runs recorded at once; by default one for each processor.",
)
@click.option(
    "--topologies",
    multiple=True,
    metavar="ARROWS",
    help="Use only these topologies, e.g. 'A->B->C' or pair; may be repeated.",
)
@click.option(
    "--mirrors",
    multiple=True,
    metavar="KIND",
    help="Use only these mirrors (linkflap list mirrors); may be repeated.",
)
@click.option(
    "--faults",
    multiple=True,
    metavar="FAULT",
    help="Use only these faults (linkflap list faults); may be repeated.",
)
@click.option(
    "--kafka",
    multiple=True,
    metavar="RELEASE,...",
    help="Kafka releases of the clusters: uses every pair of them in turn.",
)
@click.option(
    "--clients",
    multiple=True,
    metavar="LIBRARY,...",
    help="Client libraries: each run uses one of them, or alternates between all.",
)
@click.option(
    "--cases",
    multiple=True,
    metavar="CASE",
    help="Cases of suite kip, also as 'KIP-1163-*'; may be repeated; by default 'KIP-*'.",
)
@click.option(
    "--runtime",
    default="process",
    envvar="LINKFLAP_RUNTIME",
    show_default=True,
    help="What brokers run in.",
)
@click.option(
    "--shard",
    "part",
    metavar="K/N",
    help="Play only every Nth run, starting with the Kth: splits one suite over N machines.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Start new clusters for each run, instead of using clean ones again.",
)
@click.option(
    "--like",
    "example",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw only faults: clusters, settings, topics, workloads are those of FILE.",
)
@click.option("--uniform", is_flag=True, help="Draw at random, without regard to coverage.")
@click.option(
    "--reach",
    multiple=True,
    metavar="STATE",
    help="State that a run must reach, e.g. commit-in-flight; otherwise the suite is unknown.",
)
@click.option(
    "--after",
    type=click.Path(path_type=Path),
    metavar="SUITEDIR",
    help="Prefer what SUITEDIR and the suites before it never covered.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="SUITEDIR",
    help="Compare failures with those of SUITEDIR: new, gone, more frequent.",
)
@click.option("--until-fail", is_flag=True, help="End with the first invalid run, and shrink it.")
@click.option(
    "--replays",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="How often to run each failure again.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The suite directory to make; by default a new one.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="SUITEDIR",
    help="Continue a suite that was interrupted or killed.",
)
@click.option("--junit", type=click.Path(path_type=Path), help="Also write JUnit XML there.")
@click.option(
    "--allow-commands",
    is_flag=True,
    help="Run the code that FILE names: programs, builds of Kafka.",
)
@click.option("--dry-run", is_flag=True, help="Print the first scenarios, start nothing.")
def suite(
    names: Sequence[str],
    lasts: str | None,
    shrink: str | None,
    runs: int | None,
    seed: int | None,
    jobs: int | None,
    topologies: Sequence[str],
    mirrors: Sequence[str],
    faults: Sequence[str],
    kafka: Sequence[str],
    clients: Sequence[str],
    cases: Sequence[str],
    runtime: str,
    part: str | None,
    fresh: bool,
    example: Path | None,
    uniform: bool,
    reach: Sequence[str],
    after: Path | None,
    against: Path | None,
    until_fail: bool,
    replays: int,
    out: Path | None,
    resume: Path | None,
    junit: Path | None,
    allow_commands: bool,
    dry_run: bool,
) -> int:
    """Generates scenarios, or repeats one FILE.toml. Runs and judges them, and keeps those that
    fail.

    soak uses the same clusters and links for all its runs. kip plays the cases of KIPs on one build
    of Kafka, then generated runs, and ends with one table of verdicts. regression plays every case
    of docs/track-record.md that was reproduced, and expects to reproduce it again. merge joins the
    suite directories of all shards of one suite.

    `linkflap suite smoke`, `linkflap suite nightly --for 8h`, `linkflap suite kip --kafka
    ./build/libs`, `linkflap suite --resume SUITEDIR`
    """
    from linkflap.cli import suite_work
    from linkflap.harness.version import VERSION
    from linkflap.suite import folder as folders

    if junit is not None:
        check_junit(junit)
    before = earlier(against)
    if resume is not None:
        if names:
            raise InputError(
                "--resume continues a suite with its original options; give no name and no other "
                "option with it"
            )
        return suite_work.work(resumed_plan(resume, allow_commands=allow_commands), junit, before)
    if names[:1] == (MERGE,):
        return suite_work.merge([Path(name) for name in names[1:]], out, junit)
    name = only_of(names)
    allowed = allow_commands or dry_run
    kind, given = kind_of(name, allow_commands=allowed, runtime=runtime)
    bounds = bounds_of(
        kind,
        topologies=topologies,
        mirrors=mirrors,
        faults=faults,
        kafka=kafka,
        clients=clients,
        runtime=runtime,
    )
    bounds = like(
        example,
        bounds,
        kind=kind,
        kafka=kafka,
        given={"--topologies": topologies, "--mirrors": mirrors, "--clients": clients},
        allow_commands=allowed,
    )
    plan = folders.Plan(
        name=kind,
        seed=drawn_seed(seed),
        seconds=folders.seconds(lasts or LASTS[kind]),
        runs=most_runs(kind, runs, lasts),
        jobs=1 if kind in (SOAK, REGRESSION) else jobs or folders.usual_jobs(),
        bounds=bounds,
        shard=folders.shard(part) if part else (0, 1),
        guided=not uniform,
        fresh=own_clusters(kind, fresh=fresh),
        until_fail=until_fail,
        reach=tuple(reach),
        cases=cases_of(kind, cases, bounds.kafka),
        replays=replays,
        shrink_seconds=folders.seconds(shrink, "--shrink") if shrink else SHRINK[kind],
        alike=ALIKE[kind],
        given=given,
        linkflap=VERSION,
    )
    _check(plan)
    plan = following(plan, after)
    if dry_run:
        return suite_work.show_scenarios(plan, name)
    folder = out or new_folder(f"suite-{kind}")
    check_output(folder, out, None)
    return suite_work.work(created_plan(folder, plan), junit, before)


def _check(plan: Plan) -> None:
    """Raises InputError if the plan is wrong, or cannot be played as a soak."""
    from linkflap.suite import rounds

    if plan.name == SOAK:
        rounds.check(plan)
    plan.check()


def run_repeatedly(
    scenario: Scenario,
    *,
    runtime: str,
    count: int,
    until_fail: bool,
    out: Path | None,
    junit: Path | None,
) -> int:
    """`linkflap run --count`: runs one scenario `count` times, each time with another seed, and
    counts the verdicts."""
    from linkflap.chaos import scenario_file
    from linkflap.chaos.generator import GeneratorBounds
    from linkflap.cli import suite_work
    from linkflap.cli.suite_work import anywhere
    from linkflap.harness.version import VERSION
    from linkflap.suite import folder as folders

    plan = folders.Plan(
        name=OWN,
        seed=scenario.seed,
        seconds=folders.seconds(LASTS[OWN]),
        runs=count,
        jobs=min(count, folders.usual_jobs()),
        bounds=GeneratorBounds(runtime=runtime),
        fresh=True,
        until_fail=until_fail,
        replays=0,
        given=scenario_file.render(anywhere(scenario)),
        linkflap=VERSION,
    )
    folder = out or new_folder(f"{scenario.name}-{count}-times")
    check_output(folder, out, junit)
    return suite_work.work(created_plan(folder, plan), junit)
