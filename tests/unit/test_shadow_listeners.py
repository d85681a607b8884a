"""What listeners of a shadow answer on real sockets, clients of every version among them; and what
ends a connection, and only that one."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from linkflap.harness.mirrors.shadow.destination.leader import FETCH, LIST_OFFSETS, Leader
from linkflap.harness.mirrors.shadow.destination.listeners import Listeners
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection, Unanswered
from linkflap.harness.wire.messages import Error
from tests.shadows import config
from tests.unit.shadow_leading import BATCHES, CLIENT_FETCHES, ID, REAL, TOPIC, fetch, leading


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return leading(tmp_path)


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
