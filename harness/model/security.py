"""The security of clusters, and the settings by which clients enter them. Pure values; standard
library only.

A topology names them by `WORDS`, joined by plus signs: `A{tls+scram}`. With `mtls`, `plain` or
`scram` a client has an identity, and the rights that ACLs give it. With `tls` alone clients have no
identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.texts import nearest

WORDS: Final[Mapping[str, str]] = {
    "tls": (
        "A{tls}: clients speak TLS, and check the certificates of brokers; everybody may do "
        "everything"
    ),
    "mtls": "A{mtls}: as tls, and brokers ask for the client's certificate; ACLs",
    "plain": "A{plain}, A{tls+plain}: clients log in by SASL/PLAIN; ACLs",
    "scram": "A{scram}, A{tls+scram}: clients log in by SASL/SCRAM-SHA-512; ACLs",
}
"""How listeners can be secured, each with what it means."""
Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Principal = Literal["harness", "broker", "client", "reader", "mirror", "sampler"]
PRINCIPALS: Final[tuple[Principal, ...]] = (
    "harness",
    "broker",
    "client",
    "reader",
    "mirror",
    "sampler",
)
"""The principals of a cluster. linkflap itself and the brokers have all rights, the others those of
their ACLs.
"""
MECHANISMS: Final = {"plain": "PLAIN", "scram": "SCRAM-SHA-512"}
FILE_PROVIDER: Final = "org.apache.kafka.common.config.provider.FileConfigProvider"
"""Reads settings of Kafka's programs from files, so that a secret need not be in their
configuration (KIP-297, KIP-421)."""
LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
"""The mechanisms by which linkflap's clients can log in, with Kafka's modules for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """The requirements of a cluster's listeners: the parsed annotation."""

    tls: bool
    certificates: bool
    """Whether clients have to show a certificate."""
    mechanism: str
    """The SASL mechanism, or empty."""

    @property
    def protocol(self) -> Protocol:
        if self.mechanism:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"

    @property
    def names_clients(self) -> bool:
        """Whether brokers authenticate clients, so that ACLs can name them."""
        return self.certificates or bool(self.mechanism)


def secured(text: str) -> Secured:
    """Parses an annotation (`tls+scram`), empty for none. Raises InputError with a fix."""
    words = tuple(text.split("+")) if text else ()
    for word in words:
        if word not in WORDS:
            raise InputError(
                f"{word!r} is no way to secure a cluster{nearest(word, WORDS)}; write {_ALL}"
            )
    if len(set(words)) < len(words):
        raise InputError(f"{text!r} repeats a word; write {'+'.join(dict.fromkeys(words))}")
    for one, other, sentence in (
        ("plain", "scram", "clients log in by one mechanism: leave plain or scram out"),
        ("tls", "mtls", "mtls is tls with certificates of clients: leave tls out"),
    ):
        if one in words and other in words:
            raise InputError(f"{text!r} is two ways to do one thing; {sentence}")
    mechanism = next((MECHANISMS[word] for word in words if word in MECHANISMS), "")
    return Secured(
        tls="tls" in words or "mtls" in words, certificates="mtls" in words, mechanism=mechanism
    )


_ALL: Final = "tls, mtls, plain or scram, joined by +"


def canonical(text: str) -> str:
    """An annotation with its words in one order: `scram+tls` is `tls+scram`. Raises InputError."""
    secured(text)
    return "+".join(word for word in WORDS if word in text.split("+"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How one principal enters one cluster: the one value that every client's configuration is made
    from.

    `authority` is the file of the certificates (PEM) that brokers are trusted by; `identity`, one
    with the client's own key and certificates; `file` has `java()`, for programs that must get
    secrets in no other way, and `librdkafka_file` the other. All are in a folder that only this
    user can read, and that is removed with the deployment. `any_host`: certificates of brokers
    need not be valid for the addresses at which they are reached.
    """

    protocol: Protocol = "PLAINTEXT"
    authority: str = ""
    identity: str = ""
    mechanism: str = ""
    username: str = ""
    password: str = ""
    file: str = ""
    any_host: bool = False

    def __repr__(self) -> str:
        # never the password, wherever this is printed
        return f"Security({self.protocol}, {self.username or 'no user'})"

    @property
    def librdkafka_file(self) -> str:
        """As `file`, with librdkafka's names (`kcat -F`)."""
        return self.file.removesuffix(".properties") + ".conf" if self.file else ""

    def librdkafka(self) -> dict[str, str | int | float | bool]:
        """Settings of a client of librdkafka's; none for plain text."""
        if self.protocol == "PLAINTEXT":
            return {}
        found: dict[str, str | int | float | bool] = {"security.protocol": self.protocol.lower()}
        if self.authority:
            found["ssl.ca.location"] = self.authority
        if self.any_host:
            found["ssl.endpoint.identification.algorithm"] = "none"
        if self.identity:
            found |= {"ssl.certificate.location": self.identity, "ssl.key.location": self.identity}
        if self.mechanism:
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username,
                "sasl.password": self.password,
            }
        return found

    def java(self) -> dict[str, str]:
        """Properties of a client of Kafka's own; none for plain text."""
        if self.protocol == "PLAINTEXT":
            return {}
        found = {"security.protocol": str(self.protocol)}
        if self.authority:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.authority}
        if self.any_host:
            found["ssl.endpoint.identification.algorithm"] = ""
        if self.identity:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.identity}
        if self.mechanism:
            login = (
                f"{LOGIN_MODULES[self.mechanism]} required username={_quoted(self.username)}"
                f" password={_quoted(self.password)};"
            )
            found |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": login}
        return found


def _quoted(text: str) -> str:
    """A value of a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


OPEN: Final = Security()
"""Plain text, without authentication."""


class Address(str):
    """One or more `host:port`, joined by commas, and how they are entered. As a text, it is that
    list and nothing else.

    Any other text is an address that is entered as plain text.
    """

    __slots__ = ("_others", "security")
    security: Security
    _others: dict[Principal, Security]

    def __new__(
        cls, text: str, security: Security, others: dict[Principal, Security] | None = None
    ) -> Address:
        made = super().__new__(cls, text)
        made.security, made._others = security, others or {}
        return made

    def __reduce__(self) -> tuple[type[Address], tuple[str, Security, dict[Principal, Security]]]:
        """For pickle and copy: the constructor and its arguments."""
        return Address, (str(self), self.security, self._others)

    def entered_by(self, principal: Principal) -> Address:
        """The same brokers, entered by somebody else."""
        return Address(self, self._others.get(principal, self.security), self._others)


def security_of(address: str) -> Security:
    """The security of an address: plain text if the address is an ordinary str."""
    return address.security if isinstance(address, Address) else OPEN


def entered_by(address: str, principal: Principal) -> str:
    """The same brokers, entered by somebody else."""
    return address.entered_by(principal) if isinstance(address, Address) else address


def beside(address: str, other: str) -> str:
    """Another `host:port` with the login of `address`, for instance one that a broker there
    advertised."""
    return (
        Address(other, address.security, address._others) if isinstance(address, Address) else other
    )
