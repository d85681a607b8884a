"""A log read in pieces, a task each, is the log read whole: every field of the view, and what is
wrong with it word for word."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkflap.harness.guarantees import declared
from linkflap.harness.log import records
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.spark_verify.facts.story import RunFacts
from linkflap.spark_verify.facts.view import WHOLE, PartitionView
from linkflap.spark_verify.read import assemble, pieces
from linkflap.spark_verify.read.captures import Captured
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.plan import RunPlan
from tests.kafka_log import (
    ABORT,
    COMMIT,
    HEADER_SIZE,
    Plain,
    batch,
    changed,
    marker,
    ours,
    record,
    recrc,
    segment,
)
from tests.synthetic import same

TOPIC = "A.t"
Decoded = Literal["every", "ours", "none"]
Batch = Mapping[str, object]
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


def made(batch_spec: Batch, offset: int) -> bytes:
    """One batch at an offset, right or wrong."""
    wrong, count = batch_spec["wrong"], int(str(batch_spec["records"]))
    if batch_spec["what"] == "marker":
        data = marker(offset, COMMIT if count > 1 else ABORT, pid=1, epoch=0)
        return (
            data[: HEADER_SIZE + 4] + b"\x7f" + data[HEADER_SIZE + 5 :]
            if wrong == "corrupt"
            else data
        )
    one: Callable[[int], Plain] = (
        ours if batch_spec["what"] == "ours" else lambda uid: record(b"value of %d" % uid)
    )
    data = batch(offset, [one(offset + n) for n in range(count)], codec=str(batch_spec["codec"]))
    match wrong:
        case "corrupt":
            return data[:-1] + bytes([data[-1] ^ 1])
        case "unreadable":
            return changed(data, count=count + 1)
        case "codec":
            return changed(data, attributes=6)
        case "reversed":
            return changed(data, last_delta=-2)
        case "control":
            return changed(data, attributes=0x20)
        case "none inside":
            return batch(offset, [], last_delta=0)
    return data


def written(folder: Path, segments: Sequence[Mapping[str, object]]) -> list[Path]:
    """The segments' files, in the order of their names."""
    paths, offset, name = [], 10, -1
    for batch_spec in segments:
        data: list[bytes] = []
        begin = offset
        for each in batch_spec["batches"]:  # type: ignore[attr-defined]
            offset = max(0, offset + each["skip"])
            begin = begin if data else max(0, offset)
            data.append(made(each, offset))
            offset += 1 if each["what"] == "marker" else each["records"]
        name = max(name + 1, begin + int(str(batch_spec["name"])))
        paths.append(segment(folder, data, base_offset=name, tail=batch_spec["tail"]))  # type: ignore[arg-type]
    return paths


def captured(paths: Sequence[Path], broker: int, **rest: object) -> Captured:
    bounds = Bounds(
        cluster="A", broker=broker, topic=TOPIC, partition=0, leader=broker == 1, alive=True,
        log_start=0, high_watermark=9,
        high_watermark_from="sampled",
    )  # fmt: skip
    size = sum(path.stat().st_size for path in paths)
    values = {
        "moment": "2-end",
        "canonical": broker == 1,
        "damage": (f"what {broker} lacks",),
        **rest,
    }
    return Captured(run="r", bounds=bounds, paths=tuple(map(str, paths)), size=size, **values)  # type: ignore[arg-type]


def planned(replicas: Sequence[Captured], earlier: Sequence[Captured] = ()) -> RunPlan:
    alone = Topology(clusters=(ClusterSpec(name="A"),), links=())
    facts = RunFacts(run="r", topology=alone, mirror=declared(MirrorSpec(kind="none")))
    return RunPlan(facts=facts, replicas=replicas, earlier=earlier)


def whole(run: RunPlan) -> PartitionView:
    return assemble.view(run, TOPIC, 0, batch_rows([*run.replicas, *run.earlier]))


def tasks(run: RunPlan) -> list[list[Captured]]:
    return [list(task.replicas) for task in pieces.pieces([run]) if task.replicas]


def in_pieces(run: RunPlan, order: random.Random) -> PartitionView:
    rows = [batch for task in tasks(run) for batch in batch_rows(task)]
    order.shuffle(rows)
    return assemble.view(run, TOPIC, 0, rows)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every segment that has anything is a piece."""
    monkeypatch.setattr(pieces, "_APART", 1)
    return monkeypatch


@settings(max_examples=100, deadline=None)
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


def sound(folder: Path, segments: int, **how: object) -> list[Path]:
    batch_spec = {"what": "ours", "codec": "none", "records": 2, "skip": 0, "wrong": ""} | how
    return written(
        folder / "A.t-0", [{"batches": [batch_spec] * 3, "name": 0, "tail": b""}] * segments
    )


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


def test_markers_alone_in_a_segment_hold_nobodys_records(
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
def test_one_segment_of_ours_has_every_record_looked_at(
    tmp_path: Path, small: pytest.MonkeyPatch, codec: str
) -> None:
    """Of compressed batches not all are asked: in a whole log as many as in its segments."""
    theirs = [batch(offset, [record(b"x")], codec=codec) for offset in range(20)]
    paths = [
        segment(tmp_path / "A.t-0", theirs),
        segment(tmp_path / "A.t-0", [batch(20, [ours(1)], codec=codec)], base_offset=20),
    ]
    run = planned([captured(paths, 1, records="ours")])
    found = in_pieces(run, random.Random(3)).replicas[0]
    assert found.records.uid.tolist() == [-1] * 20 + [1]
    assert same(found, whole(run).replicas[0])


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


def test_small_replicas_are_not_taken_apart_and_share_a_task(tmp_path: Path) -> None:
    run = planned([captured(sound(tmp_path / str(n), 2), n) for n in range(1, 6)])
    assert len(tasks(run)) == 2
    assert {(c.piece, len(c.paths)) for task in tasks(run) for c in task} == {(0, 2)}
