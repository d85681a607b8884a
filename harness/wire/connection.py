"""linkflap's own asyncio connection to one Kafka node: one request at a time, each with a deadline.

After any failure the connection is closed, and the next call opens a new one. Only one thing is
retried: a request on a connection that has answered before and that the peer has closed since.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterable
from typing import Final

from linkflap.harness.wire import messages
from linkflap.harness.wire.access import (
    CLIENT,
    AuthenticationRefused,
    Login,
    Unanswered,
    access_to,
    host_and_port,
    logging_in,
)
from linkflap.harness.wire.messages import Buffer, Error, Malformed, Message, Pieces
from linkflap.harness.wire.stream import Stream

_CONNECT_SECONDS: Final = 3.0
_FORWARDED_WITHIN: Final = 30.0


class Connection:
    """A connection to the node at `address` (host:port), with the credentials of the address. Calls
    of several tasks take turns."""

    def __init__(self, address: str) -> None:
        self.address, self._access = address, access_to(address)
        self._stream: Stream | None = None
        self._correlation = 0
        self._turn = asyncio.Lock()

    async def call(self, api: str, version: int, body: Message, *, within: float = 10.0) -> Message:
        """The body of the response. Raises Unanswered after `within` seconds, or when the
        connection broke."""
        async with self._turn:
            self._correlation += 1
            frame = messages.encode_request(api, version, self._correlation, CLIENT, body)
            answer = await self._exchange(frame, within)
            try:
                return messages.decode_response(api, version, answer)
            except Malformed as error:
                self.close()
                raise Unanswered(f"{self.address} sent an unreadable answer: {error}") from error

    async def forward(self, frame: Buffer) -> memoryview:
        """The response frame (without length prefix) to a request frame of another client."""
        async with self._turn:
            framed = Pieces((messages.LENGTH.pack(len(frame)), frame))
            return await self._exchange(framed, _FORWARDED_WITHIN)

    async def _exchange(self, framed: Buffer | Pieces, within: float) -> memoryview:
        try:
            async with asyncio.timeout(within):
                used = self._stream is not None
                try:
                    return await self._once(framed)
                except (ConnectionError, EOFError, ssl.SSLError):
                    if not used:
                        raise
                    self.close()
                    return await self._once(framed)
        except (OSError, EOFError, TimeoutError, Malformed) as error:
            self.close()
            raise Unanswered(
                f"{self.address} did not answer: {type(error).__name__} {error}"
            ) from error
        except asyncio.CancelledError:
            self.close()  # a late answer would be taken for the answer to the next request
            raise

    async def _once(self, framed: Buffer | Pieces) -> memoryview:
        if self._stream is None:
            host, port = host_and_port(self.address)
            async with asyncio.timeout(_CONNECT_SECONDS):
                self._stream = await Stream.to(host, port, tls=self._access.tls)
                if self._access.login is not None:
                    await self._log_in(self._stream, self._access.login)
        stream = self._stream
        await stream.write(framed)
        return await stream.read()

    async def _log_in(self, stream: Stream, login: Login) -> None:
        dialogue = logging_in(login, self.address)
        try:
            asked = next(dialogue)
            while True:
                api, version, body = asked
                await stream.write(messages.encode_request(api, version, 0, CLIENT, body))
                asked = dialogue.send(messages.decode_response(api, version, await stream.read()))
        except StopIteration:
            return
        except AuthenticationRefused as error:
            raise ConnectionRefusedError(str(error)) from error

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def quorum_request() -> Message:
    """DescribeQuorum v0 (KIP-595)."""
    m = messages.request("describe_quorum", 0)
    partitions = (m.PartitionData(partition_index=0),)
    topics = (m.TopicData(topic_name="__cluster_metadata", partitions=partitions),)
    return m.DescribeQuorumRequest(topics=topics)


class AnyOf:
    """Several nodes that can each answer. Asks the one that answered last, then the others."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._connections = [Connection(address) for address in addresses]
        self._active: Connection | None = None

    @property
    def addresses(self) -> list[str]:
        """The addresses in the order in which they are asked."""
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

    async def call_controller(
        self, api: str, version: int, body: Message, *, within: float = 2.0
    ) -> Message:
        """The answer of the active controller, looked for among the nodes. Raises Unanswered while
        there is none.

        A controller that is not active logs such a request as an error of its own; DescribeQuorum
        it does not log.
        """
        for _ in range(3 * len(self._connections)):
            if await self._leads_the_quorum(within=within):
                answer = await self.call(api, version, body, within=within)
                result = answer if hasattr(answer, "error_code") else answer.responses[0]
                if result.error_code != Error.not_controller:
                    self._active = self._connections[0]
                    return answer
            self._active = None
            self.turn()
            await asyncio.sleep(0.05)
        raise Unanswered(f"none of {', '.join(self.addresses)} is the active controller")

    async def _leads_the_quorum(self, *, within: float) -> bool:
        """False if the node that is asked next says that another leads the quorum."""
        if len(self._connections) == 1 or self._connections[0] is self._active:
            return True
        answer = await self.call("describe_quorum", 0, quorum_request(), within=within)
        errors = {answer.error_code, *(p.error_code for t in answer.topics for p in t.partitions)}
        return Error.not_leader_or_follower not in errors

    def turn(self) -> None:
        """Asks another node next."""
        self._connections.append(self._connections.pop(0))

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class Connections:
    """Connections to the nodes of a cluster, one per address, made when they are first needed."""

    def __init__(self) -> None:
        self._known: dict[str, Connection] = {}

    def at(self, address: str) -> Connection:
        return self._known.setdefault(address, Connection(address))

    def close(self) -> None:
        for connection in self._known.values():
            connection.close()


async def quietly_closed(writer: asyncio.StreamWriter) -> None:
    """Closes a stream whose peer may have disconnected."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
