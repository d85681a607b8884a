"""Acks, values and fetched runs: the rows of many records are exact in whatever order delivery
reports arrive."""

from __future__ import annotations

import random
from collections import Counter
from typing import cast

from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from linkflap.harness.model.payload import FOREIGN, HEADER, encode, uid_in
from linkflap.harness.model.values import KEYS, Values
from linkflap.harness.workloads.incarnation import REFUSALS, Acks
from linkflap.harness.workloads.readers import fetched


def message(offset: int, *, uid: int | None = None, partition: int = 0) -> Message:
    headers: list[tuple[str, str | bytes | None]] = (
        [] if uid is None else [(HEADER, encode(uid, 1, 0))]
    )
    return Message(topic="A.t", partition=partition, offset=offset, headers=headers)


def group(count: int, handed: int | None = None) -> Acks:
    acks = Acks("A.t", 0, 1000, count)
    acks.handed = count if handed is None else handed
    return acks


def test_consecutive_acknowledgements_are_one_run() -> None:
    acks = group(5)
    for index in range(5):
        acks.delivered(index, None, message(70 + index))
    assert acks.complete
    assert acks.outcome().acks == ((0, 5, 70),)
    assert acks.outcome().refused == ()


def test_a_gap_in_offsets_or_in_records_begins_a_run() -> None:
    acks = group(6)
    for index, offset in ((0, 10), (1, 11), (2, 20), (4, 22), (5, 23)):
        acks.delivered(index, None, message(offset))
    acks.delivered(3, KafkaError(KafkaError._PURGE_INFLIGHT), message(-1001))
    assert acks.outcome().acks == ((0, 2, 10), (2, 1, 20), (4, 2, 22))
    assert acks.outcome().refused == ()
    assert (acks.acked, acks.failed, acks.complete, acks.error) == (5, 1, False, "_PURGE_INFLIGHT")


def test_only_deterministic_refusals_are_certain() -> None:
    uncertain = (
        KafkaError._MSG_TIMED_OUT,
        KafkaError._PURGE_QUEUE,
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError._UNKNOWN_PARTITION,
    )
    assert not REFUSALS & {*uncertain}
    acks = group(len(uncertain) + 1)
    for index, code in enumerate(uncertain):
        acks.delivered(index, KafkaError(code), message(-1001))
    acks.delivered(len(uncertain), KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), message(-1001))
    assert acks.outcome().refused == ((len(uncertain), 1),)
    assert not acks.all_refused


def test_records_never_handed_over_are_refused() -> None:
    acks = group(5, handed=2)
    acks.delivered(0, None, message(3))
    acks.delivered(1, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), message(-1001))
    assert acks.outcome().refused == ((1, 4),)
    assert group(3, handed=0).all_refused


def test_persisted_without_an_offset_is_unknown() -> None:
    acks = group(1)
    acks.delivered(0, None, message(-1001))
    assert (acks.outcome().acks, acks.outcome().refused, acks.failed) == ((), (), 0)
    assert not acks.complete


@given(st.lists(st.integers(min_value=0, max_value=2), min_size=1, max_size=60), st.integers())
def test_any_order_of_reports_gives_the_same_group(fates: list[int], seed: int) -> None:
    """fate 0: acknowledged at the next offset, 1: certainly refused, 2: unknown."""
    offsets, at = {}, 100
    for index, fate in enumerate(fates):
        if fate == 0:
            offsets[index] = at
            at += 1
    order = list(range(len(fates)))
    random.Random(seed).shuffle(order)
    acks = group(len(fates))
    for index in order:
        code = {1: KafkaError.MSG_SIZE_TOO_LARGE, 2: KafkaError._MSG_TIMED_OUT}.get(fates[index])
        acks.delivered(
            index,
            KafkaError(code) if code is not None else None,
            message(offsets.get(index, -1001)),
        )
    outcome = acks.outcome()
    assert {i + n: o + n for i, k, o in outcome.acks for n in range(k)} == offsets
    assert [i + n for i, k in outcome.refused for n in range(k)] == [
        i for i, fate in enumerate(fates) if fate == 1
    ]


def test_values_are_a_function_of_seed_and_uid() -> None:
    one, same, other = Values(1, 300), Values(1, 300), Values(2, 300)
    uids = [(7 << 40) + n for n in range(500)]
    assert [one.value(u) for u in uids] == [same.value(u) for u in uids]
    assert all(len(one.value(u) or b"") == 300 for u in uids)
    assert len({one.value(u) for u in uids}) == len(uids)
    assert one.value(uids[0]) != other.value(uids[0])
    assert len({one.key(u) for u in uids}) == KEYS


def test_a_share_of_records_are_tombstones_whatever_their_values_would_be() -> None:
    plain, deleting = Values(1, 300), Values(1, 300, tombstones=0.25)
    uids = [(7 << 40) + n for n in range(2000)]
    gone = [u for u in uids if deleting.value(u) is None]
    assert 400 < len(gone) < 600
    assert all(deleting.value(u) == plain.value(u) for u in set(uids) - set(gone))
    assert all(plain.value(u) is not None for u in gone)


def test_skewed_keys_are_written_often_or_once() -> None:
    written = Counter(Values(1, 10, keys=2000, skew=4.0).key((7 << 40) + n) for n in range(5000))
    assert max(written.values()) > 100
    assert sum(count == 1 for count in written.values()) > 300
    assert len({Values(1, 10, keys=3).key(uid) for uid in range(10)}) == 3


def test_a_large_value_has_its_size_and_is_of_its_uid() -> None:
    one = Values(1, 1_200_000)
    assert {len(one.value(u) or b"") for u in range(20)} == {1_200_000}
    assert len({one.value(u) for u in range(20)}) == 20


def test_polls_become_runs_of_uid_and_offset() -> None:
    messages = [
        message(5, uid=100),
        message(6, uid=101),
        message(0, uid=7, partition=1),
        message(8, uid=102),  # a control record took offset 7
        message(9, uid=200),
        message(10),
        message(11),
    ]
    assert fetched(messages) == {
        ("A.t", 0): ((100, 5, 2), (102, 8, 1), (200, 9, 1), (FOREIGN, 10, 1), (FOREIGN, 11, 1)),
        ("A.t", 1): ((7, 0, 1),),
    }
    assert uid_in(cast(list[tuple[str, bytes | None]], messages[0].headers())) == 100
