"""A log read in pieces, one per task, equals the log read whole: every field of the view, and its
damage word for word.

Damage in a log that is read in pieces is reported as in one that is read whole.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkflap.harness.log import records
from linkflap.spark_verify.facts.view import WHOLE
from linkflap.spark_verify.read import assemble, pieces
from linkflap.spark_verify.read.log_rows import batch_rows
from tests.kafka_log import (
    COMMIT,
    HEADER_SIZE,
    batch,
    changed,
    marker,
    ours,
    record,
    recrc,
    segment,
)
from tests.synthetic import same
from tests.unit.log_pieces import TOPIC, captured, in_pieces, planned, sound, tasks, whole, written

Decoded = Literal["every", "ours", "none"]
BATCH = st.fixed_dictionaries(
    {
        "what": st.sampled_from(["ours", "ours", "theirs", "marker"]),
        "codec": st.sampled_from(["none", "none", "gzip", "lz4"]),
        "records": st.integers(1, 3),
        "skip": st.sampled_from([0, 0, 0, 0, 3, -1, -4]),
        "wrong": st.sampled_from(
            [*[""] * 12, "corrupt", "unreadable", "codec", "reversed", "control", "none inside"]
        ),
    }
)
SEGMENT = st.fixed_dictionaries(
    {
        "batches": st.lists(BATCH, max_size=4),
        "name": st.sampled_from([0, 0, 0, 0, 2]),
        "tail": st.sampled_from(
            [*[b""] * 6, b"\0" * 100, b"\0" * 70 + b"x", b"torn", b"\0" * 16 + b"\1" + b"\0" * 5]
        ),
    }
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every segment that is not empty is a piece."""
    monkeypatch.setattr(pieces, "_APART", 1)
    return monkeypatch


@settings(max_examples=100)
@given(
    segments=st.lists(SEGMENT, min_size=2, max_size=6),
    decoded=st.sampled_from(["every", "ours", "ours", "none"]),
    piece=st.sampled_from([1, 1, 60, 300]),
    window=st.sampled_from([1, 200, 1 << 20]),
    seed=st.integers(0, 1 << 30),
)
def test_the_view_is_the_same(
    segments: list[Mapping[str, object]], decoded: Decoded, piece: int, window: int, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_APART", piece)
        patch.setattr(records, "WINDOW", window)
        paths = written(Path(folder) / "A.t-0", segments)
        replicas = [captured(paths, 1, records=decoded), captured(paths, 2, records=decoded)]
        run = planned(
            replicas, [captured(paths, 1, records=decoded, moment="1-before", last=False)]
        )
        one, other = whole(run), in_pieces(run, random.Random(seed))
        assert [r.damage for r in one.replicas] == [r.damage for r in other.replicas]
        assert same(one, other)


def never(_: object) -> Iterator[pa.RecordBatch]:
    raise AssertionError("was read again")


@pytest.mark.parametrize("decoded", ["every", "ours", "none"])
@pytest.mark.parametrize("what", ["ours", "theirs"])
def test_a_sound_log_is_read_in_pieces_and_once(
    tmp_path: Path, small: pytest.MonkeyPatch, what: str, decoded: Decoded
) -> None:
    run = planned([captured(sound(tmp_path, 5, what=what), 1, records=decoded)])
    one = whole(run)
    assert sorted(c.piece for task in tasks(run) for c in task) == [0, 1, 2, 3, 4]
    small.setattr(assemble, "batch_rows", never)
    assert same(one, in_pieces(run, random.Random(1)))
    assert one.replicas[0].batches.base_offset.tolist() == list(range(10, 40, 2))
    read = decoded == "every" or (decoded, what) == ("ours", "ours")
    assert one.replicas[0].records.batch.tolist() == [n for n in range(15) for _ in range(2 * read)]


def test_a_segment_of_markers_only_has_no_records(
    tmp_path: Path, small: pytest.MonkeyPatch
) -> None:
    paths = sound(tmp_path, 2)
    paths.append(segment(tmp_path / "A.t-0", [marker(22, COMMIT, pid=1, epoch=0)], base_offset=22))
    run = planned(
        [captured([*paths, segment(tmp_path / "A.t-0", [], base_offset=23)], 1, records="ours")]
    )
    small.setattr(assemble, "batch_rows", never)
    found = in_pieces(run, random.Random(2)).replicas[0]
    assert (len(found.batches), len(found.records)) == (7, 12)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_log_with_a_segment_of_linkflaps_records_is_decoded_whole(
    tmp_path: Path, small: pytest.MonkeyPatch, codec: str
) -> None:
    """Only some compressed batches are decoded for this: in a whole log as many as in its
    segments."""
    theirs = [batch(offset, [record(b"x")], codec=codec) for offset in range(20)]
    paths = [
        segment(tmp_path / "A.t-0", theirs),
        segment(tmp_path / "A.t-0", [batch(20, [ours(1)], codec=codec)], base_offset=20),
    ]
    run = planned([captured(paths, 1, records="ours")])
    found = in_pieces(run, random.Random(3)).replicas[0]
    assert found.records.uid.tolist() == [-1] * 20 + [1]
    assert same(found, whole(run).replicas[0])


def test_small_replicas_are_not_taken_apart_and_share_a_task(tmp_path: Path) -> None:
    run = planned([captured(sound(tmp_path / str(n), 2), n) for n in range(1, 6)])
    assert len(tasks(run)) == 2
    assert {(c.piece, len(c.paths)) for task in tasks(run) for c in task} == {(0, 2)}


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
