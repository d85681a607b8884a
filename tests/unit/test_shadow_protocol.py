"""A shadow's responses to its followers, decoded as brokers of each release decode them.

Brokers ask in the version of their metadata.version (`/fetchRequestVersion`,
`listOffsetRequestVersion` of MetadataVersion):
3.9 fetch 17 and list offsets 9, 4.1 fetch 18 and list offsets 10, 4.3 fetch 18 and list offsets 11.
"""

from __future__ import annotations

import asyncio
import struct
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from linkflap.harness.mirrors.shadow.destination.leader import (
    EPOCH_ENDS,
    FETCH,
    LIST_OFFSETS,
    Leader,
)
from linkflap.harness.wire import messages
from linkflap.harness.wire.messages import Error, Malformed
from tests.unit.shadow_leading import (
    BATCHES,
    FETCHES,
    NUMBER,
    TOPIC,
    ask,
    fetch,
    leading,
)


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return leading(tmp_path)


@pytest.mark.parametrize("version", FETCHES)
def test_followers_of_every_release_are_given_batches_and_the_high_watermark(
    leader: Leader, version: int
) -> None:
    answer = ask(leader, FETCH, "fetch", version, fetch(version))
    assert (answer.error_code, answer.session_id) == (Error.none, 0)
    (row,) = answer.responses[0].partitions
    assert (row.error_code, row.high_watermark, row.diverging_epoch.end_offset) == (
        Error.none,
        0,
        -1,
    )
    assert [
        struct.unpack_from(">q4xi", row.records, at)
        for at in range(0, len(row.records), len(BATCHES) // 4)
    ] == [
        (0, 1),
        (1, 1),
        (2, 3),
        (3, 3),
    ]
    (row,) = (
        ask(leader, FETCH, "fetch", version, fetch(version, offset=4, last=3))
        .responses[0]
        .partitions
    )
    assert (bytes(row.records), row.high_watermark) == (b"", 4)


@pytest.mark.parametrize("version", FETCHES)
@pytest.mark.parametrize(
    ("asked", "error", "divergence"),
    [
        ({"offset": 4, "last": 1}, Error.none, (1, 2)),
        ({"offset": 9, "last": 5}, Error.none, (3, 4)),
        ({"offset": 9, "last": 3}, Error.none, (3, 4)),
        ({"offset": 9, "last": -1}, Error.offset_out_of_range, (-1, -1)),
        ({"epoch": 2}, Error.not_leader_or_follower, (-1, -1)),
    ],
)
def test_followers_learn_where_they_diverge(
    leader: Leader,
    version: int,
    asked: dict[str, int],
    error: ErrorCode,
    divergence: tuple[int, int],
) -> None:
    (row,) = ask(leader, FETCH, "fetch", version, fetch(version, **asked)).responses[0].partitions
    assert row.error_code == error
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == divergence
    assert not row.records


@pytest.mark.parametrize("version", FETCHES)
def test_only_brokers_of_the_destination_count_as_followers(leader: Leader, version: int) -> None:
    (row,) = ask(leader, FETCH, "fetch", version, fetch(version, broker=-1)).responses[0].partitions
    assert row.error_code == Error.not_leader_or_follower
    partition = leader.find(fetch(version).topics[0], version, NUMBER)
    assert partition is not None
    assert not partition.followers


@pytest.mark.parametrize("version", [9, 10, 11])
@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 4), (-2, 0)])
def test_ends_are_reported(leader: Leader, version: int, timestamp: int, offset: int) -> None:
    m = messages.request("list_offsets", version)
    row = m.ListOffsetsPartition(
        partition_index=NUMBER, current_leader_epoch=3, timestamp=timestamp
    )
    fields = {"timeout": timedelta(seconds=1)} if version >= 10 else {}
    body = m.ListOffsetsRequest(
        replica_id=1,
        isolation_level=0,
        topics=(m.ListOffsetsTopic(name=TOPIC, partitions=(row,)),),
        **fields,
    )
    (answer,) = ask(leader, LIST_OFFSETS, "list_offsets", version, body).topics[0].partitions
    assert (answer.error_code, answer.offset, answer.leader_epoch) == (Error.none, offset, 3)


@pytest.mark.parametrize(("epoch", "known", "end"), [(1, 1, 2), (2, 1, 2), (3, 3, 4), (9, -1, -1)])
def test_epoch_ends_are_reported(leader: Leader, epoch: int, known: int, end: int) -> None:
    m = messages.request("offset_for_leader_epoch", 4)
    row = m.OffsetForLeaderPartition(partition=NUMBER, current_leader_epoch=3, leader_epoch=epoch)
    topic = m.OffsetForLeaderTopic(topic=TOPIC, partitions=(row,))
    body = m.OffsetForLeaderEpochRequest(replica_id=1, topics=(topic,))
    (answer,) = ask(leader, EPOCH_ENDS, "offset_for_leader_epoch", 4, body).topics[0].partitions
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (Error.none, known, end)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    noise=st.lists(st.tuples(st.integers(8, 90), st.integers(0, 255)), min_size=1, max_size=6),
    version=st.sampled_from(FETCHES),
)
def test_a_damaged_fetch_is_answered_or_malformed_and_nothing_else(
    leader: Leader, noise: list[tuple[int, int]], version: int
) -> None:
    frame = bytearray(messages.encode_request("fetch", version, 11, "broker", fetch(version))[4:])
    for at, value in noise:
        frame[at % (len(frame) - 8) + 8] = value
    try:
        request = messages.decode_request("fetch", version, bytes(frame))
    except Malformed:
        return
    leader._log.ring()  # its bell is of the loop before
    short = request.max_wait.total_seconds() <= 0.1
    if short:
        assert asyncio.run(leader.answer(FETCH, version, 11, bytes(frame))) is not None
