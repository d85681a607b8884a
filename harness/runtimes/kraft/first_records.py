"""The users and ACLs that a secured cluster has from its first start, as records in its bootstrap
checkpoint.

A cluster that admits only known users admits nobody who could add the first one. So StorageTool
writes SCRAM users into the bootstrap checkpoint (KIP-900), and the first active controller takes
all records from there. Users and ACLs are thus in force on every broker before the first client
connects. Records of the metadata log are frame version 1, API key, version, message
(metadata/src/main/resources/common/metadata: UserScramCredentialRecord 11, AccessControlEntryRecord
18).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from linkflap.harness.log import layout
from linkflap.harness.log.layout import unsigned_varint

_ITERATIONS: Final = 4096
_SCRAM_SHA_512: Final = 2
_USER, _ACL = 11, 18
_FRAME: Final = 1
TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
LITERAL, PREFIXED = 3, 4
READ, WRITE, CREATE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 4, 5, 7, 8, 10, 11
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


def add(folder: Path, records: Sequence[bytes]) -> None:
    """Appends records to the checkpoint of a formatted log directory."""
    (path,) = folder.rglob("*.checkpoint")
    old = path.read_bytes()
    *_, footer = layout.walk(old)
    batch = layout.batch([(None, record) for record in records], offset=footer.base, leader_epoch=0)
    moved = struct.pack(">q", footer.base + len(records)) + old[footer.start + layout.LENGTH_AT :]
    path.write_bytes(old[: footer.start] + batch + moved)


def _framed(key: int, message: bytes) -> bytes:
    """A record: frame, API key, version, message, and no tagged fields."""
    return b"".join(map(unsigned_varint, (_FRAME, key, 0))) + message + b"\0"


def _text(value: str) -> bytes:
    return _bytes(value.encode())


def _bytes(value: bytes) -> bytes:
    """A compact string, or compact bytes: preceded by their length plus one."""
    return unsigned_varint(len(value) + 1) + value
