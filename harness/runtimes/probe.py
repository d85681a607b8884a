"""Measures one network path with Kafka's own protocol, from a plain socket. A fault's bite and heal
are judged by it.

Promises: every call ends within its deadline, and opens and closes a connection of its own. If the
path does not answer, the call returns None, or raises `Unanswered` where the content of the answer
is needed. Nothing is retried or cached, unlike in any Kafka client, because a retry would hide the
measured effect.

Every listener answers ApiVersions (KIP-35) without state. The smallest permanent change that a
request can make is a client quota (KIP-546) for a name that no client has. TLS and SASL handshakes
count as connecting, within the same deadline.
"""

from __future__ import annotations

import contextlib
import io
import select
import socket
import ssl
import struct
import time
from typing import Final, TypeVar

# Before kio, which would import hypothesis.
import linkflap.harness.wire  # noqa: F401

# isort: split
from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse
from kio.schema.metadata.v4.request import MetadataRequest
from kio.schema.metadata.v4.response import MetadataResponse
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32

from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Access, AuthenticationRefused, access_to, logging_in
from linkflap.harness.wire.sasl import Login

Request = (
    ApiVersionsRequest | MetadataRequest | AlterClientQuotasRequest | DescribeClientQuotasRequest
)


Response = TypeVar("Response", MetadataResponse, DescribeClientQuotasResponse)


CLIENT: Final = "linkflap-probe"


SIZE: Final = struct.Struct(">i")


class NoAnswer(Exception):
    """No complete answer within the deadline: the connection was refused, reset or closed, or was
    silent, or it is not Kafka."""


def encode(request: Request, correlation: int) -> bytes:
    """A request with its header, preceded by its length."""
    header = request.__header_schema__
    out = io.BytesIO()
    entity_writer(header)(
        out,
        header(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=i32(correlation),
            client_id=CLIENT,
        ),
    )
    entity_writer(type(request))(out, request)
    content = out.getvalue()
    return SIZE.pack(len(content)) + content


API_VERSIONS: Final = encode(ApiVersionsRequest(), 1)


def decode(kind: type[Response], frame: bytes) -> Response:
    """A response of this kind, without its header. Raises NoAnswer for anything else."""
    try:
        _, start = entity_reader(kind.__header_schema__)(frame, 0)
        entity, _ = entity_reader(kind)(frame, start)
    except SerialError as error:
        raise NoAnswer(f"the answer is not a {kind.__name__}: {error}") from error
    return entity


Address = tuple[str, int]
PLAIN: Final = Access(client=CLIENT)
_MOST: Final = 16 << 20
_END: Final = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
"""The system's event for a connection that the other side has closed; without POLLRDHUP, only for
one that was reset."""


def parse(address: str) -> Address:
    """`host:port` as a pair."""
    host, _, port = address.rpartition(":")
    return host, int(port)


class Path:
    """One connection with one deadline for everything that happens on it."""

    def __init__(self, address: Address, *, within: float, access: Access = PLAIN) -> None:
        self._address, self._access, self._deadline = address, access, time.monotonic() + within
        self._buffer = bytearray()

    def __enter__(self) -> Path:
        """Connects. Raises NoAnswer."""
        try:
            self._socket = socket.create_connection(self._address, timeout=self._left())
        except OSError as error:
            raise NoAnswer(f"{self._named} cannot be connected to: {error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._access.tls is not None:
                self._begin_tls(self._access.tls)
            if self._access.login is not None:
                self._log_in(self._access.login)
        except BaseException:
            self._socket.close()
            raise
        return self

    def _begin_tls(self, tls: ssl.SSLContext) -> None:
        try:
            self._socket.settimeout(self._left())
            self._socket = tls.wrap_socket(self._socket, server_hostname=self._address[0])
        except OSError as error:
            raise NoAnswer(f"{self._named} does not agree on TLS: {error}") from error

    def _log_in(self, login: Login) -> None:
        dialogue = logging_in(login, self._named)
        try:
            with contextlib.suppress(StopIteration):
                api, version, body = next(dialogue)
                while True:
                    self.send(messages.encode_request(api, version, 1, CLIENT, body))
                    api, version, body = dialogue.send(
                        messages.decode_response(api, version, self.receive())
                    )
        except (AuthenticationRefused, messages.Malformed) as error:
            raise NoAnswer(f"{self._named} rejected the login: {error}") from error

    def extend(self, within: float) -> None:
        """Sets the deadline to this many seconds from now."""
        self._deadline = time.monotonic() + within

    @property
    def ended(self) -> bool:
        """Whether the other side has closed or reset the connection, as far as the system knows.
        Does not read, because unread data before the end would hide it."""
        asked = select.poll()
        try:
            asked.register(self._socket, _END)
            return bool(asked.poll(0))
        except (OSError, ValueError):
            return True

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    @property
    def _named(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise NoAnswer(f"{self._named} did not answer in time")
        return left

    def send(self, content: bytes) -> None:
        try:
            self._socket.settimeout(self._left())
            self._socket.sendall(content)
        except OSError as error:
            raise NoAnswer(f"{self._named} accepted no request: {error}") from error

    def receive(self) -> bytes:
        """The next response without its length: correlation id, then the rest."""
        while len(self._buffer) < SIZE.size or len(self._buffer) < SIZE.size + self._length():
            self._fill()
        end = SIZE.size + self._length()
        frame = bytes(self._buffer[SIZE.size : end])
        del self._buffer[:end]
        return frame

    def _length(self) -> int:
        length = int(SIZE.unpack_from(self._buffer)[0])
        if not 0 < length <= _MOST:
            raise NoAnswer(
                f"{self._named} does not speak Kafka's protocol: it announces {length} bytes"
            )
        return length

    def _fill(self) -> None:
        try:
            self._socket.settimeout(self._left())
            content = self._socket.recv(1 << 16)
        except OSError as error:
            raise NoAnswer(f"{self._named} did not answer: {error}") from error
        if not content:
            raise NoAnswer(f"{self._named} ended the connection without an answer")
        self._buffer += content

    def hear(self) -> None:
        """Waits until any byte has come back. Raises NoAnswer."""
        self._fill()

    def ask(self, request: Request) -> bytes:
        self.send(encode(request, 1))
        return self.receive()


def reach(address: str, *, within: float) -> float | None:
    """`round_trip` to a `host:port`, with its credentials."""
    return round_trip(parse(address), within=within, access=access_to(address))


def refusal(address: str, *, within: float) -> str:
    """Why no connection to a `host:port` can be opened with its credentials; empty if one can."""
    try:
        with Path(parse(address), within=within, access=access_to(address)):
            return ""
    except NoAnswer as error:
        return str(error)


def round_trip(address: Address, *, within: float, access: Access = PLAIN) -> float | None:
    """Seconds from one ApiVersions request to its complete response, on a new connection
    (connecting not included)."""
    try:
        with Path(address, within=within, access=access) as path:
            start = time.perf_counter()
            path.send(API_VERSIONS)
            path.receive()
            return time.perf_counter() - start
    except NoAnswer:
        return None


def first_answer(address: Address, *, within: float, access: Access = PLAIN) -> float | None:
    """Seconds from the first bytes sent on a new connection to the first that come back; None if
    none came. Sends the TLS ClientHello if there is TLS, else ApiVersions, which is answered before
    authentication: one round trip of bytes, however many more the authentication needs."""
    try:
        with Path(address, within=within) as path:
            start = time.perf_counter()
            path.send(API_VERSIONS if access.tls is None else _greeting(access.tls, address[0]))
            path.hear()
            return time.perf_counter() - start
    except NoAnswer:
        return None


def first_words(address: str) -> bytes:
    """The first bytes of a client to a `host:port`, with its credentials; any answer to them is the
    server's."""
    entered = access_to(address)
    return API_VERSIONS if entered.tls is None else _greeting(entered.tls, parse(address)[0])


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
        with Path(address, within=within, access=access) as path:
            start = time.perf_counter()
            path.send(API_VERSIONS)
            received = one = SIZE.size + len(path.receive())
            path.send(API_VERSIONS * -(-(size - one) // one))
            while received < size:
                received += SIZE.size + len(path.receive())
            return received / (time.perf_counter() - start)
    except NoAnswer:
        return None


def advertised(address: Address, *, within: float, access: Access = PLAIN) -> dict[int, Address]:
    """The brokers that Metadata lists for a client of the listener at `address`. Raises
    Unanswered."""
    with Path(address, within=within, access=access) as path:
        frame = path.ask(MetadataRequest(topics=(), allow_auto_topic_creation=False))
    response = decode(MetadataResponse, frame)
    return {int(broker.node_id): (broker.host, int(broker.port)) for broker in response.brokers}
