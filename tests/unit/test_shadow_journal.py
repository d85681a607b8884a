"""What a journal records of a partition's end: where the mirrored part of a promoted log ends."""

from __future__ import annotations

from typing import Any

import pytest

from linkflap.harness.mirrors.shadow.journal import PartitionNote

MARKER = "ABORT of producer 7, epoch 0"


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ({}, -1),
        ({"mirrored": 9, "promoted": 9}, 9),
        ({"mirrored": 9, "promoted": 11, "appended": [(9, MARKER), (10, "reset")]}, 9),
        ({"mirrored": 9, "promoted": 4, "truncated": [(9, 4)]}, 4),
        ({"mirrored": 9, "promoted": 5, "truncated": [(9, 4)], "appended": [(4, "reset")]}, 4),
        ({"mirrored": 9, "promoted": 9, "appended": [(12, MARKER)]}, 9),
    ],
    ids=[
        "not ended",
        "nothing to do",
        "markers",
        "truncated",
        "truncated, and reset there",
        "markers of the brokers that lead then",
    ],
)
def test_the_mirrored_part_ends_before_appended_markers_and_at_the_lowest_truncation(
    lengths: dict[str, Any], kept: int
) -> None:
    assert PartitionNote(**lengths).kept == kept
