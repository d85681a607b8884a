"""The records of `__mirror_state`: their last values, and which of them describe does not
report."""

from __future__ import annotations

import struct

import pytest

from linkflap.harness.mirrors.cluster_mirroring.admin import DescribeRow
from linkflap.harness.mirrors.cluster_mirroring.state_topic import differing, latest

TOPIC_ID = bytes(range(16))
SPELLED = "AAECAwQFBgcICQoLDA0ODw"


def key(partition: int, kind: int = 2) -> bytes:
    return struct.pack(">hh", kind, 3) + b"A-B" + TOPIC_ID + struct.pack(">i", partition)


def value(state: int) -> bytes:
    return struct.pack(">hbbh", 0, state, -1, 0) + b"\x00\x00"


def row(partition: int, state: str, topic: str = "A.x") -> DescribeRow:
    return DescribeRow(
        topic=topic,
        partition=partition,
        state=state,
        source_offset=0,
        destination_offset=0,
        lag=0,
        retries=0,
        error="",
    )


def test_the_latest_record_of_a_partition_counts_and_a_tombstone_takes_it_away() -> None:
    records = [
        (key(0), value(0)),
        (key(1), value(2)),
        (key(0), value(2)),
        (key(0, kind=1), b"\x00\x00\x00\x00\x00\x07\x00"),
        (key(1), None),
    ]
    assert latest(records) == {("A-B", SPELLED, 0): "MIRRORING"}


@pytest.mark.parametrize("record", [(b"\x00", b""), (key(0), b"\x00"), (key(0), value(99))])
def test_bytes_of_another_form_are_said(record: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="__mirror_state has an unknown format"):
        latest([record])


def test_what_describe_says_otherwise_differs_and_other_topics_are_left_out() -> None:
    found = {("A-B", SPELLED, 0): "MIRRORING", ("A-B", SPELLED, 1): "FAILED"}
    ids = {"A.x": SPELLED}
    rows = [row(1, "MIRRORING"), row(0, "MIRRORING"), row(0, "PAUSED", "A.other")]
    assert differing("A-B", found, ids, rows) == {
        "A.x": ("partition 1: FAILED recorded, MIRRORING described",)
    }
    assert differing("A-B", found, ids, [row(2, "MIRRORING")]) == {
        "A.x": ("partition 2: nothing recorded, MIRRORING described",)
    }
