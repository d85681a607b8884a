"""From a run directory to partition views without Spark: what is planned and read, compared with
the reference decoder.

Captures of a cluster, earlier ones and the last: which of them represents it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from linkflap.harness.log import reference
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.history import GroupOffset
from linkflap.spark_verify.facts.lineages import eras
from linkflap.spark_verify.read import log_rows, pieces
from linkflap.spark_verify.read.captures import is_data
from linkflap.spark_verify.read.damage import damage_of
from linkflap.spark_verify.read.plan import plan
from tests import hand_written, rounds, synthetic
from tests.kafka_log import batch, batches_in, ours, rewrite
from tests.run_views import views
from tests.synthetic import (
    DIED,
    ENDED,
    HEALED,
    PROMOTED,
    TOPIC,
    TOPOLOGY,
    Shape,
    append_events,
    write_run,
)
from tests.unit.captured_bounds import bounds_of, write_bounds


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


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
        path = root / "captures" / ENDED / "B" / "1" / f"{TOPIC}-{partition}" / f"{0:020}.log"
        rewrite(path, [one for _, one in batches_in(path)][:-1])
    assert speaker() == {2}, "the longer log"
    for partition in range(2):
        path = root / "captures" / ENDED / "B" / "1" / f"{TOPIC}-{partition}" / f"{0:020}.log"
        rewrite(
            path, [*[one for _, one in batches_in(path)][:-1], batch(38, [ours(5)], leader_epoch=2)]
        )
    assert speaker() == {1}, "the higher leader epoch, though shorter"


def test_promotions_and_windows_come_from_events(root: Path) -> None:
    planned = plan(root)
    (promotion,) = planned.promotions[TOPIC, 1]
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
    assert reasons == [f"no log of {TOPIC}-{p} on {c} was captured" for p in (0, 1) for c in "AB"]


def test_group_offsets_are_rows_too(root: Path) -> None:
    (root / "groups").mkdir()
    row = GroupOffset(time=7, cluster="B", group="g", topic=TOPIC, partition=1, offset=4)
    (root / "groups" / "B.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    assert [list(v.groups) for v in views(root)] == [[], [row]]


def test_a_mirrors_own_topics_are_no_data() -> None:
    assert is_data(TOPOLOGY, "A.orders")
    assert not is_data(TOPOLOGY, "A.checkpoints.internal")
    assert not is_data(TOPOLOGY, "__consumer_offsets")
    assert not is_data(TOPOLOGY, "heartbeats")


def test_views_equal_the_reference_decoder(root: Path) -> None:
    found = list(views(root))
    assert [(v.topic, v.partition) for v in found] == [(TOPIC, 0), (TOPIC, 1)]
    for view in found:
        assert [(r.cluster, r.broker, r.canonical) for r in view.replicas] == [
            ("A", 1, True),
            ("B", 1, True),
            ("B", 2, False),
        ]
        path = root / "captures" / ENDED / "B" / "1" / f"{TOPIC}-{view.partition}" / f"{0:020}.log"
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
    path = root / "operations" / "p1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    last = list(views(root))[1].sends[-1]
    assert (last.outcome, last.returned, last.ended_at) == ("info", -1, 0)
    assert last.offsets.tolist() == [-1, -1, -1]


def test_torn_bytes_and_lines_are_reported(root: Path) -> None:
    path = root / "captures" / ENDED / "B" / "1" / f"{TOPIC}-0" / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:-5])
    view = next(iter(views(root)))
    assert "torn-tail" in view.canonical()["B"].damage[0]
    assert not view.canonical()["A"].damage
    with (root / "polls" / "r1.jsonl").open("ab") as file:
        file.write(b'{"time": 1')
    (damaged,) = [b for b in pieces.history_rows(root, "polls") if b["damage"].null_count == 0]
    assert damaged["damage"][0].as_py()["reason"].endswith("is torn")
    assert damaged["topic"].to_pylist() == [""]


def test_a_batch_unfinished_at_its_capture_is_no_damage_and_one_torn_since_is(
    root: Path,
) -> None:
    path = root / "captures" / ENDED / "B" / "1" / f"{TOPIC}-0" / f"{0:020}.log"
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
    path = root / "operations" / "p1.jsonl"
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
    path = root / "operations" / "p1.jsonl"
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
    path = root / "captures" / ENDED / "B" / "2" / f"{TOPIC}-0" / f"{0:020}.log"
    path.unlink()
    (found,) = [r for r in plan(root).replicas if r.damage]
    assert (found.bounds.broker, found.damage[0].split(":")[0]) == (2, str(path.relative_to(root)))
    assert any(str(path.relative_to(root)) in d.reason for d in damage_of(next(iter(views(root)))))


def test_a_cluster_that_was_truncated_has_its_earlier_captures_too(tmp_path: Path) -> None:
    root = rounds.round_trip().write(tmp_path / "rounds")
    (view,) = views(root)
    assert [(r.moment, r.cluster) for r in view.replicas] == [(ENDED, "A"), (ENDED, "B")]
    assert [(r.moment, r.captured, len(r.records)) for r in view.earlier] == [
        ("1-away", 15 * hand_written.SECOND, 12),
        ("1-reverse", 22 * hand_written.SECOND, 12),
    ]
    (truncation,) = view.truncations
    assert (truncation.link, truncation.cluster, truncation.offset, truncation.end) == (
        "B->A",
        "A",
        rounds.PARTED,
        16,
    )
    away, home = view.stops
    assert (away.mirrored, away.promoted, away.appended) == (
        11,
        12,
        ((11, "ABORT of producer 1, epoch 0"),),
    )
    assert (home.cluster, home.appended) == ("A", ())


def test_captures_are_in_the_order_of_their_events_not_of_their_names(tmp_path: Path) -> None:
    made = rounds.round_trip()
    names = {"1-away": "3-away", "2-end": "0-end"}
    made.logs = {
        (names.get(moment, moment), cluster): log for (moment, cluster), log in made.logs.items()
    }
    made.events = [
        (
            replace(e, data={k: names.get(str(v), v) for k, v in e.data.items()})
            if e.kind == "captured"
            else e
        )
        for e in made.events
    ]
    (view,) = views(made.write(tmp_path / "rounds"))
    assert [r.moment for r in view.earlier] == ["3-away", "1-reverse"]
    assert {r.moment for r in view.replicas} == {"0-end"}


def test_earlier_captures_of_a_cluster_that_never_followed_are_left_out(root: Path) -> None:
    write_bounds(root, "0-earlier", bounds_of(root, DIED))
    assert plan(root).earlier == []


def test_a_truncation_that_cannot_be_read_is_damage(root: Path) -> None:
    append_events(root, [synthetic._event(1, "truncation", "B->A", cluster="A")])
    assert any("truncation of B->A" in d.reason for d in plan(root).damage)


def test_a_reversal_that_never_came_to_the_point_truncated_nothing(tmp_path: Path) -> None:
    made = rounds.round_trip()
    made.events = [e for e in made.events if e.subject != "B->A"]
    (view,) = views(made.write(tmp_path / "rounds"))
    assert [w.took_effect for w in view.windows if w.fault == "mirror-reverse"] == [False]
    assert [e.origin for e in eras(view.partition_facts, "A")] == ["native"]
