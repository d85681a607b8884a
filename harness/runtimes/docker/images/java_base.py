"""A base image from this machine's own Java and its shared libraries, for machines that reach no
image registry.

It has no shell and nothing else: containers run only `java`.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Final

from linkflap.harness.machine import children
from linkflap.harness.machine.java import Java
from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.docker.images import rootfs

_MODULES: Final = (
    "java.base,java.compiler,java.desktop,java.logging,java.management,java.naming,java.net.http,java.scripting,"
    "java.security.jgss,java.security.sasl,java.sql,java.xml,jdk.crypto.ec,jdk.management,jdk.unsupported,jdk.zipfs,jdk.jcmd,jdk.net"
)
_CHANGES: Final = ("ENV PATH=/opt/java/bin:/usr/local/bin:/usr/bin:/bin",)
_WITHIN: Final = 300.0
_RECIPE: Final = "3"


def name(java: Java) -> str:
    """The name of the image for exactly this Java."""
    state = f"{_RECIPE}{_MODULES}{java.path}{java.path.stat().st_mtime_ns}"
    return f"linkflap-base:java{java.major}-{hashlib.sha256(state.encode()).hexdigest()[:12]}"


def make(java: Java) -> str:
    """Makes the image and returns its name. Raises SetupError."""

    def fill(root: Path, scratch: Path) -> None:
        own = root / "opt" / "java"
        _copy_java(java, own, scratch)
        rootfs.link(root, (own / "bin" / "java", *own.rglob("*.so")), inside=own)

    tag = name(java)
    rootfs.image(tag, fill, changes=_CHANGES)
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
    _run(command, "jlink", java, scratch)
    # jlink omits the JDK's own class archive, which the archives of Kafka's classes need.
    _run([str(target / "bin" / "java"), "-Xshare:dump"], "java", java, scratch)


def _run(command: list[str], name: str, java: Java, scratch: Path) -> None:
    output = scratch / f"{name}.log"
    if children.run(command, name=name, folder=scratch, output=output, within=_WITHIN):
        lines = output.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise SetupError(
            f"{name} of {java.home} failed ({lines[-1]}); use another JDK (JAVA_HOME), or images "
            "build --base IMAGE"
        )
