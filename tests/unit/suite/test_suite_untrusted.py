"""A suite directory that somebody else made or changed: nothing outside of it is read, written or
run, and what cannot be read is one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from linkflap.chaos.generator import GeneratorBounds, baseline
from linkflap.cli.commands import linkflap as command
from linkflap.harness.model.errors import InputError
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.merge import merge
from linkflap.suite.plan import Plan
from linkflap.suite.reports import era_in
from linkflap.suite.triage import CHOSEN, triage
from linkflap.suite.work import Workers
from tests.fuzzing import SHARDS, NoWorkers, shards

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
