"""A connection of our own to one Kafka node, for asyncio: one request at a time, every one with a deadline.

After any failure the connection is closed, and the next call opens a new one. One thing is tried again: a request on a connection
that had answered before and that the peer turns out to have closed since.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final

from harness.wire import messages
from harness.wire.messages import Malformed, Message

CLIENT: Final = "linkflap"
_STREAM_LIMIT: Final = 1 << 20
_LARGEST_FRAME: Final = 128 << 20
"""Above what brokers take (socket.request.max.bytes, 100 MiB)."""
_CONNECT_SECONDS: Final = 3.0


class Unanswered(Exception):
    """The node could not be reached, went away, or did not answer in time."""


class Connection:
    """To one node at `address` (host:port). Calls of several tasks take turns."""

    def __init__(self, address: str, *, client: str = CLIENT) -> None:
        self.address = address
        self._client = client
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._correlation = 0
        self._turn = asyncio.Lock()

    async def call(self, api: str, version: int, body: Message, *, within: float = 10.0) -> Message:
        """The response's body. Raises Unanswered after `within` seconds, or when the connection broke."""
        async with self._turn:
            self._correlation += 1
            frame = messages.encode_request(api, version, self._correlation, self._client, body)
            answer = await self._exchange(frame, within)
            try:
                return messages.decode_response(api, version, answer)
            except Malformed as error:
                self.close()
                raise Unanswered(f"{self.address} answered what cannot be read: {error}") from error

    async def forward(self, frame: bytes, *, within: float = 30.0) -> bytes:
        """The response frame (no length prefix) to a request frame that somebody else wrote."""
        async with self._turn:
            return await self._exchange(messages.LENGTH.pack(len(frame)) + frame, within)

    async def _exchange(self, framed: bytes, within: float) -> bytes:
        try:
            async with asyncio.timeout(within):
                used = self._streams is not None
                try:
                    return await self._once(framed)
                except (ConnectionError, EOFError):
                    if not used:
                        raise
                    self.close()
                    return await self._once(framed)
        except (OSError, EOFError, TimeoutError, Malformed) as error:
            self.close()
            raise Unanswered(f"{self.address} did not answer: {type(error).__name__} {error}") from error
        except asyncio.CancelledError:
            self.close()  # its answer may come yet, and would be taken for the next one's
            raise

    async def _once(self, framed: bytes) -> bytes:
        reader, writer = await self._opened()
        writer.write(framed)
        await writer.drain()
        return await read_frame(reader)

    async def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            host, _, port = self.address.rpartition(":")
            async with asyncio.timeout(_CONNECT_SECONDS):
                self._streams = await asyncio.open_connection(host, int(port), limit=_STREAM_LIMIT)
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class AnyOf:
    """Several nodes that can each answer: asks the one that answered last, then the others."""

    def __init__(self, addresses: Iterable[str], *, client: str = CLIENT) -> None:
        self._connections = [Connection(address, client=client) for address in addresses]

    @property
    def addresses(self) -> list[str]:
        """In the order in which they are asked."""
        return [connection.address for connection in self._connections]

    async def call(self, api: str, version: int, body: Message, *, within: float = 5.0) -> Message:
        """Raises Unanswered when none answered, each within `within` seconds."""
        reasons = []
        for _ in range(len(self._connections)):
            try:
                return await self._connections[0].call(api, version, body, within=within)
            except Unanswered as error:
                reasons.append(str(error))
                self.turn()
        raise Unanswered("; ".join(reasons))

    def turn(self) -> None:
        """Asks another one next."""
        self._connections.append(self._connections.pop(0))

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """One length-prefixed frame. Raises asyncio.IncompleteReadError (an EOFError) when the peer ended, Malformed."""
    (length,) = messages.LENGTH.unpack(await reader.readexactly(4))
    if not 0 <= length <= _LARGEST_FRAME:
        raise Malformed(f"a frame of {length} bytes")
    return await reader.readexactly(length)


async def quietly_closed(writer: asyncio.StreamWriter) -> None:
    """Closes a stream whose peer may be gone already."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
