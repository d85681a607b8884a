"""Makes the list of jars of one release: `python -m linkflap.harness.runtimes.distribution.pin
3.7.1 > kafka/3.7.1.sha256`.

Maven resolves the jars of a broker, its tools and MirrorMaker, and a logging backend. Each line has
the coordinates and the sha256 of a jar. To add a list, compare the sums of a few jars with the
release announcement, then commit it. With `--brokers` the list has only a broker's jars, for a
release whose other jars are in no repository.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from linkflap.harness.machine import children
from linkflap.harness.machine.java import java_for
from linkflap.harness.model.errors import InputError, LinkflapError, SetupError
from linkflap.harness.runtimes.distribution.kafka import MAVEN_PLUGIN

_WITHIN: Final = 900.0
_BROKER: Final = "kafka_2.13"
_ROOTS: Final = (_BROKER, "kafka-tools", "connect-mirror")
_LINE: Final = re.compile(
    r"^\s+([\w.-]+):([\w.-]+):jar:(?:([\w.-]+):)?([\w.-]+):(?:compile|runtime)"
)


def backend(version: str) -> str:
    """The logging backend: log4j 2 for Kafka 4 (KIP-653), reload4j before. The jars include
    neither."""
    if version.startswith("3."):
        return "org.slf4j:slf4j-reload4j:1.7.36"
    return "org.apache.logging.log4j:log4j-slf4j-impl:" + (
        "2.24.3" if version < "4.1.2" else "2.25.2"
    )


def pom(version: str, roots: Sequence[str] = _ROOTS) -> str:
    """A Maven project with the dependencies of a broker, its tools and MirrorMaker, or only
    `roots`."""
    wanted = [f"org.apache.kafka:{name}:{version}" for name in roots] + [backend(version)]
    rows = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{number}</version></dependency>"
        for group, name, number in (one.split(":") for one in wanted)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>linkflap</groupId><artifactId>pin</artifactId>"
        f"<version>1</version><dependencies>{rows}</dependencies></project>"
    )


def listed(text: str) -> list[str]:
    """The coordinates in the output of `dependency:list`: group:artifact:version, and the
    classifier if there is one."""
    found = [match.groups() for line in text.splitlines() if (match := _LINE.match(line))]
    return [
        ":".join((group, name, version, *([extra] if extra else [])))
        for group, name, extra, version in found
    ]


def lines(version: str, *, brokers: bool = False) -> list[str]:
    """The list of a release, or only of its brokers. Raises InputError or SetupError."""
    maven = shutil.which("mvn")
    if maven is None:
        raise SetupError("mvn was not found, which resolves what a release needs; install Maven")
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise InputError(f"{version!r} is no release; give one as 3.7.1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pom.xml").write_text(pom(version, (_BROKER,) if brokers else _ROOTS))
        goals = [f"{MAVEN_PLUGIN}:list", f"{MAVEN_PLUGIN}:copy-dependencies"]
        options = [
            "-DincludeScope=runtime",
            f"-DoutputFile={folder / 'list.txt'}",
            f"-DoutputDirectory={folder / 'jars'}",
        ]
        command = [maven, "-q", "-B", "-f", str(folder / "pom.xml"), *goals, *options]
        home = {"JAVA_HOME": str(java_for(version).home)}
        output = folder / "mvn.log"
        if children.run(
            command, name="mvn", folder=folder, output=output, within=_WITHIN, environment=home
        ):
            raise SetupError(
                f"mvn could not resolve Kafka {version}: {output.read_text(errors='replace')[:400]}"
            )
        return [
            _line(folder / "jars", coordinates)
            for coordinates in sorted(listed((folder / "list.txt").read_text()), key=_name)
        ]


def _name(coordinates: str) -> str:
    return "-".join(coordinates.split(":")[1:]) + ".jar"


def _line(jars: Path, coordinates: str) -> str:
    return f"{hashlib.sha256((jars / _name(coordinates)).read_bytes()).hexdigest()}  {coordinates}"


if __name__ == "__main__":
    try:
        sys.stdout.write("\n".join(lines(sys.argv[1], brokers="--brokers" in sys.argv)) + "\n")
    except LinkflapError as error:
        sys.exit(f"pin: {error}")
