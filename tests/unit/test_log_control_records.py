"""Control records of a log: markers, resets of producer ids, and unknown ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.log import batches, layout
from tests.kafka_log import ABORT, COMMIT, Plain, batch, marker, mirror_pid_reset, record, segment

FOLDER = "A.t-0"


@pytest.mark.parametrize(
    ("control", "kind"),
    [
        (marker(0, ABORT, pid=1, epoch=0), layout.ABORT),
        (marker(0, COMMIT, pid=1, epoch=0, version=1), layout.COMMIT),
        (mirror_pid_reset(0), layout.OTHER_CONTROL),
        (marker(0, 4, pid=1, epoch=0), layout.SKIPPED_CONTROL),
        (marker(0, 8, pid=1, epoch=0), layout.SKIPPED_CONTROL),
        (marker(0, -2, pid=1, epoch=0), layout.SKIPPED_CONTROL),
    ],
)
def test_control_records_are_read_as_consumers_read_them(
    tmp_path: Path, control: bytes, kind: int
) -> None:
    found = batches.scan([segment(tmp_path / FOLDER, [control])])
    assert (found.headers.control.tolist(), found.damage) == ([kind], ())


@pytest.mark.parametrize(
    "control",
    [
        marker(0, ABORT, pid=1, epoch=0, version=-1),
        batch(0, [Plain(key=None, value=None)], control=True),
        batch(0, [Plain(key=b"\x00\x00", value=None)], control=True),
    ],
)
def test_control_records_that_consumers_refuse_are_damage(tmp_path: Path, control: bytes) -> None:
    found = batches.scan([segment(tmp_path / FOLDER, [control])])
    assert [d.kind for d in found.damage] == ["unknown-control"]
    assert found.headers.control.tolist() == [layout.SKIPPED_CONTROL]


def test_a_control_batch_that_compaction_emptied_is_no_reset_and_no_damage(tmp_path: Path) -> None:
    emptied = batch(4, [], control=True, transactional=True, pid=7, epoch=0, last_delta=0)
    found = batches.scan([segment(tmp_path / FOLDER, [marker(3, ABORT, pid=7, epoch=0), emptied])])
    assert (found.headers.control.tolist(), found.damage) == ([layout.ABORT, layout.EMPTIED], ())


def test_a_marker_has_the_epoch_of_its_coordinator(tmp_path: Path) -> None:
    """As brokers write it; with a delete horizon, which moves the field; and with a value that is
    too short for it."""
    short = batch(
        2,
        [Plain(key=b"\x00\x00\x00\x01", value=b"\x00\x00")],
        control=True,
        transactional=True,
        pid=7,
        epoch=0,
    )
    later = Plain(
        key=b"\x00\x00\x00\x01", value=b"\x00\x00\x00\x00\x00\x05", timestamp=1_700_000_000_000
    )
    compacted = batch(
        3, [later], control=True, transactional=True, pid=7, epoch=0, horizon=1_700_000_900_000
    )
    usual = (
        marker(0, COMMIT, pid=7, epoch=0, coordinator=4),
        marker(1, ABORT, pid=8, epoch=0, coordinator=2**31 - 1),
    )
    data = batch(4, [record(b"one")], pid=7, epoch=0, seq=0)
    found = batches.scan([segment(tmp_path / FOLDER, [*usual, short, compacted, data])])
    assert found.headers.coordinator_epoch.tolist() == [4, 2**31 - 1, -1, 5, -1]


def test_mirror_pid_reset_is_control_of_another_kind(tmp_path: Path) -> None:
    h = batches.scan([segment(tmp_path / FOLDER, [mirror_pid_reset(0, leader_epoch=13)])]).headers
    assert (h.control.tolist(), h.transactional.tolist(), h.producer_id.tolist()) == (
        [layout.OTHER_CONTROL],
        [False],
        [-1],
    )
