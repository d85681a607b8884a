"""`python -m linkflap.harness.wire.address_rewriter FOLDER`: a proxy before the brokers of a
cluster that linkflap did not start. It writes other addresses for these brokers into answers, until
SIGTERM.

A cluster that linkflap starts advertises the proxies of its links itself. One that others started
advertises its own addresses, and its clients would leave the proxied path with the first answer.
So each path into it (`A->B`, `*->A`) has a port here for each broker, behind that broker's
Toxiproxy proxy; and what brokers answer there names the proxies of this path. Changed are the
addresses in answers to Metadata, FindCoordinator and DescribeCluster, and the leaders' addresses
that answers to Produce, Fetch, ShareFetch and ShareAcknowledge may have (KIP-951). All other bytes
pass as they are.

An answer that must be changed and cannot be read ends its connection: it never passes unchanged. A
broker that has no proxy, because it joined its cluster later, gets an address at which nothing
answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.wire.access import host_and_port
from linkflap.harness.wire.bulk import Pieces
from linkflap.harness.wire.messages import (
    LENGTH,
    REQUEST_HEAD,
    Malformed,
    Message,
    decode_response,
    encode_response,
    frame_length,
)

log = logging.getLogger("address rewriter")
SETTINGS: Final = "addresses.json"
READY: Final = "rewrites at"
NOWHERE: Final = ("127.0.0.1", 1)
"""The address of a broker without a proxy."""
_AT_ONCE: Final = 256 << 10
_NAMING: Final[Mapping[int, str]] = {3: "metadata", 10: "find_coordinator", 60: "describe_cluster"}
"""APIs whose answers always name brokers."""
_LEADERS: Final[Mapping[int, tuple[str, int]]] = {
    0: ("produce", 10),
    1: ("fetch", 16),
    78: ("share_fetch", 0),
    79: ("share_acknowledge", 0),
}
"""APIs whose answers may name the brokers that lead now, and the first version that does."""
HostPort = tuple[str, int]


class PathPort(msgspec.Struct, frozen=True, kw_only=True):
    """One port, and the broker behind it (host:port). `proxies`: id of a broker -> host and port
    that answers name for it on this path."""

    port: int
    broker: str
    proxies: Mapping[int, HostPort]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the rewriter of one cluster reads when it starts: SETTINGS in its folder. `brokers`: the
    addresses that they advertise."""

    ports: Sequence[PathPort]
    brokers: Sequence[HostPort]


def rewritten(api: str, version: int, frame: memoryview, proxies: Mapping[int, HostPort]) -> bytes:
    """An answer (without its length) with the proxies' addresses, framed. Raises Malformed."""
    correlation = int.from_bytes(frame[: LENGTH.size], "big", signed=True)
    body = decode_response(api, version, frame)
    move = partial(_moved, proxies=proxies)
    if api in ("metadata", "describe_cluster"):
        body = replace(body, brokers=tuple(map(move, body.brokers)))
    elif api != "find_coordinator":
        body = replace(body, node_endpoints=tuple(map(move, body.node_endpoints)))
    elif version < 4:  # one coordinator, and not a list
        body = move(body)
    else:
        body = replace(body, coordinators=tuple(map(move, body.coordinators)))
    body = _sendable(body) if api == "fetch" else body
    return bytes(encode_response(api, version, correlation, body))


def _moved(node: Message, *, proxies: Mapping[int, HostPort]) -> Message:
    """What names a broker (`node_id` or `broker_id`, `host`, `port`), with its proxy's address; no
    broker stays none."""
    number = int(node.broker_id if hasattr(node, "broker_id") else node.node_id)
    if number < 0:
        return node
    if number not in proxies:
        log.info("broker %d has no proxy; its clients get an address where nothing answers", number)
    host, port = proxies.get(number, NOWHERE)
    return replace(node, host=host, port=port)


def _sendable(answer: Message) -> Message:
    """A fetch answer whose records can be written again: views of its frame, as pieces."""
    return replace(
        answer,
        responses=tuple(
            replace(
                topic,
                partitions=tuple(
                    replace(row, records=Pieces([row.records])) if row.records else row
                    for row in topic.partitions
                ),
            )
            for topic in answer.responses
        ),
    )


class Connection:
    """One connection: `requests` and `answers` take the bytes of a direction, and give what is to
    be forwarded. Both raise Malformed: where no frame of Kafka's can begin, and for an answer that
    must be changed and cannot be read."""

    def __init__(self, proxies: Mapping[int, HostPort], leaders: Sequence[bytes]) -> None:
        """`leaders`: the brokers' own addresses, as bytes of answers that name leaders."""
        self._proxies, self._leaders = proxies, leaders
        self._asked: dict[int, tuple[str, int]] = {}
        self._requests = Frames(REQUEST_HEAD.size, self._note)
        self._answers = Frames(LENGTH.size, lambda head: _correlation(head) in self._asked)

    def requests(self, data: bytes) -> Iterator[bytes]:
        """All of them, unchanged."""
        return (some for some, _ in self._requests.feed(data))

    def _note(self, head: bytes) -> bool:
        """Notes a request whose answer may name brokers."""
        key, version, correlation = REQUEST_HEAD.unpack(head)
        api, since = _LEADERS.get(key, (_NAMING.get(key, ""), 0))
        if api and version >= since:
            self._asked[correlation] = api, version
        return False

    def answers(self, data: bytes) -> Iterator[bytes]:
        for some, whole in self._answers.feed(data):
            yield self._changed(some) if whole else some

    def _changed(self, framed: bytes) -> bytes:
        frame = memoryview(framed)[LENGTH.size :]
        api, version = self._asked.pop(_correlation(frame[: LENGTH.size]))
        # Records are many, and moves of leaders few: such an answer is read only where it has the
        # bytes of an address.
        if api in _NAMING.values() or any(leader in framed for leader in self._leaders):
            return rewritten(api, version, frame, self._proxies)
        return framed


def _correlation(head: bytes | memoryview) -> int:
    return int.from_bytes(head, "big", signed=True)


class Frames:
    """Cuts one direction of a connection into frames. `whole` gets the first `begins` bytes of each
    frame behind its length, perhaps several times, and says whether it is kept until it is
    complete."""

    def __init__(self, begins: int, whole: Callable[[bytes], bool]) -> None:
        self._begins, self._whole = begins, whole
        self._held = bytearray()
        self._passing = 0

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """The bytes that can go on, in their order: complete frames that are kept (True), and parts
        of others. Raises Malformed."""
        self._held += data
        while self._held:
            if not self._passing:
                head = bytes(self._held[: LENGTH.size + self._begins])
                if len(head) < LENGTH.size + self._begins:
                    return
                size = LENGTH.size + frame_length(head[: LENGTH.size])
                if size < len(head):
                    raise Malformed(f"a frame of {size} bytes is announced")
                if self._whole(head[LENGTH.size :]):
                    if len(self._held) < size:
                        return
                    yield self._taken(size), True
                    continue
                self._passing = size
            some = self._taken(self._passing)
            self._passing -= len(some)
            yield some, False

    def _taken(self, size: int) -> bytes:
        some = bytes(self._held[:size])
        del self._held[:size]
        return some


def leader_bytes(address: HostPort) -> bytes:
    """How answers that name leaders write an address: a compact string (KIP-482) and a port."""
    host = address[0].encode()
    return bytes([len(host) + 1]) + host + LENGTH.pack(address[1])


async def _forward(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    changed: Callable[[bytes], Iterator[bytes]],
) -> None:
    """Forwards one direction to its end. A side that does not read slows the other one down."""
    while data := await source.read(_AT_ONCE):
        for some in changed(data):
            sink.write(some)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


async def _serve(
    port: PathPort,
    leaders: Sequence[bytes],
    from_client: asyncio.StreamReader,
    to_client: asyncio.StreamWriter,
) -> None:
    """One connection of a client, until both directions have ended or one has failed."""
    with contextlib.ExitStack() as ends:
        ends.callback(to_client.close)
        try:
            from_broker, to_broker = await asyncio.open_connection(*host_and_port(port.broker))
            ends.callback(to_broker.close)
            read = Connection(port.proxies, leaders)
            async with asyncio.TaskGroup() as both:
                both.create_task(_forward(from_client, to_broker, read.requests))
                both.create_task(_forward(from_broker, to_client, read.answers))
        except* OSError:
            pass  # one side has gone, and the other one with it
        except* Malformed as error:
            log.info("connection to %s ended: %s", port.broker, error.exceptions[0])


async def run(folder: Path) -> None:
    settings = msgspec.json.decode((folder / SETTINGS).read_bytes(), type=Settings)
    leaders = [leader_bytes(address) for address in settings.brokers]
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    for port in settings.ports:
        await asyncio.start_server(partial(_serve, port, leaders), "127.0.0.1", port.port)
    log.info("%s %s", READY, ", ".join(str(port.port) for port in settings.ports))
    await ends.wait()


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
