"""The probe against peers that are not a broker: every call ends in time, and silence never counts
as an answer."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import probe
from linkflap.harness.wire.access import Access

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
def peer(behaviour: Behaviour) -> Iterator[probe.Address]:
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
def test_no_answer_is_none_within_the_deadline(behaviour: Behaviour) -> None:
    start = time.monotonic()
    with peer(behaviour) as address:
        assert probe.round_trip(address, within=0.2) is None
    with peer(behaviour) as address:
        assert probe.transfer(address, size=1000, within=0.2) is None
    assert time.monotonic() - start < 5


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
        (garbage, "is not a Metadata"),
    ],
)
def test_where_the_answer_matters_its_lack_is_said(behaviour: Behaviour, said: str) -> None:
    with peer(behaviour) as address, pytest.raises(probe.NoAnswer, match=said):
        probe.advertised(address, within=0.2)


def test_addresses_are_read_from_the_right() -> None:
    assert probe.parse("[::1]:9092") == ("[::1]", 9092)


def test_the_first_answer_is_the_first_bytes_whatever_they_are() -> None:
    with peer(half) as address:
        assert probe.round_trip(address, within=0.2) is None
    with peer(half) as address:
        assert probe.first_answer(address, within=60) is not None
    for behaviour in (silent, ends):
        with peer(behaviour) as address:
            assert probe.first_answer(address, within=0.2) is None


def test_where_there_is_tls_its_greeting_is_what_is_answered() -> None:
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

    with peer(says_and_leaves) as address, probe.Path(address, within=60) as path:
        assert not path.ended
        go.set()
        until(lambda: path.ended, within=60, what="the end to be seen")
