"""Answers of a cluster that linkflap did not start: they name the proxies of their path, and all
other bytes pass as they came, however they are cut."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from linkflap.harness.machine import client_properties
from linkflap.harness.machine.leases import Lease
from linkflap.harness.runtimes.attached import ends_of_tls
from linkflap.harness.runtimes.kraft.secrets import Authority, attached_secrets
from linkflap.harness.wire.address_rewriter import NOWHERE, RewrittenConnection, leader_bytes
from linkflap.harness.wire.forwarding import Forwarder, Frames
from linkflap.harness.wire.messages import (
    LENGTH,
    REQUEST_HEAD,
    Error,
    Malformed,
    decode_response,
    encode_request,
    encode_response,
    request,
    response,
)

OWN = {1: ("kafka-1.example", 9092), 2: ("kafka-2.example", 9093)}
PROXIES = {1: ("127.0.0.1", 21001), 2: ("127.0.0.1", 21002)}
LEADERS = [leader_bytes(address) for address in OWN.values()]
NONE = timedelta(0)


def fed(frames: Frames, data: bytes) -> bytes:
    """The bytes that pass once these bytes have come."""
    frames.feed(memoryview(data))
    return frames.taken()


def connection() -> RewrittenConnection:
    return RewrittenConnection(PROXIES, LEADERS)


def brokers(kind: Any, number: str = "node_id") -> tuple[Any, ...]:
    return tuple(kind(**{number: id}, host=host, port=port) for id, (host, port) in OWN.items())


def metadata(version: int) -> Any:
    m = response("metadata", version)
    late: dict[str, Any] = {"throttle_time": NONE} if version >= 3 else {}
    late |= {"error_code": Error.none} if version >= 13 else {}
    return m.MetadataResponse(brokers=brokers(m.MetadataResponseBroker), topics=(), **late)


def coordinators(version: int) -> Any:
    m = response("find_coordinator", version)
    late: dict[str, Any] = {"throttle_time": NONE} if version >= 1 else {}
    if version >= 4:
        found = (
            m.Coordinator(
                key=f"group {id}", node_id=id, host=host, port=port,
                error_code=Error.none, error_message=None,
            )
            for id, (host, port) in OWN.items()
        )  # fmt: skip
        none = m.Coordinator(
            key="none", node_id=-1, host="", port=-1,
            error_code=Error.coordinator_not_available, error_message=None,
        )  # fmt: skip
        return m.FindCoordinatorResponse(coordinators=(*found, none), **late)
    late |= {"error_message": None} if version >= 1 else {}
    return m.FindCoordinatorResponse(
        error_code=Error.none, node_id=2, host=OWN[2][0], port=OWN[2][1], **late
    )


def described(version: int) -> Any:
    m = response("describe_cluster", version)
    kind = m.DescribeClusterBroker
    rows = brokers(kind, "broker_id") if version < 2 else tuple(
        kind(broker_id=id, host=host, port=port, is_fenced=False)
        for id, (host, port) in OWN.items()
    )  # fmt: skip
    return m.DescribeClusterResponse(
        throttle_time=NONE, error_code=Error.none, cluster_id="one", brokers=rows
    )


NAMING = [
    *(("metadata", version, metadata) for version in range(14)),
    *(("find_coordinator", version, coordinators) for version in range(7)),
    *(("describe_cluster", version, described) for version in range(3)),
]
KEYS = {"produce": 0, "fetch": 1, "metadata": 3, "find_coordinator": 10, "describe_cluster": 60}


def asked(through: RewrittenConnection, api: str, version: int) -> None:
    """A request's beginning crosses; what follows its head is not read."""
    head = KEYS[api].to_bytes(2) + version.to_bytes(2) + (7).to_bytes(4) + b"rest"
    framed = LENGTH.pack(len(head)) + head
    assert fed(through.requests, framed) == framed


def addresses(text: str) -> Iterator[tuple[str, str]]:
    for id, (host, port) in OWN.items():
        yield f"host='{host}', port={port}", f"host='127.0.0.1', port={PROXIES[id][1]}"


@pytest.mark.parametrize(("api", "version", "make"), NAMING)
def test_an_answer_that_names_brokers_names_their_proxies_and_is_otherwise_the_same(
    api: str, version: int, make: Any
) -> None:
    through, body = connection(), make(version)
    asked(through, api, version)
    changed = fed(through.responses, bytes(encode_response(api, version, 7, body)))
    expected = repr(
        decode_response(api, version, bytes(encode_response(api, version, 7, body))[4:])
    )
    for own, proxy in addresses(expected):
        expected = expected.replace(own, proxy)
    assert "example" not in expected
    assert repr(decode_response(api, version, changed[4:])) == expected
    assert LENGTH.unpack(changed[:4])[0] == len(changed) - 4


def test_other_answers_pass_byte_for_byte_in_pieces_of_any_size() -> None:
    other = LENGTH.pack(4 + 30) + (9).to_bytes(4) + bytes(range(30))
    naming = bytes(encode_response("metadata", 12, 7, metadata(12)))
    for size in range(1, len(naming) + len(other)):
        through = connection()
        asked(through, "metadata", 12)
        stream = other + naming + other
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        passed = b"".join(fed(through.responses, piece) for piece in pieces)
        assert passed[: len(other)] == other
        assert passed[-len(other) :] == other
        assert b"example" not in passed


def test_requests_pass_byte_for_byte_however_they_are_split() -> None:
    m = request("metadata", 4)
    body = m.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    stream = b"".join(encode_request("metadata", 4, n, "client", body) for n in range(3))
    for size in range(1, 40):
        through = connection()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert b"".join(fed(through.requests, piece) for piece in pieces) == stream


@pytest.mark.parametrize("version", [16, 17, 18])
def test_a_fetch_that_names_the_new_leader_names_its_proxy_and_keeps_its_records(
    version: int,
) -> None:
    m, records = response("fetch", version), bytes(range(256)) * 40
    row = m.PartitionData(
        partition_index=0, error_code=Error.not_leader_or_follower, high_watermark=5,
        aborted_transactions=None, records=records, current_leader=m.LeaderIdAndEpoch(leader_id=2),
    )  # fmt: skip
    topic = m.FetchableTopicResponse(topic_id=UUID(int=5), partitions=(row, row))
    body = m.FetchResponse(
        throttle_time=NONE, error_code=Error.none, responses=(topic,),
        node_endpoints=brokers(m.NodeEndpoint),
    )  # fmt: skip
    through = connection()
    asked(through, "fetch", version)
    changed = fed(through.responses, bytes(encode_response("fetch", version, 7, body)))
    found = decode_response("fetch", version, changed[4:])
    assert [(n.host, n.port) for n in found.node_endpoints] == [*PROXIES.values()]
    assert [bytes(p.records) for t in found.responses for p in t.partitions] == [records, records]


def test_a_produce_that_names_the_new_leader_names_its_proxy() -> None:
    m = response("produce", 12)
    body = m.ProduceResponse(responses=(), node_endpoints=brokers(m.NodeEndpoint))
    through = connection()
    asked(through, "produce", 12)
    changed = fed(through.responses, bytes(encode_response("produce", 12, 7, body)))
    found = decode_response("produce", 12, changed[4:])
    assert [(n.host, n.port) for n in found.node_endpoints] == [*PROXIES.values()]


def test_an_answer_without_an_address_is_not_even_read() -> None:
    through, no_answer = connection(), LENGTH.pack(4 + 3) + (7).to_bytes(4) + b"???"
    asked(through, "fetch", 17)
    assert fed(through.responses, no_answer) == no_answer


def test_a_broker_that_has_no_proxy_is_named_nowhere() -> None:
    through = RewrittenConnection({1: PROXIES[1]}, LEADERS)
    asked(through, "metadata", 12)
    changed = fed(through.responses, bytes(encode_response("metadata", 12, 7, metadata(12))))
    first, second = decode_response("metadata", 12, changed[4:]).brokers
    assert (first.host, first.port) == PROXIES[1]
    assert (second.host, second.port) == NOWHERE


@pytest.mark.parametrize("version", [12, 99])
def test_an_answer_that_must_be_changed_and_cannot_be_read_does_not_pass(version: int) -> None:
    through = connection()
    asked(through, "metadata", version)
    with pytest.raises(Malformed):
        fed(through.responses, LENGTH.pack(4 + 3) + (7).to_bytes(4) + b"???")


def test_bytes_that_are_no_kafka_frame_do_not_pass() -> None:
    with pytest.raises(Malformed):
        fed(connection().responses, b"HTTP/1.1 200 OK\r\n")


async def broker_that_names_clients(tls: ssl.SSLContext) -> tuple[asyncio.Server, int]:
    """Answers each request with the name in its client's certificate."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                correlation = (await reader.readexactly(length))[4:8]
                shown = writer.get_extra_info("peercert")["subject"]
                name = next(value for ((key, value),) in shown if key == "commonName").encode()
                writer.write(LENGTH.pack(4 + len(name)) + correlation + name)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    return server, server.sockets[0].getsockname()[1]


async def asked_over_tls(port: int, tls: ssl.SSLContext) -> str:
    """The name in a broker's answer. Raises OSError or IncompleteReadError for a refusal."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(LENGTH.pack(8) + REQUEST_HEAD.pack(18, 0, 7))
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        return (await reader.readexactly(length))[4:].decode()
    finally:
        writer.close()


def server_context(own: Path, clients: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(clients))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(own)
    return context


def client_context(authority: str, identity: Path | str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    if identity:
        context.load_cert_chain(identity)
    return context


def test_a_broker_knows_the_client_by_its_own_certificate_and_rejects_others(
    tmp_path: Path,
) -> None:
    theirs = Authority(tmp_path, "theirs")
    own, other = (theirs.issue(f"{name}.pem", name, ["localhost"]) for name in ("me", "other"))
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol=ssl\nssl.ca.location={theirs.file}\nssl.certificate.location={own}\n"
    )
    made = attached_secrets("A", client_properties.read(str(properties)), tmp_path)
    tls = ends_of_tls(made)
    assert tls is not None
    lease = Lease()
    (before,) = lease.ports(1)

    async def talk() -> list[str]:
        broker_tls = server_context(
            theirs.issue("broker.pem", "broker", ["127.0.0.1"]), theirs.file
        )
        broker, port = await broker_that_names_clients(broker_tls)
        forwarder = Forwarder("a client")
        said = []
        asked: list[RewrittenConnection] = []

        def observer() -> RewrittenConnection:
            asked.append(RewrittenConnection(PROXIES, LEADERS))
            return asked[-1]

        await forwarder.listen(before, ("127.0.0.1", port), observer, tls=tls.ends())
        said.append(await asked_over_tls(before, client_context(made.entry.authority, own)))
        said.append(await asked_over_tls(port, client_context(made.entry.authority, own)))
        for stranger in (other, ""):
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await asked_over_tls(before, client_context(made.entry.authority, stranger))
        with pytest.raises(ssl.SSLCertVerificationError):  # the proxies are not the brokers
            await asked_over_tls(before, client_context(str(theirs.file), own))
        forwarder.close()
        broker.close()
        assert (len(asked), forwarder.opened) == (4, 1), "the handshakes of three failed"
        return said

    try:
        assert asyncio.run(talk()) == ["me", "me"]
    finally:
        lease.release()


def believed(client: ssl.SSLContext, shown: Path) -> bool:
    """Whether a client believes a server with this certificate at 127.0.0.1."""
    listening = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    listening.load_cert_chain(shown)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname="127.0.0.1"),
        listening.wrap_bio(there, back, server_side=True),
    ]
    try:
        for end in (*ends, *ends):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError:
        return False
    return ends[0].cipher() is not None


def test_brokers_are_believed_by_their_own_authority_alone(tmp_path: Path) -> None:
    theirs, strangers = Authority(tmp_path, "theirs"), Authority(tmp_path, "strangers")
    properties = tmp_path / "client.properties"
    properties.write_text(f"security.protocol=ssl\nssl.ca.location={theirs.file}\n")
    made = attached_secrets("A", client_properties.read(str(properties)), tmp_path)
    tls = ends_of_tls(made)
    assert tls is not None

    issued = [
        theirs.issue("right.pem", "broker", ["127.0.0.1"]),
        theirs.issue("elsewhere.pem", "broker", ["kafka.example"]),
        strangers.issue("strange.pem", "broker", ["127.0.0.1"]),
        Path(made.shown),
    ]
    assert [believed(tls.ends().to_broker, each) for each in issued] == [True, False, False, False]
