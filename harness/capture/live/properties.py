"""Reads a file of client properties for a live cluster: one `name=value` a line, `#` begins a
comment.

The names are librdkafka's (its CONFIGURATION.md), as kcat and confluent-kafka take them. Java's
names are refused, and the error gives librdkafka's name for each, because linkflap does not read
Java's key stores.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from linkflap.harness.model.errors import InputError
from linkflap.harness.wire.access import CLIENT, Access
from linkflap.harness.wire.sasl import MECHANISMS, Login

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


def access(path: Path) -> Access:
    """The settings in a file of client properties. Raises InputError for unreadable, unknown or
    contradictory ones."""
    given = _read(path)
    protocol = given.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise InputError(
            f"{path}: security.protocol is {protocol}; it is one of {', '.join(PROTOCOLS)}"
        )
    return Access(
        tls=_tls(path, given) if protocol.endswith("ssl") else None,
        login=_login(path, given) if protocol.startswith("sasl") else None,
        client=given.get("client.id", CLIENT),
    )


def _read(path: Path) -> Mapping[str, str]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(
            f"client properties {path} cannot be read: {reason}; name a file of name=value lines"
        ) from None
    given: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise InputError(f"{path}, line {number}, is not name=value")
        if name in _JAVA:
            raise InputError(
                f"{path}: {name} is a Java client's; names are librdkafka's here, so give "
                f"{_JAVA[name]}"
            )
        if name not in KNOWN:
            raise InputError(
                f"{path}: {name} is unknown; names are librdkafka's, and these are read: "
                f"{', '.join(KNOWN)}"
            )
        given[name] = value.replace("\\n", "\n") if name == "ssl.ca.pem" else value
    return given


def _login(path: Path, given: Mapping[str, str]) -> Login:
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "none")).upper()
    if mechanism not in MECHANISMS:
        raise InputError(
            f"{path}: sasl.mechanism is {mechanism}; what can be used is {', '.join(MECHANISMS)}"
        )
    for name in ("sasl.username", "sasl.password"):
        if not given.get(name):
            raise InputError(f"{path}: {mechanism} needs {name}; add it")
    return Login(
        mechanism=mechanism, username=given["sasl.username"], password=given["sasl.password"]
    )


def _tls(path: Path, given: Mapping[str, str]) -> ssl.SSLContext:
    """Raises InputError for certificates that cannot be read."""
    try:
        trusted = given.get("ssl.ca.location", "")
        folder = Path(trusted).is_dir() if trusted else False
        context = ssl.create_default_context(  # with none of these: those that this machine trusts
            cafile=trusted if trusted and not folder else None,
            capath=trusted if folder else None,
            cadata=given.get("ssl.ca.pem"),
        )
        context.check_hostname = (
            given.get("ssl.endpoint.identification.algorithm", "https") != "none"
        )
        if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if own := given.get("ssl.certificate.location"):
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(
                own, given.get("ssl.key.location"), password=given.get("ssl.key.password", "")
            )
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: a certificate or key in it cannot be read ({error}); name PEM files"
        ) from error
    return context
