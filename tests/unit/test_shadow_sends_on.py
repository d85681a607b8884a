"""Responses to a consumer that fetches from the shadow: redirected to a follower, or refused as a
leader would refuse it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.harness.mirrors.shadow.destination.listeners import ended_of, pass_on
from linkflap.harness.wire import messages
from linkflap.harness.wire.messages import Error


def answer(
    offset: int, *, start: int, high_watermark: int, follower: int = 1, version: int = 12
) -> Any:
    asked = SimpleNamespace(partition=0, fetch_offset=offset)
    partition = cast(Any, SimpleNamespace(start=start, high_watermark=high_watermark))
    return pass_on(messages.response("fetch", version), version, asked, partition, follower)


@pytest.mark.parametrize("offset", [10, 11, 99, 100])
def test_a_consumer_is_sent_on_to_a_follower(offset: int) -> None:
    row = answer(offset, start=10, high_watermark=100)
    assert (row.error_code, row.preferred_read_replica) == (Error.none, 1)


def test_a_fetch_of_deleted_records_is_refused_and_not_redirected() -> None:
    assert answer(9, start=10, high_watermark=100).error_code == Error.offset_out_of_range


def test_while_followers_are_behind_the_new_log_start_they_are_asked() -> None:
    assert answer(50, start=100, high_watermark=50).error_code == Error.none
    assert answer(49, start=100, high_watermark=50).error_code == Error.offset_out_of_range


def test_without_a_follower_or_with_an_old_client_the_leader_is_elsewhere() -> None:
    assert (
        answer(20, start=10, high_watermark=100, follower=-1).error_code
        == Error.not_leader_or_follower
    )
    assert (
        answer(20, start=10, high_watermark=100, version=10).error_code
        == Error.not_leader_or_follower
    )


def end_of(end: int | None, *, log_end: int, taking: bool = False) -> tuple[int, int]:
    """The offset and the leader epoch in the response to a client, of a shadow that leads in epoch
    6."""
    partition = cast(Any, SimpleNamespace(end=log_end, taking=taking, leader_epoch=6))
    asked = SimpleNamespace(partition_index=0)
    row = ended_of(messages.response("list_offsets", 7), 7, asked, partition, end)
    return int(row.offset), int(row.leader_epoch)


def test_the_end_that_a_follower_has_is_said_in_the_epoch_of_the_shadow() -> None:
    assert end_of(582, log_end=582) == end_of(582, log_end=600) == (582, 6)
    assert end_of(230, log_end=227, taking=True) == (230, 6)


def test_who_was_handed_the_partition_is_no_follower_and_its_end_is_not_said() -> None:
    assert end_of(583, log_end=582) == (-1, -1)
    assert end_of(None, log_end=582) == (-1, -1)
