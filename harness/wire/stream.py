"""Kafka's frames over a socket, for asyncio, without copies: received into their final buffer, sent
from where they are.

asyncio's own streams copy all bytes twice on the way in, and on the way out all that the socket
does not take at once. While a large frame arrives, the reader is woken only when a good part of it
is there (SO_RCVLOWAT). Over TLS the bytes are copied once each way, and the code waits for what
OpenSSL wants, record by record.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from linkflap.harness.wire.bulk import Buffer, Pieces
from linkflap.harness.wire.messages import LENGTH, Malformed

_LARGEST_FRAME: Final = 128 << 20
"""Above what brokers take (socket.request.max.bytes, 100 MiB)."""
_WAKE_BYTES: Final = 512 << 10
_MOST_PARTS: Final = 512
"""Less than what one system call takes (IOV_MAX, 1024)."""
_TOGETHER: Final = 64 << 10
"""Bytes of small parts that are sent as one over TLS, which has no sendmsg."""


class Stream:
    """One connected socket. One task reads at a time, and one writes. One with TLS is usable after
    `shake_hands`."""

    def __init__(
        self,
        connected: socket.socket,
        *,
        tls: ssl.SSLContext | None = None,
        host: str | None = None,
    ) -> None:
        """`tls` is of a client where `host` is who the other side should be, else of a server."""
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
        # the loop's table is of numbers: a socket would be searched in it
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
        """TLS begins; nothing without it. Raises OSError."""
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
        """One frame without its length, in memory of its own. Raises EOFError when the peer ended,
        OSError, Malformed."""
        head = bytearray(LENGTH.size)
        await self._fill(memoryview(head))
        (length,) = LENGTH.unpack(head)
        if not 0 <= length <= _LARGEST_FRAME:
            raise Malformed(f"a frame of {length} bytes")
        frame = memoryview(bytearray(length))
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
            # OpenSSL may hold what came in already: the socket never becomes readable then
            while not receive():
                pass
            return True

        if len(room):
            self._wake_at(min(len(room), _WAKE_BYTES))
            act = receive if self._tls is None else receive_all
            await self._until(act, self._loop.add_reader, self._loop.remove_reader)

    def _wake_at(self, count: int) -> None:
        """Sets how many bytes must be there before a reader is woken, unless the connection ends. A
        TLS record may be smaller."""
        if count != self._wakes_at and self._tls is None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._wakes_at = count

    async def write(self, data: Buffer | Pieces) -> None:
        """Returns when all of it is on its way. Raises OSError."""
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
        """Acts now, and again whenever the socket is ready for it, until that says that it is
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
        """Ends it, for those that wait as well. Can be repeated."""
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._number)
        self._loop.remove_writer(self._number)
        self._socket.close()
        for ready in self._waiting:
            if not ready.done():
                ready.set_exception(ConnectionAbortedError("closed by this side"))


def _together(parts: list[memoryview]) -> bytes | memoryview:
    """The first part, with the next ones where they are small. OpenSSL must be given the same bytes
    again when it took none."""
    if len(parts[0]) >= _TOGETHER or len(parts) == 1:
        return parts[0]
    size = count = 0
    while count < len(parts) and size + len(parts[count]) <= _TOGETHER:
        size, count = size + len(parts[count]), count + 1
    return b"".join(parts[:count])


async def _addresses(host: str, port: int) -> list[tuple[Any, ...]]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # a name: only that needs a thread that waits for an answer
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
