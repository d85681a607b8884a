"""Copying segments and reading what brokers leave on disk, on files made here.

Segments are copied unchanged, also while a broker compacts them or is dead.

Copies of logs from an offset on: the copy is a log of whole batches that begins there.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.harness.capture import logs, replicas
from linkflap.harness.capture.logs import drop_before
from linkflap.harness.capture.replicas import Known, PartitionFolder
from linkflap.harness.log import batches
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.rundir import RunWriter
from linkflap.topologies import parse
from tests.kafka_log import batch, ours, segment
from tests.unit.recorded_run import run
from tests.unit.replica_folders import NoCluster, replica, sampled


def checkpoint(
    of: PartitionFolder, high_watermark: int, *, name: str = "replication-offset-checkpoint"
) -> None:
    (of.broker.log_dir / name).write_text(f"0\n1\n{of.topic} 0 {high_watermark}\n")


def bounds(found: list[PartitionFolder], known: Known) -> dict[int, Bounds]:
    return {r.broker.id: replicas.bounds_of(r, r.folder, known) for r in found}


def log_ends(folder: Path) -> tuple[int, int]:
    """The log end offset from the files, and from their scan."""
    return replicas.log_end(folder), batches.log_end(batches.scan(sorted(folder.glob("*.log"))))


def test_the_end_of_a_log_is_behind_its_last_whole_batch(tmp_path: Path) -> None:
    whole = [batch(0, [ours(1), ours(2)]), batch(2, [ours(3), ours(4), ours(5)])]
    segment(tmp_path / "p", whole)
    assert log_ends(tmp_path / "p") == (5, 5)
    segment(tmp_path / "torn", whole, tail=batch(5, [ours(6)])[:-1])
    assert log_ends(tmp_path / "torn") == (5, 5)
    segment(tmp_path / "rolled", whole)
    segment(tmp_path / "rolled", [], base_offset=5)
    assert log_ends(tmp_path / "rolled") == (5, 5)
    (tmp_path / "empty").mkdir()
    assert log_ends(tmp_path / "empty") == (0, 0)


def test_a_single_dead_replica_led_and_its_bytes_are_committed(tmp_path: Path) -> None:
    found = [replica(tmp_path, 1, 7)]
    known = replicas.ask(cast(Cluster, NoCluster(*found)), found, {("A.x", 0): sampled(1, 4)})
    row = bounds(found, known)[1]
    assert (row.leader, row.alive, row.high_watermark, row.high_watermark_from) == (
        True,
        False,
        7,
        "recomputed",
    )


def test_a_dead_partition_was_led_by_whom_a_watermark_named_last(tmp_path: Path) -> None:
    found = [replica(tmp_path, number, 9) for number in (1, 2, 3)]
    known = replicas.ask(cast(Cluster, NoCluster(*found)), found, {("A.x", 0): sampled(2, 6)})
    rows = bounds(found, known)
    assert [number for number, row in rows.items() if row.leader] == [2]
    assert {(row.high_watermark, row.high_watermark_from) for row in rows.values()} == {
        (6, "sampled")
    }


def test_without_a_watermark_the_newest_epoch_and_then_the_longest_log_led(tmp_path: Path) -> None:
    found = [
        replica(tmp_path, 1, 9, epoch=1),
        replica(tmp_path, 2, 5, epoch=2),
        replica(tmp_path, 3, 6, epoch=2),
    ]
    checkpoint(found[0], 4)
    checkpoint(found[1], 5)
    rows = bounds(found, replicas.ask(cast(Cluster, NoCluster(*found)), found, {}))
    assert [number for number, row in rows.items() if row.leader] == [3]
    assert {(row.high_watermark, row.high_watermark_from) for row in rows.values()} == {
        (5, "checkpoint")
    }


def test_a_checkpoint_that_is_ahead_of_the_last_sample_is_taken(tmp_path: Path) -> None:
    found = [replica(tmp_path, number, 9) for number in (1, 2)]
    checkpoint(found[1], 8)
    rows = bounds(
        found, replicas.ask(cast(Cluster, NoCluster(*found)), found, {("A.x", 0): sampled(1, 3)})
    )
    assert {(row.high_watermark, row.high_watermark_from) for row in rows.values()} == {
        (8, "checkpoint")
    }


def test_a_dead_follower_that_lagged_owes_nothing_past_its_end(tmp_path: Path) -> None:
    found = [replica(tmp_path, 1, 9), replica(tmp_path, 2, 3)]
    rows = bounds(
        found, replicas.ask(cast(Cluster, NoCluster(*found)), found, {("A.x", 0): sampled(1, 8)})
    )
    assert (rows[1].high_watermark, rows[2].high_watermark) == (8, 3)


def test_a_replica_in_the_isr_owes_all_below_the_high_watermark(tmp_path: Path) -> None:
    """Otherwise a replica that lost its tail would look as if it never had to have it."""
    found = [replica(tmp_path, 1, 9), replica(tmp_path, 2, 3), replica(tmp_path, 3, 3)]
    tp = ("A.x", 0)
    known = Known(
        leaders={tp: 1},
        in_sync={tp: frozenset({1, 2})},
        highs={tp: 8},
        starts={tp: 2},
    )
    rows = bounds(found, known)
    assert [rows[n].high_watermark for n in (1, 2, 3)] == [8, 8, 3]
    assert [rows[n].log_start for n in (1, 2, 3)] == [2, 0, 0]


def test_log_start_is_the_checkpoint_or_the_first_segment(tmp_path: Path) -> None:
    moved = replica(tmp_path, 1, 9)
    checkpoint(moved, 4, name="log-start-offset-checkpoint")
    assert bounds([moved], Known(leaders={}))[1].log_start == 4
    (moved.folder / f"{0:020}.log").rename(moved.folder / f"{6:020}.log")
    assert bounds([moved], Known(leaders={}))[1].log_start == 6


def test_a_batch_at_a_killed_broker_s_end_is_unfinished_and_below_its_watermark_missing(
    tmp_path: Path,
) -> None:
    killed = replica(tmp_path, 1, 7)
    path = killed.folder / f"{0:020}.log"
    path.write_bytes(path.read_bytes() + batch(7, [ours(7)])[:40])
    assert bounds([killed], Known(leaders={}))[1].unfinished == 40
    asked = Known(leaders={}, highs={killed.tp: 8}, in_sync={killed.tp: frozenset({1})})
    assert (bounds([killed], asked)[1].high_watermark, bounds([killed], asked)[1].unfinished) == (
        8,
        0,
    )
    assert bounds([replica(tmp_path, 2, 7)], Known(leaders={}))[2].unfinished == 0


def test_a_segment_with_a_batch_that_lacks_records_was_cleaned_to_its_end_and_the_active_one_never(
    tmp_path: Path,
) -> None:
    """A broker that is killed while it cleans a log has replaced segments, and has not written its
    checkpoint."""
    cleaned = replica(tmp_path, 1, 0)
    whole, lacking = (
        [batch(n, [ours(n), ours(n + 1)]) for n in (0, 4, 8)],
        [batch(2, [ours(2)], last_delta=1)],
    )
    segment(cleaned.folder, whole[:1])
    segment(cleaned.folder, [*whole[1:2], batch(6, [ours(6)], last_delta=1)], base_offset=4)
    segment(cleaned.folder, whole[2:], base_offset=8)
    assert bounds([cleaned], Known(leaders={}))[1].thinned == 8
    segment(cleaned.folder, whole[1:2], base_offset=4)
    assert bounds([cleaned], Known(leaders={}))[1].thinned == 0
    segment(cleaned.folder, [*whole[:1], *lacking])
    assert bounds([cleaned], Known(leaders={}))[1].thinned == 4
    segment(cleaned.folder, [batch(8, [ours(8)], last_delta=1)], base_offset=8)
    assert bounds([cleaned], Known(leaders={}))[1].thinned == 4


def test_the_dead_metadata_quorum_was_led_by_whom_its_newest_state_names(tmp_path: Path) -> None:
    found = [replica(tmp_path, number, 3 + number, topic=replicas.METADATA) for number in (1, 2, 3)]
    for one, (epoch, leader) in zip(found, [(4, 1), (7, 3), (6, 2)], strict=True):
        (one.folder / "quorum-state").write_text(
            json.dumps({"leaderId": leader, "leaderEpoch": epoch})
        )
    rows = bounds(found, replicas.ask(cast(Cluster, NoCluster(*found)), found, {}))
    assert [number for number, row in rows.items() if row.leader] == [3]
    assert {row.high_watermark for row in rows.values()} == {4}


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


# Batches of two records at 0, 2, 4 and 6; the segment is rolled after the first two, where it is.
BATCHES = [batch(offset, [ours(offset), ours(offset + 1)]) for offset in (0, 2, 4, 6)]


def left(folder: Path) -> list[int]:
    """Base offsets of the batches; file names and checksums are checked first."""
    paths = sorted(folder.glob("*.log"))
    headers = batches.scan(paths).headers
    assert headers.crc_ok.all()
    firsts = [batches.scan([path]).headers.base_offset[:1].tolist() for path in paths]
    assert [[int(path.stem)] for path, first in zip(paths, firsts, strict=True) if first] == [
        first for first in firsts if first
    ]
    offsets: list[int] = headers.base_offset.tolist()
    return offsets


@pytest.mark.parametrize(
    ("since", "expected"),
    [(0, [0, 2, 4, 6]), (1, [0, 2, 4, 6]), (2, [2, 4, 6]), (4, [4, 6]), (5, [4, 6]), (6, [6])],
)
@pytest.mark.parametrize("rolled", [False, True], ids=["one-segment", "two"])
def test_batches_that_end_before_it_are_gone_and_the_others_as_they_were(
    tmp_path: Path, since: int, expected: list[int], rolled: bool
) -> None:
    segment(tmp_path, BATCHES[:2] if rolled else BATCHES)
    if rolled:
        segment(tmp_path, BATCHES[2:], base_offset=4)
    drop_before(tmp_path, since)
    assert left(tmp_path) == expected
    assert b"".join(path.read_bytes() for path in sorted(tmp_path.glob("*.log"))) == b"".join(
        BATCHES[-len(expected) :]
    )


def test_a_log_that_nothing_was_written_to_since_is_empty_and_begins_and_ends_there(
    tmp_path: Path,
) -> None:
    segment(tmp_path, BATCHES)
    drop_before(tmp_path, 8)
    assert left(tmp_path) == []
    assert replicas.log_end(tmp_path) == 8


def test_a_batch_that_was_being_written_stays(tmp_path: Path) -> None:
    segment(tmp_path, BATCHES, tail=batch(8, [ours(8)])[:-1])
    drop_before(tmp_path, 8)
    (path,) = tmp_path.glob("*.log")
    assert path.stem == f"{8:020d}"
    assert path.read_bytes() == batch(8, [ours(8)])[:-1]
