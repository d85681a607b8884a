"""Examines the installed and cached software: Python, clients, Java, Spark, Kafka,
toxiproxy-server, a Docker engine and its images."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from linkflap.harness.cli.doctor.finding import GIB, Finding
from linkflap.harness.machine import cache, docker_package, java, wheels
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.runtimes.distribution import kafka, toxiproxy_server

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
