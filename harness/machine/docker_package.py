"""The packages of the docker runtime, which only `linkflap[docker]` installs: whether they are
installed, and how to import them.

A project may have its own folder `docker`, which its tests import. Within `importable` that name
means the installed package; afterwards it means the project's folder again.

The address of the Docker engine: where it listens, whether that is on this machine, and its
error messages on one line.

Imports nothing slow: callers that only ask whether docker is available, or clean up, must not load
the docker package.
"""

from __future__ import annotations

import datetime
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from linkflap.harness.model.errors import SetupError

FIX: Final = "pip install 'linkflap[docker]'"
_PACKAGES: Final = ("docker", "testcontainers")
_ABSENT: Final = object()

_swapping = threading.RLock()
_installed: dict[str, ModuleType] = {}
"""Modules of the installed packages, while others of the same name are in `sys.modules`."""


def lacking() -> str:
    """The first one that is not installed, or empty. A folder of that name is none."""
    return next((name for name in _PACKAGES if not _is_installed(name)), "")


def check() -> None:
    """Raises SetupError when one is not installed."""
    if name := lacking():
        raise SetupError(
            f"the docker runtime needs the package {name}, which is not installed: {FIX}; --runtime"
            " process needs none"
        )


@contextmanager
def importable() -> Iterator[None]:
    """In the block, `import docker` gives the installed package. Functions that import it
    themselves do so in such a block.

    The lock keeps two threads from taking each other's modules for the project's.
    """
    with _swapping:
        folder = _hidden()
        if not folder:
            yield
            return
        theirs = _take()
        sys.modules.update(_installed)
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.path.remove(folder)
            _installed.update(_take())
            sys.modules.update(theirs)


def _is_installed(name: str) -> bool:
    if sys.modules.get(name, _ABSENT) is None:  # Python's own way to forbid an import
        return False
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _hidden() -> str:
    """The folder with the installed packages, where something else with the name of one is imported
    in its stead; or empty."""
    for name in _PACKAGES:
        if _is_installed(name):
            folder = Path(str(distribution(name).locate_file("")))
            if (folder / name / "__init__.py").exists() and _imported_from(name) != (
                folder / name
            ).resolve():
                return str(folder)
    return ""


def _imported_from(name: str) -> Path | None:
    try:
        spec = find_spec(name)
    except ValueError:  # a module that was made by hand
        return None
    return Path(spec.origin).resolve().parent if spec and spec.origin else None


def _take() -> dict[str, ModuleType]:
    """Removes the modules with these packages' names from `sys.modules`, and returns them."""
    return {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if name.partition(".")[0] in _PACKAGES
    }


USUAL: Final = "unix:///var/run/docker.sock"
UNIX: Final = "unix://"
_SCHEMES: Final = ("unix", "npipe", "tcp", "http", "https", "ssh")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def host() -> str:
    """The engine's address: DOCKER_HOST, or the usual socket."""
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
    """The most informative part of an error, on one line."""
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
