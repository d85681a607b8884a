"""A connection to one node of a cluster, with TLS and SASL if it requires them, for threads that
may block.

TCP, then TLS, then ApiVersions, then SASL (`harness.wire.access`), then requests, one at a time and
each with a deadline. After any failure the connection is closed, and the next call opens a new one
and authenticates again.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Access, AuthenticationRefused, logging_in
from linkflap.harness.wire.connection import Unanswered
from linkflap.harness.wire.messages import Malformed, Message
from linkflap.harness.wire.sasl import Login

_LARGEST_FRAME: Final = 128 << 20
"""Above all requested sizes: a node that announces more speaks another protocol."""
_CONNECT_SECONDS: Final = 10.0
_PIECE: Final = 1 << 20
T = TypeVar("T")


class Peer:
    """A connection to the node at `address` (host:port). For one thread."""

    def __init__(self, address: str, access: Access) -> None:
        self.address = address
        self._access = access
        self._socket: socket.socket | None = None
        self._correlation = 0
        self._deadline = 0.0
        self._versions: Mapping[int, range] = {}

    def call(self, api: str, version: int, body: Message, *, within: float = 10.0) -> Message:
        """The body of the response. Raises Unanswered after `within` seconds or when the connection
        broke, and Refused."""
        return self._guarded(lambda: self._exchange(api, version, body), within)

    def takes(self, api: str, version: int, *, within: float = 10.0) -> bool:
        """Whether the node supports this version of an API. Raises as `call`."""
        key = int(messages.schema(api, version, "request").entity.__api_key__)
        return self._guarded(lambda: version in self._versions.get(key, ()), within)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _guarded(self, act: Callable[[], T], within: float) -> T:
        """Calls it on an open connection."""
        self._deadline = time.monotonic() + within
        try:
            if self._socket is None:
                self._open()
            return act()
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise AuthenticationRefused(
                f"the certificate of {self.address} is not trusted: {error.verify_message}"
            ) from error
        except (OSError, EOFError, Malformed) as error:
            self.close()
            raise Unanswered(f"{self.address} did not answer: {_words(error)}") from error
        except BaseException:
            self.close()  # a late answer would be taken for the answer to the next request
            raise

    def _open(self) -> None:
        host, _, port = self.address.rpartition(":")
        host = host.strip("[]")
        plain = socket.create_connection(
            (host, int(port)), timeout=min(_CONNECT_SECONDS, self._left())
        )
        self._socket = plain
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._access.tls is not None:
            self._socket = self._access.tls.wrap_socket(plain, server_hostname=host)
        answer = self._exchange(
            "api_versions", 0, messages.request("api_versions", 0).ApiVersionsRequest()
        )
        self._versions = {
            int(row.api_key): range(row.min_version, row.max_version + 1) for row in answer.api_keys
        }
        if self._access.login is not None:
            self._log_in(self._access.login)

    def _log_in(self, login: Login) -> None:
        dialogue = logging_in(login, self.address)
        with contextlib.suppress(StopIteration):
            asked = next(dialogue)
            while True:
                asked = dialogue.send(self._exchange(*asked))

    def _exchange(self, api: str, version: int, body: Message) -> Message:
        if self._socket is None:
            raise EOFError("the connection is closed")
        self._correlation += 1
        self._socket.settimeout(self._left())
        self._socket.sendall(
            messages.encode_request(api, version, self._correlation, self._access.client, body)
        )
        (length,) = messages.LENGTH.unpack(self._exactly(messages.LENGTH.size))
        if not 0 <= length <= _LARGEST_FRAME:
            raise Malformed(f"a frame of {length} bytes")
        return messages.decode_response(api, version, bytes(self._exactly(length)))

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        view, got = memoryview(data), 0
        while got < count and self._socket is not None:
            self._socket.settimeout(self._left())
            received = self._socket.recv_into(view[got:], min(count - got, _PIECE))
            if not received:
                raise EOFError("the connection was closed")
            got += received
        return data

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
