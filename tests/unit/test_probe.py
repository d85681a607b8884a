"""The probe against peers that are not a broker: every call ends in time, and silence is never taken for an answer."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from linkflap.harness.runtimes import probe

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
    [(silent, "did not answer"), (ends, "ended the connection"), (web, "does not speak Kafka"), (garbage, "is not a Metadata")],
)
def test_where_the_answer_matters_its_lack_is_said(behaviour: Behaviour, said: str) -> None:
    with peer(behaviour) as address, pytest.raises(probe.Unanswered, match=said):
        probe.advertised(address, within=0.2)


def test_addresses_are_read_from_the_right() -> None:
    assert probe.parse("[::1]:9092") == ("[::1]", 9092)
