"""The certificate authority of one deployment, and the certificates that it issues, as PEM files.

Each holder has one file with its key (PKCS #8) and the certificates: Kafka's key stores of type PEM
(KIP-651), librdkafka and OpenSSL all read that file. Keys are of P-256, which takes a millisecond
to generate.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID: Final = timedelta(days=30)
"""Longer than any run. Certificates are valid from a day ago, because the clocks of clients may
differ."""
_SKEW: Final = timedelta(days=1)
_LONG_AGO: Final = timedelta(days=60)
_USAGES: Final = ("digital_signature", "content_commitment", "key_encipherment",
"data_encipherment", "key_agreement",
                  "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")  # fmt: skip


class Authority:
    """Signs certificates for clients and servers. Its own key is never written to disk."""

    def __init__(self, folder: Path, name: str) -> None:
        """`folder` gets its certificate and all that it issues; only this user can read it."""
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        begin = datetime.now(UTC) - _LONG_AGO - _SKEW
        builder = _builder(
            self._name, self._name, self._key.public_key(), begin, datetime.now(UTC) + _VALID
        )
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = builder.add_extension(self._identifier, critical=False)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.file = self._write(f"{name}.pem", self._certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        file: str,
        name: str,
        hosts: Iterable[str] = (),
        *,
        expired: bool = False,
        alone: bool = False,
    ) -> Path:
        """A new key and a certificate for `name`, which is also valid for `hosts` (names and
        addresses), in one file. `alone`: without the authority's own certificate, so that a client
        that does not know the authority cannot verify it."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        begin, end = (now - _LONG_AGO, now - _SKEW) if expired else (now - _SKEW, now + _VALID)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self._name, key.public_key(), begin, end)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        builder = builder.add_extension(
            _usage("digital_signature", "key_encipherment"), critical=True
        )
        both = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        builder = builder.add_extension(both, critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier)
        builder = builder.add_extension(authority, critical=False)
        if names := [_alternative(host) for host in hosts]:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = certificate.public_bytes(Encoding.PEM)
        if not alone:
            chain += self._certificate.public_bytes(Encoding.PEM)
        return self._write(file, secret + chain)

    def _write(self, name: str, content: bytes) -> Path:
        path = self._folder / name
        write_secret(path, content)
        return path


def write_secret(path: Path, content: bytes) -> None:
    """Writes a file that is never readable by anybody else, not even for a moment."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _usage(*granted: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in granted for name in _USAGES})


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
