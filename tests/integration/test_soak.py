"""`linkflap suite soak`: rounds on clusters that live on, each judged, with nothing of it left at the end."""

from __future__ import annotations

import pytest

from linkflap.harness.recording.soak import CLUSTERS
from linkflap.harness.suite import rounds
from linkflap.harness.suite.folder import SuiteFolder
from tests.command_line import environment, linkflap

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly, pytest.mark.xdist_group("spark")]


def test_rounds_on_clusters_that_live_on_are_valid_and_a_killed_soak_goes_on(tmp_path):
    env = environment(tmp_path / "ledger")
    faults = ("--faults", "link-cut", "--faults", "mirror-kill", "--faults", "client-kill")
    done = linkflap(
        *("suite", "soak", "--seed", "7", "--for", "20m", "--runs", "3", *faults, "--replays", "1", "--shrink", "1s"),
        *("--out", "suite"),
        env=env,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    folder = SuiteFolder.open(tmp_path / "suite")
    assert [(result.number, result.verdict) for result in folder.results] == [(0, "valid"), (1, "valid"), (2, "valid")]
    # Where nothing failed, all rounds were on the clusters that the first one started.
    sizes = rounds.sizes(folder)
    assert [sizes[number].round for number in range(3)] == [1, 2, 3] or any(result.again for result in folder.results)
    assert "Clusters that lived on" in done.stdout
    assert not (tmp_path / "suite" / CLUSTERS).exists()
