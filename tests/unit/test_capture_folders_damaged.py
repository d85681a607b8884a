"""Folders of captured logs that lack segments, or whose checkpoints are impossible."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from linkflap.harness.capture import folders as capture_folders
from linkflap.harness.capture.folders import bounds, folders
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.read.plan import plan
from tests.copied_logs import asked, judged, sound
from tests.kafka_log import batches_in, rewrite, segment


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


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "meta.properties"])
def test_notes_of_a_broker_that_are_no_files_are_not_opened(tmp_path: Path, name: str) -> None:
    sound(tmp_path / "orders-0")
    os.mkfifo(tmp_path / name)
    assert [b.log_start for b in bounds(folders("A", tmp_path))] == [0]


def test_links_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    sound(tmp_path / "orders-0")
    for number in range(60):
        for name in (f"kafka-{number}", f"data{number}"):
            (tmp_path / name).mkdir()
            for back in range(20):
                (tmp_path / name / f"kafka-{back}").symlink_to(tmp_path)
    began = time.monotonic()
    assert [f.path for f in folders("A", tmp_path)] == [tmp_path / "orders-0"]
    assert time.monotonic() - began < 10


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
