"""Kafka's protocol: records that are not copied, frames that come in pieces, and probes of peers
that are not a broker."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import os
import socket
import ssl
import struct
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from linkflap.harness.runtimes import probe
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Access, Address, NoAnswer, host_and_port
from linkflap.harness.wire.messages import LENGTH, VIEWED_FROM, Error, Malformed, Pieces
from linkflap.harness.wire.peer import BlockingConnection
from linkflap.harness.wire.requests import coordinating_partition
from linkflap.harness.wire.stream import Stream
from tests.waiting import eventually

VERSIONS = range(VIEWED_FROM, 19)
LONG = st.integers(-1, (1 << 63) - 1)
UNHURRIED = settings(max_examples=60)
RECORDS = st.none() | st.binary(max_size=300)


@st.composite
def answers(draw: st.DrawFn) -> tuple[int, Any]:
    """(version, a fetch response)"""
    version = draw(st.sampled_from(VERSIONS))
    m = messages.response("fetch", version)
    aborted = st.builds(m.AbortedTransaction, producer_id=LONG, first_offset=LONG)
    row = st.builds(
        m.PartitionData,
        partition_index=st.integers(0, 300),
        error_code=st.sampled_from([Error.none, Error.offset_out_of_range]),
        high_watermark=LONG,
        last_stable_offset=LONG,
        log_start_offset=LONG,
        diverging_epoch=st.builds(m.EpochEndOffset, epoch=st.integers(-1, 9), end_offset=LONG),
        current_leader=st.builds(
            m.LeaderIdAndEpoch, leader_id=st.integers(-1, 9), leader_epoch=st.integers(-1, 9)
        ),
        aborted_transactions=st.none() | st.lists(aborted, max_size=3).map(tuple),
        preferred_read_replica=st.integers(-1, 9),
        records=RECORDS,
    )
    topic = st.builds(
        m.FetchableTopicResponse,
        topic_id=st.uuids(version=4) | st.just(uuid.UUID(int=7)),
        partitions=st.lists(row, max_size=4).map(tuple),
    )
    return version, m.FetchResponse(
        throttle_time=timedelta(milliseconds=draw(st.integers(0, 9))),
        error_code=Error.none,
        session_id=draw(st.integers(0, 9)),
        responses=tuple(draw(st.lists(topic, max_size=3))),
    )


def with_records(answer: Any, made: Callable[[Any], object]) -> Any:
    """The response with its records replaced by the function's result."""
    topics = [
        dataclasses.replace(
            topic,
            partitions=tuple(
                dataclasses.replace(p, records=made(p.records)) for p in topic.partitions
            ),
        )
        for topic in answer.responses
    ]
    return dataclasses.replace(answer, responses=tuple(topics))


def by_kio(answer: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(answer))(out, answer)
    return out.getvalue()


@UNHURRIED
@given(answers())
def test_a_response_is_read_as_kio_reads_it_and_its_records_are_views_of_the_frame(
    drawn: tuple[int, Any],
) -> None:
    version, answer = drawn
    frame = bytearray(b"\0\0\0\x0b\0" + by_kio(answer))
    read = messages.decode_response("fetch", version, frame)
    assert (
        with_records(read, lambda r: r if r is None else bytes(r))
        == entity_reader(type(answer))(bytes(frame), 5)[0]
    )
    views = [p.records for topic in read.responses for p in topic.partitions if p.records]
    assert all(view.obj is frame and not view.readonly for view in views)


@UNHURRIED
@given(answers())
def test_a_response_of_pieces_is_what_kio_writes(drawn: tuple[int, Any]) -> None:
    version, answer = drawn
    in_pieces = with_records(
        answer, lambda r: r if r is None else Pieces((r[:5], memoryview(r)[5:], b""))
    )
    made = messages.encode_response("fetch", version, 11, in_pieces)
    expected = b"\0\0\0\x0b\0" + by_kio(answer)
    assert bytes(made) == messages.LENGTH.pack(len(expected)) + expected
    assert len(made) == len(expected) + 4


def test_records_are_sent_from_where_they_are() -> None:
    m = messages.response("fetch", 17)
    data = memoryview(bytearray(100))
    row = m.PartitionData(
        partition_index=0,
        error_code=Error.none,
        high_watermark=0,
        aborted_transactions=None,
        records=Pieces((data[:60], data[60:])),
    )
    topic = m.FetchableTopicResponse(topic_id=uuid.UUID(int=7), partitions=(row,))
    answer = m.FetchResponse(
        throttle_time=timedelta(), error_code=Error.none, session_id=0, responses=(topic,)
    )
    made = messages.encode_response("fetch", 17, 1, answer)
    assert [part.obj is data.obj for part in made.parts if isinstance(part, memoryview)] == [
        True,
        True,
    ]


@UNHURRIED
@given(answers(), st.data())
def test_a_damaged_response_is_read_or_malformed_and_nothing_else(
    drawn: tuple[int, Any], data: st.DataObject
) -> None:
    version, answer = drawn
    frame = bytearray(b"\0\0\0\x0b\0" + by_kio(answer))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(5, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(5, len(frame)))]
    with contextlib.suppress(Malformed):
        messages.decode_response("fetch", version, frame)


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\xff\xff\x07"])
def test_records_longer_than_their_frame_are_malformed(size: bytes) -> None:
    head = b"\0\0\0\x0b\0" + bytes(10) + b"\2" + bytes(16) + b"\2" + bytes(30) + b"\0" + bytes(4)
    with pytest.raises(Malformed, match="cannot be read"):
        messages.decode_response("fetch", 17, head + size + b"x" * 50)


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


# The probe against peers that are not a broker: every call ends in time, and silence never
# counts as an answer.


Behaviour = Callable[[socket.socket], None]


def silent(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def ends(connection: socket.socket) -> None:
    connection.recv(1 << 16)


def half(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(b"\0\0\0\x10\0\0")
    silent(connection)


def web(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def garbage(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(b"\0\0\0\x08\0\0\0\1\xff\xff\xff\xff")


@contextlib.contextmanager
def peer(behaviour: Behaviour) -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    behaviour(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield "127.0.0.1", listener.getsockname()[1]
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("behaviour", [silent, ends, half, web])
def test_probe_of_a_broken_server_returns_none_within_the_deadline(behaviour: Behaviour) -> None:
    start = time.monotonic()
    with peer(behaviour) as address:
        assert probe.round_trip(address, within=0.2) is None
    with peer(behaviour) as address:
        assert probe.transfer(address, size=1000, within=0.2) is None
    assert time.monotonic() - start < 60


def test_a_closed_port_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = ("127.0.0.1", listener.getsockname()[1])
    assert probe.round_trip(address, within=1) is None


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (silent, "did not answer"),
        (ends, "ended the connection"),
        (web, "does not speak Kafka"),
        (garbage, "metadata response v4"),
    ],
)
def test_missing_answer_is_described(behaviour: Behaviour, said: str) -> None:
    with peer(behaviour) as address, pytest.raises(NoAnswer, match=said):
        probe.advertised(address, within=0.2)


def test_addresses_are_read_from_the_right() -> None:
    assert host_and_port("[::1]:9092") == ("::1", 9092)


def test_the_first_answer_is_the_first_bytes_whatever_they_are() -> None:
    with peer(half) as address:
        assert probe.round_trip(address, within=0.2) is None
    with peer(half) as address:
        assert probe.first_answer(address, within=60) is not None
    for behaviour in (silent, ends):
        with peer(behaviour) as address:
            assert probe.first_answer(address, within=0.2) is None


def test_first_answer_over_tls_is_that_to_the_greeting() -> None:
    heard: list[bytes] = []

    def greets(connection: socket.socket) -> None:
        heard.append(connection.recv(1 << 16))
        connection.sendall(b"\x16")
        silent(connection)

    tls = Access(tls=ssl.create_default_context())
    with peer(greets) as address:
        assert probe.first_answer(address, within=60, access=tls) is not None
    assert heard[0][:2] == b"\x16\x03"  # a handshake record of TLS: ClientHello
    with peer(greets) as address:
        assert probe.round_trip(address, within=0.2, access=tls) is None


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_an_end_is_seen_although_something_before_it_was_never_read(reset: bool) -> None:
    go = threading.Event()

    def says_and_leaves(connection: socket.socket) -> None:
        connection.sendall(b"something")
        go.wait(60)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with (
        peer(says_and_leaves) as address,
        BlockingConnection(address, within=60, access=probe.PLAIN) as path,
    ):
        assert not path.ended
        go.set()
        eventually("the end to be seen", lambda: path.ended)


@pytest.mark.parametrize(
    ("name", "partitions", "number"),
    [
        ("A-B", 5, 1),
        ("A-B", 50, 26),
        ("writer-1", 50, 29),  # a negative hash: 19 by Utils.toPositive
        ("polygenelubricants", 7, 0),  # Integer.MIN_VALUE
        ("", 5, 0),
    ],
)
def test_the_coordinating_partition_of_a_name_is_by_javas_hash(
    name: str, partitions: int, number: int
) -> None:
    assert coordinating_partition(name, partitions) == number
