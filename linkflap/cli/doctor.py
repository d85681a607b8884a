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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

    name: str
    ok: bool | None
    says: str
    fix: str = ""
    needed_by: str = ""


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
        name="memory",
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
    cores = float(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, int(quota) / int(period))
    return Finding(
        name="cpu",
        ok=True if cores >= 2 else None,
        says=f"{cores:g} cores, load {os.getloadavg()[0]:.1f}",
        fix=(
            ""
            if cores >= 2
            else (
                "give it 2 cores: starved brokers fence themselves, and time-based checks become "
                "unknown"
            )
        ),
    )


def look_at_disk() -> Finding:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    return Finding(
        name="disk",
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
    return Finding(
        name="open files", ok=ok, says=says, fix="" if ok else "raise it: ulimit -n 65536"
    )


def look_at_ports() -> Finding:
    first, last = leases.port_range()
    count = last - first + 1
    says = f"{first}-{last}, {count} ports for brokers and proxies"
    if count < _PLENTY_OF_PORTS:
        return Finding(
            name="ports",
            ok=None,
            says=says,
            fix="set LINKFLAP_PORTS to a wider range, e.g. 17000-32767",
        )
    with contextlib.suppress(OSError):
        lowest, highest = map(
            int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        )
        if first <= highest and lowest <= last:
            fix = (
                "outgoing connections may take them: set LINKFLAP_PORTS or "
                "net.ipv4.ip_local_port_range"
            )
            return Finding(
                name="ports",
                ok=None,
                says=f"{says}, overlapping the kernel's {lowest}-{highest}",
                fix=fix,
            )
    return Finding(name="ports", ok=True, says=says)


def look_at_clock() -> Finding:
    """If the clock is years off, the certificate of every download is refused. If the file system
    has another clock, caches fail."""
    with tempfile.NamedTemporaryFile() as file:
        apart = abs(os.stat(file.name).st_mtime - time.time())
    year = time.gmtime().tm_year
    fine = year >= 2025 and apart < 5
    return Finding(
        name="clock",
        ok=True if fine else None,
        says=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        + ("" if apart < 5 else f", {apart:.0f} s off the file system's"),
        fix="" if fine else "set this machine's clock",
    )


def look_at_leftovers() -> Finding:
    dead = [entry for entry in ledger.entries() if not process_identity.alive(entry.owner)]
    if not dead:
        return Finding(name="leftovers", ok=True, says="none of dead runs")
    held = sum(
        len(entry.children) + len(entry.contained) + len(entry.folders) + len(entry.mounts)
        for entry in dead
    )
    engines = {engine for entry in dead for engine in entry.engines}
    says = f"of {len(dead)} dead runs, {held} things" + (
        ", and what is in the Docker engine" if engines else ""
    )
    return Finding(name="leftovers", ok=None, says=says, fix="linkflap clean")


_LOOK_WITHIN: Final = 10.0
_DOCKER_WITHIN: Final = 3
_IMAGES: Final = "linkflap-kafka"


def look_at_python() -> Finding:
    version, implementation = platform.python_version(), platform.python_implementation()
    return Finding(
        name="python",
        ok=sys.version_info >= (3, 11) and implementation == "CPython",
        says=f"{implementation} {version}",
        fix="" if sys.version_info >= (3, 11) else "install Python 3.11 or later",
    )


def look_at_clients() -> Finding:
    try:
        import confluent_kafka
    except ImportError as error:
        return Finding(
            name="clients",
            ok=False,
            says=f"confluent-kafka cannot be loaded: {error}",
            fix="install it again with pip",
        )
    version = importlib.metadata.version("confluent-kafka")
    return Finding(
        name="clients",
        ok=True,
        says=f"confluent-kafka {version}, librdkafka {confluent_kafka.libversion()[0]}",
    )


def look_at_cache() -> Finding:
    folder = cache.folder()
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK | os.X_OK)
    if not writable:
        return Finding(
            name="cache",
            ok=False,
            says=f"{folder} cannot be written",
            fix="set LINKFLAP_CACHE to a folder that can",
        )
    compiled = os.environ.get("NUMBA_CACHE_DIR", folder / cache.COMPILED)
    why = f" (for {cache.usual()} cannot be written)" if cache.is_temporary(folder) else ""
    return Finding(
        name="cache",
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
        note = (
            f"; Kafka 3 gets another from PyPI ({wheels.JAVA_FOR_KAFKA_3})"
            if here[1] >= java.TOO_NEW_FOR_KAFKA_3
            else ""
        )
        return Finding(name="java", ok=True, says=f"Java {here[1]} at {here[0]}{note}")
    seen = f"Java {here[1]} at {here[0]}, which is too old" if here else "none in JAVA_HOME or PATH"
    if java.cached():
        return Finding(
            name="java", ok=True, says=f"{seen}; {wheels.JAVA} from PyPI is in the cache"
        )
    if _has_pip():
        return Finding(
            name="java",
            ok=None,
            says=f"{seen}; {wheels.JAVA} comes from PyPI on first use",
            fix="or install Java 17 or 21",
        )
    return Finding(
        name="java",
        ok=False,
        says=f"{seen}, and no pip to fetch one",
        fix="install Java 17 or 21, or pip",
    )


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def look_at_spark() -> Finding:
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return Finding(
            name="spark",
            ok=False,
            says="pyspark is not installed",
            fix="install linkflap again with pip",
        )
    found = look_at_java()
    means = {True: "has its Java", None: "gets its Java on first use", False: "has no Java"}
    return Finding(
        name="spark", ok=found.ok, says=f"pyspark {version} {means[found.ok]}", fix=found.fix
    )


def look_at_kafka() -> Finding:
    kept = [version for version in kafka.released() if kafka.cached(version)]
    with_what = "mvn" if shutil.which("mvn") else "jgo, as there is no mvn"
    if DEFAULT_KAFKA in kept:
        return Finding(
            name="kafka",
            ok=True,
            says=f"{', '.join(kept)} in the cache; others are fetched with {with_what}",
        )
    return Finding(
        name="kafka",
        ok=None,
        says=f"{DEFAULT_KAFKA} is fetched on first use with {with_what}",
        fix=(
            "or name a directory of jars: linkflap run … --topology "
            "'A@/my/kafka/libs->B@/my/kafka/libs'"
        ),
    )


def look_at_toxiproxy() -> Finding:
    version = toxiproxy_server.VERSION
    if toxiproxy_server.cached():
        return Finding(name="toxiproxy", ok=True, says=f"toxiproxy-server {version} in the cache")
    go = _go_here()
    if go or _has_pip():
        by = f"with {go}" if go else f"with Go from PyPI ({wheels.GO})"
        return Finding(
            name="toxiproxy", ok=None, says=f"toxiproxy-server {version} is built on first use {by}"
        )
    return Finding(
        name="toxiproxy",
        ok=False,
        says="no go and no pip to build it with",
        fix="install Go 1.23 or pip",
    )


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
        lacks = f"the package {name} is not installed"
        return Finding(
            name="docker", ok=False, says=lacks, fix=docker_package.FIX, needed_by="docker"
        )
    with docker_package.importable():
        import docker  # slow to import, and only needed here
        from docker.errors import DockerException
    from requests.exceptions import RequestException

    from linkflap.harness.machine.engine_address import host, not_near, reason

    needed = "docker"
    if why := not_near(host()):
        return Finding(
            name="docker",
            ok=False,
            says=why,
            fix="unset DOCKER_HOST, or set it to this machine's",
            needed_by=needed,
        )
    fix = "start the Docker engine, let this user talk to it, or set DOCKER_HOST"
    try:
        with contextlib.closing(docker.from_env(timeout=_DOCKER_WITHIN)) as client:
            about, images = client.info(), client.images.list(name=_IMAGES)
    except (DockerException, RequestException, OSError) as error:
        return Finding(
            name="docker",
            ok=False,
            says=f"no engine answers ({reason(error)})",
            fix=fix,
            needed_by=needed,
        )
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
        return Finding(name="docker", ok=None, says=version, fix=other, needed_by=needed)
    kept = sorted(
        {tag.partition(":")[2].rpartition("-")[0] for image in images for tag in image.tags}
    )
    if DEFAULT_KAFKA not in kept:
        first = "images are built on first use, or by: linkflap images build"
        return Finding(
            name="docker",
            ok=None,
            says=f"{version}; no image of Kafka {DEFAULT_KAFKA}",
            fix=first,
            needed_by=needed,
        )
    return Finding(
        name="docker",
        ok=True,
        says=f"{version}; images of Kafka {', '.join(kept)}",
        needed_by=needed,
    )


LOOKS: Final[Sequence[Callable[[], Finding]]] = (
    look_at_python,
    look_at_clients,
    look_at_cache,
    look_at_java,
    look_at_spark,
    look_at_kafka,
    look_at_toxiproxy,
    look_at_memory,
    look_at_cpu,
    look_at_disk,
    look_at_open_files,
    look_at_ports,
    look_at_clock,
    look_at_leftovers,
    look_at_docker,
)


def examine() -> list[Finding]:
    """Runs all examinations. Takes a few seconds at most."""
    return [_safely(look) for look in LOOKS]


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
        name = look.__name__.removeprefix("look_at_").replace("_", " ")
        return Finding(
            name=name,
            ok=False,
            says=f"cannot be examined: {error}",
            fix="fix that, then run linkflap doctor again",
        )
