"""Command lines of JVMs: flags for small, quick JVMs, and the class archive
(`harness.machine.class_archives`) of one Kafka and one Java. A training run writes that archive
once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from linkflap.harness.machine.class_archives import use
from linkflap.harness.machine.java import Java
from linkflap.harness.runtimes.distribution.kafka import Kafka
from linkflap.harness.runtimes.kraft.installation import Installation

LOGGING: Final = Path(__file__).parent / "logging"
_QUICK: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # A broker runs only for seconds: early compilation costs less than interpretation (600
    # transactions: 4.3 CPU seconds instead of 5.0).
    "-XX:CompileThresholdScaling=0.2",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
)
BROKER_MEMORY: Final = ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=128m")
SERVICE_MEMORY: Final = ("-Xms64m", "-Xmx512m", "-XX:MaxDirectMemorySize=128m")


def command(
    kafka: Kafka,
    java: Java,
    *,
    main: str,
    arguments: Sequence[str],
    memory: Sequence[str],
    log: Path,
    archive: Sequence[str],
) -> list[str]:
    """The words that start class `main` of `kafka` on `java`, with its log in the file `log`.
    `archive`: see `use` and `make`."""
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
    installation: Installation,
    *,
    main: str,
    folder: Path,
    arguments: Sequence[str],
    jvm_options: Sequence[str] = (),
) -> list[str]:
    """The words that start a service in its folder; `jvm_options` replace the use of a class
    archive."""
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
    """The archives' folder in the cache. It differs between two Javas, two Kafkas, and the same
    Kafka in two folders."""
    state = f"{java.path}{java.path.stat().st_mtime_ns}{kafka.classpath}"
    return (
        f"archives/{kafka.key}-java{java.major}-{hashlib.sha256(state.encode()).hexdigest()[:12]}"
    )
