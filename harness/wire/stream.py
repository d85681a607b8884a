"""Kafka's frames over a socket, for asyncio, without copying them: received where they stay, sent from where they lie.

asyncio's own streams copy all bytes twice on their way in, and on their way out what the socket does not take at once. While a
large frame is on its way nobody is woken before a good part of it is there (SO_RCVLOWAT).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

from linkflap.harness.wire.bulk import Buffer, Pieces
from linkflap.harness.wire.messages import LENGTH, Malformed

_LARGEST_FRAME: Final = 128 << 20
"""Above what brokers take (socket.request.max.bytes, 100 MiB)."""
_WAKE_BYTES: Final = 512 << 10
_MOST_PARTS: Final = 512
"""Less than what one system call takes (IOV_MAX, 1024)."""


class Stream:
    """One connected socket. One task reads at a time, and one writes."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._number = connected.fileno()  # the loop's table is of numbers: a socket would be searched in it
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._wakes_at = 1

    @classmethod
    async def to(cls, host: str, port: int) -> Stream:
        """Connects. Raises OSError."""
        failed: OSError = ConnectionRefusedError(f"{host} has no address")
        for family, kind, protocol, _, address in await _addresses(host, port):
            made = socket.socket(family, kind, protocol)
            try:
                made.setblocking(False)
                await asyncio.get_running_loop().sock_connect(made, address)
                return cls(made)
            except BaseException as error:
                made.close()
                if not isinstance(error, OSError):
                    raise
                failed = error
        raise failed

    async def read(self) -> memoryview:
        """One frame without its length, in memory of its own. Raises EOFError when the peer ended, OSError, Malformed."""
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

        if len(room):
            self._wake_at(min(len(room), _WAKE_BYTES))
            await self._until(receive, self._loop.add_reader, self._loop.remove_reader)

    def _wake_at(self, count: int) -> None:
        """Nobody is woken for less than so many bytes, or the connection's end."""
        if count != self._wakes_at:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._wakes_at = count

    async def write(self, data: Buffer | Pieces) -> None:
        """Returns when all of it is on its way. Raises OSError."""
        left = [memoryview(part) for part in (data.parts if isinstance(data, Pieces) else (data,))]

        def send() -> bool:
            sent = self._socket.sendmsg(left[:_MOST_PARTS])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]
            return not left

        if left:
            await self._until(send, self._loop.add_writer, self._loop.remove_writer)

    async def _until(self, act: Callable[[], bool], add: Callable[..., Any], remove: Callable[[int], Any]) -> None:
        """Acts now, and again whenever the socket is ready for it, until that says that it is done."""
        done: asyncio.Future[None] = self._loop.create_future()

        def again() -> None:
            try:
                if act() and not done.done():
                    done.set_result(None)
            except (BlockingIOError, InterruptedError):
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


async def _addresses(host: str, port: int) -> list[tuple[Any, ...]]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # a name: only that needs a thread that waits for an answer
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
