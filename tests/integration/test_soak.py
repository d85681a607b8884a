"""`linkflap suite soak`: rounds on clusters that keep running, each judged; nothing is left at the
end."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import pytest

from linkflap.harness.machine import ledger
from linkflap.harness.model.wait import until
from linkflap.recording.soak import CLUSTERS
from linkflap.suite import rounds
from linkflap.suite.folder import SuiteFolder
from tests.command_line import environment, linkflap, start

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly,
]


SOAK = [
    "suite",
    "soak",
    "--seed",
    "7",
    "--for",
    "1h",
    "--runs",
    "3",
    "--faults",
    "link-cut",
    "--faults",
    "mirror-kill",
]
SOAK += ["--replays", "1", "--shrink", "1s", "--out", "suite"]


def test_rounds_on_clusters_that_live_on_are_valid(tmp_path: Path) -> None:
    done = linkflap(*SOAK, env=environment(tmp_path / "ledger"), cwd=tmp_path, within=1800)
    assert done.returncode == 0, done.stderr
    folder = SuiteFolder.open(tmp_path / "suite")
    assert [(result.number, result.verdict) for result in folder.results] == [
        (0, "valid"),
        (1, "valid"),
        (2, "valid"),
    ]
    # Where nothing failed, all rounds used the clusters that the first one started.
    sizes = rounds.sizes(folder)
    assert [sizes[number].round for number in range(3)] == [1, 2, 3] or any(
        result.again for result in folder.results
    )
    assert "The clusters after some of the rounds" in done.stdout
    assert not (tmp_path / "suite" / CLUSTERS).exists()


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
        until(
            lambda: not running.alive(),
            within=120,
            what="every process below the soak to be gone",
            state=running.alive,
        )
        until(
            lambda: not ledger.entries(),
            within=120,
            what="what it leased to be given back",
            state=ledger.entries,
        )
    before = SuiteFolder.open(tmp_path / "suite").results
    assert before
    done = linkflap("suite", "--resume", "suite", env=env, cwd=tmp_path, within=1800)
    assert done.returncode == 0, done.stderr
    after = SuiteFolder.open(tmp_path / "suite").results
    assert list(after[: len(before)]) == list(before), "a verdict was lost or changed"
    assert [(result.number, result.verdict) for result in after] == [
        (0, "valid"),
        (1, "valid"),
        (2, "valid"),
    ]
    assert not (tmp_path / "suite" / CLUSTERS).exists()
