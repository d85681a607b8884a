"""broker-disk-slow: what is refused, what counts as slow, and where it is generated."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos.faults.brokers import BrokerDiskSlow, bitten
from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.harness.machine import ledger
from linkflap.harness.model.errors import InputError, SetupError
from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.runtimes import disks
from linkflap.harness.runtimes.disks import SlowDisk


def test_a_rate_at_which_no_broker_starts_is_refused() -> None:
    broker = SimpleNamespace(cluster="A", id=1, log_dir=Path("/nowhere/data"))
    clusters = {"A": SimpleNamespace(name="A", brokers={1: broker})}
    world = cast(World, SimpleNamespace(deployment=SimpleNamespace(clusters=clusters)))
    spec = FaultSpec(
        id="f", fault="broker-disk-slow", target="A/1", at=0, duration=1, options={"rate": 8.0}
    )
    with pytest.raises(
        InputError, match="option rate of fault 'f' is 8; it must be 16 KB/s or more"
    ):
        BrokerDiskSlow(spec, world)


@pytest.mark.parametrize(
    ("limited", "free", "bit"),
    [
        (1.0, 0.01, True),
        (1.0, 0.5, True),
        (0.4, 0.01, False),
        (1.0, 0.9, False),
        (30.0, 29.0, False),
    ],
    ids=[
        "as the rate says",
        "half without",
        "no limit to be seen",
        "slow without",
        "a disk that is slow for everybody",
    ],
)
def test_only_a_write_that_is_slow_for_this_broker_alone_counts(
    limited: float, free: float, bit: bool
) -> None:
    assert bitten(limited, free) == bit


def test_what_is_written_to_the_control_group_of_version_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ordinary files replace the cgroup's; `io.max`: Documentation/admin-guide/cgroup-v2.rst."""
    monkeypatch.setattr(disks, "_FIRST", tmp_path / "no-version-1")
    monkeypatch.setattr(disks, "_SECOND", tmp_path)
    SlowDisk(tmp_path, "A-1").slow(4711, rate=131072)
    group = tmp_path / f"linkflap-{os.getpid()}-A-1"
    device = os.stat(tmp_path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+io"
    assert (group / "io.max").read_text() == f"{number} wbps=131072"
    assert (group / "cgroup.procs").read_text() == "4711"
    ledger.remove_folder(group)


def test_a_disk_that_cannot_be_made_leaves_the_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "kept").write_text("content")
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr("linkflap.harness.runtimes.disks._tool", refused)
    with pytest.raises(SetupError, match="no disk of its own can be mounted"):
        SlowDisk(folder, "A-1").put(spare=1 << 20)
    assert [path.name for path in tmp_path.iterdir() if path.name != "runtime"] == ["data"]
    assert (folder / "kept").read_text() == "content"


def refused(name: str, *_words: str) -> None:
    raise OSError(1, f"{name}: not permitted")


def test_healing_a_disk_without_limit_does_nothing(tmp_path: Path) -> None:
    SlowDisk(tmp_path, "A-1").fast()


def test_it_is_drawn_where_a_suite_names_it_and_others_take_over() -> None:
    def drawn(topology: str, *faults: str) -> set[str]:
        bounds = GeneratorBounds(topologies=(topology,), faults=faults, most=6)
        made = [generate(3, n, Coverage(), bounds, guided=False) for n in range(1, 30)]
        return {f"{each.fault} {each.target}" for scenario in made for each in scenario.schedule}

    assert "broker-disk-slow A/1" in drawn("A:3->B", "broker-disk-slow", "link-cut")
    assert drawn("A->B", "broker-disk-slow", "link-cut") == {"link-cut A->B"}
    assert not any(each.startswith("broker-disk-slow") for each in drawn("A:3->B"))
