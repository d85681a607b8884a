"""Forwards connections from ports of this machine to brokers while an observer reads their frames:
the recorder or the address rewriter.

The forwarder splits the bytes into Kafka's frames as they pass. It copies only the frames that the
observer wants; of all others it looks at the beginning alone. The observer may hold a frame back
until it is complete, and send something else in its place.

Flow control works end to end: if one side does not read, the other is not read either. A connection
holds at most what one read returns, asyncio's own limit, and what has arrived of an incomplete
frame that the observer wants. If these frames take more than `MOST_HELD` over all connections, the
connection with the longest one ends.

While a broker refuses connections, the forwarder refuses them too: for clients a connection that
ends at once is something else. An idle connection to each broker shows its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec

from linkflap.harness.wire.access import Address
from linkflap.harness.wire.messages import LENGTH, Malformed, frame_length

log = logging.getLogger("forwarding")
_AT_ONCE: Final = 256 << 10
MOST_HELD: Final = 1 << 30
"""How many bytes of frames that are not complete yet may be in memory, over all connections."""
_BACKLOG: Final = 4096
"""How many connections may wait to be accepted. The kernel takes no more than its own limit."""
_AGAIN: Final = 0.1
"""Seconds between two attempts to connect to a broker that refuses connections."""
_room = memoryview(bytearray(_AT_ONCE))
"""The receive buffer of all sockets: its bytes are forwarded before the next ones are received."""


Wanted = Literal["pass", "read", "keep"]
"""How to treat a frame: forward it unread; forward it and read it; or hold it back until it is
complete, when something else may be sent in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """What is sent in place of a frame that was held back, after `seconds`. `before` is called
    right before that. `ends`: the connection ends after it."""

    instead: Sequence[bytes] = ()
    seconds: float = 0.0
    before: Callable[[], None] | None = None
    ends: bool = False


def framed(frame: memoryview) -> bytes:
    """A frame with its length prefix."""
    return LENGTH.pack(len(frame)) + bytes(frame)


class Frames:
    """One direction of a connection. `wanted` gets the first `begins` bytes of each frame, without
    its length. `read` gets a frame that is forwarded, before its last bytes are. `kept` gets a
    frame that is held back, and returns what is sent instead."""

    def __init__(
        self,
        begins: int,
        wanted: Callable[[bytes], Wanted],
        read: Callable[[memoryview], None] = lambda frame: None,
        kept: Callable[[memoryview], Passage] = lambda frame: Passage(instead=[framed(frame)]),
    ) -> None:
        self._begins, self._wanted, self._read, self._kept = begins, wanted, read, kept
        self._head = bytearray()
        self._frame = bytearray()
        self._left = 0
        self._now: Wanted = "pass"
        self._out: list[bytes | memoryview] = []
        self._waits: Passage | None = None
        self._behind = bytearray()
        self.ends = False
        """Whether the connection ends once the bytes in `taken` are sent."""

    @property
    def held(self) -> int:
        """How many bytes of an incomplete frame are in memory."""
        return len(self._frame)

    @property
    def waits(self) -> float:
        """For how many seconds nothing is sent; 0 if nothing is delayed."""
        return 0.0 if self._waits is None else self._waits.seconds

    def taken(self) -> bytes:
        """The bytes to send now. To be called before the buffer that was fed last is reused."""
        out, self._out = self._out, []
        return b"".join(out)

    def feed(self, data: memoryview) -> None:
        """Takes the next bytes. Raises Malformed where no frame of Kafka's can begin; from there on
        they are forwarded unread."""
        at = 0
        while at < len(data) and self._waits is None and not self.ends:
            if self._left:
                at += self._take(data[at : at + self._left])
            else:
                missing = LENGTH.size + self._begins - len(self._head)
                self._head += data[at : at + missing]
                at += min(missing, len(data) - at)
                if len(self._head) == LENGTH.size + self._begins:
                    self._begin(data[at:])
        if self._waits is not None:
            self._behind += data[at:]

    def go_on(self) -> None:
        """Continues after a delay. Raises Malformed."""
        passage, self._waits = self._waits, None
        behind, self._behind = self._behind, bytearray()
        if passage is not None:
            self._pass(passage)
        self.feed(memoryview(behind))

    def rest(self) -> bytes:
        """The beginning of a frame whose rest will never come."""
        head = bytes(self._head)
        self._head.clear()
        return head

    def _take(self, some: memoryview) -> int:
        size = len(some)
        if self._now != "pass":
            self._frame += some
        if self._now != "keep":
            self._out.append(some)
        self._left -= size
        if not self._left:
            self._end()
        return size

    def _begin(self, behind: memoryview) -> None:
        head = bytes(self._head)
        self._head.clear()
        try:
            length = frame_length(head[: LENGTH.size])
            if length < self._begins:
                raise Malformed(f"it announces a frame of {length} bytes")
        except Malformed:
            self._out += [head, behind]
            raise
        self._left = length - self._begins
        self._now = self._wanted(head[LENGTH.size :])
        if self._now != "pass":
            # grows as bytes come: the length is only what somebody claims
            self._frame += head[LENGTH.size :]
        if self._now != "keep":
            self._out.append(head)
        if not self._left:
            self._end()

    def _end(self) -> None:
        frame, self._frame = memoryview(self._frame), bytearray()
        if self._now == "read":
            self._read(frame)
        elif self._now == "keep":
            passage = self._kept(frame)
            if passage.seconds:
                self._waits = passage
            else:
                self._pass(passage)

    def _pass(self, passage: Passage) -> None:
        if passage.before is not None:
            passage.before()
        self._out += passage.instead
        self.ends = passage.ends


class Observer(Protocol):
    """The observer of one connection, of the client at `peer` (host:port). `passes_unread`: whether
    the rest of a connection is forwarded unread where it is not Kafka's protocol any more (the
    sentence says what came); otherwise the connection ends."""

    peer: str
    requests: Frames
    responses: Frames

    def passes_unread(self, sentence: str) -> bool: ...

    def ended(self) -> None: ...


class _OneSide(asyncio.BufferedProtocol):
    """One of the two sockets of a connection. `frames` splits its bytes, as long as they are
    Kafka's protocol."""

    def __init__(
        self, frames: Frames, observer: Observer, whose: str, forwarder: Forwarder
    ) -> None:
        self._frames: Frames | None = frames
        self.observer, self._whose, self._forwarder = observer, whose, forwarder
        self.transport: asyncio.Transport | None = None
        self.other: _OneSide | None = None
        self.ended = False
        self.full = False
        """Whether its socket takes no more at present."""
        self.held = 0
        """How many bytes of an incomplete frame it has in memory."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return _room

    def buffer_updated(self, nbytes: int) -> None:
        data = _room[:nbytes]
        if self._frames is None:
            self._forward(bytes(data))
            return
        waited = self._frames.waits
        self._read(partial(self._frames.feed, data), self._frames)
        if not waited:
            self._wait()

    def _read(self, feed: Callable[[], None], frames: Frames) -> None:
        """Splits the next bytes into frames, and forwards what is to be sent."""
        try:
            feed()
        except Malformed as error:
            self._frames = None
            said = f"{self._whose} sent what is no request or answer of Kafka's: {error}"
            if not self.observer.passes_unread(said):
                self.end()
                return
        self._hold(0 if self._frames is None else frames.held)
        # copied: what a socket does not accept at once is kept as it was given (Python 3.12)
        self._forward(frames.taken())
        if frames.ends:
            self.end()

    def _forward(self, data: bytes) -> None:
        if data and self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def _wait(self) -> None:
        """During a delay nothing is received either."""
        frames = self._frames
        if frames is not None and frames.waits and self.transport is not None:
            self._flow()
            asyncio.get_running_loop().call_later(frames.waits, self._go_on, frames)

    def _go_on(self, frames: Frames) -> None:
        if self.transport is None:  # it has gone meanwhile
            return
        self._read(frames.go_on, frames)
        self._wait()
        self._flow()
        if self.ended and not frames.waits and not self._pass_end() and self.transport is not None:
            self.transport.close()

    def end(self) -> None:
        """Ends the connection: its client gets what was sent before, and no more."""
        if self.transport is not None:
            self.transport.abort()

    def eof_received(self) -> bool:
        """Forwards the end of one direction; the end of both closes the connection."""
        self.ended = True
        if self._frames is not None and self._frames.waits:
            return True
        return self._pass_end()

    def _pass_end(self) -> bool:
        if self._frames is not None:
            self._forward(self._frames.rest())
        if self.other is None or self.other.transport is None or self.other.ended:
            return False
        if not self.other.transport.can_write_eof():  # TLS has no end of one direction
            self.other.transport.close()
            return False
        self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        self.full = True
        if self.other is not None:
            self.other._flow()

    def resume_writing(self) -> None:
        self.full = False
        if self.other is not None:
            self.other._flow()

    def _flow(self) -> None:
        """Reads from its socket, unless something is delayed or the other side takes no more."""
        if self.transport is None:
            return
        waits = self._frames is not None and self._frames.waits
        if waits or self.other is None or self.other.full:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _hold(self, held: int) -> None:
        self._forwarder.held += held - self.held
        self.held = held
        if self._forwarder.held > MOST_HELD:
            self._forwarder.end_longest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._hold(0)
        other, self.other, self.transport = self.other, None, None
        if other is not None and other.transport is not None:
            other._hold(0)
            other.transport.close()


class _FromClient(_OneSide):
    """The client's side. Nothing is read from it before the broker is connected."""

    def __init__(
        self,
        observer: Observer,
        broker: Address,
        whose: str,
        forwarder: Forwarder,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(observer.requests, observer, whose, forwarder)
        self._broker, self._tls = broker, tls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port, *_ = transport.get_extra_info("peername")
        self.observer.peer = f"{host}:{port}"
        self._flow()
        self._forwarder.opened += 1
        self._forwarder.clients.add(self)
        task = asyncio.get_running_loop().create_task(self._connect())
        self._forwarder.tasks.add(task)
        task.add_done_callback(self._forwarder.tasks.discard)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forwarder.clients.discard(self)
        self.observer.ended()

    async def _connect(self) -> None:
        broker = _OneSide(self.observer.responses, self.observer, "a broker", self._forwarder)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: broker, *self._broker, ssl=self._tls
            )
        except OSError as error:
            log.info(
                "%s:%d cannot be connected to, so the connection of %s ends: %s",
                *self._broker,
                self.observer.peer,
                error,
            )
            if self.transport is not None:
                self.transport.abort()
            return
        if self.transport is None:  # the client has gone meanwhile
            if broker.transport is not None:
                broker.transport.close()
            return
        self.other, broker.other = broker, self
        self._flow()
        broker._flow()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The TLS settings of both sides: towards clients, and towards brokers."""

    to_client: ssl.SSLContext
    to_broker: ssl.SSLContext


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of PEM files. `shown`: certificate and key towards clients; `asked`: the certificate
    that clients must have (empty: none); `authority`: who signed the brokers' certificates;
    `identity`: certificate and key towards brokers. `any_host`: brokers' certificates need not
    match their addresses."""

    shown: str
    asked: str
    authority: str
    identity: str
    any_host: bool

    def ends(self) -> Ends:
        """Raises OSError for files that cannot be read."""
        to_client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        to_client.load_cert_chain(self.shown)
        if self.asked:
            to_client.verify_mode = ssl.CERT_REQUIRED
            to_client.load_verify_locations(self.asked)
            # this certificate, and not all that its authority has signed
            to_client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        to_broker = ssl.create_default_context(cafile=self.authority)
        to_broker.check_hostname = not self.any_host
        if self.identity:
            to_broker.load_cert_chain(self.identity)
        return Ends(to_client=to_client, to_broker=to_broker)


class Forwarder:
    """Forwards connections. `whose` names their clients in messages."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self.opened = 0
        """Connections of clients so far; with TLS those whose handshake was completed."""
        self.clients: set[_FromClient] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.held = 0
        """How many bytes of incomplete frames are in memory."""
        self._servers: dict[int, asyncio.Server] = {}
        self._following: list[asyncio.Task[None]] = []

    async def listen(
        self,
        port: int,
        broker: Address,
        observer: Callable[[], Observer],
        *,
        tls: Ends | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """Forwards connections to `port` on `host` to a broker; `observer` is called for each,
        before a handshake. With `tls` both sides speak TLS."""
        loop = asyncio.get_running_loop()
        listen = partial(
            loop.create_server,
            lambda: _FromClient(
                observer(), broker, self._whose, self, None if tls is None else tls.to_broker
            ),
            host,
            port,
            backlog=_BACKLOG,
            ssl=None if tls is None else tls.to_client,
        )
        self._servers[port] = await listen()
        self._following.append(loop.create_task(self._refuse_as(broker, port, listen)))

    async def _refuse_as(
        self, broker: Address, port: int, listen: Callable[[], Awaitable[asyncio.Server]]
    ) -> None:
        """Listens at a port while its broker takes connections."""
        while True:
            try:
                reader, writer = await asyncio.open_connection(*broker)
                with contextlib.closing(writer):
                    if not self._servers[port].is_serving():
                        self._servers[port] = await listen()
                    await asyncio.sleep(_AGAIN)
                    with contextlib.suppress(ConnectionError):
                        while await reader.read(_AT_ONCE):
                            pass
            except OSError:
                self._servers[port].close()
                await asyncio.sleep(_AGAIN)

    def end_connections(self) -> None:
        """Ends the connections of all clients, which have to connect again."""
        for client in list(self.clients):
            client.end()

    def end_longest(self) -> None:
        """Ends the connection that has the most bytes in memory."""
        sides = (side for client in self.clients for side in (client, client.other) if side)
        longest = max(sides, key=lambda side: side.held)
        log.info(
            "the connection of %s ends: %d MB of its frame have come, and %d MB of those of all "
            "connections, which is more than a forwarder keeps in memory",
            longest.observer.peer,
            longest.held >> 20,
            self.held >> 20,
        )
        self.held -= longest.held
        longest.held = 0
        longest.end()

    def close(self) -> None:
        """Takes no more connections."""
        for task in self._following:
            task.cancel()
        for server in self._servers.values():
            server.close()


def _failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Reports an unhandled error; in one sentence where the process has too many open files."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        log.info("no more connections are taken until others end (ulimit -n): %s", error)
    else:
        loop.default_exception_handler(context)


def forward_until_ended(run: Callable[[Path, asyncio.Event], Coroutine[Any, Any, None]]) -> int:
    """The main function of a process that forwards: `run` gets the folder that is its argument, and
    an event that SIGTERM sets. Logs to standard output."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s.%(msecs)03d %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stdout,
    )

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def main() -> None:
        ends = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, ends.set)
        loop.set_exception_handler(_failed)
        await run(Path(sys.argv[1]), ends)

    asyncio.run(main())
    return 0
