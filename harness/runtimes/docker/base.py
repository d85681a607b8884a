"""A base image from this machine's own Java, where no image registry can be reached: a runtime, and the libraries that it needs.

There is no shell in it and nothing else: what runs in containers is `java` and `toxiproxy-server`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.model.errors import EnvironmentFailure, SetupError
from harness.runtimes import children
from harness.runtimes.distribution import cache
from harness.runtimes.distribution.java import Java
from harness.runtimes.docker import engine

_MODULES: Final = (
    "java.base,java.compiler,java.desktop,java.logging,java.management,java.naming,java.net.http,java.scripting,"
    "java.security.jgss,java.security.sasl,java.sql,java.xml,jdk.crypto.ec,jdk.management,jdk.unsupported,jdk.zipfs,jdk.jcmd,jdk.net"
)
# Loaded by name at run time, so that ldd does not see them: host names, and what Kafka's native codecs want.
_BY_NAME: Final = ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2", "libgcc_s.so.1", "libstdc++.so.6")
_CHANGES: Final = ("ENV PATH=/opt/java/bin:/usr/local/bin:/usr/bin:/bin",)
_WITHIN: Final = 300.0
_RECIPE: Final = "2"


def name(java: Java) -> str:
    """The image made from this Java, and from no other."""
    state = f"{_RECIPE}{_MODULES}{java.path}{java.path.stat().st_mtime_ns}"
    return f"linkflap-base:java{java.major}-{hashlib.sha256(state.encode()).hexdigest()[:12]}"


def make(java: Java) -> str:
    """Makes the image and returns its name. Raises SetupError."""
    tag = name(java)
    with tempfile.TemporaryDirectory(dir=cache.folder(), prefix=".base-") as scratch:
        root = Path(scratch) / "root"
        _fill(root, java, Path(scratch))
        archive = Path(scratch) / "root.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(root, arcname=".", filter=_plain)
        repository, _, version = tag.partition(":")
        with engine.asked(f"import {tag}", kind=SetupError):
            engine.client().api.import_image_from_file(str(archive), repository=repository, tag=version, changes=list(_CHANGES))
    return tag


def _fill(root: Path, java: Java, scratch: Path) -> None:
    for folder in ("bin", "etc", "tmp", "proc", "sys", "dev", "opt", "usr/bin", "usr/local/bin"):
        (root / folder).mkdir(parents=True)
    _copy_java(java, root / "opt" / "java", scratch)
    for library in sorted(set(_libraries(root / "opt" / "java"))):
        target = root / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/false\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")


def _copy_java(java: Java, target: Path, scratch: Path) -> None:
    """Reduced by jlink where this is a JDK, else whole."""
    jlink = java.home / "bin" / "jlink"
    if not (jlink.is_file() and (java.home / "jmods").is_dir()):
        shutil.copytree(java.home, target)  # links followed: a distribution's conf leads to /etc
        return
    command = [str(jlink), "--add-modules", _MODULES, "--no-header-files", "--no-man-pages", "--output", str(target)]
    _run(command, "jlink", java, scratch)
    # jlink leaves out the JDK's own class archive, which the archives of Kafka's classes stand on.
    _run([str(target / "bin" / "java"), "-Xshare:dump"], "java", java, scratch)


def _run(command: list[str], name: str, java: Java, scratch: Path) -> None:
    output = scratch / f"{name}.log"
    if children.run(command, name=name, folder=scratch, output=output, within=_WITHIN):
        lines = output.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        raise SetupError(f"{name} of {java.home} failed ({lines[-1]}); use another JDK (JAVA_HOME), or images build --base IMAGE")


def _libraries(java: Path) -> Iterator[Path]:
    """Shared objects of this machine that the runtime's own are linked with, the loader among them, and those loaded by name."""
    found: set[Path] = set()
    for binary in (java / "bin" / "java", *java.rglob("*.so")):
        found |= _linked(binary, java)
    yield from found
    for folder in {library.parent for library in found}:
        yield from (folder / by_name for by_name in _BY_NAME if (folder / by_name).exists())


def _linked(binary: Path, java: Path) -> set[Path]:
    try:
        done = subprocess.run(["ldd", binary], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentFailure(f"ldd {binary} failed ({error}); install it, or give images build a --base") from error
    paths = (Path(path) for path in re.findall(r"(?:=> |^\s*)(/\S+)", done.stdout, re.MULTILINE))
    return {path for path in paths if not path.is_relative_to(java)}


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Root's, readable by everyone, whoever made it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode = 0o1777 if entry.name == "./tmp" else entry.mode | 0o444 | (0o111 if entry.isdir() or entry.mode & 0o100 else 0)
    return entry
