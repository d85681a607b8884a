"""The commands of suites: programs of a scenario file, soaks, and directories that somebody else
made."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from linkflap.chaos.generator import Coverage, GeneratorBounds, baseline, generate
from linkflap.chaos.scenario_file import save
from linkflap.chaos.scenarios import ScenarioRequest, scenario
from linkflap.cli.commands import linkflap as command
from linkflap.cli.suite import kind_of, like
from linkflap.harness.model.errors import (
    DeadlineExceeded,
    EnvironmentFailure,
    InputError,
    SetupError,
)
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.runtimes.distribution.kafka import BROKER_CLASSES
from linkflap.harness.wire.messages import Error
from linkflap.recording import cleanliness, kept_clusters
from linkflap.recording.kept_clusters import KeptClusters, Size, align_producer_ids, killed_by
from linkflap.suite import rounds
from linkflap.suite.failures import era_in
from linkflap.suite.folder import Plan, RunResult, SuiteFolder
from linkflap.suite.merge import merge
from linkflap.suite.summary import summary
from linkflap.suite.triage import CHOSEN, triage
from linkflap.suite.work import Workers
from linkflap.topologies import parse
from tests.fuzzing import SHARDS, NoWorkers, shards

# A suite of a scenario file that starts programs: only if that is allowed, and they are shown
# first.


EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
FILES = (EXAMPLES / "application" / "failover.toml", EXAMPLES / "replicator" / "crash.toml")


@pytest.mark.parametrize("path", FILES, ids=["application", "mirror"])
def test_programs_are_started_only_where_that_is_allowed(tmp_path: Path, path: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"starts programs of yours \(python3 .*; allow this with --allow-commands",
    ):
        command.main(["suite", str(path), "--out", str(tmp_path / "suite")], standalone_mode=False)
    assert not (tmp_path / "suite").exists()


@pytest.mark.parametrize(
    ("path", "program"),
    list(zip(FILES, ("payments.py", "copier.py"), strict=True)),
    ids=["application", "mirror"],
)
def test_dry_run_shows_the_commands_of_a_suite(
    capsys: pytest.CaptureFixture[str], path: Path, program: str
) -> None:
    assert command.main(["suite", str(path), "--dry-run"], standalone_mode=False) == 0
    assert f"python3 {program}" in capsys.readouterr().out


def test_allowed_commands_are_stored_with_full_paths() -> None:
    kind, given = kind_of(str(FILES[1]), allow_commands=True)
    assert kind == "own"
    assert str(EXAMPLES / "replicator" / "mirror.toml") in given
    assert str(EXAMPLES / "application") in kind_of(str(FILES[0]), allow_commands=True)[1]


@pytest.mark.parametrize("where", ["topology", "clients"])
def test_a_folder_of_jars_is_code_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    build(tmp_path / "libs")
    built = scenario(
        "baseline", ScenarioRequest(seed=1, clients="java@./libs" if where == "clients" else None)
    )
    if where == "topology":
        built = replace(built, topology=parse("A@./libs->B"))
    path = tmp_path / "mine.toml"
    save(built, path)
    with pytest.raises(
        InputError, match=r"no release \(c.*: \./libs\); allow this with --allow-commands"
    ):
        command.main(["suite", str(path), "--out", str(tmp_path / "suite")], standalone_mode=False)
    assert not (tmp_path / "suite").exists()
    assert command.main(["suite", str(path), "--dry-run"], standalone_mode=False) == 0
    assert "on ./libs" in capsys.readouterr().out
    kind, given = kind_of(str(path), allow_commands=True)
    assert kind == "own"
    assert f"@{tmp_path}/libs" in given, "a suite runs it from another folder"


# Runs like a scenario file, but for their faults.


def build(folder: Path, *, settings: str = "") -> Path:
    """A folder of jars that a broker could be started from; `settings`: names that its classes
    have."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "kafka-clients-9.9.9.jar", "w") as jar:
        jar.writestr("kafka/kafka-version.properties", "version=9.9.9")
        for name in BROKER_CLASSES:
            jar.writestr(f"{name.replace('.', '/')}.class", b"")
        texts = [text.encode() for text in settings.split()]
        inside = b"".join(b"\x01" + len(text).to_bytes(2, "big") + text for text in texts)
        jar.writestr("org/x/Names.class", inside)
    return folder


NAMES = "plugin.store plugin.enable"


DISKLESS = """\
schema = 1
name = "diskless"
topology = "A"
[cluster.A.config]
"plugin.store" = "memory"
[topics.config]
"plugin.enable" = true
[[workload]]
kind = "idempotent"
home = "A"
options = { via = "proxy" }
"""


def test_a_suite_draws_faults_for_settings_that_only_the_build_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, libs = tmp_path / "mine.toml", build(tmp_path / "libs", settings=NAMES)
    mine.write_text(DISKLESS)
    asked = ["suite", "smoke", "--like", str(mine), "--runs", "2", "--dry-run"]
    with pytest.raises(InputError, match=r"line 5: Kafka has no setting 'plugin.store'"):
        command.main(asked, standalone_mode=False)
    assert command.main([*asked, "--kafka", str(libs)], standalone_mode=False) == 0
    assert "generated-0002: none {}" in capsys.readouterr().out


STARTED = """
[[workload]]
command = ["true"]
home = "A"
starts = "in:x"
[[fault]]
id = "x"
fault = "link-cut"
target = "*->A"
at = 1.0
"""
BUDGET = """
[budgets]
rpo_records = 0
[[fault]]
id = "x"
fault = "failover-planned"
target = "A->B"
at = 1.0
"""


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        (DISKLESS, ["--topologies", "A"], "--topologies contradicts --like"),
        (DISKLESS, ["--mirrors", "shadow"], "--mirrors contradicts --like"),
        (DISKLESS, ["--clients", "java"], "--clients contradicts --like"),
        (DISKLESS, ["--kafka", "4.1.2"], "--kafka names 2, and all clusters of --like"),
        (DISKLESS + STARTED, [], "a workload that starts with a fault"),
        (DISKLESS.replace('"A"', '"A->B"', 1) + BUDGET, [], "budgets of failovers"),
        (DISKLESS.replace('"A"', '"A@bootstrap:x:9092"', 1), [], "run already"),
    ],
)
def test_what_contradicts_runs_like_a_file_is_refused(
    tmp_path: Path, text: str, options: list[str], sentence: str
) -> None:
    mine, libs = tmp_path / "mine.toml", build(tmp_path / "libs", settings=NAMES)
    mine.write_text(text)
    asked = ["suite", "smoke", "--like", str(mine), "--kafka", str(libs), *options]
    with pytest.raises(InputError, match=re.escape(sentence)):
        command.main([*asked, "--allow-commands", "--dry-run"], standalone_mode=False)


def test_only_a_build_that_the_command_line_names_runs_without_leave(tmp_path: Path) -> None:
    mine, libs = tmp_path / "mine.toml", build(tmp_path / "libs", settings=NAMES)
    mine.write_text(DISKLESS.replace('"A"', f'"A@{libs}"', 1))
    bounds = GeneratorBounds()
    given = {"--topologies": ()}
    with pytest.raises(InputError, match=r"no release \(cluster A: .*; allow this with"):
        like(mine, bounds, kind="kip", kafka=(), given=given, allow_commands=False)
    found = like(mine, bounds, kind="kip", kafka=(str(libs),), given=given, allow_commands=False)
    assert found.kafka == (str(libs),)
    assert found.topologies == ("A",), "suites of two builds differ in their Kafka alone"
    with pytest.raises(InputError, match="for suites that draw faults"):
        like(mine, bounds, kind="own", kafka=(), given=given, allow_commands=True)
    plan = Plan(name="kip", seed=1, seconds=60, bounds=replace(found, kafka=("4.2.0",)))
    folder = SuiteFolder.create(tmp_path / "suite", plan)
    with pytest.raises(InputError, match=r"suite\.json runs a build .*; allow this with"):
        _resume(folder.root)


# A soak: what it refuses, what it may use, and what it reports of clusters that keep running.


PLAN = Plan(
    name="soak",
    seed=7,
    seconds=3600,
    jobs=1,
    bounds=GeneratorBounds(faults=rounds.faults("process")),
)


@pytest.fixture
def folder(tmp_path: Path) -> SuiteFolder:
    folder = SuiteFolder.create(tmp_path / "suite", PLAN)
    (folder.root / rounds.ROUNDS).mkdir()
    return folder


def measured(folder: SuiteFolder, number: int, **values: int | str) -> None:
    given: dict[str, Any] = {
        "round": number + 1,
        "age": 60.0 * number,
        "disk": 100 << 20,
        "memory": 700 << 20,
        **values,
    }
    size = Size(**given)
    (folder.root / rounds.ROUNDS / f"{number:04d}.json").write_bytes(msgspec.json.encode(size))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            ("--topologies", "A->B", "--topologies", "A->B->C"),
            "it has one topology and one Kafka release",
        ),
        (("--kafka", "4.3.1,4.1.2"), "it has one topology and one Kafka release"),
        (("--mirrors", "mm2"), "a soak needs the mirror shadow"),
        (("--topologies", "A"), "a soak needs the mirror shadow, and a link for it"),
        (
            ("--faults", "rolling-upgrade"),
            "a soak cannot play rolling-upgrade",
        ),
        (("--shard", "1/2"), "a soak has no shards"),
        (("--fresh",), "a soak uses the same clusters in all rounds; leave --fresh out"),
    ],
)
def test_options_that_a_soak_cannot_play_are_refused(
    tmp_path: Path, given: tuple[str, ...], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        command.main(
            ["suite", "soak", "--out", str(tmp_path / "suite"), *given], standalone_mode=False
        )
    assert not (tmp_path / "suite").exists()


def test_no_round_ends_with_other_clusters_than_it_began_with() -> None:
    made = [
        generate(seed, number, Coverage(), PLAN.bounds)
        for seed in range(3)
        for number in range(1, 9)
    ]
    drawn = {fault.fault for scenario in made for fault in scenario.schedule}
    assert drawn
    assert not drawn & rounds.NOT_IN_ROUNDS
    assert drawn >= {"failover-planned", "failover-forced", "mirror-reverse"}
    assert all(
        scenario.topology == made[0].topology for scenario in (*made, baseline(7, PLAN.bounds))
    )


def test_the_summary_shows_how_clusters_have_grown(folder: SuiteFolder) -> None:
    for number in range(9):
        measured(folder, number, disk=(100 + number) << 20)
    text = summary(folder)
    assert "limits: 1500 MiB of disk and 1200 MiB of memory" in text
    assert "| 0 | 1 | 0 | 100 | 700 |" in text
    assert "| 8 | 9 | 480 | 108 | 700 |" in text
    assert "new clusters" not in text
    measured(folder, 9, ended="broker A/1 is stopped")
    assert "After run 9 new clusters were started: broker A/1 is stopped." in summary(folder)


@pytest.mark.parametrize(
    ("values", "why"),
    [({"disk": 1501 << 20}, "1501 MiB of disk"), ({"memory": 2 << 30}, "2048 MiB of memory")],
)
def test_clusters_that_outgrow_their_bounds_end_the_soak(
    folder: SuiteFolder, values: dict[str, int], why: str
) -> None:
    measured(folder, 0)
    measured(folder, 1, **values)
    with pytest.raises(EnvironmentFailure, match=f"took {why} after 2 rounds"):
        rounds.Rounds(folder).start(
            2, folder.scenario_path(2), folder.run_path(2), runtime="process"
        )


def test_a_suite_reports_how_often_clusters_were_used_again(tmp_path: Path) -> None:
    folder = SuiteFolder.create(tmp_path / "suite", Plan(name="smoke", seed=7, seconds=60))
    assert rounds.table(folder) == []
    (folder.root / rounds.ROUNDS).mkdir()
    for number, round_ in enumerate((1, 1, 2, 3)):
        measured(folder, number, round=round_)
    assert rounds.table(folder)[0].startswith(
        "2 of 4 runs without clusters of their own used those of"
    )


class Brokers:
    """A cluster of one broker, without topics and groups."""

    def __init__(self, name: str, state: str) -> None:
        self.name, self.brokers = name, {1: self}
        self.cluster, self.id, self.state = name, 1, state

    def start(self) -> None:
        self.state = "running"


@pytest.mark.parametrize("aging", [True, False], ids=["soak", "suite"])
@pytest.mark.parametrize(("killed", "goes_on"), [("A", True), ("", False), ("B", False)])
def test_only_what_a_forced_failover_killed_is_started_again(
    killed: str, aging: bool, goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptClusters.__new__(KeptClusters)
    clusters = {"A": Brokers("A", "stopped"), "B": Brokers("B", "running")}
    kept.folder, kept._aging = tmp_path, aging
    kept.deployment = cast(
        Deployment, SimpleNamespace(clusters=clusters, cluster_services={}, broken=str)
    )
    monkeypatch.setattr(kept_clusters, "_remove_topics", lambda _cluster, _which: None)
    monkeypatch.setattr(kept_clusters, "_remove_groups", lambda _cluster: None)
    monkeypatch.setattr(kept_clusters, "folder_at", lambda _cluster: tmp_path)
    monkeypatch.setattr(cleanliness, "unexplained", lambda _run: [])
    monkeypatch.setattr(cleanliness, "broken", cleanliness.stopped)
    monkeypatch.setattr(KeptClusters, "_unlike_new", lambda _kept: [])
    made = baseline(7, PLAN.bounds)
    if killed:
        made = replace(made, schedule=(_fault("failover-forced", f"{killed}->C"),))
    found = kept.clean(made, tmp_path)
    assert found == ([] if goes_on else ["broker A/1 is stopped"])


@pytest.mark.parametrize(
    ("aging", "why"), [(True, []), (False, ["broker-disk-slow changes A/1 for good"])]
)
def test_only_a_soak_goes_on_after_a_fault_that_may_change_clusters_for_good(
    aging: bool, why: list[str], tmp_path: Path
) -> None:
    kept = KeptClusters.__new__(KeptClusters)
    kept._aging = aging
    kept.deployment = cast(
        Deployment, SimpleNamespace(clusters={}, links={}, cluster_services={}, broken=str)
    )
    made = replace(baseline(7, PLAN.bounds), schedule=(_fault("broker-disk-slow", "A/1"),))
    assert kept.clean(made, tmp_path) == why


def test_clusters_that_cannot_be_started_again_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_broker: Brokers) -> None:
        raise SetupError("broker A/1 ended with status 1 while starting")

    monkeypatch.setattr(Brokers, "start", refuses)
    monkeypatch.setattr(cleanliness, "unexplained", lambda _run: [])
    kept = KeptClusters.__new__(KeptClusters)
    kept._aging = False
    clusters = {"A": Brokers("A", "stopped")}
    kept.deployment = cast(
        Deployment, SimpleNamespace(clusters=clusters, cluster_services={}, broken=str)
    )
    made = replace(baseline(7, PLAN.bounds), schedule=(_fault("failover-forced", "A->B"),))
    assert kept.clean(made, tmp_path) == [
        "they could not be cleaned: broker A/1 ended with status 1 while starting"
    ]


class Ids:
    """A cluster's broker that hands out producer ids from blocks of ten: `blocks` are the first ids
    of those that it gets, one after the other. Between two blocks it once has none."""

    def __init__(self, *blocks: int) -> None:
        self._blocks, self._left, self.drawn = iter(blocks), iter(range(0)), -1

    def __enter__(self) -> Ids:
        return self

    def __exit__(self, *_: object) -> None: ...

    def extend(self, _within: float) -> None: ...

    def ask_times(self, times: int, *_request: object) -> list[object]:
        return [self._answer() for _ in range(times)]

    def _answer(self) -> object:
        drawn = next(self._left, -1)
        if drawn < 0:
            first = next(self._blocks, -1)
            self._left = iter(range(first, first + 10) if first >= 0 else range(0))
            return SimpleNamespace(error_code=Error.coordinator_load_in_progress, producer_id=-1)
        self.drawn = drawn
        return SimpleNamespace(error_code=Error.none, producer_id=drawn)


def _aligned(monkeypatch: pytest.MonkeyPatch, clusters: dict[str, Ids]) -> list[int]:
    monkeypatch.setattr(kept_clusters, "_connected", lambda cluster: cluster)
    monkeypatch.setattr(kept_clusters, "patient", lambda _seconds: 0.2)
    align_producer_ids(cast(Deployment, SimpleNamespace(clusters=clusters)))
    return [each.drawn for each in clusters.values()]


@pytest.mark.parametrize(
    ("clusters", "last"),
    [
        ({"A": Ids(0)}, 0),
        ({"A": Ids(0), "B": Ids(0)}, 0),
        ({"A": Ids(*range(0, 90, 10)), "B": Ids(70)}, 70),
        ({"A": Ids(50, 60, 70, 80), "B": Ids(0, 10, 20, 80), "C": Ids(70, 80)}, 89),
        ({"A": Ids(0, 30), "B": Ids(15, 25)}, 34),
    ],
    ids=["one cluster", "new clusters", "B is ahead", "three clusters", "a block is left out"],
)
def test_clusters_are_moved_on_to_the_highest_producer_id_of_any(
    clusters: dict[str, Ids], last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(_aligned(monkeypatch, clusters)) == {last}


def test_a_cluster_that_hands_out_no_producer_ids_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(DeadlineExceeded, match=r"the same producer ids; last seen: .*'B': -1"):
        _aligned(monkeypatch, {"A": Ids(0), "B": Ids()})


def _fault(name: str, target: str) -> FaultSpec:
    return FaultSpec(id=name, fault=name, target=target, at=0, duration=0)


def test_forced_failovers_kill_their_sources() -> None:
    made = baseline(7, PLAN.bounds)
    assert killed_by(made) == frozenset()
    steps = (_fault("failover-planned", "A->B"), _fault("failover-forced", "B->A"))
    assert killed_by(replace(made, schedule=steps)) == {"B"}


# A suite directory that somebody else made or changed: nothing outside of it is read, written
# or run, and what cannot be read is one sentence.


KIND = "lost-write:lost-write"


def _resume(root: Path) -> None:
    command.main(["suite", "--resume", str(root)], standalone_mode=False)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = SuiteFolder.create(tmp_path / "suite", Plan(name="nightly", seed=7, seconds=60))
    folder.write_scenario(0, baseline(7, GeneratorBounds()))
    folder.append(RunResult(number=0, verdict="invalid", kinds=(KIND,)))
    return folder.root


@pytest.mark.parametrize(
    "name", ["summary.md", "runs/0000", "passed", "failures/x", "failures/x/tries.jsonl", "lock"]
)
def test_a_suite_with_links_is_not_resumed(tmp_path: Path, suite: Path, name: str) -> None:
    (tmp_path / "theirs").mkdir()
    path = suite / name
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        path.rmdir()
    path.symlink_to(tmp_path / "theirs")
    with pytest.raises(InputError, match=f"{name} is a symbolic link, .* remove it"):
        _resume(suite)
    assert not [*(tmp_path / "theirs").iterdir()]


def test_programs_in_a_suite_are_started_only_where_that_is_allowed(suite: Path) -> None:
    program = (
        '[[workload]]\nkind = "command"\ncommand = ["touch", "x"]\nwrites = ["t"]\nhome = "A"\n'
    )
    path = suite / "scenarios" / "0001.toml"
    path.write_text((suite / "scenarios" / "0000.toml").read_text() + program)
    with pytest.raises(InputError, match=r"0001.toml starts programs .*with --allow-commands"):
        _resume(suite)


def test_a_build_of_kafka_in_a_suite_is_run_only_where_that_is_allowed(tmp_path: Path) -> None:
    plan = Plan(name="nightly", seed=7, seconds=60, bounds=GeneratorBounds(kafka=("/tmp/libs",)))
    root = SuiteFolder.create(tmp_path / "suite", plan).root
    with pytest.raises(InputError, match=r"no release \(/tmp/libs\); allow this with --allow-comm"):
        _resume(root)


def test_holes_of_a_shard_are_not_copied(tmp_path: Path) -> None:
    root = shards(tmp_path)[0]
    sparse = root / SHARDS[0] / "runs" / "0002" / "x.log"
    sparse.write_bytes(b"begin")
    os.truncate(sparse, 100 << 30)
    with sparse.open("r+b") as file:
        file.seek(50 << 30)
        file.write(b"middle")
    merged = merge([SuiteFolder.open(root / name) for name in SHARDS], tmp_path / "all")
    copied = merged.root / "runs" / "0002" / "x.log"
    assert copied.stat().st_size == 100 << 30
    assert copied.stat().st_blocks < 1 << 10
    with copied.open("rb") as file:
        assert file.read(6) == b"begin\0"
        file.seek(50 << 30)
        assert file.read(7) == b"middle\0"


@pytest.mark.parametrize("made", [os.mkfifo, Path.mkdir, lambda path: path.write_text("9" * 5000)])
def test_a_chosen_run_that_cannot_be_read_is_chosen_again(
    suite: Path, made: Callable[[Path], object]
) -> None:
    own = suite / "failures" / "lost-write-lost-write"
    own.mkdir(parents=True)
    made(own / CHOSEN)
    folder = SuiteFolder(suite, Plan(name="nightly", seed=7, seconds=60, replays=1))
    (report,) = triage(folder, cast(Workers, NoWorkers()), lambda text: None)
    assert report.found == (0,)


@pytest.mark.parametrize("text", ['{"anomalies": "x"}', '{"anomalies": [{}]}', '{"eras": 3}', "[]"])
def test_a_verdict_that_is_none_has_no_era(suite: Path, text: str) -> None:
    (suite / "runs" / "0000").mkdir()
    (suite / "runs" / "0000" / "verdict.json").write_text(text)
    folder = SuiteFolder.open(suite)
    assert era_in(folder, folder.results[0], KIND) == ""
