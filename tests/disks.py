"""Small disks for tests, on machines that permit them."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.disks import SlowDisk, SmallDisk


def skip_without_slow_disks(folder: Path) -> None:
    folder.mkdir()
    disk = SlowDisk(folder, "skip")
    try:
        disk.put(spare=1 << 20)
        disk.take_back()
    except SetupError as error:
        pytest.skip(str(error))


def skip_without_small_disks(folder: Path) -> None:
    folder.mkdir()
    disk = SmallDisk(folder)
    try:
        disk.put(spare=1 << 20)
        disk.take_back()
    except SetupError as error:
        pytest.skip(str(error))
