"""Kafka's frames over a socket, for asyncio, without copies: received into their final buffer, sent
from where they are.

asyncio's own streams copy all received bytes twice, and all bytes to send that the socket does not
accept at once. While a large frame arrives, the reader wakes only when a large part of it is there
(SO_RCVLOWAT). Over TLS, the bytes are copied once in each direction, and the code waits for OpenSSL
record by record.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from linkflap.harness.wire.messages import LENGTH, Buffer, Pieces, frame_length

_WAKE_BYTES: Final = 512 << 10
_MOST_PARTS: Final = 512
"""Below the limit of one system call (IOV_MAX, 1024)."""
_TOGETHER: Final = 64 << 10
"""Small parts are joined up to this many bytes over TLS, which has no sendmsg."""


class Stream:
    """One connected socket. One task may read and one write at a time. With TLS it is usable after
    `shake_hands`."""

    def __init__(
        self,
        connected: socket.socket,
        *,
        tls: ssl.SSLContext | None = None,
        host: str | None = None,
    ) -> None:
        """`tls` is a client's if `host` is given, the expected name of the other side; otherwise a
        server's."""
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            connected = tls.wrap_socket(
                connected,
                server_side=host is None,
                server_hostname=host,
                do_handshake_on_connect=False,
            )
        self._socket = connected
        self._tls = connected if isinstance(connected, ssl.SSLSocket) else None
        # the event loop's table has file numbers; it would search it for a socket object
        self._number = connected.fileno()
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._wakes_at = 1

    @classmethod
    async def to(cls, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> Stream:
        """Connects. Raises OSError."""
        failed: OSError = ConnectionRefusedError(f"{host} has no address")
        for family, kind, protocol, _, address in await _addresses(host, port):
            made = socket.socket(family, kind, protocol)
            try:
                made.setblocking(False)
                await asyncio.get_running_loop().sock_connect(made, address)
                stream = cls(made, tls=tls, host=host)
            except BaseException as error:
                made.close()
                if not isinstance(error, OSError):
                    raise
                failed = error
                continue
            try:
                await stream.shake_hands()
            except BaseException:
                stream.close()
                raise
            return stream
        raise failed

    async def shake_hands(self) -> None:
        """Performs the TLS handshake; does nothing without TLS. Raises OSError."""
        while self._tls is not None:
            try:
                return self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._ready(self._loop.add_reader, self._loop.remove_reader)
            except ssl.SSLWantWriteError:
                await self._ready(self._loop.add_writer, self._loop.remove_writer)

    async def _ready(self, add: Callable[..., Any], remove: Callable[[int], Any]) -> None:
        """Returns when the socket can be read, or written to."""
        calls = iter((False, True))
        await self._until(lambda: next(calls, True), add, remove)

    async def read(self) -> memoryview:
        """One frame without its length, in memory of its own. Raises EOFError when the peer closed
        the connection, OSError, Malformed."""
        head = bytearray(LENGTH.size)
        await self._fill(memoryview(head))
        frame = memoryview(bytearray(frame_length(head)))
        await self._fill(frame)
        return frame

    async def _fill(self, room: memoryview) -> None:
        got = 0

        def receive() -> bool:
            nonlocal got
            received = self._socket.recv_into(room[got:])
            if not received:
                raise EOFError("the connection was closed")
            got += received
            if got < len(room):
                self._wake_at(min(len(room) - got, _WAKE_BYTES))
            return got == len(room)

        def receive_all() -> bool:
            # OpenSSL may have buffered all data already: then the socket never becomes readable
            while not receive():
                pass
            return True

        if len(room):
            self._wake_at(min(len(room), _WAKE_BYTES))
            act = receive if self._tls is None else receive_all
            await self._until(act, self._loop.add_reader, self._loop.remove_reader)

    def _wake_at(self, count: int) -> None:
        """Sets how many bytes must be there before a reader wakes, unless the connection ends. A
        TLS record may be smaller."""
        if count != self._wakes_at and self._tls is None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._wakes_at = count

    async def write(self, data: Buffer | Pieces) -> None:
        """Returns when everything is passed to the system. Raises OSError."""
        left = [
            memoryview(part)
            for part in (data.parts if isinstance(data, Pieces) else (data,))
            if len(part)
        ]

        def send() -> bool:
            sent = (
                self._socket.sendmsg(left[:_MOST_PARTS])
                if self._tls is None
                else self._socket.send(_together(left))
            )
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]
            return not left

        if left:
            await self._until(send, self._loop.add_writer, self._loop.remove_writer)

    async def _until(
        self, act: Callable[[], bool], add: Callable[..., Any], remove: Callable[[int], Any]
    ) -> None:
        """Calls it now, and again whenever the socket is ready, until it reports that it is
        done."""
        done: asyncio.Future[None] = self._loop.create_future()

        def again() -> None:
            try:
                if act() and not done.done():
                    done.set_result(None)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except (OSError, EOFError) as error:
                if not done.done():
                    done.set_exception(error)

        again()
        if done.done():
            return done.result()
        self._waiting.add(done)
        add(self._number, again)
        try:
            await done
        finally:
            self._waiting.discard(done)
            if self._socket.fileno() >= 0:
                remove(self._number)

    def close(self) -> None:
        """Closes it, also for tasks that wait. Can be repeated."""
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._number)
        self._loop.remove_writer(self._number)
        self._socket.close()
        for ready in self._waiting:
            if not ready.done():
                ready.set_exception(ConnectionAbortedError("closed by this side"))


def _together(parts: list[memoryview]) -> bytes | memoryview:
    """The first part, joined with the next ones if they are small. OpenSSL must get the same bytes
    again if it accepted none."""
    if len(parts[0]) >= _TOGETHER or len(parts) == 1:
        return parts[0]
    size = count = 0
    while count < len(parts) and size + len(parts[count]) <= _TOGETHER:
        size, count = size + len(parts[count]), count + 1
    return b"".join(parts[:count])


async def _addresses(host: str, port: int) -> list[tuple[Any, ...]]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # a host name: only its lookup needs a thread
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
