"""From a run directory to partition views without Spark, also in pieces: what is planned and read,
compared with the reference decoder."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkflap.harness.guarantees import declared
from linkflap.harness.log import records as log_records
from linkflap.harness.log import reference
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.history import Bounds, GroupOffset
from linkflap.harness.model.payload import FOREIGN
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.spark_verify.checks import REGISTRY, finding_rows
from linkflap.spark_verify.checks.base import Check
from linkflap.spark_verify.facts.eras import history
from linkflap.spark_verify.facts.partition_facts import RunFacts
from linkflap.spark_verify.facts.view import WHOLE, PartitionView
from linkflap.spark_verify.read import assemble, log_rows, pieces
from linkflap.spark_verify.read.assemble import _of_a_program
from linkflap.spark_verify.read.captures import CapturedReplica, is_data
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.read.rows import damage_of
from linkflap.spark_verify.spark import job
from tests import synthetic
from tests.copied_logs import KIP_1279, asked, judged, sound
from tests.faithful.made import Made
from tests.faithful.mutations.base import ROUND_TRIP, promotion
from tests.faithful.spec import spec
from tests.faithful.stories import story
from tests.kafka_log import (
    ABORT,
    COMMIT,
    HEADER_SIZE,
    Plain,
    batch,
    batches_in,
    changed,
    marker,
    ours,
    record,
    recrc,
    rewrite,
    segment,
)
from tests.run_copy import Row, views
from tests.synthetic import (
    DIED,
    ENDED,
    HEALED,
    PROMOTED,
    TOPOLOGY,
    Shape,
    append_events,
    same,
    write_run,
)
from tests.synthetic import TOPIC as SYNTHETIC_TOPIC
from tests.unit.checks.histories import Log, poll
from tests.unit.checks.histories import view as view_of
from tests.unit.test_capture import bounds_of, write_bounds


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def log_of(root: Path, partition: int = 0, *, broker: int = 1) -> Path:
    """The file of one of B's replicas."""
    folder = root / "captures" / ENDED / "B" / str(broker) / f"{SYNTHETIC_TOPIC}-{partition}"
    return folder / f"{0:020}.log"


def test_the_leader_speaks_for_its_cluster(root: Path) -> None:
    assert {(r.bounds.cluster, r.bounds.broker) for r in plan(root).replicas if r.canonical} == {
        ("A", 1),
        ("B", 1),
    }


def test_without_a_leader_the_highest_epoch_speaks_and_then_the_longest_log(root: Path) -> None:
    write_bounds(root, ENDED, [replace(b, leader=False) for b in bounds_of(root, ENDED)])

    def speaker() -> set[int]:
        return {
            r.bounds.broker for r in plan(root).replicas if r.canonical and r.bounds.cluster == "B"
        }

    assert speaker() == {1}, "equal logs: the lower broker id"
    for partition in range(2):
        path = log_of(root, partition)
        rewrite(path, [one for _, one in batches_in(path)][:-1])
    assert speaker() == {2}, "the longer log"
    for partition in range(2):
        path = log_of(root, partition)
        rewrite(
            path, [*[one for _, one in batches_in(path)][:-1], batch(38, [ours(5)], leader_epoch=2)]
        )
    assert speaker() == {1}, "the higher leader epoch, though shorter"


def test_promotions_and_windows_come_from_events(root: Path) -> None:
    planned = plan(root)
    (promotion,) = planned.promotions[SYNTHETIC_TOPIC, 1]
    assert (promotion.source, promotion.cluster, promotion.offset, promotion.kind) == (
        "A",
        "B",
        20,
        "forced",
    )
    assert (promotion.time, promotion.fault_time) == (PROMOTED, 4_000)
    assert [(w.id, w.start, w.end) for w in planned.facts.windows] == [
        ("f1", 100, HEALED),
        ("f2", 8_000, 9_000),
    ]


@pytest.mark.parametrize(
    ("lost", "ended"), [(("fault-end",), 8_500), (("fault-end", "fault-heal"), None)]
)
def test_a_fault_whose_end_is_gone_ended_with_its_heal_and_the_record_is_damaged(
    root: Path, lost: tuple[str, ...], ended: int | None
) -> None:
    path = root / "events.jsonl"
    kept = [
        line
        for line in path.read_text().splitlines(keepends=True)
        if not any(f'"{kind}"' in line for kind in lost)
    ]
    path.write_text("".join(kept))
    planned = plan(root)
    assert [(w.id, w.end) for w in planned.facts.windows] == [
        ("f1", planned.facts.ended),
        ("f2", ended or planned.facts.ended),
    ]
    said = [d.reason for d in planned.damage if d.path == "events.jsonl"]
    assert "fault f2 on B/1 began, and nothing says when it ended" in said


def test_a_promotion_that_cannot_be_read_is_damage(root: Path) -> None:
    append_events(root, [synthetic._event(1, "promotion", "A->B", cluster="B")])
    assert any("promotion of A->B" in d.reason for d in plan(root).damage)


def test_missing_parts_are_damage(root: Path) -> None:
    (root / "captures" / ENDED / "bounds.json").unlink()
    reasons = [d.reason for d in plan(root).damage]
    assert any("not finished" in reason for reason in reasons)
    assert any("cluster B is in no finished capture" in reason for reason in reasons)
    with pytest.raises(InputError, match="not a run directory"):
        plan(root / "nowhere")


def test_a_partition_without_captured_logs_has_a_view_without_replicas(root: Path) -> None:
    for path in (root / "captures").glob("*/bounds.json"):
        path.unlink()
    found = list(views(root))
    assert [(v.partition, len(v.replicas), len(v.sends)) for v in found] == [(0, 0, 10), (1, 0, 10)]
    reasons = [d.reason for v in found for d in damage_of(v)]
    assert reasons == [
        f"no log of {SYNTHETIC_TOPIC}-{p} on {c} was captured" for p in (0, 1) for c in "AB"
    ]


def test_group_offsets_are_rows_too(root: Path) -> None:
    (root / "groups").mkdir()
    row = GroupOffset(time=7, cluster="B", group="g", topic=SYNTHETIC_TOPIC, partition=1, offset=4)
    (root / "groups" / "B.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    assert [list(v.groups) for v in views(root)] == [[], [row]]


def test_a_mirrors_own_topics_are_no_data() -> None:
    assert is_data(TOPOLOGY, "A.orders")
    assert not is_data(TOPOLOGY, "A.checkpoints.internal")
    assert not is_data(TOPOLOGY, "__consumer_offsets")
    assert not is_data(TOPOLOGY, "heartbeats")


def test_views_equal_the_reference_decoder(root: Path) -> None:
    found = list(views(root))
    assert [(v.topic, v.partition) for v in found] == [(SYNTHETIC_TOPIC, 0), (SYNTHETIC_TOPIC, 1)]
    for view in found:
        assert [(r.cluster, r.broker, r.canonical) for r in view.replicas] == [
            ("A", 1, True),
            ("B", 1, True),
            ("B", 2, False),
        ]
        path = log_of(root, view.partition)
        slow = list(reference.batches(path.read_bytes()))
        data = [
            (i, r) for i, b in enumerate(slow) if not b.is_control for r in reference.records(b)
        ]
        for replica in view.replicas:
            b, r = replica.batches, replica.records
            assert b.base_offset.tolist() == [one.base_offset for one in slow]
            assert b.last_offset.tolist() == [one.last_offset for one in slow]
            assert b.crc.tolist() == [one.crc for one in slow]
            assert b.last_sequence.tolist() == [one.last_sequence for one in slow]
            assert b.crc_ok.dtype == b.transactional.dtype == np.bool_
            assert replica.end == slow[-1].last_offset + 1
            assert not replica.damage
            assert len(r) == (len(data) if replica.canonical else 0)
        canonical = view.canonical()["B"].records
        assert canonical.digest.tolist() == [reference.digest(r) for _, r in data]
        assert canonical.batch.tolist() == [i for i, _ in data]
        assert list(zip(canonical.uid.tolist(), canonical.operation.tolist(), strict=True)) == [
            reference.identity(r) for _, r in data
        ]


def test_sends_reads_and_watermarks(root: Path) -> None:
    view = next(iter(views(root)))
    assert len(view.sends) == 10
    first = view.sends[0]
    assert (first.outcome, first.ending, first.invoked, first.returned, first.ended_at) == (
        "ok",
        "abort",
        0,
        9,
        5,
    )
    assert first.offsets.tolist() == [0, 1, 2]
    assert first.refused.tolist() == [False] * 3
    read = view.reads[0]
    assert (read.uids.tolist(), read.offsets.tolist()) == (
        [(1 << 40) + i for i in (3, 4, 5)],
        [4, 5, 6],
    )
    assert view.watermarks["B"].high_watermark.tolist() == [0, 10, 20]


def test_an_operation_that_never_returned_is_info(root: Path) -> None:
    path = root / "operations" / "transactional-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    last = list(views(root))[1].sends[-1]
    assert (last.outcome, last.returned, last.ended_at) == ("info", -1, 0)
    assert last.offsets.tolist() == [-1, -1, -1]


def test_torn_bytes_and_lines_are_reported(root: Path) -> None:
    path = log_of(root)
    path.write_bytes(path.read_bytes()[:-5])
    view = next(iter(views(root)))
    assert "torn-tail" in view.canonical()["B"].damage[0]
    assert not view.canonical()["A"].damage
    with (root / "polls" / "r1.jsonl").open("ab") as file:
        file.write(b'{"time": 1')
    (damaged,) = [b for b in pieces.history_rows(root, "polls") if b["damage"].null_count == 0]
    assert damaged["damage"][0].as_py()["reason"].endswith("is torn")
    assert damaged["topic"].to_pylist() == [""]


@pytest.mark.parametrize("bound", ["log_start", "last_stable", "high_watermark"])
def test_a_negative_bound_is_damage_unless_it_says_that_there_is_none(
    root: Path, bound: str
) -> None:
    path = next(iter(sorted((root / "watermarks").glob("*.jsonl"))))
    row = json.loads(path.read_bytes().splitlines()[0])
    for value, damaged in ((-1, 0), (-1001, 0), (-2, 1), (-1000, 1)):
        with path.open("ab") as file:
            file.write(json.dumps(row | {bound: value}).encode() + b"\n")
        found = [b for b in pieces.history_rows(root, "watermarks") if b["damage"].null_count == 0]
        assert len(found) == damaged
    assert f"reported the offset -2 for {row['topic']}" in found[0]["damage"][0].as_py()["reason"]


def test_a_batch_unfinished_at_its_capture_is_no_damage_and_one_torn_since_is(
    root: Path,
) -> None:
    path = log_of(root)
    path.write_bytes(path.read_bytes() + batch(10_000, [ours(1)])[:40])
    found = bounds_of(root, ENDED)
    write_bounds(
        root,
        ENDED,
        [replace(b, unfinished=40) if (b.broker, b.partition) == (1, 0) else b for b in found],
    )
    assert next(iter(views(root))).canonical()["B"].damage == ()
    path.write_bytes(path.read_bytes()[:-1])
    assert "torn-tail" in next(iter(views(root))).canonical()["B"].damage[0]


def test_long_logs_come_in_chunks_and_are_complete_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(views(root))
    monkeypatch.setattr(log_rows, "_BATCHES_AT_ONCE", 3)
    monkeypatch.setattr(log_rows, "_RECORDS_AT_ONCE", 4)
    monkeypatch.setattr(log_rows, "BYTES_AT_ONCE", 300)
    pieces = sum(len(b) for b in log_rows.batch_rows(plan(root).replicas))
    assert pieces > 30
    assert synthetic.same(whole, list(views(root)))


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_codecs_change_nothing_but_lengths_and_checksums(tmp_path: Path, codec: str) -> None:
    plain = next(iter(views(write_run(tmp_path / "plain")))).canonical()["B"].records
    packed = (
        next(iter(views(write_run(tmp_path / codec, Shape(codec=codec))))).canonical()["B"].records
    )
    assert packed.digest.tolist() == plain.digest.tolist()


def test_operations_may_be_recorded_in_any_order(root: Path) -> None:
    whole = next(iter(views(root))).sends
    path = root / "operations" / "transactional-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[1::2][::-1]))
    (root / "operations" / "p2.jsonl").write_bytes(b"".join(lines[::2]))
    assert synthetic.same(next(iter(views(root))).sends, whole)
    assert not [b for b in pieces.history_rows(root, "operations") if b["damage"].null_count == 0]


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (lambda lines: lines, "20 are there twice, first"),
        (lambda lines: lines[1:2], "1 are there twice, first"),
        (lambda lines: lines[:1], "1 are there twice, first"),
        (
            lambda lines: [lines[1].replace(b'"number":', b'"number":7')],
            "1 returned and were never invoked, first 7",
        ),
    ],
)
def test_operations_that_do_not_come_in_twos_are_reported(
    root: Path, extra: Callable[[list[bytes]], list[bytes]], reason: str
) -> None:
    path = root / "operations" / "transactional-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, *extra(lines)]))
    (damaged,) = [b for b in pieces.history_rows(root, "operations") if b["damage"].null_count == 0]
    assert reason in damaged["damage"][0].as_py()["reason"]


def test_a_dead_cluster_is_judged_by_its_last_capture(root: Path) -> None:
    planned = plan(root)
    assert not planned.damage
    assert {(r.bounds.cluster, r.moment) for r in planned.replicas} == {("A", DIED), ("B", ENDED)}
    write_bounds(root, "0-earlier", [replace(b, log_start=1) for b in bounds_of(root, DIED)])
    assert {r.moment for r in plan(root).replicas} == {DIED, ENDED}


def test_a_newer_capture_that_was_not_finished_is_not_replaced_by_an_older_one(root: Path) -> None:
    write_bounds(
        root, "0-earlier", [b for moment in (DIED, ENDED) for b in bounds_of(root, moment)]
    )
    (root / "captures" / ENDED / "bounds.json").unlink()
    planned = plan(root)
    assert {r.bounds.cluster for r in planned.replicas} == {"A"}
    assert any("cluster B is in no finished capture" in d.reason for d in planned.damage)


def test_a_segment_that_the_manifest_promises_and_is_gone_tears_its_log(root: Path) -> None:
    path = log_of(root, broker=2)
    path.unlink()
    (found,) = [r for r in plan(root).replicas if r.damage]
    assert (found.bounds.broker, found.damage[0].split(":")[0]) == (2, str(path.relative_to(root)))
    assert any(str(path.relative_to(root)) in d.reason for d in damage_of(next(iter(views(root)))))


def round_trip() -> Made:
    return story(spec(1, **ROUND_TRIP, steps=5))


def orders(made: Made, root: Path) -> PartitionView:
    """The view of the first partition that clients wrote to."""
    return next(view for view in views(made.write(root)) if not view.internal)


def test_a_cluster_that_was_truncated_has_its_earlier_captures_too(tmp_path: Path) -> None:
    made = round_trip()
    view = orders(made, tmp_path / "run")
    assert {(r.moment, r.cluster) for r in view.replicas} == {(ENDED, "A"), (ENDED, "B")}
    captured = {e.data["moment"]: e.time for e in made.events if e.kind == "captured"}
    assert [(r.moment, r.captured, len(r.batches)) for r in view.earlier] == [
        (moment, captured[moment], len(made.log("A", moment=moment)))
        for moment in ("1-away", "1-reverse")
    ]
    end = made.log("A", moment="1-reverse")[-1].end
    assert [(t.link, t.cluster, t.offset) for t in view.truncations] == [
        ("B->A", "A", promotion(made, "B"))
    ]
    assert view.truncations[0].end >= end
    away, *_, home = view.stops
    rows = [e.data["partitions"] for e in made.events if e.kind == "mirror-stopped"]
    for stop, (row, *_) in ((away, cast(list[Row], rows[0])), (home, cast(list[Row], rows[1]))):
        assert (stop.mirrored, stop.promoted) == (row["mirrored"], row["promoted"])
        assert [*stop.appended] == [tuple(each) for each in row["appended"]]
    assert (away.cluster, home.cluster) == ("B", "A")


def test_captures_are_in_the_order_of_their_events_not_of_their_names(tmp_path: Path) -> None:
    made = round_trip()
    names = {"1-away": "3-away", "2-end": "0-end"}
    made.logs = {
        key._replace(moment=names.get(key.moment, key.moment)): log
        for key, log in made.logs.items()
    }
    made.events = [
        replace(e, data={k: names.get(str(v), v) for k, v in e.data.items()})
        if e.kind == "captured"
        else e
        for e in made.events
    ]
    view = orders(made, tmp_path / "run")
    assert [r.moment for r in view.earlier] == ["3-away", "1-reverse"]
    assert {r.moment for r in view.replicas} == {"0-end"}


def test_earlier_captures_of_a_cluster_that_never_followed_are_left_out(root: Path) -> None:
    write_bounds(root, "0-earlier", bounds_of(root, DIED))
    assert plan(root).earlier == []


def test_a_truncation_that_cannot_be_read_is_damage(root: Path) -> None:
    append_events(root, [synthetic._event(1, "truncation", "B->A", cluster="A")])
    assert any("truncation of B->A" in d.reason for d in plan(root).damage)


def test_a_reversal_that_never_came_to_the_point_truncated_nothing(tmp_path: Path) -> None:
    made = round_trip()
    made.events = [e for e in made.events if e.subject != "B->A"]
    view = orders(made, tmp_path / "run")
    assert [w.took_effect for w in view.windows if w.fault == "mirror-reverse"] == [False]
    (generation,) = history(view.partition_facts).generations["A"]
    assert [e.origin for e in generation.eras] == ["native"]


# A log of batches, intact or damaged, that is planned and read in pieces.


TOPIC = "A.t"


Batch = Mapping[str, object]


def made(batch_spec: Batch, offset: int) -> bytes:
    """One batch at an offset, intact or damaged."""
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
    """The segments' files, ordered by name."""
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


def captured(paths: Sequence[Path], broker: int, **rest: object) -> CapturedReplica:
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
    files = tuple(map(str, paths))
    return CapturedReplica(run="r", bounds=bounds, paths=files, size=size, **values)  # type: ignore[arg-type]


def planned(
    replicas: Sequence[CapturedReplica], earlier: Sequence[CapturedReplica] = ()
) -> RunPlan:
    alone = Topology(clusters=(ClusterSpec(name="A"),), links=())
    facts = RunFacts(run="r", topology=alone, mirror=declared(MirrorSpec(kind="none")))
    return RunPlan(facts=facts, replicas=replicas, earlier=earlier)


def whole(run: RunPlan) -> PartitionView:
    return assemble.view(run, TOPIC, 0, batch_rows([*run.replicas, *run.earlier]))


def tasks(run: RunPlan) -> list[list[CapturedReplica]]:
    return [list(task.replicas) for task in pieces.pieces([run]) if task.replicas]


def in_pieces(run: RunPlan, order: random.Random) -> PartitionView:
    rows = [batch for task in tasks(run) for batch in batch_rows(task)]
    order.shuffle(rows)
    return assemble.view(run, TOPIC, 0, rows)


def sound_log(folder: Path, segments: int, **how: object) -> list[Path]:
    batch_spec = {"what": "ours", "codec": "none", "records": 2, "skip": 0, "wrong": ""} | how
    return written(
        folder / "A.t-0", [{"batches": [batch_spec] * 3, "name": 0, "tail": b""}] * segments
    )


# A log read in pieces, one per task, equals the log read whole: every field of the view, and
# its damage word for word.
#
# Damage in a log that is read in pieces is reported as in one that is read whole.


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
        patch.setattr(log_records, "WINDOW", window)
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
    run = planned([captured(sound_log(tmp_path, 5, what=what), 1, records=decoded)])
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
    paths = sound_log(tmp_path, 2)
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
    run = planned([captured(sound_log(tmp_path / str(n), 2), n) for n in range(1, 6)])
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
    paths = sound_log(tmp_path, 3)
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
    paths = sound_log(tmp_path, 3)
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
    paths = sound_log(tmp_path, 3)
    run = planned([captured(paths, 1)])
    paths[gone].unlink()
    pieces = [each for task in tasks(run) for each in task]
    found = assemble.view(run, TOPIC, 0, batch_rows(pieces)).replicas[0]
    assert found.damage == whole(run).replicas[0].damage
    assert any(f"{paths[gone].name} at byte 0: unreadable-file" in line for line in found.damage)


# Records of a user's program have no payload ids in the view, whatever headers it copied.


def test_neither_in_the_logs_nor_in_what_readers_got() -> None:
    seen: PartitionView = view_of(
        [Log("A").data(1, 2), Log("B").data(1)],
        reads=[poll((1, 0), (2, 1))],
        mirror_kind="shadow",
    )
    bare = _of_a_program(seen)
    assert [r.records.uid.tolist() for r in bare.replicas] == [[FOREIGN, FOREIGN], [FOREIGN]]
    assert [r.records.operation.tolist() for r in bare.replicas] == [[FOREIGN, FOREIGN], [FOREIGN]]
    assert [r.records.offset.tolist() for r in bare.replicas] == [
        r.records.offset.tolist() for r in seen.replicas
    ]
    assert all(set(read.uids.tolist()) <= {FOREIGN} for read in bare.reads)
    assert [read.offsets.tolist() for read in bare.reads] == [
        read.offsets.tolist() for read in seen.reads
    ]


# Which records are decoded for which checks: all that any check may need, and no more.


EVERY = list(REGISTRY.values())


def check(name: str, *inputs: str, from_bytes: bool = True) -> Check:
    return Check(
        name=name, guarantee="", source="", inputs=frozenset(inputs), # type: ignore[arg-type]
        anomalies=(), kernel=lambda _: [],
        from_bytes=from_bytes,
    )  # fmt: skip


def records(planned: RunPlan, checks: list[Check]) -> str:
    lean = job.with_needed_records(planned, checks)
    (found,) = {captured.records for captured in (*lean.replicas, *lean.earlier)}
    return found


@pytest.fixture
def copied(tmp_path: Path) -> RunPlan:
    for cluster in "AB":
        sound(tmp_path / cluster / "orders-0")
    judged(tmp_path / "run", asked({n: tmp_path / n for n in "AB"}, "A->B"))
    return plan(tmp_path / "run")


def test_a_recorded_run_is_decoded_whole(tmp_path: Path) -> None:
    assert records(plan(write_run(tmp_path / "run")), EVERY) == "every"


def test_only_copied_logs_with_linkflaps_records_are_decoded(copied: RunPlan) -> None:
    assert records(copied, EVERY) == "ours"
    assert records(copied, [REGISTRY["leader-epochs"], REGISTRY["byte-equality"]]) == "none"


@pytest.mark.parametrize(
    "asking", [check("new", "batches", "records"), check("says-nothing")], ids=lambda c: c.name
)
def test_an_unknown_check_gets_every_record(copied: RunPlan, asking: Check) -> None:
    assert records(copied, [*EVERY, asking]) == "every"


def test_a_check_that_is_not_made_of_logs_alone_asks_for_nothing(copied: RunPlan) -> None:
    assert records(copied, [check("history", "records", "sends", from_bytes=False)]) == "none"


@pytest.mark.parametrize("how", ["negate", "complement", "region"])
def test_mapped_producer_ids_ask_for_no_more_records(copied: RunPlan, how: str) -> None:
    mapped = replace(
        copied,
        facts=replace(
            copied.facts, mirror=declared(MirrorSpec(kind="exact", options={"producer_ids": how}))
        ),
    )
    assert records(mapped, EVERY) == "ours"


@pytest.mark.parametrize("moment", ["2-after-stop", "3-diverged"])
def test_the_kernels_of_logs_alone_find_the_same_without_them(tmp_path: Path, moment: str) -> None:
    root = tmp_path / "run"
    judged(root, asked({n: KIP_1279 / moment / n for n in "AB"}, "B->A"))
    whole = list(views(root))
    planned = plan(root)
    assert sum(len(r.records) for view in whole for r in view.replicas) > 0
    bare = list(views(root, job.with_needed_records(planned, EVERY)))
    assert sum(len(r.records) for view in bare for r in view.replicas) == 0
    assert sum(1 for _ in batch_rows(job.with_needed_records(planned, EVERY).replicas)) >= 1
    for one, other in zip(whole, bare, strict=True):
        for each in EVERY:
            if each.from_bytes:
                assert finding_rows.examine(each, one) == finding_rows.examine(each, other), (
                    each.name
                )
