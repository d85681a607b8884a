"""Measures one network path with Kafka's own protocol, from a plain socket. A fault's bite and heal
are judged by it.

Promises: every call ends within its deadline, and opens and closes a connection of its own. If the
path does not answer, the call returns None, or raises `NoAnswer` where the content of the answer
is needed. Nothing is retried or cached, unlike in any Kafka client, because a retry would hide the
measured effect.

Every listener answers ApiVersions (KIP-35) without state. The smallest permanent change that a
request can make is a client quota (KIP-546) for a name that no client has. TLS and SASL handshakes
count as connecting, within the same deadline.

A broker is asked about its cluster in the same way. Metadata in KRaft names only brokers that are
registered and unfenced. Only the active controller answers DescribeQuorum (KIP-595), so an answer
proves that there is one.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from dataclasses import dataclass
from typing import Final

from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Access, Address, NoAnswer, access_to, host_and_port
from linkflap.harness.wire.connection import quorum_request
from linkflap.harness.wire.messages import Message
from linkflap.harness.wire.peer import BlockingConnection

CLIENT: Final = "linkflap-probe"
PLAIN: Final = Access(client=CLIENT)
API_VERSIONS: Final = messages.encode_request(
    "api_versions", 0, 1, CLIENT, messages.request("api_versions", 0).ApiVersionsRequest()
)


def reach(address: str, *, within: float) -> float | None:
    """`round_trip` to a `host:port`, with its credentials."""
    return round_trip(host_and_port(address), within=within, access=access_to(address))


def refusal(address: str, *, within: float) -> str:
    """Why no connection to a `host:port` can be opened with its credentials; empty if one can."""
    try:
        with BlockingConnection(host_and_port(address), within=within, access=access_to(address)):
            return ""
    except NoAnswer as error:
        return str(error)


def round_trip(address: Address, *, within: float, access: Access = PLAIN) -> float | None:
    """Seconds from one ApiVersions request to its complete response, on a new connection
    (connecting not included)."""
    try:
        with BlockingConnection(address, within=within, access=access) as path:
            start = time.perf_counter()
            path.send(API_VERSIONS)
            path.receive()
            return time.perf_counter() - start
    except NoAnswer:
        return None


def first_answer(
    address: Address, *, within: float, access: Access = PLAIN, words: bytes = API_VERSIONS
) -> float | None:
    """Seconds from the first bytes sent on a new connection to the first that come back; None if
    none came. Sends the TLS ClientHello if there is TLS, else `words`, by default ApiVersions,
    which is answered before authentication: one round trip of bytes, however many more the
    authentication needs."""
    try:
        with BlockingConnection(address, within=within, access=PLAIN) as path:
            start = time.perf_counter()
            path.send(words if access.tls is None else _greeting(access.tls, address[0]))
            path.hear()
            return time.perf_counter() - start
    except NoAnswer:
        return None


def first_words(address: str) -> bytes:
    """The first bytes of a client to a `host:port`, with its credentials; any answer to them is the
    server's."""
    entered = access_to(address)
    return (
        API_VERSIONS if entered.tls is None else _greeting(entered.tls, host_and_port(address)[0])
    )


def _greeting(tls: ssl.SSLContext, host: str) -> bytes:
    """The first message of a TLS client (ClientHello)."""
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.wrap_bio(ssl.MemoryBIO(), out, server_hostname=host).do_handshake()
    return out.read()


def transfer(address: Address, *, size: int, within: float, access: Access = PLAIN) -> float | None:
    """Bytes per second of pipelined ApiVersions responses, over at least `size` bytes; None if they
    stalled.

    A broker answers one request of a connection at a time: without a fault this is some MB/s, not
    the link's capacity.
    """
    try:
        with BlockingConnection(address, within=within, access=access) as path:
            start = time.perf_counter()
            path.send(API_VERSIONS)
            received = one = messages.LENGTH.size + len(path.receive())
            path.send(API_VERSIONS * -(-(size - one) // one))
            while received < size:
                received += messages.LENGTH.size + len(path.receive())
            return received / (time.perf_counter() - start)
    except NoAnswer:
        return None


def advertised(address: Address, *, within: float, access: Access = PLAIN) -> dict[int, Address]:
    """The brokers that Metadata lists for a client of the listener at `address`. Raises
    NoAnswer."""
    body = messages.request("metadata", 4).MetadataRequest(
        topics=(), allow_auto_topic_creation=False
    )
    with BlockingConnection(address, within=within, access=access) as path:
        response = path.ask("metadata", 4, body)
    return {int(broker.node_id): (broker.host, int(broker.port)) for broker in response.brokers}


_ANSWER_WITHIN: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The controllers as the active one reports them; `leader` is -1 while there is none."""

    leader: int
    voters: frozenset[int]


def seen_brokers(address: str) -> frozenset[int]:
    """The unfenced brokers in the metadata of the broker at `address`; empty while it does not
    answer."""
    try:
        return frozenset(
            advertised(host_and_port(address), within=_ANSWER_WITHIN, access=access_to(address))
        )
    except NoAnswer:
        return frozenset()


def quorum(address: str) -> Quorum | None:
    """The quorum, which the broker at `address` asks the active controller for; None while it does
    not answer."""
    try:
        response = _asked(address, "describe_quorum", 0, quorum_request())
    except NoAnswer:
        return None
    for topic in response.topics:
        for partition in topic.partitions:
            voters = frozenset(int(voter.replica_id) for voter in partition.current_voters)
            return Quorum(leader=int(partition.leader_id), voters=voters)
    return None


def finalized_features(address: str) -> dict[str, int] | None:
    """Feature -> level in force in the cluster (KIP-584); None while the broker does not answer."""
    body = messages.request("api_versions", 3).ApiVersionsRequest(
        client_software_name="linkflap", client_software_version="1"
    )
    try:
        response = _asked(address, "api_versions", 3, body)
    except NoAnswer:
        return None
    return {feature.name: int(feature.max_version_level) for feature in response.finalized_features}


def _asked(address: str, api: str, version: int, body: Message) -> Message:
    """The response. Raises NoAnswer."""
    with BlockingConnection(
        host_and_port(address), within=_ANSWER_WITHIN, access=access_to(address)
    ) as path:
        return path.ask(api, version, body)
