"""`linkflap suite` on real clusters: a planted bug is found, replayed and reported; suites that
end or are killed at any moment resume; soaks."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from linkflap.chaos import scenario_file
from linkflap.harness.machine import ledger
from linkflap.harness.model.wait import pause, until
from linkflap.recording.kept_clusters import CLUSTERS
from linkflap.suite import rounds
from linkflap.suite.folder import RunResult, SuiteFolder
from tests.command_line import Running, environment, linkflap, start
from tests.on_runtimes import mounted
from tests.planted import environment as planted

pytestmark = pytest.mark.spark


def test_a_suite_finds_a_planted_bug_on_clusters_of_a_run_before_and_says_how_to_see_it_again(
    tmp_path: Path,
) -> None:
    log = tmp_path / "struck"
    env = environment(tmp_path / "ledger", **planted("reconnect-drops-batch", log))
    command = (
        "suite smoke --seed 7 --jobs 1 --runs 2 --faults link-cut --shrink 1s --replays 1 "
        "--out suite"
    )
    done = linkflap(command, env=env, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    folder = SuiteFolder.open(tmp_path / "suite")
    results = {result.number: result for result in folder.results}
    assert log.read_text(), "the bug never took effect"
    # Run 0 too if the machine stalled: then a mirror reconnects without a fault.
    assert results[1].verdict == "invalid", results
    sizes = rounds.sizes(folder)
    assert sizes[1].round == 2 or sizes[0].ended or sizes[1].instead, sizes
    assert not (tmp_path / "suite" / CLUSTERS).exists()
    reports = [
        json.loads(path.read_text()) for path in (tmp_path / "suite/failures").glob("*/report.json")
    ]
    (report,) = [each for each in reports if each["kind"] == results[1].kinds[0]]
    assert report["replayed"].startswith("1 of 1"), done.stderr
    assert report["command"] in done.stdout
    smallest = next((tmp_path / "suite/failures").glob("*/smallest.toml"))
    assert {fault.fault for fault in scenario_file.read(smallest, seed=0).schedule} == {"link-cut"}
    again = linkflap(GO_ON, env=env, cwd=tmp_path)
    assert (again.returncode, again.stdout) == (1, done.stdout)


# A suite that Ctrl-C ends in each of its phases, or whose disk is full: nothing is left, and it
# resumes with what it had.
#
# The suite has clients with a planted bug that every run shows, so that there is always
# something to be shrunk.


RUNS = 2
SUITE = (
    f"suite smoke --seed 7 --jobs 1 --runs {RUNS} --replays 1 --faults link-cut --for 2h --shrink "
    "1s --out "
)
GO_ON = "suite --resume suite"
INTERRUPTED = "linkflap: interrupted; everything that was started is stopped"


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    made = environment(tmp_path / "ledger", **planted("unknown-commit-is-ok"))
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", made["LINKFLAP_RUNTIME_DIR"])
    return made


def recording(root: Path, running: Running) -> bool:
    return any((root / "runs").glob("*/operations/*"))


def judging(root: Path, running: Running) -> bool:
    """A recording that has ended and has no verdict yet."""
    lines = (
        (root / "results.jsonl").read_text().count("\n") if (root / "results.jsonl").exists() else 0
    )
    ended = len(list((root / "runs").glob("*/manifest.json")))
    return ended == RUNS and lines < RUNS


def shrinking(root: Path, running: Running) -> bool:
    return any("replaying run" in line for line in list(running.said)) and any(
        (root / "failures").glob("*/*/*/operations")
    )


def writing(root: Path, running: Running) -> bool:
    return (root / "summary.md").exists()


Known = tuple[dict[int, RunResult], dict[int, str]]
"""The verdicts, and the scenarios, by run."""


def known(root: Path) -> Known:
    folder = SuiteFolder.open(root)
    assert len({result.number for result in folder.results}) == len(folder.results), (
        "a run has two verdicts"
    )
    return {r.number: r for r in folder.results}, {
        n: folder.scenario_path(n).read_text() for n in folder.numbers()
    }


def come_to(phase: Callable[[Path, Running], bool], root: Path, running: Running) -> None:
    """Waits until the suite is in a phase, or has ended."""
    until(
        lambda: running.process.poll() is not None or (root.exists() and phase(root, running)),
        within=900,
        every=0.001,
        what=f"the suite to be {phase.__name__}",
        state=lambda: running.said[-5:],
    )


def interrupt(running: Running, root: Path, phase: Callable[[Path, Running], bool]) -> int:
    """Ctrl-C as soon as it is in a phase; returns its exit status."""
    come_to(phase, root, running)
    if running.process.poll() is None:
        running.look()
        running.send(signal.SIGINT)
    return running.ends()


@pytest.mark.nightly
def test_ctrl_c_in_each_phase_loses_and_invents_nothing(
    tmp_path: Path, env: dict[str, str]
) -> None:
    root = tmp_path / "suite"
    before: Known = ({}, {})
    for phase in (recording, judging, shrinking, writing):
        (root / "summary.md").unlink(missing_ok=True)  # of the phase before
        command = GO_ON if root.exists() else f"{SUITE} suite"
        with closing(start(command, env=env, cwd=tmp_path)) as running:
            status = interrupt(running, root, phase)
            running.leaves_nothing()
        # The last phase may end before it is noticed.
        assert status == 130 or (phase is writing and status == 1), running.said
        assert not [line for line in running.said if "Traceback" in line], running.said
        if status == 130:
            assert [line.strip() for line in running.said if line.startswith("linkflap:")] == [
                INTERRUPTED
            ]
        after = known(root)
        assert_kept(before, after)
        before = after
        said = f"{len(after[0])} verdicts, {len(after[1])} scenarios"
        print(f"{phase.__name__}: status {status}, {said}")  # noqa: T201
    ended = linkflap(GO_ON, env=env, cwd=tmp_path, within=1800)
    assert ended.returncode == 1, ended.stderr
    results, scenarios = known(root)
    assert results | before[0] == results
    assert (sorted(results), sorted(scenarios)) == (list(range(RUNS)),) * 2
    assert {result.verdict for result in results.values()} == {"invalid"}
    assert (root / "suite.html").exists()
    assert not ledger.entries()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own that has room for the suite, in memory."""
    with mounted(tmp_path / "disk", size=2 << 30) as folder:
        yield folder


def fill(folder: Path) -> Path:
    """Fills the disk; returns a file to be removed."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 20)):
                pass
        except OSError:
            pass
    return filler


@pytest.mark.nightly
@pytest.mark.parametrize("phase", [recording, judging, shrinking])
def test_a_disk_that_fills_up_ends_the_suite_in_one_sentence_and_it_goes_on_when_there_is_room(
    tmp_path: Path, env: dict[str, str], disk: Path, phase: Callable[[Path, Running], bool]
) -> None:
    root = disk / "suite"
    with closing(start(f"{SUITE} {root}", env=env, cwd=tmp_path)) as running:
        come_to(phase, root, running)
        running.look()
        before = known(root)
        filler = fill(disk)
        status = running.ends(within=900)
        running.leaves_nothing()
    print(f"{phase.__name__}: status {status}: {running.said[-1:]}")  # noqa: T201
    assert not [line for line in running.said if "Traceback" in line], running.said
    assert status not in (0, 1), running.said
    filler.unlink()
    ended = linkflap(f"suite --resume {root}", env=env, cwd=tmp_path, within=1800)
    assert ended.returncode == 1, ended.stderr
    results, scenarios = known(root)
    assert {n: results.get(n) for n in before[0]} == before[0]
    assert {n: scenarios.get(n) for n in before[1]} == before[1]
    assert sorted(results) == list(range(RUNS))
    assert {result.verdict for result in results.values()} == {"invalid"}


# A suite that is killed at any moment: nothing is left, and it resumes with what it had. One
# without disk space does not start.
#
# `pytest -m nightly -s tests/integration/test_suite.py` also prints what each moment
# hit.


KILLS = 10
KILLED_RUNS = 6
LONGEST = 60.0
"""Seconds until a kill: enough for several runs and verdicts."""
KILLED_SUITE = (
    f"suite smoke --seed 7 --jobs 1 --runs {KILLED_RUNS} --faults link-cut --for 2h --shrink 1s "
    "--out "
)


@pytest.fixture
def killed_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    made = environment(tmp_path / "ledger")
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", made["LINKFLAP_RUNTIME_DIR"])
    return made


def begin(tmp_path: Path, killed_env: Mapping[str, str]) -> Running:
    """The suite from its start, or from where it stopped."""
    there = (tmp_path / "suite" / "suite.json").exists()
    return start(GO_ON if there else f"{KILLED_SUITE} suite", env=killed_env, cwd=tmp_path)


def assert_kept(before: Known, after: Known) -> None:
    """No verdict lost or changed, and every planned run unchanged."""
    pairs = cast(
        "list[tuple[dict[int, object], dict[int, object]]]", list(zip(before, after, strict=True))
    )
    for earlier, later in pairs:
        assert {number: later.get(number) for number in earlier} == earlier


def kill(running: Running, rng: random.Random, *, at_verdict: bool) -> int:
    """Kills it at a random moment, or within seconds of its next verdict; returns how many
    processes ran below it."""

    def over() -> bool:
        return running.process.poll() is not None

    if at_verdict:
        until(
            lambda: over() or any("  valid  " in line for line in list(running.said)),
            within=600,
            what="a verdict",
        )
    pause(rng.uniform(0.0, 5.0) if at_verdict else rng.uniform(2.0, LONGEST), over)
    if not over():
        running.look()
        running.send(signal.SIGKILL)
    running.ends()
    return len(running.seen)


@pytest.mark.nightly
def test_kill_9_at_random_moments_loses_and_invents_nothing(
    tmp_path: Path, killed_env: dict[str, str]
) -> None:
    rng = random.Random(14)
    before: Known = ({}, {})
    for number in range(KILLS):
        began = time.monotonic()
        with closing(begin(tmp_path, killed_env)) as running:
            seen = kill(running, rng, at_verdict=number % 3 == 2)
            running.leaves_nothing()
        if (tmp_path / "suite" / "suite.json").exists():
            after = known(tmp_path / "suite")
            assert_kept(before, after)
            before = after
        said = f"{len(before[0])} verdicts, {len(before[1])} scenarios"
        at = f"after {time.monotonic() - began:.0f} s with {seen} processes below"
        print(f"kill {number + 1} {at}: {said}")  # noqa: T201
    ended = linkflap(GO_ON, env=killed_env, cwd=tmp_path, within=1800)
    after = known(tmp_path / "suite")
    assert_kept(before, after)
    assert sorted(after[0]) == list(range(KILLED_RUNS)), ended.stderr
    assert ended.returncode == (
        0 if all(result.verdict == "valid" for result in after[0].values()) else 2
    ), ended.stderr
    assert not (tmp_path / "suite" / "runs" / "0000").exists()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk without enough space for a suite."""
    with mounted(tmp_path / "small", size=64 << 20) as folder:
        yield folder


@pytest.mark.nightly
def test_a_disk_that_is_too_small_is_named_before_anything_starts(
    tmp_path: Path, killed_env: dict[str, str], small: Path
) -> None:
    ended = linkflap(f"{KILLED_SUITE} {small / 'suite'}", env=killed_env, cwd=tmp_path)
    assert ended.returncode == 254, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert f"the disk of {small / 'suite'} has " in last
    assert "and the suite may use" in last
    assert not list((small / "suite" / "runs").iterdir())


# `linkflap suite soak`: rounds on clusters that keep running, each judged; nothing is left at
# the end.


SOAK = (
    "suite soak --seed 7 --for 1h --runs 3 --faults link-cut --faults mirror-kill --replays 1 "
    "--shrink 1s --out suite"
)


@pytest.mark.nightly
def test_rounds_on_clusters_that_live_on_are_valid(tmp_path: Path) -> None:
    done = linkflap(SOAK, env=environment(tmp_path / "ledger"), cwd=tmp_path, within=1800)
    assert done.returncode == 0, done.stderr
    folder = SuiteFolder.open(tmp_path / "suite")
    assert [(r.number, r.verdict) for r in folder.results] == [(n, "valid") for n in range(3)]
    # Where nothing failed, all rounds used the clusters that the first one started.
    sizes = rounds.sizes(folder)
    assert [sizes[number].round for number in range(3)] == [1, 2, 3] or any(
        result.again for result in folder.results
    )
    assert "The clusters after some of the rounds" in done.stdout
    assert not (tmp_path / "suite" / CLUSTERS).exists()


@pytest.mark.nightly
def test_clusters_with_forced_failovers_are_used_again(tmp_path: Path) -> None:
    """Run 1 kills A, starts it again for a failback, and kills B: it is dead at the end."""
    command = (
        "suite smoke --uniform --seed 8 --jobs 1 --runs 3 --faults failover-forced "
        "--faults mirror-reverse --replays 1 --shrink 1s --out suite"
    )
    linkflap(command, env=environment(tmp_path / "ledger"), cwd=tmp_path, within=1800)
    folder = SuiteFolder.open(tmp_path / "suite")
    assert {fault.fault for fault in folder.scenario(1).schedule} == {
        "failover-forced",
        "mirror-reverse",
    }
    sizes = rounds.sizes(folder)
    reasons = [size.ended for size in sizes.values() if size.ended]
    assert not [why for why in reasons if " has the error " not in why]
    assert (
        [sizes[number].round for number in range(3)] == [1, 2, 3]
        or reasons
        or any(result.again for result in folder.results)
    )


@pytest.mark.nightly
def test_a_killed_soak_leaves_nothing_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = environment(tmp_path / "ledger")
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", env["LINKFLAP_RUNTIME_DIR"])
    with closing(start(SOAK, env=env, cwd=tmp_path)) as running:
        running.says("  valid  ", within=600)
        running.look()
        running.send(signal.SIGKILL)
        running.ends()
        assert running.seen, "clusters live on between rounds"
        running.leaves_nothing()
    before = SuiteFolder.open(tmp_path / "suite").results
    assert before
    done = linkflap(GO_ON, env=env, cwd=tmp_path, within=1800)
    assert done.returncode == 0, done.stderr
    after = SuiteFolder.open(tmp_path / "suite").results
    assert list(after[: len(before)]) == list(before), "a verdict was lost or changed"
    assert [(r.number, r.verdict) for r in after] == [(n, "valid") for n in range(3)]
    assert not (tmp_path / "suite" / CLUSTERS).exists()
