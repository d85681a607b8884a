"""The slow disk of one process: the rate limit applies to that process only, and ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from linkflap.harness.runtimes.disks import SlowDisk
from tests.disks import skip_without_slow_disks


@pytest.mark.nightly
def test_a_limit_is_that_of_one_process_and_ends(tmp_path: Path) -> None:
    skip_without_slow_disks(tmp_path / "try")
    folder = tmp_path / "disk"
    folder.mkdir()
    (folder / "kept").write_text("content")
    disk = SlowDisk(folder, "test")
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        disk.put(spare=8 << 20)
        assert sorted(path.name for path in folder.iterdir()) == ["kept"], (
            "no folder that a broker would take for a partition"
        )
        disk.slow(sleeper.pid, rate=64 << 10)
        assert disk.seconds(256 << 10) >= 2.0
        assert sleeper.poll() is None
    finally:
        disk.fast()
        sleeper.kill()
        sleeper.wait()
        disk.take_back()
    assert (folder / "kept").read_text() == "content"
    assert not disk.mounted
    disk.fast()
