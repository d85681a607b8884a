"""Captures: copied segments and what brokers leave on disk, folders that others captured, and
which logs a run captures at its end."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from linkflap.harness.capture import folders as capture_folders
from linkflap.harness.capture import logs, replicas
from linkflap.harness.capture.folders import bounds, folders
from linkflap.harness.capture.logs import drop_before
from linkflap.harness.capture.logs_request import Folder
from linkflap.harness.capture.promotions_from_bytes import promotions_in
from linkflap.harness.capture.replicas import Known, PartitionFolder
from linkflap.harness.log import batches
from linkflap.harness.log.batches import ReplicaLog
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.events import Event, Promotion
from linkflap.harness.model.history import Bounds, Watermark
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.topology import LinkSpec, TopicPartition
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.rundir import RunReader, RunWriter
from linkflap.recording.world import RunWorld
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.topologies import parse
from tests.copied_logs import KIP_1279, asked, judged, sound
from tests.kafka_log import (
    ABORT,
    batch,
    batches_in,
    marker,
    mirror_pid_reset,
    ours,
    record,
    rewrite,
    segment,
    with_marker_kind,
)
from tests.unit.recorded_run import run
from tests.unit.test_faults_brokers import NoCluster, replica, sampled


def checkpoint(
    of: PartitionFolder, high_watermark: int, *, name: str = "replication-offset-checkpoint"
) -> None:
    (of.broker.log_dir / name).write_text(f"0\n1\n{of.topic} 0 {high_watermark}\n")


def log_bounds(found: list[PartitionFolder], known: Known) -> dict[int, Bounds]:
    return {r.broker.id: replicas.bounds_of(r, r.folder, known) for r in found}


def asked_of(found: list[PartitionFolder], last: Watermark | None = None) -> Known:
    """The bounds of a dead cluster that its last sample shows."""
    cluster = cast(Cluster, NoCluster(*found))
    return replicas.ask(cluster, found, {("A.x", 0): last} if last else {})


def highs(rows: dict[int, Bounds]) -> set[tuple[int, str]]:
    return {(row.high_watermark, row.high_watermark_from) for row in rows.values()}


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
    known = asked_of(found, sampled(1, 4))
    row = log_bounds(found, known)[1]
    assert (row.leader, row.alive, row.high_watermark, row.high_watermark_from) == (
        True,
        False,
        7,
        "recomputed",
    )


def test_a_dead_partition_was_led_by_whom_a_watermark_named_last(tmp_path: Path) -> None:
    found = [replica(tmp_path, number, 9) for number in (1, 2, 3)]
    known = asked_of(found, sampled(2, 6))
    rows = log_bounds(found, known)
    assert [number for number, row in rows.items() if row.leader] == [2]
    assert highs(rows) == {(6, "sampled")}


def test_without_a_watermark_the_newest_epoch_and_then_the_longest_log_led(tmp_path: Path) -> None:
    found = [
        replica(tmp_path, 1, 9, epoch=1),
        replica(tmp_path, 2, 5, epoch=2),
        replica(tmp_path, 3, 6, epoch=2),
    ]
    checkpoint(found[0], 4)
    checkpoint(found[1], 5)
    rows = log_bounds(found, asked_of(found))
    assert [number for number, row in rows.items() if row.leader] == [3]
    assert highs(rows) == {(5, "checkpoint")}


def test_a_checkpoint_that_is_ahead_of_the_last_sample_is_taken(tmp_path: Path) -> None:
    found = [replica(tmp_path, number, 9) for number in (1, 2)]
    checkpoint(found[1], 8)
    rows = log_bounds(found, asked_of(found, sampled(1, 3)))
    assert highs(rows) == {(8, "checkpoint")}


@pytest.mark.parametrize(("later", "high"), [(-1, (8, "checkpoint")), (1, (3, "sampled"))])
def test_a_checkpoint_that_is_older_than_the_partition_is_that_of_a_deleted_topic(
    later: int, high: tuple[int, str], tmp_path: Path
) -> None:
    """The broker was killed before it had written the file again."""
    found = [replica(tmp_path, number, 9) for number in (1, 2)]
    checkpoint(found[1], 8)
    written = (found[1].broker.log_dir / "replication-offset-checkpoint").stat().st_mtime
    made = found[1].folder / "partition.metadata"
    made.touch()
    os.utime(made, (written + later, written + later))
    assert highs(log_bounds(found, asked_of(found, sampled(1, 3)))) == {high}


def test_a_dead_follower_that_lagged_owes_nothing_past_its_end(tmp_path: Path) -> None:
    found = [replica(tmp_path, 1, 9), replica(tmp_path, 2, 3)]
    rows = log_bounds(found, asked_of(found, sampled(1, 8)))
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
    rows = log_bounds(found, known)
    assert [rows[n].high_watermark for n in (1, 2, 3)] == [8, 8, 3]
    assert [rows[n].log_start for n in (1, 2, 3)] == [2, 0, 0]


def test_log_start_is_the_checkpoint_or_the_first_segment(tmp_path: Path) -> None:
    moved = replica(tmp_path, 1, 9)
    checkpoint(moved, 4, name="log-start-offset-checkpoint")
    assert log_bounds([moved], Known(leaders={}))[1].log_start == 4
    (moved.folder / f"{0:020}.log").rename(moved.folder / f"{6:020}.log")
    assert log_bounds([moved], Known(leaders={}))[1].log_start == 6


def test_a_batch_at_a_killed_broker_s_end_is_unfinished_and_below_its_watermark_missing(
    tmp_path: Path,
) -> None:
    killed = replica(tmp_path, 1, 7)
    path = killed.folder / f"{0:020}.log"
    path.write_bytes(path.read_bytes() + batch(7, [ours(7)])[:40])
    assert log_bounds([killed], Known(leaders={}))[1].unfinished == 40
    asked = Known(leaders={}, highs={killed.tp: 8}, in_sync={killed.tp: frozenset({1})})
    assert (
        log_bounds([killed], asked)[1].high_watermark,
        log_bounds([killed], asked)[1].unfinished,
    ) == (
        8,
        0,
    )
    assert log_bounds([replica(tmp_path, 2, 7)], Known(leaders={}))[2].unfinished == 0


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
    assert log_bounds([cleaned], Known(leaders={}))[1].thinned == 8
    segment(cleaned.folder, whole[1:2], base_offset=4)
    assert log_bounds([cleaned], Known(leaders={}))[1].thinned == 0
    segment(cleaned.folder, [*whole[:1], *lacking])
    assert log_bounds([cleaned], Known(leaders={}))[1].thinned == 4
    segment(cleaned.folder, [batch(8, [ours(8)], last_delta=1)], base_offset=8)
    assert log_bounds([cleaned], Known(leaders={}))[1].thinned == 4


def test_the_dead_metadata_quorum_was_led_by_whom_its_newest_state_names(tmp_path: Path) -> None:
    found = [replica(tmp_path, number, 3 + number, topic=replicas.METADATA) for number in (1, 2, 3)]
    for one, (epoch, leader) in zip(found, [(4, 1), (7, 3), (6, 2)], strict=True):
        (one.folder / "quorum-state").write_text(
            json.dumps({"leaderId": leader, "leaderEpoch": epoch})
        )
    rows = log_bounds(found, asked_of(found))
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


# Logs that linkflap did not record: what is found in folders, and which promotions the bytes
# show.
#
# Folders of captured logs that lack segments, or whose checkpoints are impossible.


THERE, BACK = LinkSpec(source="A", destination="B"), LinkSpec(source="B", destination="A")


def where_found(found: list[Folder]) -> list[tuple[int, str, int]]:
    return [(f.broker, f.topic, f.partition) for f in found]


def test_a_log_directory_and_a_folder_of_brokers_are_both_read(tmp_path: Path) -> None:
    sound(tmp_path / "one" / "orders-0")
    sound(tmp_path / "one" / "orders-10")
    (tmp_path / "one" / "meta.properties").write_text("version=1\nnode.id=4\n")
    for broker in ("1", "2", "spare"):
        sound(tmp_path / "two" / broker / "a.b-c-7")
    assert where_found(folders("A", tmp_path / "one")) == [(4, "orders", 0), (4, "orders", 10)]
    assert where_found(folders("A", tmp_path / "two")) == [
        (1, "a.b-c", 7),
        (2, "a.b-c", 7),
        (0, "a.b-c", 7),
    ]


def log_directory(folder: Path, *partitions: str, **properties: object) -> None:
    for partition in partitions:
        sound(folder / partition)
    lines = [f"{name.replace('_', '.')}={value}" for name, value in properties.items()]
    (folder / "meta.properties").write_text("\n".join(["version=1", *lines, ""]))


def test_two_disks_of_one_broker_are_one_broker(tmp_path: Path) -> None:
    log_directory(tmp_path / "d1", "orders-0", node_id=1, cluster_id="x")
    log_directory(tmp_path / "d2", "orders-1", node_id=1, cluster_id="x")
    assert where_found(folders("A", tmp_path)) == [(1, "orders", 0), (1, "orders", 1)]


def test_two_folders_of_one_node_id_are_refused_and_named(tmp_path: Path) -> None:
    for name in ("kafka-1", "kafka-2"):
        log_directory(tmp_path / name, "orders-0", "orders-1", node_id=1)
    with pytest.raises(InputError, match=r"kafka-1 and .*kafka-2 both have orders-0 and node.id=1"):
        folders("A", tmp_path)


def test_folders_of_two_clusters_are_refused_and_named(tmp_path: Path) -> None:
    log_directory(tmp_path / "one", "orders-0", node_id=1, cluster_id="x")
    log_directory(tmp_path / "two", "orders-0", node_id=2, cluster_id="y")
    with pytest.raises(InputError, match=r"one is of the cluster x, and .*two of y"):
        folders("A", tmp_path)


def test_folders_whose_names_end_alike_are_refused_and_named(tmp_path: Path) -> None:
    for name in ("east-1", "west-1"):
        sound(tmp_path / name / "orders-0")
    refused = r"west-1 has no meta.properties .* broker 1 by its name, which .*east-1 is by its"
    with pytest.raises(InputError, match=rf"{refused} name; copy meta.properties"):
        folders("A", tmp_path)
    log_directory(tmp_path / "east-1", "orders-0", broker_id=1)
    with pytest.raises(InputError, match=f"{refused} meta.properties; copy meta.properties"):
        folders("A", tmp_path)
    log_directory(tmp_path / "east-1", "orders-0", broker_id=2)
    assert where_found(folders("A", tmp_path)) == [(2, "orders", 0), (1, "orders", 0)]
    log_directory(tmp_path / "west-1", "orders-0", broker_id=1)
    assert where_found(folders("A", tmp_path)) == [(2, "orders", 0), (1, "orders", 0)]


def test_folders_without_a_number_get_those_that_are_free(tmp_path: Path) -> None:
    for name in ("east", "kafka-0", "west"):
        sound(tmp_path / name / "orders-0")
    assert [broker for broker, *_ in where_found(folders("A", tmp_path))] == [1, 0, 2]


def test_log_directories_are_found_at_any_depth(tmp_path: Path) -> None:
    for broker in (1, 2):
        sound(tmp_path / f"kafka{broker}" / "data" / "orders-0")
    sound(tmp_path / "kafka-3" / "var" / "data" / "orders-0")
    (tmp_path / "kafka1" / "again").symlink_to(tmp_path)
    assert sorted(where_found(folders("A", tmp_path))) == [(n, "orders", 0) for n in (1, 2, 3)]


def test_folders_without_partitions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "orders-0.3f1a-delete").mkdir()
    with pytest.raises(InputError, match="no partition folder"):
        folders("A", tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        folders("A", tmp_path / "nowhere")


def test_bounds_come_from_checkpoints_or_from_the_common_part_of_replicas(tmp_path: Path) -> None:
    for broker in ("1", "2"):
        sound(tmp_path / broker / "orders-0")
    segment(tmp_path / "2" / "orders-0", [batch(0, [record(b"one"), record(b"two")])])
    by_broker = bounds(folders("A", tmp_path))
    assert [(b.broker, b.high_watermark, b.high_watermark_from) for b in by_broker] == [
        (1, 2, "recomputed"),
        (2, 2, "recomputed"),
    ]
    (tmp_path / "1" / "replication-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    (tmp_path / "1" / "log-start-offset-checkpoint").write_text("0\n1\norders 0 4\n")
    by_broker = bounds(folders("A", tmp_path))
    assert [(b.high_watermark, b.high_watermark_from, b.log_start) for b in by_broker] == [
        (6, "copied", 4),
        (2, "copied", 0),
    ]
    (tmp_path / "1" / ".kafka_cleanshutdown").touch()
    by_broker = bounds(folders("A", tmp_path))
    assert [b.high_watermark_from for b in by_broker] == ["checkpoint", "copied"]


def captured_logs(
    tmp_path: Path, **by_cluster: list[bytes]
) -> list[tuple[TopicPartition, dict[str, ReplicaLog]]]:
    return [
        (
            ("t", 0),
            {
                name: batches.scan([segment(tmp_path / name, data)])
                for name, data in by_cluster.items()
            },
        )
    ]


def recorded(events: list[Event]) -> list[tuple[str, str, int]]:
    return [(e.subject, e.cluster, e.offset) for e in events if isinstance(e, Promotion)]


DATA = batch(0, [record(b"one"), record(b"two")])
STOPPED = [
    DATA,
    marker(2, ABORT, pid=1, epoch=0, leader_epoch=5),
    mirror_pid_reset(3, leader_epoch=5),
]


MARKER_MIRRORED = [
    DATA,
    marker(2, ABORT, pid=1, epoch=0, leader_epoch=4),
    mirror_pid_reset(3, leader_epoch=5),
]


@pytest.mark.parametrize(
    ("source", "destination", "declared", "promoted"),
    [
        pytest.param([DATA], STOPPED, {}, [2], id="reset-and-the-markers-of-its-epoch"),
        pytest.param(
            MARKER_MIRRORED[:2], MARKER_MIRRORED, {}, [3], id="marker-of-an-earlier-epoch"
        ),
        pytest.param(STOPPED, STOPPED, {}, [], id="reset-that-the-source-has-too"),
        pytest.param(
            [DATA],
            [DATA, with_marker_kind(mirror_pid_reset(3, leader_epoch=5), 6)],
            {},
            [],
            id="control-record-of-another-type",
        ),
        pytest.param([DATA], STOPPED, {("B", "t", 0): [4]}, [4], id="declared"),
    ],
)
def test_a_promotion_is_where_the_destinations_own_records_begin(
    tmp_path: Path,
    source: list[bytes],
    destination: list[bytes],
    declared: dict[tuple[str, str, int], list[int]],
    promoted: list[int],
) -> None:
    logs = captured_logs(tmp_path, A=source, B=destination)
    events, _ = promotions_in(logs, [THERE], declared)
    assert recorded(events) == [("A->B", "B", offset) for offset in promoted]


def test_links_both_ways_take_turns_and_the_bytes_show_the_reversal(tmp_path: Path) -> None:
    again = [
        *STOPPED,
        batch(4, [record(b"three")], leader_epoch=5),
        mirror_pid_reset(5, leader_epoch=9),
    ]
    events, ended = promotions_in(captured_logs(tmp_path, A=again, B=again[:4]), [THERE, BACK], {})
    assert recorded(events) == [("A->B", "B", 2), ("B->A", "A", 5)]
    assert [e.kind for e in events] == [
        "promotion",
        "fault-start",
        "mirror-started",
        "fault-end",
        "promotion",
    ]
    times = [e.time for e in events]
    assert times == sorted(times)
    assert ended >= times[-1]


def test_a_cluster_that_was_given_up_and_does_not_follow_was_not_turned_round(
    tmp_path: Path,
) -> None:
    own = [DATA, batch(2, [record(b"tail")])]
    events, _ = promotions_in(captured_logs(tmp_path, A=own, B=STOPPED), [THERE, BACK], {})
    assert [e.kind for e in events] == ["promotion"]


def test_a_run_directory_of_links_touches_no_log(tmp_path: Path) -> None:
    source = sound(tmp_path / "A" / "orders-0")
    sound(tmp_path / "B" / "orders-0")
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    judged(tmp_path / "run", asked({"A": tmp_path / "A", "B": tmp_path / "B"}, "A->B"))
    assert {p: p.stat().st_mtime_ns for p in before if p != tmp_path} == {
        p: t for p, t in before.items() if p != tmp_path
    }
    link = tmp_path / "run" / "captures" / "1-copied" / "A" / "0" / "orders-0"
    assert link.is_symlink()
    assert (link / source.name).samefile(source)


def test_a_plan_of_copied_logs_has_homes_and_no_damage(tmp_path: Path) -> None:
    for cluster in "AB":
        for topic in ("orders-0", "B.own-0", "__consumer_offsets-3"):
            sound(tmp_path / cluster / topic)
    wanted = asked(
        {"A": tmp_path / "A", "B": tmp_path / "B"}, "A->B", promotions={("B", "orders", 0): [6]}
    )
    judged(tmp_path / "run", wanted)
    planned = plan(tmp_path / "run")
    assert planned.facts.homes == {"orders": "A", "B.own": "B"}
    assert {(c.bounds.cluster, c.bounds.topic) for c in planned.replicas} == {
        (c, t) for c in "AB" for t in ("orders", "B.own")
    }
    assert [(p.cluster, p.offset, p.kind) for p in planned.promotions["orders", 0]] == [
        ("B", 6, "forced")
    ]
    assert planned.facts_of("orders", 0).home == "A"
    assert planned.damage == []
    assert not RunReader(tmp_path / "run").run.recorded


def test_names_that_fit_nothing_are_refused(tmp_path: Path) -> None:
    where = {name: KIP_1279 / "1-before-stop" / name for name in "AB"}
    for wanted, said in (
        (asked(where), "which of A, B was mirrored"),
        (asked(where, "A->C"), "names C"),
        (asked(where, "A->B", promotions={("B", "tx", 9): [1]}), "which has no log here"),
        (asked(where, "A->B", promotions={("A", "tx", 0): [1]}), "which is no link's destination"),
        (asked({**where, "B": where["A"]}, "A->B"), "among the logs of A and of B"),
        (asked({**where, "A": KIP_1279 / "1-before-stop"}, "A->B"), "among the logs of A and of B"),
    ):
        with pytest.raises(InputError, match=said):
            judged(tmp_path / "run", wanted)
    assert not (tmp_path / "run").exists()


def test_brokers_that_are_called_as_partitions_are_brokers(tmp_path: Path) -> None:
    for broker in ("kafka-1", "kafka-2"):
        sound(tmp_path / broker / "orders-0")
    (tmp_path / "kafka-3" / "orders-0").mkdir(parents=True)
    (tmp_path / "kafka-3" / "stranger-7").mkdir()
    assert where_found(folders("A", tmp_path)) == [
        (1, "orders", 0),
        (2, "orders", 0),
        (3, "orders", 0),
    ]


def test_a_partition_without_a_segment_is_one_beside_others(tmp_path: Path) -> None:
    sound(tmp_path / "orders-0")
    (tmp_path / "orders-1").mkdir()
    (tmp_path / "other-0").mkdir()
    (tmp_path / "fresh-0").mkdir()
    (tmp_path / "fresh-0" / "partition.metadata").touch()
    assert [f.path.name for f in folders("A", tmp_path)] == [
        "fresh-0",
        "orders-0",
        "orders-1",
        "other-0",
    ]


def test_folders_that_are_only_called_as_partitions_are_none(tmp_path: Path) -> None:
    for name in ("polkit-1", "dbus-1/system-1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "daemon.log").write_text("started\n")
    with pytest.raises(InputError, match="no partition folder"):
        folders("A", tmp_path)


def test_lines_of_a_checkpoint_that_are_none_are_left(tmp_path: Path) -> None:
    sound(tmp_path / "orders-0")
    (tmp_path / "log-start-offset-checkpoint").write_text(
        "0\n3\norders x 4\norders 0 -4\n\norders 0 4\n"
    )
    assert [b.log_start for b in bounds(folders("A", tmp_path))] == [4]


@pytest.mark.parametrize(
    "note",
    [b"0\n1\norders 0 \xff\n", b"0\n1\norders 0 " + b"9" * 5000, b"0\n1\norders 0 " + b"9" * 19],
)
def test_numbers_of_a_checkpoint_that_no_offset_has_are_left(tmp_path: Path, note: bytes) -> None:
    sound(tmp_path / "orders-0")
    names = ("log-start", "replication", "cleaner", "recovery-point")
    for name in names:
        (tmp_path / f"{name}-offset-checkpoint").write_bytes(note)
    (tmp_path / "meta.properties").write_bytes(b"\xff\nnode.id=7\n")
    assert [(b.broker, b.log_start) for b in bounds(folders("A", tmp_path))] == [(7, 0)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("line", ["node.id=7", " node.id = 7 ", "broker.id: 7\r", "node.id 7"])
def test_properties_of_a_broker_are_read_as_java_does(
    tmp_path: Path, encoding: str, line: str
) -> None:
    sound(tmp_path / "orders-0")
    (tmp_path / "meta.properties").write_text(f"{line}\nversion=1\n", encoding)
    assert [b.broker for b in bounds(folders("A", tmp_path))] == [7]


def test_properties_with_two_brokers_are_refused(tmp_path: Path) -> None:
    sound(tmp_path / "orders-0")
    (tmp_path / "meta.properties").write_text("node.id=7\nnode.id=8\n")
    with pytest.raises(InputError, match=r"has node\.id twice, as 7 and as 8"):
        folders("A", tmp_path)


def test_a_checkpoint_that_is_no_file_is_not_opened(tmp_path: Path) -> None:
    sound(tmp_path / "orders-0")
    os.mkfifo(tmp_path / "log-start-offset-checkpoint")
    assert [b.log_start for b in bounds(folders("A", tmp_path))] == [0]


def test_properties_of_a_broker_that_are_no_file_are_refused(tmp_path: Path) -> None:
    sound(tmp_path / "orders-0")
    os.mkfifo(tmp_path / "meta.properties")
    with pytest.raises(InputError, match=r"meta.properties cannot be read \(is a FIFO"):
        folders("A", tmp_path)


def test_a_link_to_itself_hides_nothing_beside_it(tmp_path: Path) -> None:
    for broker in (1, 2):
        sound(tmp_path / f"kafka-{broker}" / "orders-0")
    (tmp_path / "kafka-2" / "lock").symlink_to("lock")
    (tmp_path / "lock").symlink_to("lock")
    assert [f.broker for f in folders("A", tmp_path)] == [1, 2]


def test_links_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    sound(tmp_path / "orders-0")
    for number in range(60):
        for name in (f"kafka-{number}", f"data{number}"):
            (tmp_path / name).mkdir()
            for back in range(20):
                (tmp_path / name / f"kafka-{back}").symlink_to(tmp_path)
    began = time.monotonic()
    assert [f.path for f in folders("A", tmp_path)] == [tmp_path / "orders-0"]
    assert time.monotonic() - began < 60


def test_more_folders_than_brokers_have_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_folders, "_MOST_FOLDERS", 20)
    for number in range(30):
        sound(tmp_path / f"orders-{number}")
    with pytest.raises(InputError, match="has more than 20 folders; give a Kafka log directory"):
        folders("A", tmp_path)


def test_a_log_start_behind_the_end_of_the_log_is_named_and_not_believed(tmp_path: Path) -> None:
    for cluster in "AB":
        path = sound(tmp_path / cluster / "orders-0")
    data = [each for _, each in batches_in(path)]
    rewrite(path, [*data[:1], *data[2:]])
    (tmp_path / "B" / "log-start-offset-checkpoint").write_text("0\n1\norders 0 1000000000\n")
    judgement = judged(tmp_path / "run", asked({name: tmp_path / name for name in "AB"}, "A->B"))
    assert judgement.verdict is not Verdict.VALID
    assert "log start 1000000000, and the log ends at 10" in next(
        c.reason for c in judgement.checks if c.name == "recording"
    )
    assert [c.bounds.log_start for c in plan(tmp_path / "run").replicas] == [0, 0]


def test_a_log_start_at_the_end_of_a_log_and_one_of_an_empty_log_are_believed(
    tmp_path: Path,
) -> None:
    sound(tmp_path / "A" / "orders-0")
    segment(tmp_path / "A" / "orders-1", [])
    (tmp_path / "A" / "log-start-offset-checkpoint").write_text("0\n2\norders 0 10\norders 1 10\n")
    judged(tmp_path / "run", asked({"A": tmp_path / "A"}))
    assert [(c.bounds.log_start, c.damage) for c in plan(tmp_path / "run").replicas] == [
        (10, ()),
        (10, ()),
    ]


def test_a_segment_that_is_gone_since_it_was_listed_is_named(tmp_path: Path) -> None:
    for cluster in "AB":
        sound(tmp_path / cluster / "fine-0")
        path = sound(tmp_path / cluster / "orders-0")
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    judgement = judged(tmp_path / "run", asked({name: tmp_path / name for name in "AB"}, "A->B"))
    assert judgement.verdict is Verdict.UNKNOWN
    assert "unreadable-file" in next(c.reason for c in judgement.checks if c.name == "recording")


def test_a_promotion_beyond_the_end_of_its_log_is_refused(tmp_path: Path) -> None:
    for cluster in "AB":
        sound(tmp_path / cluster / "orders-0")
    logs = {name: tmp_path / name for name in "AB"}
    for offset in (0, 10):
        wanted = asked(logs, "A->B", promotions={("B", "orders", 0): [offset]})
        capture_folders.record(tmp_path / f"run-{offset}", wanted, "")
    beyond = asked(logs, "A->B", promotions={("B", "orders", 0): [4, 11]})
    with pytest.raises(InputError, match=r"--promotion B:orders-0=11 is beyond the end .* is 10;"):
        capture_folders.record(tmp_path / "run", beyond, "")
    (tmp_path / "B" / "replication-offset-checkpoint").write_text("0\n1\norders 0 12\n")
    capture_folders.record(tmp_path / "run", beyond, "")


def test_two_folders_of_one_cluster_are_no_mirrors_of_each_other(tmp_path: Path) -> None:
    for broker, name in enumerate("AB"):
        log_directory(tmp_path / name, "orders-0", node_id=broker, cluster_id="x")
    wanted = asked({name: tmp_path / name for name in "AB"}, "A->B")
    with pytest.raises(InputError, match=r"A and B are one cluster \(cluster.id x\)"):
        capture_folders.record(tmp_path / "run", wanted, "")
    log_directory(tmp_path / "B", "orders-0", node_id=1, cluster_id="y")
    capture_folders.record(tmp_path / "run", wanted, "")


@dataclass(frozen=True)
class Garbage:
    """A checkpoint file, whether its content matters for a sound log, and what is said of it."""

    name: str
    content: str
    matters: bool
    said: str


GARBAGE = {
    "no offset": Garbage("replication", "0\n1\norders 0 x\n", True, "line 3 is malformed"),
    "another version": Garbage("log-start", "7\n0\n", True, "line 1 is malformed"),
    "no text": Garbage("log-start", "\0\0\0", True, "line 1 is malformed"),
    "cut off": Garbage("replication", "0\n2\nother 0 3\n", True, "it has 1 lines of offsets"),
    "of another line": Garbage(
        "replication", "0\n2\norders 0 10\no\n", False, "line 4 is malformed"
    ),
    "of a log without holes": Garbage("cleaner", "x", False, "line 1 is malformed"),
    "that nothing is read from": Garbage("recovery-point", "x", False, "line 1 is malformed"),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_a_checkpoint_that_cannot_be_read_is_said_and_unknown_where_it_matters(
    tmp_path: Path, case: str
) -> None:
    for cluster in "AB":
        sound(tmp_path / cluster / "orders-0")
    given = GARBAGE[case]
    wanted = asked({name: tmp_path / name for name in "AB"}, "A->B")
    name = f"{given.name}-offset-checkpoint"
    for content in ("", "0\n", "0\n0\n"):
        (tmp_path / "B" / name).write_text(content)
        whole = judged(tmp_path / f"whole{len(content)}", wanted)
        assert (whole.verdict, recording_of(whole)) == (Verdict.VALID, "")
    (tmp_path / "B" / name).write_text(given.content)
    judgement = judged(tmp_path / "run", wanted)
    assert judgement.verdict is (Verdict.UNKNOWN if given.matters else Verdict.VALID)
    assert f"B/0: its broker's {name} cannot be read: {given.said}" in recording_of(judgement)


def recording_of(judgement: Judgement) -> str:
    return next(check.reason for check in judgement.checks if check.name == "recording")


def test_a_cleaner_s_checkpoint_matters_where_offsets_are_missing(tmp_path: Path) -> None:
    path = sound(tmp_path / "A" / "orders-0")
    data = [each for _, each in batches_in(path)]
    segment(path.parent, [batch(10, [record(b"last")])], base_offset=10)
    (tmp_path / "A" / "cleaner-offset-checkpoint").write_text("x")
    (whole,) = bounds(folders("A", tmp_path / "A"))
    assert (whole.compacted, [matters for _, matters in whole.unreadable]) == (0, [False])
    rewrite(path, [*data[:1], *data[2:]])
    (cleaned,) = bounds(folders("A", tmp_path / "A"))
    assert (cleaned.compacted, [matters for _, matters in cleaned.unreadable]) == (10, [True])


# Reads and rewrites the bounds of replicas beside a capture.


def bounds_of(root: Path, moment: str) -> list[Bounds]:
    return msgspec.json.decode(
        (root / "captures" / moment / "bounds.json").read_bytes(), type=list[Bounds]
    )


def write_bounds(root: Path, moment: str, found: list[Bounds]) -> None:
    path = root / "captures" / moment / "bounds.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.encode(found))


# Which logs a run captures at its end: those of live clusters, and of dead ones whose last
# capture is older than their death.


def stage(states: dict[str, list[str]], captured: tuple[str, ...]) -> RunWorld:
    clusters = {
        name: SimpleNamespace(
            brokers={n: SimpleNamespace(state=state) for n, state in enumerate(own)}
        )
        for name, own in states.items()
    }
    captures: Any = SimpleNamespace(current=lambda cluster: cluster in captured)
    deployment: Any = SimpleNamespace(clusters=clusters)
    none: Any = None
    return RunWorld(
        deployment=deployment,
        mirrors={},
        clients=none,
        recorder=none,
        captures=captures,
        sampler=none,
    )


@pytest.mark.parametrize(
    ("a", "died", "captured", "owed"),
    [
        (["running"], (), (), ["A", "B"]),
        (["running", "stopped"], ("A",), (), ["A", "B"]),
        (["stopped"], (), ("A",), ["B"]),  # by the failover that ended it
        (["stopped"], ("A",), (), ["A", "B"]),
        (["stopped"], ("A",), ("A",), ["A", "B"]),  # it had been restarted since
        (["stopped", "paused"], (), (), ["A", "B"]),  # in the middle of a fault that was not healed
    ],
)
def test_whose_logs_are_owed(
    a: list[str], died: tuple[str, ...], captured: tuple[str, ...], owed: list[str]
) -> None:
    assert stage({"A": a, "B": ["running"]}, captured).to_capture(died) == owed
