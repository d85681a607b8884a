"""The secrets of a secured cluster: certificates, passwords and ACLs, and the broker settings that
use them.

All are generated for one deployment, in a folder that only this user can read and that is removed
with the deployment. No run directory, command line or log has them. Brokers read their secrets from
that folder (KIP-421, FileConfigProvider).

Brokers and controllers always use mutual TLS among themselves, whatever the annotation says about
clients. The certificate's common name or the SASL user name identifies a client; both are the same
names (`harness.model.security.PRINCIPALS`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final

import trustme
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificates

from linkflap.harness.log import layout
from linkflap.harness.log.layout import unsigned_varint
from linkflap.harness.machine.client_properties import ClientProperties
from linkflap.harness.machine.java import properties_file
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Certificate
from linkflap.harness.model.security import (
    FILE_PROVIDER,
    LOGIN_MODULES,
    PRINCIPALS,
    Address,
    Principal,
    Secured,
    Security,
    secured,
)
from linkflap.harness.model.topology import Topology
from linkflap.harness.wire.forwarding import Tls

_VALID: Final = timedelta(days=30)
"""Longer than any run."""
_EXPIRED: Final = timedelta(days=-1)
"""Because the clocks of clients may differ."""
_UNIT: Final = "linkflap"


class Authority:
    """Signs certificates for clients and servers. Its own key is never written to disk."""

    def __init__(self, folder: Path, name: str) -> None:
        """`folder` gets its certificate and all that it issues; only this user can read it."""
        self._folder = folder
        self._signer = trustme.CA(organization_unit_name=name, path_length=0)
        self.file = self._write(f"{name}.pem", self._signer.cert_pem.bytes())

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
        end = datetime.now(UTC) + (_EXPIRED if expired else _VALID)
        # a broker takes another certificate only if its distinguished name is the same
        made = self._signer.issue_cert(
            *hosts, common_name=name, organization_unit_name=_UNIT, not_after=end
        )
        # Java reads keys in PKCS #8 only
        key = load_pem_private_key(made.private_key_pem.bytes(), None)
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = made.cert_chain_pems[0].bytes()
        if not alone:
            chain += self._signer.cert_pem.bytes()
        return self._write(file, secret + chain)

    def _write(self, name: str, content: bytes) -> Path:
        path = self._folder / name
        write_secret(path, content)
        return path


def write_secret(path: Path, content: bytes) -> None:
    """Writes a file that is never readable by anybody else, not even for a moment."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def written(entry: Security, file: Path) -> Security:
    """The credentials with the files of clients' settings: `file`, and beside it the file with
    librdkafka's names."""
    entry = replace(entry, file=str(file))
    write_secret(Path(entry.file), properties_file(entry.java()).encode())
    lines = [f"{name}={value}\n" for name, value in entry.librdkafka().items()]
    write_secret(Path(entry.librdkafka_file), "".join(lines).encode())
    return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedSecrets:
    """The secrets for a cluster that linkflap did not start. `entry` are the credentials, directly
    and over links. For a cluster with TLS, the program behind the proxies terminates TLS with a
    certificate of its own (`shown`), requests the client certificate (`asked`) if clients have one,
    and authenticates to the brokers with `authority` and `identity`. The texts are paths."""

    entry: Security
    shown: str = ""
    asked: str = ""
    authority: str = ""
    identity: str = ""


def attached_secrets(name: str, found: ClientProperties, folder: Path) -> AttachedSecrets:
    """The secrets of a cluster called `name`, from its client properties; their files are in
    `folder`, which only this user can read. Raises InputError.

    For a cluster with TLS, clients trust its own authority and one of this run, which signs the
    certificates of the proxies. A client uses the same certificate on both paths, so that brokers
    know it by the same name. The proxies require that certificate too: otherwise every user of this
    machine could connect under that name.
    """
    file = folder / f"{name}.properties"
    entry = Security(
        protocol=found.protocol,
        mechanism=found.mechanism,
        username=found.username,
        password=found.password,
    )
    if not found.tls:
        return AttachedSecrets(entry=written(entry, file))
    check_certificates(found)
    made = Authority(folder, f"{name}-proxies")
    theirs, both = folder / f"{name}-authority.pem", folder / f"{name}-authorities.pem"
    write_secret(theirs, believed := _authority(found))
    write_secret(both, believed + b"\n" + made.file.read_bytes())
    identity, certificate = "", ""
    if found.given.get("ssl.certificate.location"):
        key, own, signers = _identity(found)
        identity, certificate = (
            str(folder / f"{name}-client.pem"),
            str(folder / f"{name}-asked.pem"),
        )
        write_secret(Path(identity), key + own + signers)
        write_secret(Path(certificate), own)
    entry = replace(entry, authority=str(both), identity=identity, any_host=found.any_host)
    return AttachedSecrets(
        entry=written(entry, file),
        shown=str(made.issue(f"{name}-proxies-own.pem", "linkflap", ["127.0.0.1", "localhost"])),
        asked=certificate,
        authority=str(theirs),
        identity=identity,
    )


def check_certificates(found: ClientProperties) -> None:
    """Raises InputError if the certificates that these client properties name cannot be used."""
    if not found.checks_certificates:
        raise InputError(
            f"{found.source}: enable.ssl.certificate.verification is false, and mirrors and Java "
            "clients cannot do without; leave it out, and name the brokers' authority with "
            "ssl.ca.location"
        )
    _authority(found)
    if found.given.get("ssl.certificate.location"):
        _identity(found)


def _authority(found: ClientProperties) -> bytes:
    """The certificates (PEM) of the authorities that sign the brokers' certificates. Raises
    InputError."""
    if pem := found.given.get("ssl.ca.pem"):
        content = pem.encode()
    elif not (path := found.given.get("ssl.ca.location", "")):
        raise InputError(
            f"{found.source} names no authority for the brokers' certificates; name "
            "the file (PEM) with ssl.ca.location"
        )
    else:
        content = _file(found, "ssl.ca.location", path)
    try:
        load_pem_x509_certificates(content)
    except ValueError as error:
        raise InputError(
            f"{found.source}: its authority cannot be read ({error}); name a PEM file with "
            "ssl.ca.location"
        ) from error
    return content


def _identity(found: ClientProperties) -> tuple[bytes, bytes, bytes]:
    """The client's key, without a password and as Java reads it, its certificate, and those of its
    signers, as PEM. Raises InputError."""
    own = found.given["ssl.certificate.location"]
    chain = _file(found, "ssl.certificate.location", own)
    secret = _file(found, "ssl.key.location", found.given.get("ssl.key.location", own))
    password = found.given.get("ssl.key.password", "").encode() or None
    try:
        key = load_pem_private_key(secret, password)
        certificates = load_pem_x509_certificates(chain)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(
            f"{found.source}: the client's certificate or key cannot be read ({error}); name PEM "
            "files, and the key's password with ssl.key.password"
        ) from error
    if key.public_key() != certificates[0].public_key():
        raise InputError(
            f"{found.source}: the client's key does not belong to its certificate; name the one "
            "that was made for it with ssl.key.location"
        )
    first, *others = (each.public_bytes(Encoding.PEM) for each in certificates)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret, first, b"".join(others)


def _file(found: ClientProperties, name: str, path: str) -> bytes:
    """Raises InputError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            f"{found.source}: {name} {path} cannot be read ({error.strerror}); name a PEM file"
        ) from error


_SUPER: Final[tuple[Principal, ...]] = ("harness", "broker")
_SECRETS: Final = "broker.secrets"
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class ClusterSecrets:
    """The secrets of one cluster. Made before its brokers, which start with `settings`."""

    def __init__(
        self, name: str, topology: Topology, folder: Path, hosts: Mapping[int, Sequence[str]]
    ) -> None:
        """`hosts`: node -> the names and addresses for which its certificate must be valid."""
        self.asked: Secured = secured(topology.cluster(name).security)
        self.folder, self._hosts = folder / name, hosts
        """Everything of this cluster, and of no other."""
        self.folder.mkdir(mode=0o700)
        self._authority = Authority(self.folder, f"{name} authority")
        self._passwords = {principal: secrets.token_urlsafe(24) for principal in PRINCIPALS}
        self._nodes = {
            node: self._authority.issue(f"node-{node}.pem", "broker", names)
            for node, names in hosts.items()
        }
        # A shadow is a broker too, and may serve on any host of the brokers.
        self._served = dict.fromkeys(host for names in hosts.values() for host in names)
        self._identities = {
            principal: str(self._authority.issue(f"{principal}.pem", principal, self._served))
            for principal in PRINCIPALS
        }
        self._entries = {
            principal: written(self._entry(principal), self.folder / f"{principal}.properties")
            for principal in PRINCIPALS
        }
        self._inner = {principal: self._mutual(principal) for principal in PRINCIPALS}
        users = " ".join(
            f'user_{principal}="{self._passwords[principal]}"' for principal in PRINCIPALS
        )
        write_secret(
            self.folder / _SECRETS, f"plain={LOGIN_MODULES['PLAIN']} required {users};\n".encode()
        )
        self._acls = tuple(_acls(name, topology)) if self.asked.names_clients else ()

    def _entry(self, principal: Principal) -> Security:
        asked = self.asked
        return Security(
            protocol=asked.protocol,
            authority=str(self._authority.file) if asked.tls else "",
            identity=self._identities[principal] if asked.certificates else "",
            mechanism=asked.mechanism,
            username=principal if asked.mechanism else "",
            password=self._passwords[principal] if asked.mechanism else "",
        )

    def _mutual(self, principal: Principal) -> Security:
        """How brokers and controllers authenticate to each other. A topology's annotation is only
        about clients."""
        file = self._entries[principal].file
        return Security(
            protocol="SSL",
            authority=str(self._authority.file),
            identity=self._identities[principal],
            file=file,
        )

    def serve_at(self, host: str) -> None:
        """A shadow serves at this address too: certificates of brokers that are issued from now on
        are valid for it."""
        if host in self._served:
            return
        self._served[host] = None
        # A separate file: running shadows have read the previous one, or are about to.
        identity = self._authority.issue(f"broker-{len(self._served)}.pem", "broker", self._served)
        self._inner["broker"] = replace(self._inner["broker"], identity=str(identity))

    def shown(self, node: int, listener: str, which: Certificate) -> Path | None:
        """The key store with which a node presents another certificate on a listener; None for its
        own. The certificate that it has presented until now is made valid first, because a node
        that is down reads it at its next start."""
        name, hosts = f"node-{node}-{listener.lower()}", self._hosts[node]
        if which == "valid":
            for path in self.folder.glob(f"{name}-*.pem"):
                self._authority.issue(path.name, "broker", hosts)
            return None
        if which == "untrusted":
            return Authority(self.folder, "stranger").issue(
                f"{name}-{which}.pem", "broker", hosts, alone=True
            )
        return self._authority.issue(f"{name}-{which}.pem", "broker", hosts, expired=True)

    def recorder_tls(self) -> Tls | None:
        """How a recorder in front of the brokers terminates the clients' TLS, with a certificate of
        the cluster's authority; None if client listeners use no TLS."""
        if not self.asked.tls:
            return None
        return Tls(
            shown=str(self._authority.issue("recorder.pem", "broker", self._served)),
            asked="",
            authority=str(self._authority.file),
            identity="",
            any_host=False,
        )

    def entry(self, address: str, principal: Principal = "harness") -> Address:
        """An address of clients' listeners."""
        return Address(address, self._entries[principal], self._entries)

    def inner(self, address: str) -> Address:
        """An address of a listener of brokers and controllers."""
        return Address(address, self._inner["broker"], dict(self._inner))

    @cached_property
    def records(self) -> list[bytes]:
        """The first records of the cluster's metadata log: users and ACLs."""
        scram = self.asked.mechanism.startswith("SCRAM")
        users = (
            [scram_user(name, password) for name, password in self._passwords.items()]
            if scram
            else []
        )
        return users + [acl.record for acl in self._acls]

    def add_first_records(self, log_dir: Path) -> None:
        """Appends `records` to the bootstrap checkpoint of a formatted log directory.

        A cluster that admits only known users admits nobody who could add the first one. Kafka's
        StorageTool therefore writes users into this checkpoint (KIP-900), and the first active
        controller takes all records from there: users and ACLs are in force on every broker before
        the first client connects.
        """
        if self.records:
            append_to_checkpoint(log_dir, self.records)

    def settings(self, node: int, listeners: Sequence[str], inner: Sequence[str]) -> dict[str, str]:
        """Settings for the broker's server.properties. `inner` are the listeners of brokers and
        controllers."""
        asked = self.asked
        found = {
            "listener.security.protocol.map": ",".join(
                f"{n}:{'SSL' if n in inner else asked.protocol}" for n in listeners
            ),
            "config.providers": "file",
            "config.providers.file.class": FILE_PROVIDER,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._nodes[node]),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.file),
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        }
        for name in listeners:
            listener = f"listener.name.{name.lower()}"
            if name in inner or asked.certificates:
                found[f"{listener}.ssl.client.auth"] = "required"
            if name not in inner and asked.mechanism:
                found[f"{listener}.{asked.mechanism.lower()}.sasl.jaas.config"] = self._login_module
        if asked.mechanism:
            found["sasl.enabled.mechanisms"] = asked.mechanism
        if asked.names_clients:
            found["authorizer.class.name"] = _AUTHORIZER
            found["super.users"] = ";".join(f"User:{name}" for name in _SUPER)
            found["allow.everyone.if.no.acl.found"] = "false"
        return found

    @property
    def _login_module(self) -> str:
        if self.asked.mechanism == "PLAIN":
            return f"${{file:{self.folder / _SECRETS}:plain}}"
        return f"{LOGIN_MODULES[self.asked.mechanism]} required;"


_ITERATIONS: Final = 4096
_SCRAM_SHA_512: Final = 2
_USER, _ACL = 11, 18
_FRAME: Final = 1
TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE, CREATE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = (
    2,
    3,
    4,
    5,
    7,
    8,
    10,
    11,
)
_ALLOW: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One operation on resources of a name, allowed for one user from every host. `*` with LITERAL
    is every name."""

    user: str
    resource: int
    name: str
    operation: int
    pattern: int = LITERAL

    @property
    def record(self) -> bytes:
        """An AccessControlEntryRecord."""
        strings = (
            _text(self.name),
            struct.pack(">b", self.pattern),
            _text(f"User:{self.user}"),
            _text("*"),
        )
        entry = b"".join((uuid.uuid4().bytes, struct.pack(">b", self.resource), *strings))
        return _framed(_ACL, entry + struct.pack(">bb", self.operation, _ALLOW))


def scram_user(name: str, password: str) -> bytes:
    """A UserScramCredentialRecord for SCRAM-SHA-512 (RFC 5802): brokers keep no password."""
    salt = os.urandom(32)
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    stored = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    server = hmac.digest(salted, b"Server Key", "sha512")
    fields = (
        _text(name),
        struct.pack(">b", _SCRAM_SHA_512),
        _bytes(salt),
        _bytes(stored),
        _bytes(server),
    )
    return _framed(_USER, b"".join((*fields, struct.pack(">i", _ITERATIONS))))


def append_to_checkpoint(folder: Path, records: Sequence[bytes]) -> None:
    """Appends records to the checkpoint in a formatted log directory, in front of its footer."""
    (path,) = folder.rglob("*.checkpoint")
    old = path.read_bytes()
    *_, footer = layout.walk(old)
    batch = layout.batch([(None, record) for record in records], offset=footer.base, leader_epoch=0)
    moved = struct.pack(">q", footer.base + len(records)) + old[footer.start + layout.LENGTH_AT :]
    path.write_bytes(old[: footer.start] + batch + moved)


def _framed(key: int, message: bytes) -> bytes:
    """A record of the metadata log: frame version 1, API key, version, message, no tagged fields
    (metadata/src/main/resources/common/metadata: UserScramCredentialRecord 11,
    AccessControlEntryRecord 18)."""
    return b"".join(map(unsigned_varint, (_FRAME, key, 0))) + message + b"\0"


def _text(value: str) -> bytes:
    return _bytes(value.encode())


def _bytes(value: bytes) -> bytes:
    """A compact string, or compact bytes: preceded by their length plus one."""
    return unsigned_varint(len(value) + 1) + value


_READS: Final = (READ, DESCRIBE)
_WRITES: Final = (WRITE, DESCRIBE)
_COPIES: Final = (READ, DESCRIBE, DESCRIBE_CONFIGS)
_MAKES: Final = (WRITE, CREATE, ALTER, ALTER_CONFIGS)
_MM2_TOPICS: Final = "mm2-"
_MIRRORS_GROUPS: Final = "mirror-"
"""Of a mirror that keeps its positions at its source."""


def _acls(cluster: str, topology: Topology) -> Iterator[Acl]:
    """The minimal rights of each principal on a cluster. Topics of workloads begin with the name of
    their home, unless programs name them: then the rights are those to every topic, and `client`
    makes and deletes topics. The shadow mirror reads the source as `mirror`, and is a broker at the
    destination; MirrorMaker is `mirror` on both sides."""
    every = ((LITERAL, "*"),)
    own = (
        every
        if topology.any_names
        else tuple((PREFIXED, f"{home.name}.") for home in topology.clusters)
    )
    yield from _rights("client", TOPIC, own, (ALL,) if topology.any_names else (*_READS, WRITE))
    yield from _rights("client", GROUP, every, (READ,))
    yield from _rights("client", TRANSACTIONAL_ID, every, _WRITES)
    yield from _rights("reader", TOPIC, own, _READS)
    yield from _rights("reader", GROUP, every, (READ,))
    yield from _rights("sampler", TOPIC, own, (DESCRIBE,))
    yield from _rights("sampler", GROUP, every, (DESCRIBE,))
    yield from _rights("mirror", TOPIC, own, _COPIES)
    if not any(link.destination == cluster for link in topology.links):
        yield from _rights("mirror", GROUP, every, (DESCRIBE,))
        yield from _rights("mirror", GROUP, ((PREFIXED, _MIRRORS_GROUPS),), (READ,))
        return
    yield from _rights("mirror", TOPIC, own, _MAKES)
    yield from _rights("mirror", TOPIC, ((PREFIXED, _MM2_TOPICS),), (*_COPIES, *_MAKES))
    yield from _rights("mirror", GROUP, every, _READS)
    yield from _rights("mirror", TRANSACTIONAL_ID, every, _WRITES)


def _rights(
    user: Principal, resource: int, names: tuple[tuple[int, str], ...], operations: tuple[int, ...]
) -> Iterator[Acl]:
    """`names` are pairs (pattern, name)."""
    for pattern, name in names:
        for operation in operations:
            yield Acl(user=user, resource=resource, name=name, operation=operation, pattern=pattern)
