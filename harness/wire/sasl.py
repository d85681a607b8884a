"""Logging in to a broker: SASL PLAIN (RFC 4616) and SCRAM-SHA-256 and -512 (RFC 5802, KIP-84), as a
client, without a socket.

A dialogue is a generator. It yields the bytes to send, and receives the broker's answer. It ends
when the broker has proven that it knows the password too (SCRAM), or at once (PLAIN).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Final

from scramp import ScramClient, ScramException

Dialogue = Generator[bytes, bytes, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who authenticates, and with which of `MECHANISMS`."""

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
