"""The address of the Docker engine: where it listens, whether that is on this machine, and its
error messages on one line.

Imports nothing slow: callers that only ask whether docker is available, or clean up, must not load
the docker package.
"""

from __future__ import annotations

import datetime
import os
import re
import socket
from typing import Any, Final
from urllib.parse import urlsplit

USUAL: Final = "unix:///var/run/docker.sock"
UNIX: Final = "unix://"
_SCHEMES: Final = ("unix", "npipe", "tcp", "http", "https", "ssh")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def host() -> str:
    """What DOCKER_HOST says, or where an engine usually is."""
    return os.environ.get("DOCKER_HOST") or USUAL


def not_near(host: str) -> str | None:
    """None for an engine of this machine; else why there is none, as the first half of a
    sentence."""
    try:
        address, _ = urlsplit(host), urlsplit(host).port
    except ValueError:
        address = urlsplit("")
    if address.scheme not in _SCHEMES or "://" not in host or not host.partition("://")[2]:
        return f"DOCKER_HOST is {host!r}, which names no engine (one is such as {USUAL} or tcp://127.0.0.1:2375)"
    if address.scheme in ("unix", "npipe") or address.hostname in _LOOPBACK:
        return None
    return f"the Docker engine at {host} is another machine's, and brokers' folders are on this one"


def require_listening(host: str) -> None:
    """Raises OSError when no engine listens on its Unix socket: the docker package would then leave
    a socket of its own open."""
    if host.startswith(UNIX):
        with socket.socket(socket.AF_UNIX) as tried:
            tried.connect(host.removeprefix(UNIX))


def reason(error: BaseException) -> str:
    """The part of an error that says most, on one line."""
    explanation: Any = getattr(error, "explanation", None) or error
    text = " ".join(str(explanation).split())
    # Errors of requests begin with pools and retries. The innermost error is the cause.
    inner = re.search(r"""(?:\[Errno \d+\] |Error\(\d+, ')([^'")]+)""", text)
    return inner[1] if inner and not getattr(error, "explanation", None) else text[:300]


def seconds(time: str) -> float:
    """A time as the engine writes them (RFC 3339 with nanoseconds), in seconds since 1970; 0 for
    one that it has not got."""
    whole = re.sub(r"\.(\d{1,6})\d*", r".\1", time).replace("Z", "+00:00")
    return datetime.datetime.fromisoformat(whole).timestamp() if whole else 0.0
