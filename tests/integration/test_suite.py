"""`linkflap suite` on real clusters: a planted bug is found where its state was reached, replayed,
and reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linkflap.chaos import scenario_file
from linkflap.suite.folder import SuiteFolder
from tests.command_line import environment, linkflap
from tests.planted import environment as planted

pytestmark = pytest.mark.spark


def struck(log: Path) -> set[int]:
    """The runs of the suite, by number, in which the bug took effect; it logs that, with its
    process's folder."""
    folders = [
        line.partition(": ")[0].partition("/suite/runs/")[2]
        for line in log.read_text().splitlines()
    ]
    return {int(folder.partition("/")[0]) for folder in folders if folder}


def test_a_suite_finds_a_planted_bug_and_says_how_to_see_it_again(tmp_path: Path) -> None:
    log = tmp_path / "struck"
    env = environment(tmp_path / "ledger", **planted("reconnect-drops-batch", log))
    done = linkflap(
        *(
            "suite",
            "smoke",
            "--seed",
            "7",
            "--jobs",
            "2",
            "--runs",
            "2",
            "--faults",
            "link-cut",
            "--shrink",
            "1s",
        ),
        *("--replays", "2", "--out", "suite"),
        env=env,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    results = {result.number: result for result in SuiteFolder.open(tmp_path / "suite").results}
    # Only a machine that stalls makes a mirror reconnect without a fault.
    reached = struck(log)
    assert 1 in reached, log.read_text()
    assert {
        number for number, result in results.items() if result.verdict == "invalid"
    } == reached, results
    reports = [
        json.loads(path.read_text()) for path in (tmp_path / "suite/failures").glob("*/report.json")
    ]
    (report,) = [each for each in reports if each["kind"] == results[1].kinds[0]]
    # Both do, unless the machine stalls.
    assert report["replayed"].startswith(("1 of 2", "2 of 2")), done.stderr
    assert report["command"] in done.stdout
    smallest = next((tmp_path / "suite/failures").glob("*/smallest.toml"))
    assert {fault.fault for fault in scenario_file.read(smallest, seed=0).schedule} == {"link-cut"}
    again = linkflap("suite", "--resume", "suite", env=env, cwd=tmp_path)
    assert (again.returncode, again.stdout) == (1, done.stdout)
