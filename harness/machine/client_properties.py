"""The client properties of a cluster that linkflap did not start: the credentials with which it is
entered. They are read from a file, or from a variable of the environment (`env:NAME`), one
`name=value` a line; `#` begins a comment.

The names are librdkafka's (its CONFIGURATION.md), as kcat and confluent-kafka take them. Java's
names are refused, and the error gives librdkafka's name for each, because linkflap does not read
Java's key stores.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.security import LOGIN_MODULES, Protocol

ENVIRONMENT: Final = "env:"
"""The prefix of a source that is a variable of the environment."""
PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
KNOWN: Final = (
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password",
    "ssl.ca.location", "ssl.ca.pem",
    "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification", "client.id", "bootstrap.servers",
)  # fmt: skip
_PEM: Final = "ssl.certificate.location and ssl.key.location (PEM)"
_JAVA: Final[Mapping[str, str]] = {
    "ssl.truststore.location": "ssl.ca.location (PEM)",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.truststore.password": "ssl.ca.location (PEM), which needs none",
    "ssl.truststore.type": "ssl.ca.location (PEM)",
    "ssl.keystore.location": _PEM,
    "ssl.keystore.key": _PEM,
    "ssl.keystore.certificate.chain": _PEM,
    "ssl.keystore.type": _PEM,
    "ssl.keystore.password": "ssl.key.password",
    "sasl.jaas.config": "sasl.username and sasl.password",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProperties:
    """The properties of a client. `source` names in sentences where they were read; `given` has all
    values by their names."""

    source: str
    given: Mapping[str, str]
    protocol: Protocol
    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        # never the password, wherever this is printed
        return f"ClientProperties({self.source}, {self.protocol}, {self.username or 'no user'})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The passwords among them."""
        return tuple(filter(None, (self.password, self.given.get("ssl.key.password", ""))))

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def checks_certificates(self) -> bool:
        """Whether brokers have to show a certificate of a known authority."""
        return self.given.get("enable.ssl.certificate.verification", "true").lower() != "false"

    @property
    def any_host(self) -> bool:
        """Whether such a certificate is believed at any address."""
        return self.given.get("ssl.endpoint.identification.algorithm", "https") == "none"

    def librdkafka(self, bootstrap: str) -> dict[str, str | int | float | bool]:
        """Settings of a client that prints nothing and asks for nothing on the terminal."""
        return {**self.given, "bootstrap.servers": bootstrap, "log_level": 0}


def absolute(source: str) -> str:
    """The same source, for processes in other folders."""
    return source if source.startswith(ENVIRONMENT) or not source else str(Path(source).absolute())


def read(source: str) -> ClientProperties:
    """The properties in a file, or in `env:NAME`; of an empty source, plain text. Raises InputError
    for unreadable, unknown or contradictory ones."""
    given = values(source, KNOWN) if source else {}
    protocol = given.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise InputError(
            f"{source}: security.protocol is {protocol}; it is one of {', '.join(PROTOCOLS)}"
        )
    mechanism = ""
    if protocol.startswith("sasl"):
        mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "none")).upper()
        if mechanism not in LOGIN_MODULES:
            raise InputError(
                f"{source}: sasl.mechanism is {mechanism}; what can be used is "
                f"{', '.join(LOGIN_MODULES)}"
            )
        for name in ("sasl.username", "sasl.password"):
            if not given.get(name):
                raise InputError(f"{source}: {mechanism} needs {name}; add it")
    return ClientProperties(
        source=source,
        given=given,
        protocol=cast(Protocol, protocol.upper()),
        mechanism=mechanism,
        username=given["sasl.username"] if mechanism else "",
        password=given["sasl.password"] if mechanism else "",
    )


def values(source: str, known: Collection[str]) -> Mapping[str, str]:
    """The lines of a file, or of `env:NAME`, by their names, which are among `known`. Raises
    InputError."""
    given: dict[str, str] = {}
    for number, line in enumerate(_text(source).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise InputError(f"{source}, line {number}, is not name=value")
        if name in _JAVA and known is KNOWN:
            raise InputError(
                f"{source}: {name} is a Java client's; names are librdkafka's here, so give "
                f"{_JAVA[name]}"
            )
        if name not in known:
            whose = "names are librdkafka's, and " if known is KNOWN else ""
            raise InputError(
                f"{source}: {name} is unknown; {whose}these are read: {', '.join(known)}"
            )
        given[name] = value.replace("\\n", "\n") if name == "ssl.ca.pem" else value
    if not given:  # a CI gives this for a secret that it does not have
        raise InputError(
            f"client properties {source} are empty; write name=value lines ({', '.join(known)}), "
            "or name none where none are needed"
        )
    return given


def _text(source: str) -> str:
    if source.startswith(ENVIRONMENT):
        name = source.removeprefix(ENVIRONMENT)
        if not name:
            raise InputError(f"client properties {source} name no variable; write env:NAME")
        if name not in os.environ:
            raise InputError(
                f"client properties {source} cannot be read: there is no variable {name} in the "
                "environment; set it to name=value lines"
            )
        return os.environ[name]
    try:
        return Path(source).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(
            f"client properties {source} cannot be read: {reason}; name a file of name=value lines"
        ) from None
