"""Authenticates to a node: TLS, then SASL, for code that speaks Kafka's protocol itself, over any
kind of socket.

TCP, then TLS, then SaslHandshake v1 and SaslAuthenticate (KIP-43, KIP-152). The authentication is a
dialogue of requests and responses; the owner of the connection exchanges them.

The login is SASL PLAIN (RFC 4616), or SCRAM-SHA-256 and -512 (RFC 5802, KIP-84), as a client,
without a socket. A dialogue is a generator. It yields the bytes to send, and receives the broker's
answer. It ends when the broker has proven that it knows the password too (SCRAM), or at once
(PLAIN).
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Final

from scramp import ScramClient, ScramException

from linkflap.harness.model.security import Security, security_of
from linkflap.harness.wire import messages
from linkflap.harness.wire.messages import Error, Message

Dialogue = Generator[bytes, bytes, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """User and password of a login, and one of `MECHANISMS`."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        # never prints the password
        return f"Login({self.mechanism}, {self.username})"

    def dialogue(self) -> Dialogue:
        """A new one for every connection. Sending to it raises LoginFailed when the broker does not
        know the password."""
        return MECHANISMS[self.mechanism](self)


class LoginFailed(Exception):
    """The other side does not know the password, or its answer is invalid."""


def _plain(login: Login) -> Dialogue:
    yield b"\0".join((b"", login.username.encode(), login.password.encode()))


def _scram(login: Login) -> Dialogue:
    client = ScramClient([login.mechanism], login.username, login.password)
    try:
        client.set_server_first((yield client.get_client_first().encode()).decode())
        client.set_server_final((yield client.get_client_final().encode()).decode())
    except (ScramException, UnicodeDecodeError) as error:
        raise LoginFailed(str(error)) from error


MECHANISMS: Final[Mapping[str, Callable[[Login], Dialogue]]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
}


CLIENT: Final = "linkflap"
Exchange = tuple[str, int, Message]
"""API, version, body of a request."""


class NoAnswer(Exception):
    """A node gave no answer."""


class Unanswered(NoAnswer):
    """The node could not be reached, closed the connection, did not answer in time, or is not
    Kafka."""


class AuthenticationRefused(NoAnswer):
    """The node refuses the authentication, or has the wrong certificate. A retry does not help."""


Address = tuple[str, int]


def host_and_port(address: str) -> Address:
    """`host:port` as a pair."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The credentials for a cluster. `tls` None: plain text; `login` None: no SASL."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None
    client: str = CLIENT


@functools.cache
def access(security: Security) -> Access:
    """The credentials of a principal for a cluster. Reads certificates once."""
    tls = None
    if security.protocol in ("SSL", "SASL_SSL"):
        tls = ssl.create_default_context(cafile=security.authority)
        tls.check_hostname = not security.any_host
        if security.identity:
            tls.load_cert_chain(security.identity)
    login = None
    if security.mechanism:
        login = Login(
            mechanism=security.mechanism, username=security.username, password=security.password
        )
    return Access(tls=tls, login=login)


def access_to(address: str) -> Access:
    """The credentials of an address (`harness.model.security.Address`)."""
    return access(security_of(address))


def logging_in(login: Login, address: str) -> Generator[Exchange, Message, None]:
    """The SASL dialogue: yields requests, is sent their responses. Raises AuthenticationRefused."""
    shake = messages.request("sasl_handshake", 1).SaslHandshakeRequest(mechanism=login.mechanism)
    answer = yield "sasl_handshake", 1, shake
    if answer.error_code != Error.none:
        known = ", ".join(answer.mechanisms) or "no SASL at all"
        raise AuthenticationRefused(f"{address} accepts {known} and not {login.mechanism}")
    dialogue = login.dialogue()
    try:
        message = next(dialogue)
        while True:
            body = messages.request("sasl_authenticate", 0).SaslAuthenticateRequest(
                auth_bytes=message
            )
            answer = yield "sasl_authenticate", 0, body
            if answer.error_code != Error.none:
                raise AuthenticationRefused(
                    f"{address} refuses {login.username}: "
                    f"{answer.error_message or answer.error_code.name}"
                )
            message = dialogue.send(answer.auth_bytes)
    except StopIteration:
        return
    except LoginFailed as error:
        raise AuthenticationRefused(
            f"{address} does not prove that it knows {login.username}: {error}"
        ) from error
