"""The protocol of the verifier service: one JSON document per line, over a socket that only this
user reaches.

service: Hello                          it serves whoever has the same key
user:    Judge(folder) | Bye            one at a time; a user that is gone without a Bye was killed
service: Busy … Judged | Failed         Busy every few seconds, so that silence means that it hangs
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.model.verdict import Anomaly, Document
from linkflap.harness.version import INSTALLED, VERSION

SOCKET: Final = "socket"
_PEER: Final = struct.Struct("3i")
_LONGEST: Final = 100
"""Bytes of a socket's path that every system takes."""
_SETTINGS: Final = (
    "HOME",
    "JAVA_HOME",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LINKFLAP_CACHE",
    "LINKFLAP_RUNTIME_DIR",
    "PATH",
    "SPARK_CONF_DIR",
    "SPARK_LOCAL_DIRS",
    "TMPDIR",
)
"""The variables of the environment that change which Java and Spark are started, or how."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The service introduces itself: its key, its process, and the path of its log."""

    key: str
    pid: int
    log: str


class Judge(msgspec.Struct, frozen=True, kw_only=True, tag="judge"):
    """A run directory to judge, by its full path."""

    folder: str


class Bye(msgspec.Struct, frozen=True, kw_only=True, tag="bye"):
    """The user closes its connection."""


class Busy(msgspec.Struct, frozen=True, kw_only=True, tag="busy"):
    """The run waits for its turn, or is being judged."""


class JudgedRun(msgspec.Struct, frozen=True, kw_only=True, tag="judged"):
    """The verdict, all anomalies, and a sentence for each part of the report that was left out."""

    document: Document
    anomalies: tuple[Anomaly, ...]
    left_out: tuple[str, ...]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """There is no verdict: the name of the error (`harness.model.errors`), and its sentence."""

    kind: str
    sentence: str


Request = Judge | Bye
Reply = Hello | Busy | JudgedRun | Failed


def key() -> str:
    """Processes with the same key share a verifier: the same linkflap sources, Python, and settings
    in the environment.

    After a change of the sources the key is another, and a new verifier is started.
    """
    settings = [os.environ.get(name) for name in _SETTINGS]
    identity = (
        VERSION,
        str(INSTALLED),
        sys.executable,
        sys.version,
        settings,
        os.getuid(),
        list(_sources()),
    )
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]


def _sources() -> Iterator[tuple[str, int, int]]:
    # followlinks: in a checkout the packages of linkflap are links to its folders.
    for folder, inside, files in os.walk(INSTALLED / "linkflap", followlinks=True):
        inside.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                status = os.stat(Path(folder) / name)
                yield name, status.st_mtime_ns, status.st_size


def connect(path: Path) -> socket.socket:
    """A connection to the socket of a service. Raises OSError when nobody listens there, or another
    user does."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _short(path) as name:
            connection.connect(name)
        _refuse_others(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_others(connection: socket.socket) -> None:
    """Refuses a verifier of another user, whoever's folder the socket is in."""
    if sys.platform == "linux":
        asked = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        _, user, _ = _PEER.unpack(asked)
        if user != os.geteuid():
            raise PermissionError(f"user {user} listens there")


def listen(path: Path) -> socket.socket:
    """A socket that listens at a new path. Raises OSError when there is something at the path
    already."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        with _short(path) as name:
            listener.bind(name)
        listener.listen(64)
    except BaseException:
        listener.close()
        raise
    return listener


class _short:
    """A name for a path that a socket's address has room for: through an open folder, where the
    path itself is too long."""

    def __init__(self, path: Path) -> None:
        self._path, self._folder = path, -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= _LONGEST or sys.platform != "linux":
            return str(self._path)
        self._folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._folder}/{self._path.name}"

    def __exit__(self, *raised: object) -> None:
        if self._folder >= 0:
            os.close(self._folder)


class Lines:
    """Both directions of a connection. Raises OSError where it is broken, and TimeoutError after
    `within` seconds of silence."""

    def __init__(self, connection: socket.socket, within: float | None = None) -> None:
        connection.settimeout(within)
        self._connection = connection
        self._rest = b""

    def patience(self, within: float) -> None:
        """Seconds of silence from now on."""
        self._connection.settimeout(within)

    def send(self, message: Request | Reply) -> None:
        self._connection.sendall(msgspec.json.encode(message) + b"\n")

    def next(self) -> bytes | None:
        """The next line; None where the other side has closed, also in the middle of one."""
        while b"\n" not in self._rest:
            more = self._connection.recv(1 << 20)
            if not more:
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def close(self) -> None:
        self._connection.close()
