"""`python -m linkflap.harness.wire.address_rewriter FOLDER`: a proxy before the brokers of a
cluster that linkflap did not start, which replaces brokers' addresses in answers. Ends at SIGTERM.

A cluster that linkflap starts advertises the proxies of its links itself. A cluster that others
started advertises its own addresses, so its clients would leave the proxied path after the first
answer. So for each path into it (`A->B`, `*->A`) and each broker, a port here lies behind that
broker's Toxiproxy proxy, and answers on the path name the path's proxies. Replaced are the
addresses in answers to Metadata, FindCoordinator and DescribeCluster, and the addresses of new
leaders in answers to Produce, Fetch, ShareFetch and ShareAcknowledge (KIP-951). All other bytes are
forwarded unchanged.

If the cluster speaks TLS, this proxy terminates the clients' TLS with a certificate of the run, and
opens TLS to the brokers itself. SASL logins pass through, because their frames are Kafka's
(SaslHandshake v1, KIP-152). If clients have a certificate, only its owner may connect, and the
proxy shows the same one to the brokers.

An answer that has to be changed and cannot be decoded ends its connection: it is never forwarded
unchanged. A broker without a proxy, because it joined later, gets an address at which nothing
answers.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.wire.access import host_and_port
from linkflap.harness.wire.forwarding import (
    Forwarder,
    Frames,
    Passage,
    Tls,
    Wanted,
    forward_until_ended,
    framed,
)
from linkflap.harness.wire.messages import (
    LENGTH,
    REQUEST_HEAD,
    Message,
    Pieces,
    decode_response,
    encode_response,
)

log = logging.getLogger("address rewriter")
SETTINGS: Final = "addresses.json"
READY: Final = "rewrites at"
NOWHERE: Final = ("127.0.0.1", 1)
"""The address of a broker without a proxy."""
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


class RewriterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the rewriter of one cluster: SETTINGS in its folder. `brokers`: the addresses
    that they advertise. `tls` None: plain text."""

    ports: Sequence[PathPort]
    brokers: Sequence[HostPort]
    tls: Tls | None = None


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
    """A part of an answer that names a broker (`node_id` or `broker_id`, `host`, `port`), with its
    proxy's address; no broker stays none."""
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


class RewrittenConnection:
    """The observer of one connection, which rewrites its answers. Raises Malformed where no frame
    of Kafka's can begin, and for an answer that must be changed and cannot be decoded."""

    def __init__(self, proxies: Mapping[int, HostPort], leaders: Sequence[bytes]) -> None:
        """`leaders`: the brokers' own addresses, as bytes of answers that name leaders."""
        self._proxies, self._leaders = proxies, leaders
        self._asked: dict[int, tuple[str, int]] = {}
        self.peer = ""
        self.requests = Frames(REQUEST_HEAD.size, self._note)
        self.responses = Frames(LENGTH.size, self._wanted, kept=self._changed)

    def passes_unread(self, sentence: str) -> bool:
        log.info("the connection of %s ends: %s", self.peer, sentence)
        return False

    def ended(self) -> None:
        self._asked.clear()

    def _note(self, head: bytes) -> Wanted:
        """Notes a request whose answer may name brokers."""
        key, version, correlation = REQUEST_HEAD.unpack(head)
        api, since = _LEADERS.get(key, (_NAMING.get(key, ""), 0))
        if api and version >= since:
            self._asked[correlation] = api, version
        return "pass"

    def _wanted(self, head: bytes) -> Wanted:
        return "keep" if _correlation(head) in self._asked else "pass"

    def _changed(self, frame: memoryview) -> Passage:
        api, version = self._asked.pop(_correlation(frame[: LENGTH.size]))
        whole = framed(frame)
        # Records are many, and moves of leaders few: such an answer is read only where it has the
        # bytes of an address.
        if api in _NAMING.values() or any(leader in whole for leader in self._leaders):
            whole = rewritten(api, version, frame, self._proxies)
        return Passage(instead=[whole])


def _correlation(head: bytes | memoryview) -> int:
    return int.from_bytes(head, "big", signed=True)


def leader_bytes(address: HostPort) -> bytes:
    """How answers that name leaders write an address: a compact string (KIP-482) and a port."""
    host = address[0].encode()
    return bytes([len(host) + 1]) + host + LENGTH.pack(address[1])


async def run(folder: Path, ends: asyncio.Event) -> None:
    settings = msgspec.json.decode((folder / SETTINGS).read_bytes(), type=RewriterSettings)
    leaders = [leader_bytes(address) for address in settings.brokers]
    forwarder = Forwarder("a client")
    ends_of_tls = None if settings.tls is None else settings.tls.ends()
    for port in settings.ports:
        observer = partial(RewrittenConnection, port.proxies, leaders)
        await forwarder.listen(port.port, host_and_port(port.broker), observer, tls=ends_of_tls)
    log.info("%s %s", READY, ", ".join(str(port.port) for port in settings.ports))
    await ends.wait()
    forwarder.close()


if __name__ == "__main__":
    sys.exit(forward_until_ended(run))
