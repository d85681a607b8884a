"""Command lines of JVMs: flags for small, quick ones, and class archives that save them loading and verifying classes.

A class archive belongs to one Kafka and one Java, and is made once by a training run that ends in good order: a dynamic CDS
archive (JEP 350) up to Java 24, an AOT cache (JEP 483, 514) from 25 on. A JVM that cannot use one starts without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from linkflap.harness.machine.java import Java
from linkflap.harness.runtimes.distribution.kafka import Kafka
from linkflap.harness.runtimes.kraft.installation import Installation

LOGGING: Final = Path(__file__).parent / "logging"
_FIRST_WITH_AOT: Final = 25
_QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError")
BROKER_MEMORY: Final = ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=128m")
SERVICE_MEMORY: Final = ("-Xms64m", "-Xmx512m", "-XX:MaxDirectMemorySize=128m")


def command(
    kafka: Kafka, java: Java, *, main: str, arguments: Sequence[str], memory: Sequence[str], log: Path, archive: Sequence[str]
) -> list[str]:
    """The words that start class `main` of `kafka` on `java`; it logs to the file `log`. `archive`: see `use` and `make`."""
    return [
        str(java.path),
        *memory,
        *_QUICK,
        *archive,
        f"-Dlinkflap.log={log}",
        f"-Dlog4j2.configurationFile={LOGGING / 'log4j2.properties'}",
        f"-Dlog4j.configuration=file:{LOGGING / 'log4j.properties'}",
        "-Djava.net.preferIPv4Stack=true",
        "-cp",
        kafka.classpath,
        main,
        *arguments,
    ]


def service_command(
    installation: Installation, *, main: str, folder: Path, arguments: Sequence[str], jvm_options: Sequence[str] = ()
) -> list[str]:
    """The words that start a service in its folder; `jvm_options` stand in for the use of a class archive."""
    return command(
        installation.kafka,
        installation.java,
        main=main,
        arguments=arguments,
        memory=SERVICE_MEMORY,
        log=folder / "service.log",
        archive=jvm_options or use(installation.java, installation.archive_of(main)),
    )


def archive_name(kafka: Kafka, java: Java) -> str:
    """The archives' folder in the cache. It tells apart two Javas, two Kafkas, and the same Kafka in two places."""
    state = f"{java.path}{java.path.stat().st_mtime_ns}{kafka.classpath}"
    return f"archives/{kafka.key}-java{java.major}-{hashlib.sha256(state.encode()).hexdigest()[:12]}"


def use(java: Java, archive: Path | None) -> list[str]:
    """Options with which a JVM uses an archive."""
    if archive is None:
        return []
    if java.major >= _FIRST_WITH_AOT:
        return [f"-XX:AOTCache={archive}", "-Xlog:aot=off", "-Xlog:cds=off"]
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]


def make(java: Java, archive: Path) -> list[str]:
    """Options with which a JVM writes an archive when it ends in good order."""
    if java.major >= _FIRST_WITH_AOT:
        return [f"-XX:AOTCacheOutput={archive}"]
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off"]
