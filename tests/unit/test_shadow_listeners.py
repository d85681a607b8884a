"""A shadow's listeners: what brokers and clients are answered, and what is sent on."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

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
from linkflap.harness.mirrors.shadow.destination.listeners import Listeners, ended_of, pass_on
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection, Unanswered
from linkflap.harness.wire.messages import Error, Malformed
from tests.shadows import config
from tests.unit.shadow_leading import (
    BATCHES,
    CLIENT_FETCHES,
    FETCHES,
    ID,
    NUMBER,
    REAL,
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


class Serving:
    """Real sockets, one listener for followers and one for clients."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    async def __aenter__(self) -> Serving:
        servers = [await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) for _ in range(2)]
        self.ports = {
            name: s.sockets[0].getsockname()[1]
            for name, s in zip(("INTERNAL", "CLIENT"), servers, strict=True)
        }
        for server in servers:
            server.close()
            await server.wait_closed()
        mirrored = self._leader._log
        mirrored.config = config(real=REAL, listeners=self.ports)
        self._listeners = Listeners(mirrored, self._leader)
        await self._listeners.start()
        self.problems: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.problems.append(context)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listeners.close()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})

    async def closes(self, listener: str, data: bytes) -> None:
        """The connection ends without an answer, and another one is served."""
        good = Connection(f"127.0.0.1:{self.ports['INTERNAL']}")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[listener])
        writer.write(data)
        if len(data) < 4 or struct.unpack_from(">i", data)[0] > len(data) - 4:
            writer.write_eof()
        # so it ends when it did not read all that it was sent
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        answer = await good.call("fetch", 17, fetch(17), within=5)
        assert answer.error_code == Error.none
        good.close()
        assert not self.problems


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


MALFORMED = {
    "nothing": framed(b""),
    "short": framed(b"\0\1"),
    "negative": struct.pack(">i", -5),
    "huge": struct.pack(">i", 0x7FFFFFFF) + b"x",
    "fetch-unknown-version": framed(struct.pack(">hhi", FETCH, 99, 1) + b"\xff" * 20),
    "fetch-garbage": framed(struct.pack(">hhi", FETCH, 17, 1) + b"\xff" * 40),
    "offsets-garbage": framed(struct.pack(">hhi", LIST_OFFSETS, 9, 1) + b"\x01" * 9),
    "cut": messages.encode_request("fetch", 17, 1, "c", fetch(17))[:40],
    "cut-inside": framed(messages.encode_request("fetch", 17, 1, "c", fetch(17))[4:50]),
}


@pytest.mark.parametrize("listener", ["INTERNAL", "CLIENT"])
@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_frame_ends_its_connection_alone(
    leader: Leader, listener: str, data: bytes
) -> None:
    async def play() -> None:
        async with Serving(leader) as serving:
            await serving.closes(listener, data)

    asyncio.run(play())


@pytest.mark.parametrize("version", CLIENT_FETCHES)
def test_clients_of_every_version_are_sent_to_a_follower(leader: Leader, version: int) -> None:
    asyncio.run(
        leader.answer(
            FETCH,
            17,
            1,
            messages.encode_request("fetch", 17, 1, "b", fetch(17, broker=2, offset=4, last=3))[4:],
        )
    )

    async def play() -> Any:
        async with Serving(leader) as serving:
            connection = Connection(f"127.0.0.1:{serving.ports['CLIENT']}")
            answer = await connection.call("fetch", version, fetch(version, broker=-1), within=5)
            connection.close()
            return answer

    (row,) = asyncio.run(play()).responses[0].partitions
    assert not row.records
    if version >= 11:
        assert (row.error_code, row.preferred_read_replica) == (Error.none, 2)
    else:
        assert row.error_code == Error.not_leader_or_follower


@pytest.mark.parametrize("version", range(3, 14))
def test_producers_of_every_version_are_refused(leader: Leader, version: int) -> None:
    m = messages.request("produce", version)
    named = {"topic_id": ID} if version >= 13 else {"name": TOPIC}
    data = m.TopicProduceData(
        partition_data=(m.PartitionProduceData(index=0, records=BATCHES),), **named
    )
    body = m.ProduceRequest(acks=-1, timeout=timedelta(seconds=1), topic_data=(data,))

    async def play() -> Any:
        async with Serving(leader) as serving:
            connection = Connection(f"127.0.0.1:{serving.ports['CLIENT']}")
            answer = await connection.call("produce", version, body, within=5)
            connection.close()
            return answer

    (row,) = asyncio.run(play()).responses[0].partition_responses
    assert row.error_code == Error.policy_violation


def test_a_server_that_answers_rubbish_is_one_that_did_not_answer() -> None:
    async def play() -> None:
        async def rubbish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(4)
            writer.write(framed(b"\xff" * 30))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(rubbish, "127.0.0.1", 0)
        connection = Connection(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(Unanswered, match="cannot be read"):
            await connection.call("fetch", 17, fetch(17), within=5)
        connection.close()
        server.close()

    asyncio.run(play())
