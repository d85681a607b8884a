"""Batches of the shadow mirror, compared with the decoder that judges a run: stamped, mapped,
split, and created."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from linkflap.harness.log import reference
from linkflap.harness.log.reference import control_type
from linkflap.harness.log.walk import walk
from linkflap.harness.mirrors.shadow import producer_ids
from linkflap.harness.mirrors.shadow.batches import (
    Stamped,
    abort_marker,
    end_of,
    reset_marker,
    stamp,
    within,
)
from linkflap.harness.mirrors.shadow.settings import ProducerIds, ShadowOptions
from tests import kafka_log
from tests.kafka_log import batch, record

NEVER = 1 << 62


def three() -> list[bytes]:
    """Offsets 10-11, 12 (another source epoch), 15 after a gap."""
    return [
        batch(10, [record(b"a"), record(b"b")], pid=7, epoch=0, seq=0, leader_epoch=3),
        batch(12, [record(b"c")], leader_epoch=4),
        batch(15, [record(b"d")], pid=9, epoch=1, seq=5, leader_epoch=4, codec="lz4"),
    ]


def stamped(
    raw: bytes,
    position: int = 10,
    *,
    below: int = NEVER,
    ids: Callable[[int], int] | None = None,
    epoch: int = 20,
) -> Stamped:
    return stamp(
        memoryview(bytearray(raw)),
        position=position,
        below=below,
        source_epoch=3,
        epoch_at=lambda _base, _epoch: epoch,
        ids=ids,
    )


def decoded(data: bytes | memoryview) -> list[reference.ReferenceBatch]:
    return list(reference.batches(bytes(data)))


def test_only_the_leader_epoch_changes() -> None:
    raw = b"".join(three())
    made = stamped(raw)
    assert (made.base, made.end, made.top_producer) == (10, 16, 9)
    assert made.epochs == [(4, 12)]
    before, after = decoded(raw), decoded(made.data)
    assert all(b.crc_ok for b in after)
    assert [dataclasses.replace(b, leader_epoch=20) for b in before] == after


def test_what_was_before_the_position_and_a_partial_batch_are_left_out() -> None:
    raw = b"".join(three())
    made = stamped(raw[:-3], position=12)
    assert [(b.base_offset, b.last_offset) for b in decoded(made.data)] == [(12, 12)]
    assert (made.base, made.end) == (12, 13)
    assert len(stamped(raw[:20]).data) == 0


def test_batches_end_below_the_bound() -> None:
    made = stamped(b"".join(three()), below=15)
    assert made.end == 13
    assert [b.base_offset for b in decoded(made.data)] == [10, 12]


@pytest.mark.parametrize("name", ["negate", "complement", "region"])
def test_mapped_producer_ids_get_a_right_crc_and_keep_everything_else(name: ProducerIds) -> None:
    ids = producer_ids.mapping(ShadowOptions(producer_ids=name), "source")
    assert ids is not None
    raw = b"".join(three())
    before, after = decoded(raw), decoded(stamped(raw, ids=ids).data)
    assert all(b.crc_ok for b in after)
    assert [b.producer_id for b in after] == [ids(7), -1, ids(9)]
    same = (
        "base_offset",
        "length",
        "attributes",
        "producer_epoch",
        "base_sequence",
        "count",
        "body",
    )
    assert [[getattr(b, f) for f in same] for b in before] == [
        [getattr(b, f) for f in same] for b in after
    ]


@pytest.mark.parametrize("name", ["negate", "complement"])
def test_a_second_hop_gives_the_first_ids_back(name: ProducerIds) -> None:
    ids = producer_ids.mapping(ShadowOptions(producer_ids=name), "source")
    assert ids is not None
    assert [ids(ids(n)) for n in (0, 1, 5, 1 << 40)] == [0, 1, 5, 1 << 40]


def test_negated_and_region_ids_are_negative_and_never_none() -> None:
    region = producer_ids.region("source")
    for n in (0, 1, 4711, (1 << 31) - 1):
        assert producer_ids.negate(n) < -1
        assert -(1 << 63) <= region(n) < -1
        assert producer_ids.complement(n) > 1 << 62
    assert region(1 << 31) == region(0), "ids above 2^31 fold"
    assert producer_ids.region("other")(0) != region(0)


@pytest.mark.parametrize("name", ["keep", "jump", "reset"])
def test_other_strategies_leave_ids_alone(name: ProducerIds) -> None:
    assert producer_ids.mapping(ShadowOptions(producer_ids=name), "source") is None


def test_an_abort_marker_is_a_coordinators() -> None:
    (made,) = decoded(
        abort_marker(42, epoch=5, producer_id=7, producer_epoch=2, coordinator_epoch=9)
    )
    (known,) = decoded(kafka_log.marker(42, 0, pid=7, epoch=2, leader_epoch=5))
    assert made.crc_ok
    same = (
        "base_offset",
        "length",
        "leader_epoch",
        "attributes",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "count",
    )
    assert [getattr(made, f) for f in same] == [getattr(known, f) for f in same]
    (ours,), (theirs,) = reference.records(made), reference.records(known)
    assert (ours.key, ours.value) == (theirs.key, b"\0\0\0\0\0\x09")


def test_a_reset_is_the_record_of_kip_1279() -> None:
    raw = reset_marker(3, epoch=5, source_cluster="MkU3OEVBNTcwNTJENDM2Qk")
    (made,) = decoded(raw)
    assert made.crc_ok
    assert len(raw) == 98  # as on the public branch, with a cluster id of 22 characters
    assert (made.producer_id, made.producer_epoch, made.base_sequence, made.transactional) == (
        -1,
        -1,
        -1,
        False,
    )
    assert (
        control_type(0, made.body)[0]
        == control_type(0, decoded(kafka_log.mirror_pid_reset(3))[0].body)[0]
    )


def test_as_many_batches_as_fit_and_one_in_any_case() -> None:
    parts = three()
    whole = memoryview(b"".join(parts))
    two = len(parts[0]) + len(parts[1])
    assert bytes(within(whole, two, at_least_one=False)) == b"".join(parts[:2])
    assert bytes(within(whole, two + 1, at_least_one=False)) == b"".join(parts[:2])
    assert bytes(within(whole, 1, at_least_one=True)) == parts[0]
    assert bytes(within(whole, 1, at_least_one=False)) == b""
    assert bytes(within(whole, 1 << 20, at_least_one=True)) == bytes(whole)


def test_stamped_batches_are_read_from_the_middle_and_truncated() -> None:
    made = stamped(b"".join(three()))
    assert [b.base for b in walk(made.from_offset(11))] == [10, 12, 15]
    assert [b.base for b in walk(made.from_offset(13))] == [15]
    assert len(made.from_offset(16)) == 0
    below = made.below(15)
    assert (below.end, end_of(below.data)) == (13, 13)
    assert end_of(b"") == -1
