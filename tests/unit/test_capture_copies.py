"""Segments are copied unchanged, also while a broker compacts them or is dead."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from linkflap.harness.capture import logs, replicas
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.rundir import RunWriter
from linkflap.topologies import parse
from tests.kafka_log import batch, ours, segment
from tests.unit.recorded_run import run
from tests.unit.replica_folders import NoCluster, replica, sampled


def test_only_segments_are_copied(tmp_path: Path) -> None:
    source = replica(tmp_path, 1, 3).folder
    (source / f"{0:020}.index").write_bytes(b"x")
    logs.copy_segments(source, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == [f"{0:020}.log"]
    assert (tmp_path / "copy" / f"{0:020}.log").read_bytes() == (
        source / f"{0:020}.log"
    ).read_bytes()


def test_a_copy_during_compaction_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = replica(tmp_path, 1, 3).folder
    segment(source, [batch(3, [ours(3)])], base_offset=3)
    swapped: list[bool] = []

    def swap_under_the_copy(
        origin: Path, target: Path, copy: Callable[[Path, Path], Path] = shutil.copyfile
    ) -> None:
        copy(origin, target)
        if not swapped:
            swapped.append(True)
            segment(tmp_path / "cleaned", [batch(0, [ours(9)])]).replace(source / f"{0:020}.log")
            (source / f"{3:020}.log").unlink()

    monkeypatch.setattr(shutil, "copyfile", swap_under_the_copy)
    logs.copy_segments(source, tmp_path / "copy")
    assert {p.name: p.read_bytes() for p in (tmp_path / "copy").iterdir()} == {
        f"{0:020}.log": batch(0, [ours(9)])
    }


def test_a_folder_that_never_stops_changing_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = replica(tmp_path, 1, 3).folder

    def replace_every_time(
        origin: Path, target: Path, copy: Callable[[Path, Path], Path] = shutil.copyfile
    ) -> None:
        copy(origin, target)
        segment(tmp_path / "cleaned", [batch(0, [ours(9)])]).replace(origin)

    monkeypatch.setattr(shutil, "copyfile", replace_every_time)
    with pytest.raises(EnvironmentFailure, match=r"A\.x-0 changed 10 times"):
        logs.copy_segments(source, tmp_path / "copy")


def test_a_capture_for_which_there_is_no_room_ends_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    found = replica(tmp_path, 1, 7)
    cluster = NoCluster(found)
    deployment = SimpleNamespace(clusters={"A": cluster}, topology=parse("A->B"))
    writer = RunWriter(tmp_path / "run", run())
    captures = logs.Captures(deployment, writer)
    monkeypatch.setattr(shutil, "copyfile", refused)
    with pytest.raises(EnvironmentFailure, match="no space left for the run directory"):
        captures.take("2-end", "A")
    assert not captures.current("A")
    with pytest.raises(EnvironmentFailure, match="no space left for the run directory"):
        writer.close("finished")


def test_a_dead_cluster_is_captured_from_its_disk(tmp_path: Path) -> None:
    found = replica(tmp_path, 1, 7)
    cluster = NoCluster(found)
    deployment = SimpleNamespace(clusters={"A": cluster}, topology=parse("A->B"))
    writer = RunWriter(tmp_path / "run", run())
    captures = logs.Captures(deployment, writer, lambda _: {("A.x", 0): sampled(1, 4)})
    (row,) = captures.take("2-end", "A")
    assert (row.alive, row.high_watermark, row.high_watermark_from) == (False, 7, "recomputed")
    assert replicas.log_end(tmp_path / "run" / "captures" / "2-end" / "A" / "1" / "A.x-0") == 7
    assert captures.current("A")
    # it was restarted, and died again before its logs were captured
    segment(found.folder, [batch(7, [ours(9)])])
    assert not captures.current("A")
    writer.close("failed")
