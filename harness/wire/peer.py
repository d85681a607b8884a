"""A connection to one node of a cluster, for threads that may block: TCP, then TLS and SASL if the
node requires them (`harness.wire.access`), then one request at a time.

`BlockingConnection` is one connection, with one deadline for everything on it. `Peer` opens a new
one after each failure.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Final

from linkflap.harness.wire import messages
from linkflap.harness.wire.access import (
    Access,
    Address,
    AuthenticationRefused,
    Login,
    Unanswered,
    host_and_port,
    logging_in,
)
from linkflap.harness.wire.messages import Malformed, Message

_PIECE: Final = 1 << 20
_WITHIN: Final = 10.0
_END: Final = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
"""The system's event for a connection that the other side has closed; without POLLRDHUP, only for
one that was reset."""


class BlockingConnection:
    """One connection with one deadline for everything that happens on it. Every call raises
    Unanswered, or AuthenticationRefused; then the connection is of no more use."""

    def __init__(self, address: Address, *, within: float, access: Access) -> None:
        self._named, self._client = f"{address[0]}:{address[1]}", access.client
        self.extend(within)
        with self._named_in_errors("cannot be connected to"):
            self._socket = socket.create_connection(address, timeout=self._left())
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if access.tls is not None:
                with self._named_in_errors("does not agree on TLS"):
                    self._socket.settimeout(self._left())
                    self._socket = access.tls.wrap_socket(self._socket, server_hostname=address[0])
            if access.login is not None:
                self._log_in(access.login)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

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

    def ask(self, api: str, version: int, body: Message) -> Message:
        """The body of the response."""
        (answer,) = self.ask_times(1, api, version, body)
        return answer

    def ask_times(self, times: int, api: str, version: int, body: Message) -> list[Message]:
        """The bodies of the responses to this many equal requests, which are sent at once."""
        self.send(messages.encode_request(api, version, 1, self._client, body) * times)
        try:
            return [messages.decode_response(api, version, self.receive()) for _ in range(times)]
        except Malformed as error:
            raise Unanswered(f"{self._named} sent an unreadable answer: {error}") from error

    def send(self, content: bytes) -> None:
        with self._named_in_errors("accepted no request"):
            self._socket.settimeout(self._left())
            self._socket.sendall(content)

    def receive(self) -> bytearray:
        """The next response without its length: correlation id, then the rest."""
        try:
            return self._exactly(messages.frame_length(self._exactly(messages.LENGTH.size)))
        except Malformed as error:
            raise Unanswered(f"{self._named} does not speak Kafka's protocol: {error}") from error

    def hear(self) -> None:
        """Waits until any byte has come back."""
        self._exactly(1)

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        view, got = memoryview(data), 0
        while got < count:
            with self._named_in_errors("did not answer"):
                self._socket.settimeout(self._left())
                received = self._socket.recv_into(view[got:], min(count - got, _PIECE))
            if not received:
                raise Unanswered(f"{self._named} ended the connection without an answer")
            got += received
        return data

    def _log_in(self, login: Login) -> None:
        dialogue = logging_in(login, self._named)
        with contextlib.suppress(StopIteration):
            asked = next(dialogue)
            while True:
                asked = dialogue.send(self.ask(*asked))

    @contextlib.contextmanager
    def _named_in_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationRefused(
                f"the certificate of {self._named} is not trusted: {error.verify_message}"
            ) from error
        except OSError as error:
            raise Unanswered(
                f"{self._named} {what}: {str(error) or type(error).__name__}"
            ) from error

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class Peer:
    """Requests to the node at `address` (host:port). For one thread."""

    def __init__(self, address: str, access: Access) -> None:
        self.address = address
        self._access = access
        self._path: BlockingConnection | None = None
        self._versions: Mapping[int, range] = {}

    def call(self, api: str, version: int, body: Message, *, within: float = _WITHIN) -> Message:
        """The body of the response. Raises Unanswered after `within` seconds or when the connection
        broke, and AuthenticationRefused."""
        with self._opened(within) as path:
            return path.ask(api, version, body)

    def takes(self, api: str, version: int) -> bool:
        """Whether the node supports this version of an API. Raises as `call`."""
        key = int(messages.schema(api, version, "request").entity.__api_key__)
        with self._opened(_WITHIN):
            return version in self._versions.get(key, ())

    def close(self) -> None:
        if self._path is not None:
            self._path.close()
            self._path = None

    @contextlib.contextmanager
    def _opened(self, within: float) -> Iterator[BlockingConnection]:
        try:
            if self._path is None:
                self._path = BlockingConnection(
                    host_and_port(self.address), within=within, access=self._access
                )
                body = messages.request("api_versions", 0).ApiVersionsRequest()
                self._versions = {
                    int(row.api_key): range(row.min_version, row.max_version + 1)
                    for row in self._path.ask("api_versions", 0, body).api_keys
                }
            self._path.extend(within)
            yield self._path
        except BaseException:
            self.close()  # a late answer would be taken for the answer to the next request
            raise
