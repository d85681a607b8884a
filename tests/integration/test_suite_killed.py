"""A suite that is killed at any moment: nothing is left, and it resumes with what it had. One
without disk space does not start.

`pytest -m nightly -s tests/integration/test_suite_killed.py` also prints what each moment hit.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from linkflap.harness.machine import ledger
from linkflap.harness.model.wait import pause, until
from linkflap.suite.folder import RunResult, SuiteFolder
from tests.command_line import Running, environment, linkflap, start

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly,
]
KILLS = 10
RUNS = 6
LONGEST = 60.0
"""Seconds until a kill: enough for several runs and verdicts."""
SUITE = (
    f"suite smoke --seed 7 --jobs 1 --runs {RUNS} --faults link-cut --for 2h --shrink 1s".split()
)


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    made = environment(tmp_path / "ledger")
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", made["LINKFLAP_RUNTIME_DIR"])
    return made


def begin(tmp_path: Path, env: Mapping[str, str]) -> Running:
    """The suite from its start, or from where it stopped."""
    there = (tmp_path / "suite" / "suite.json").exists()
    return start(
        ["suite", "--resume", "suite"] if there else [*SUITE, "--out", "suite"],
        env=env,
        cwd=tmp_path,
    )


def assert_nothing_left(running: Running) -> None:
    until(
        lambda: not running.alive(),
        within=120,
        what="every process below the suite to be gone",
        state=running.alive,
    )
    until(
        lambda: not ledger.entries(),
        within=120,
        what="its ports and children to be given back",
        state=ledger.entries,
    )


def known(tmp_path: Path) -> tuple[dict[int, RunResult], dict[int, str]]:
    """The verdicts and the planned scenarios on disk."""
    folder = SuiteFolder.open(tmp_path / "suite")
    assert len({result.number for result in folder.results}) == len(folder.results), (
        "a run has two verdicts"
    )
    scenarios = {number: folder.scenario_path(number).read_text() for number in folder.numbers()}
    return {result.number: result for result in folder.results}, scenarios


def assert_kept(
    before: tuple[dict[int, RunResult], dict[int, str]],
    after: tuple[dict[int, RunResult], dict[int, str]],
) -> None:
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


def test_kill_9_at_random_moments_loses_and_invents_nothing(
    tmp_path: Path, env: dict[str, str]
) -> None:
    rng = random.Random(14)
    before: tuple[dict[int, RunResult], dict[int, str]] = ({}, {})
    for number in range(KILLS):
        began = time.monotonic()
        with closing(begin(tmp_path, env)) as running:
            seen = kill(running, rng, at_verdict=number % 3 == 2)
            assert_nothing_left(running)
        if (tmp_path / "suite" / "suite.json").exists():
            after = known(tmp_path)
            assert_kept(before, after)
            before = after
        said = f"{len(before[0])} verdicts, {len(before[1])} scenarios"
        at = f"after {time.monotonic() - began:.0f} s with {seen} processes below"
        print(f"kill {number + 1} {at}: {said}")  # noqa: T201
    ended = linkflap("suite", "--resume", "suite", env=env, cwd=tmp_path, within=1800)
    after = known(tmp_path)
    assert_kept(before, after)
    assert sorted(after[0]) == list(range(RUNS)), ended.stderr
    assert ended.returncode == (
        0 if all(result.verdict == "valid" for result in after[0].values()) else 2
    ), ended.stderr
    assert not (tmp_path / "suite" / "runs" / "0000").exists()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk without enough space for a suite."""
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        ledger.mount(folder, size=64 << 20)
    except OSError as error:
        pytest.skip(f"no small disk can be mounted ({error.strerror}); that takes root, on Linux")
    yield folder
    ledger.unmount(folder)


def test_a_disk_that_is_too_small_is_named_before_anything_starts(
    tmp_path: Path, env: dict[str, str], small: Path
) -> None:
    ended = linkflap(*SUITE, "--out", str(small / "suite"), env=env, cwd=tmp_path)
    assert ended.returncode == 254, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert f"the disk of {small / 'suite'} has " in last
    assert "and the suite may use" in last
    assert not list((small / "suite" / "runs").iterdir())
