"""`python -m linkflap.harness.wire.recorder FOLDER`: forwards connections to the brokers of one
cluster, and writes down what crosses them, until SIGTERM.

Its settings are recorder.json in FOLDER. A side that does not read slows the other one down: at
most what one read returns, and asyncio's own limit, waits in memory. What is no Kafka is forwarded
all the same, and said so in one line of the log.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.model.history import Operation, Poll
from linkflap.harness.rundir import Appender
from linkflap.harness.rundir.files import Breakage, write_whole
from linkflap.harness.wire.access import Address, host_and_port
from linkflap.harness.wire.messages import Malformed
from linkflap.harness.wire.recorder.connection import Frames, WireConnection
from linkflap.harness.wire.recorder.history import WireHistory
from linkflap.harness.wire.recorder.interferences import Interferences
from linkflap.harness.wire.recorder.settings import (
    DONE,
    REPORT,
    SEEN,
    SEEN_SIZE,
    Report,
    read_asked,
    read_settings,
)

log = logging.getLogger("recorder")
_AT_ONCE: Final = 256 << 10
_room = memoryview(bytearray(_AT_ONCE))
"""Where every socket's bytes arrive: they are forwarded before the next ones are received."""


class _OneSide(asyncio.BufferedProtocol):
    """One of the two sockets of a connection. Its bytes are read along by `frames`, until they are
    no Kafka's."""

    def __init__(self, frames: Frames, report: Report, whose: str) -> None:
        self._frames: Frames | None = frames
        self._report, self._whose = report, whose
        self.transport: asyncio.Transport | None = None
        self.other: _OneSide | None = None
        self.ended = False

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
        """Reads along, and forwards what is to pass."""
        try:
            feed()
        except Malformed as error:
            self._frames = None
            reason = f"{self._whose} sent what is no request or answer of Kafka's: {error}"
            self._report.passed[reason] = self._report.passed.get(reason, 0) + 1
            log.info("%s; the rest of its connection passes unread", reason)
        # copied: what a socket does not accept at once is kept as it was given (Python 3.12)
        self._forward(frames.taken())
        if frames.ends:
            self.end()

    def _forward(self, data: bytes) -> None:
        if data and self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def _wait(self) -> None:
        """Where nothing more is to pass for a time, nothing more is received."""
        frames = self._frames
        if frames is not None and frames.waits and self.transport is not None:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(frames.waits, self._go_on, frames)

    def _go_on(self, frames: Frames) -> None:
        if self.transport is None:  # it has gone meanwhile
            return
        self.transport.resume_reading()
        self._read(frames.go_on, frames)
        self._wait()
        if self.ended and not frames.waits and not self._pass_end() and self.transport is not None:
            self.transport.close()

    def end(self) -> None:
        """Ends the connection: its client gets what came before, and no more."""
        if self.transport is not None:
            self.transport.abort()

    def eof_received(self) -> bool:
        """The end of one direction is passed on; that of both closes the connection."""
        self.ended = True
        if self._frames is not None and self._frames.waits:
            return True
        return self._pass_end()

    def _pass_end(self) -> bool:
        if self._frames is not None:
            self._forward(self._frames.rest())
        if self.other is None or self.other.transport is None or self.other.ended:
            return False
        self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        other, self.other, self.transport = self.other, None, None
        if other is not None and other.transport is not None:
            other.transport.close()


class _FromClient(_OneSide):
    """The side of the client, which is not read before the broker is connected."""

    def __init__(
        self,
        history: WireHistory,
        interferences: Interferences,
        broker: Address,
        tasks: set[asyncio.Task[None]],
        alive: set[_FromClient],
    ) -> None:
        read = WireConnection(history, interferences)
        super().__init__(read.requests, history.report, "a program")
        self._broker, self._along, self._tasks, self._alive = broker, read, tasks, alive

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()
        self._report.connections += 1
        self._alive.add(self)
        task = asyncio.get_running_loop().create_task(self._connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._alive.discard(self)
        self._along.ended()

    async def _connect(self) -> None:
        broker = _OneSide(self._along.responses, self._report, "a broker")
        try:
            await asyncio.get_running_loop().create_connection(lambda: broker, *self._broker)
        except OSError:
            if self.transport is not None:
                self.transport.abort()
            return
        if self.transport is None:  # the client has gone meanwhile
            if broker.transport is not None:
                broker.transport.close()
            return
        self.other, broker.other = broker, self
        self.transport.resume_reading()


async def run(folder: Path) -> None:
    settings = read_settings(folder)
    root, report = Path(settings.root), Report()
    rows: Appender[Operation] = Appender(
        root / "operations" / f"wire-{settings.cluster}.jsonl", Breakage(root)
    )
    polls: Appender[Poll] = Appender(
        root / "polls" / f"wire-{settings.cluster}.jsonl", Breakage(root)
    )
    history = WireHistory(settings, rows, polls, report)
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    ends, alive = asyncio.Event(), set[_FromClient]()

    def done() -> None:
        write_whole(folder / DONE, msgspec.json.encode(interferences.done))

    interferences = Interferences(_counted(folder), done)

    def asked() -> None:
        """Another fault has begun, or one has ended. Clients learn the versions of a broker when
        they connect to it: where these change, they have to connect again."""
        if interferences.ask(read_asked(folder)):
            for client in list(alive):
                client.end()
        done()

    loop.add_signal_handler(signal.SIGTERM, ends.set)
    loop.add_signal_handler(signal.SIGUSR1, asked)
    servers = [
        await loop.create_server(
            partial(_FromClient, history, interferences, host_and_port(address), tasks, alive),
            "127.0.0.1",
            port,
        )
        for port, address in settings.listens.items()
    ]
    log.info("records at %s", ", ".join(map(str, settings.listens)))
    await ends.wait()
    for server in servers:
        server.close()
    write_whole(folder / REPORT, msgspec.json.encode(report))


def _counted(folder: Path) -> memoryview:
    """Where requests are counted: memory that the harness reads (`ClusterRecorder.requested`)."""
    with (folder / SEEN).open("w+b") as file:
        file.truncate(SEEN_SIZE)
        return memoryview(mmap.mmap(file.fileno(), SEEN_SIZE))


def main() -> int:
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s.%(msecs)03d %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stdout,
    )
    asyncio.run(run(Path(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
