"""Authenticates to a node: TLS, then SASL, for code that speaks Kafka's protocol itself, over any
kind of socket.

TCP, then TLS, then SaslHandshake v1 and SaslAuthenticate (KIP-43, KIP-152). The authentication is a
dialogue of requests and responses; the owner of the connection exchanges them.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from linkflap.harness.model.security import Security, security_of
from linkflap.harness.wire import messages
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.sasl import Login, LoginFailed

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
