"""Damage in a log that is read in pieces is reported as in one that is read whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from linkflap.spark_verify.facts.view import WHOLE
from linkflap.spark_verify.read import assemble, pieces
from linkflap.spark_verify.read.log_rows import batch_rows
from tests.kafka_log import HEADER_SIZE, batch, changed, ours, record, recrc, segment
from tests.synthetic import same
from tests.unit.log_pieces import TOPIC, captured, in_pieces, planned, sound, tasks, whole


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every segment that is not empty is a piece."""
    monkeypatch.setattr(pieces, "_APART", 1)
    return monkeypatch


def test_damage_is_reported_in_the_order_of_the_bytes(
    tmp_path: Path, small: pytest.MonkeyPatch
) -> None:
    """Compressed batches are decoded after plain ones, of as many segments as are read at a
    time."""
    first = [batch(0, [record(b"x")]), changed(batch(1, [record(b"y")]), attributes=6)]
    data = batch(2, [record(b"z")])
    second = [recrc(data[:HEADER_SIZE] + b"\x7f" + data[HEADER_SIZE + 1 :])]
    run = planned(
        [
            captured(
                [
                    segment(tmp_path / "A.t-0", first),
                    segment(tmp_path / "A.t-0", second, base_offset=2),
                ],
                1,
            )
        ]
    )
    found = in_pieces(run, random.Random(5)).replicas[0].damage
    assert [line.split(": ")[1] for line in found[1:]] == ["unknown-codec", "unreadable-records"]
    assert found == whole(run).replicas[0].damage


def test_a_segment_that_begins_before_the_end_of_an_earlier_one_is_reported(
    tmp_path: Path, small: pytest.MonkeyPatch
) -> None:
    paths = sound(tmp_path, 3)
    segment(tmp_path / "A.t-0", [batch(27, [ours(1)]), batch(30, [ours(2)])], base_offset=22)
    segment(tmp_path / "A.t-0", [batch(20, [ours(3)])], base_offset=20)
    run = planned([captured(sorted(paths[0].parent.iterdir()), 1)])
    found = in_pieces(run, random.Random(4)).replicas[0].damage
    assert same(found, whole(run).replicas[0].damage)
    assert sum("overlap: begins at offset" in line for line in found) == 1


@pytest.mark.parametrize(("torn", "behind"), [(0, 0), (1, 16), (2, 22), (3, WHOLE)])
def test_a_log_is_torn_from_behind_what_is_before_the_damage(
    tmp_path: Path, small: pytest.MonkeyPatch, torn: int, behind: int
) -> None:
    paths = sound(tmp_path, 3)
    if torn < len(paths):
        paths[torn].write_bytes(b"\1" * 61 + paths[torn].read_bytes())
    run = planned([captured(paths, 1, damage=())])
    assert (
        in_pieces(run, random.Random(6)).replicas[0].torn_from
        == whole(run).replicas[0].torn_from
        == behind
    )


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_file_that_goes_away_is_named(
    tmp_path: Path, small: pytest.MonkeyPatch, gone: int
) -> None:
    paths = sound(tmp_path, 3)
    run = planned([captured(paths, 1)])
    paths[gone].unlink()
    pieces = [each for task in tasks(run) for each in task]
    found = assemble.view(run, TOPIC, 0, batch_rows(pieces)).replicas[0]
    assert found.damage == whole(run).replicas[0].damage
    assert any(f"{paths[gone].name} at byte 0: unreadable-file" in line for line in found.damage)
