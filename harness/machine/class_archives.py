"""Class archives, which save a JVM the loading and verification of its classes: the options that
write one, and those that use it.

Up to Java 24 it is a dynamic CDS archive (JEP 350), from 25 on an AOT cache (JEP 483, 514). It
belongs to one Java and one class path. A JVM writes it when it exits normally. A JVM that cannot
use an archive starts without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from linkflap.harness.machine.java import Java

_FIRST_WITH_AOT: Final = 25


def use(java: Java, archive: Path | None) -> list[str]:
    """Options with which a JVM uses an archive."""
    if archive is None:
        return []
    if java.major >= _FIRST_WITH_AOT:
        return [f"-XX:AOTCache={archive}", "-Xlog:aot=off", "-Xlog:cds=off"]
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]


def make(java: Java, archive: Path) -> list[str]:
    """Options with which a JVM writes an archive when it exits normally."""
    if java.major >= _FIRST_WITH_AOT:
        return [f"-XX:AOTCacheOutput={archive}"]
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off"]
