"""`linkflap suite` on real clusters: a planted bug is found and shrunk, and a suite that is killed goes on."""

from __future__ import annotations

import json

import pytest

from linkflap.chaos import scenario_file
from linkflap.harness.suite.folder import SuiteFolder
from tests.command_line import environment, linkflap
from tests.planted import environment as planted

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_a_suite_finds_a_planted_bug_and_says_how_to_see_it_again(tmp_path):
    env = planted("reconnect-drops-batch") | environment(tmp_path / "ledger")
    env["PYTHONPATH"] = planted("reconnect-drops-batch")["PYTHONPATH"]
    done = linkflap(
        *("suite", "smoke", "--seed", "7", "--jobs", "2", "--runs", "2", "--faults", "link-cut", "--shrink", "1s"),
        *("--replays", "1", "--out", "suite"),
        env=env,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    results = {result.number: result for result in SuiteFolder.open(tmp_path / "suite").results}
    assert results[0].verdict == "valid", results[0]  # nothing was broken, so nobody had to reconnect
    assert results[1].verdict == "invalid", results[1]
    (report,) = [json.loads(path.read_text()) for path in (tmp_path / "suite/failures").glob("*/report.json")]
    assert report["kind"] == results[1].kinds[0]
    assert report["replayed"].startswith("1 of 1")
    assert report["command"] in done.stdout
    smallest = next((tmp_path / "suite/failures").glob("*/smallest.toml"))
    assert {fault.fault for fault in scenario_file.read(smallest, seed=0).schedule} == {"link-cut"}
    assert not (tmp_path / "suite/runs/0000").exists()
    assert (tmp_path / "suite/passed/0000/verdict.json").exists()
    again = linkflap("suite", "--resume", "suite", env=env, cwd=tmp_path)
    assert (again.returncode, again.stdout) == (1, done.stdout)
