"""Makes a root file system from this machine's files, and an image of it, for machines that reach
no image registry. It has no shell: only the caller's files, and the shared objects that they need.

The base image for Kafka has this machine's own Java: its containers run only `java`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from linkflap.harness.machine import cache, children
from linkflap.harness.machine.java import Java
from linkflap.harness.model.errors import EnvironmentFailure, SetupError
from linkflap.harness.runtimes.docker import engine

# Loaded by name at run time, so that ldd does not list them: host name lookups, and dependencies of
# native codecs.
_BY_NAME: Final = (
    "libnss_dns.so.2",
    "libnss_files.so.2",
    "libresolv.so.2",
    "libgcc_s.so.1",
    "libstdc++.so.6",
)
_FOLDERS: Final = ("bin", "etc", "tmp", "proc", "sys", "dev", "opt", "usr/bin", "usr/local/bin")
_AT_ONCE: Final = 100


def image(tag: str, fill: Callable[[Path, Path], None], *, changes: Sequence[str]) -> None:
    """Makes an image of the files that `fill(root, scratch folder)` writes; `changes` are
    Dockerfile lines. Raises SetupError."""
    with tempfile.TemporaryDirectory(dir=cache.folder(), prefix=".root-") as scratch:
        root = Path(scratch) / "root"
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True)
        (root / "etc/passwd").write_text("root:x:0:0::/:/bin/false\n")
        (root / "etc/group").write_text("root:x:0:\n")
        (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
        fill(root, Path(scratch))
        archive = Path(scratch) / "root.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(root, arcname=".", filter=_plain)
        repository, _, version = tag.partition(":")
        with engine.asked(f"import {tag}", kind=SetupError):
            engine.client().api.import_image_from_file(
                str(archive), repository=repository, tag=version, changes=list(changes)
            )


def link(root: Path, binaries: Iterable[Path], *, inside: Path) -> None:
    """Copies the shared objects that `binaries` need into `root`, except those in `inside`, which
    are there already."""
    for library in sorted(set(_libraries(list(binaries), inside))):
        target = root / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def _libraries(binaries: Sequence[Path], inside: Path) -> Iterator[Path]:
    """This machine's shared objects for these programs, including the loader and those loaded by
    name."""
    found: set[Path] = set()
    for begin in range(0, len(binaries), _AT_ONCE):
        found |= _linked(binaries[begin : begin + _AT_ONCE], inside)
    yield from found
    for folder in {library.parent for library in found}:
        yield from (folder / by_name for by_name in _BY_NAME if (folder / by_name).exists())


def _linked(binaries: Sequence[Path], inside: Path) -> set[Path]:
    try:
        done = subprocess.run(
            ["ldd", *binaries], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentFailure(
            f"ldd {binaries[0]} failed ({error}); install it, or give images build a --base"
        ) from error
    paths = (
        Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+)(?= \(0x)", done.stdout, re.MULTILINE)
    )
    return {path for path in paths if not path.is_relative_to(inside)}


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Owned by root, readable by everyone, whoever made it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode = (
        0o1777
        if entry.name == "./tmp"
        else entry.mode | 0o444 | (0o111 if entry.isdir() or entry.mode & 0o100 else 0)
    )
    return entry


_MODULES: Final = (
    "java.base,java.compiler,java.desktop,java.logging,java.management,java.naming,java.net.http,java.scripting,"
    "java.security.jgss,java.security.sasl,java.sql,java.xml,jdk.crypto.ec,jdk.management,jdk.unsupported,jdk.zipfs,jdk.jcmd,jdk.net"
)
_CHANGES: Final = ("ENV PATH=/opt/java/bin:/usr/local/bin:/usr/bin:/bin",)
_WITHIN: Final = 300.0
_RECIPE: Final = "3"


def java_base_name(java: Java) -> str:
    """The name of the image for exactly this Java."""
    state = f"{_RECIPE}{_MODULES}{java.path}{java.path.stat().st_mtime_ns}"
    return f"linkflap-base:java{java.major}-{hashlib.sha256(state.encode()).hexdigest()[:12]}"


def make_java_base(java: Java) -> str:
    """Makes the image and returns its name. Raises SetupError."""

    def fill(root: Path, scratch: Path) -> None:
        own = root / "opt" / "java"
        _copy_java(java, own, scratch)
        link(root, (own / "bin" / "java", *own.rglob("*.so")), inside=own)

    tag = java_base_name(java)
    image(tag, fill, changes=_CHANGES)
    return tag


def _copy_java(java: Java, target: Path, scratch: Path) -> None:
    """Copies the Java: reduced by jlink if it is a JDK, else completely."""
    jlink = java.home / "bin" / "jlink"
    if not (jlink.is_file() and (java.home / "jmods").is_dir()):
        shutil.copytree(java.home, target)  # follows links: a distribution's conf is a link to /etc
        return
    command = [
        str(jlink),
        "--add-modules",
        _MODULES,
        "--no-header-files",
        "--no-man-pages",
        "--output",
        str(target),
    ]
    _run_java_tool(command, "jlink", java, scratch)
    # jlink omits the JDK's own class archive, which the archives of Kafka's classes need.
    _run_java_tool([str(target / "bin" / "java"), "-Xshare:dump"], "java", java, scratch)


def _run_java_tool(command: list[str], name: str, java: Java, scratch: Path) -> None:
    output = scratch / f"{name}.log"
    if children.run(command, name=name, folder=scratch, output=output, within=_WITHIN):
        lines = output.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise SetupError(
            f"{name} of {java.home} failed ({lines[-1]}); use another JDK (JAVA_HOME), or images "
            "build --base IMAGE"
        )
