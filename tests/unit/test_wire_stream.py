"""Frames over a socket: whole, in order, of any size, in pieces; and which errors end a wait for
one."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

import pytest

from linkflap.harness.wire.bulk import Pieces
from linkflap.harness.wire.messages import LENGTH, Malformed
from linkflap.harness.wire.stream import Stream

LARGE = 9 << 20
"""More than both sockets' buffers hold."""


def played(act: Callable[[Stream, Stream], Awaitable[None]]) -> None:
    """Runs both ends of a connection; everything must end within a minute."""

    async def play() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            accepting = asyncio.create_task(asyncio.get_running_loop().sock_accept(listening))
            one = await Stream.to(*listening.getsockname())
            other = Stream((await accepting)[0])
        try:
            async with asyncio.timeout(60):
                await act(one, other)
        finally:
            one.close()
            other.close()

    asyncio.run(play())


def framed(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def test_frames_arrive_whole_and_in_order() -> None:
    frames = [b"", b"x", os.urandom(5000), os.urandom(LARGE), b"y", os.urandom(700_000)]

    async def act(one: Stream, other: Stream) -> None:
        async def send() -> None:
            for frame in frames:
                await one.write(framed(frame))

        sending = asyncio.create_task(send())
        assert [bytes(await other.read()) for _ in frames] == frames
        await sending

    played(act)


def test_pieces_go_out_in_their_order_both_ways_at_once() -> None:
    data = os.urandom(LARGE)
    parts = [memoryview(data)[at : at + 9000] for at in range(0, LARGE, 9000)]

    async def act(one: Stream, other: Stream) -> None:
        async def exchange(stream: Stream) -> memoryview:
            sending = asyncio.create_task(stream.write(Pieces((LENGTH.pack(LARGE), *parts))))
            got = await stream.read()
            await sending
            return got

        got = await asyncio.gather(exchange(one), exchange(other))
        assert [bytes(each) == data for each in got] == [True, True]

    played(act)


def test_a_frame_is_memory_of_its_own() -> None:
    async def act(one: Stream, other: Stream) -> None:
        await one.write(framed(b"first") + framed(b"other"))
        first, second = await other.read(), await other.read()
        second[:] = b"xxxxx"
        assert bytes(first) == b"first"

    played(act)


@pytest.mark.parametrize(
    "sent", [b"", b"\0\0", LENGTH.pack(100), LENGTH.pack(4 << 20) + bytes(3 << 20)]
)
def test_a_peer_that_ends_inside_a_frame_is_the_end(sent: bytes) -> None:
    async def act(one: Stream, other: Stream) -> None:
        reading = asyncio.create_task(other.read())
        await one.write(sent)
        one.close()
        with pytest.raises(EOFError):
            await reading

    played(act)


@pytest.mark.parametrize("length", [-1, 0x7FFFFFFF])
def test_a_length_that_no_frame_has_is_malformed(length: int) -> None:
    async def act(one: Stream, other: Stream) -> None:
        await one.write(LENGTH.pack(length))
        with pytest.raises(Malformed):
            await other.read()

    played(act)


def test_closing_ends_those_who_wait_on_this_side() -> None:
    async def act(one: Stream, other: Stream) -> None:
        reading = asyncio.create_task(one.read())
        writing = asyncio.create_task(one.write(bytes(64 << 20)))  # nobody reads it
        await asyncio.wait([reading, writing], timeout=0.01)
        one.close()
        for waiting in (reading, writing):
            with pytest.raises(ConnectionAbortedError):
                await waiting
        one.close()

    played(act)


def test_a_stream_can_be_closed_after_a_wait_was_cancelled() -> None:
    async def act(one: Stream, other: Stream) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await one.read()
        one.close()
        with pytest.raises(EOFError):
            await other.read()

    played(act)


def test_a_port_without_a_listener_is_an_os_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(Stream.to("127.0.0.1", port))
