"""A suite that Ctrl-C ends in each of its phases, or whose disk is full: nothing is left, and it
resumes with what it had.

The suite has clients with a planted bug that every run shows, so that there is always something to
be shrunk.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from linkflap.harness.machine import ledger
from linkflap.harness.model.wait import until
from linkflap.suite.folder import RunResult, SuiteFolder
from tests.command_line import Running, environment, linkflap, start
from tests.planted import environment as planted

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly,
]
RUNS = 2
SUITE = (
    f"suite smoke --seed 7 --jobs 1 --runs {RUNS} --replays 1 --faults link-cut --for 2h --shrink "
    "1s --out suite".split()
)
GO_ON = ["suite", "--resume", "suite"]
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


def known(root: Path) -> tuple[dict[int, RunResult], dict[int, str]]:
    folder = SuiteFolder.open(root)
    assert len({result.number for result in folder.results}) == len(folder.results), (
        "a run has two verdicts"
    )
    return {r.number: r for r in folder.results}, {
        n: folder.scenario_path(n).read_text() for n in folder.numbers()
    }


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


def interrupt(running: Running, root: Path, phase: Callable[[Path, Running], bool]) -> int:
    """Ctrl-C as soon as it is in a phase; returns its exit status."""
    until(
        lambda: running.process.poll() is not None or (root.exists() and phase(root, running)),
        within=900,
        every=0.001,
        what=f"the suite to be {phase.__name__}",
        state=lambda: running.said[-5:],
    )
    if running.process.poll() is None:
        running.look()
        running.send(signal.SIGINT)
    return running.ends()


def test_ctrl_c_in_each_phase_loses_and_invents_nothing(
    tmp_path: Path, env: dict[str, str]
) -> None:
    root = tmp_path / "suite"
    before: tuple[dict[int, RunResult], dict[int, str]] = ({}, {})
    for phase in (recording, judging, shrinking, writing):
        with closing(start(GO_ON if root.exists() else SUITE, env=env, cwd=tmp_path)) as running:
            status = interrupt(running, root, phase)
            assert_nothing_left(running)
        # The last phase may end before it is noticed.
        assert status == 130 or (phase is writing and status == 1), running.said
        assert not [line for line in running.said if "Traceback" in line], running.said
        if status == 130:
            assert [line.strip() for line in running.said if line.startswith("linkflap:")] == [
                INTERRUPTED
            ]
        after = known(root)
        pairs = cast(
            "list[tuple[dict[int, object], dict[int, object]]]",
            list(zip(before, after, strict=True)),
        )
        for earlier, later in pairs:
            assert {number: later.get(number) for number in earlier} == earlier, phase.__name__
        before = after
        said = f"{len(after[0])} verdicts, {len(after[1])} scenarios"
        print(f"{phase.__name__}: status {status}, {said}")  # noqa: T201
    ended = linkflap(*GO_ON, env=env, cwd=tmp_path, within=1800)
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
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        ledger.mount(folder, size=2 << 30)
    except OSError as error:
        pytest.skip(f"no small disk can be mounted ({error.strerror}); that takes root, on Linux")
    yield folder
    ledger.unmount(folder)


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


@pytest.mark.parametrize("phase", [recording, judging, shrinking])
def test_a_disk_that_fills_up_ends_the_suite_in_one_sentence_and_it_goes_on_when_there_is_room(
    tmp_path: Path, env: dict[str, str], disk: Path, phase: Callable[[Path, Running], bool]
) -> None:
    root = disk / "suite"
    with closing(start([*SUITE[:-1], str(root)], env=env, cwd=tmp_path)) as running:
        until(
            lambda: running.process.poll() is not None or (root.exists() and phase(root, running)),
            within=900,
            every=0.01,
            what=f"the suite to be {phase.__name__}",
            state=lambda: running.said[-5:],
        )
        running.look()
        before = known(root)
        filler = fill(disk)
        status = running.ends(within=900)
        assert_nothing_left(running)
    print(f"{phase.__name__}: status {status}: {running.said[-1:]}")  # noqa: T201
    assert not [line for line in running.said if "Traceback" in line], running.said
    assert status not in (0, 1), running.said
    filler.unlink()
    ended = linkflap("suite", "--resume", str(root), env=env, cwd=tmp_path, within=1800)
    assert ended.returncode == 1, ended.stderr
    results, scenarios = known(root)
    assert {n: results.get(n) for n in before[0]} == before[0]
    assert {n: scenarios.get(n) for n in before[1]} == before[1]
    assert sorted(results) == list(range(RUNS))
    assert {result.verdict for result in results.values()} == {"invalid"}
