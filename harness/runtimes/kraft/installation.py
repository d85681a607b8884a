"""The files that a cluster is started from: formatted log directories, class archives, and the
command lines of its JVMs.

Log directories are formatted without a JVM: Kafka's own StorageTool runs once per Kafka, and its
bootstrap checkpoint is kept. The checkpoint has no ids, only the features that this Kafka starts
with (KIP-584, KIP-1022). A broker also starts without one, or with another version's, and then
silently lacks transactions v2, ELR and the new group coordinator. So `expected_features` is
compared with the features that the running cluster reports.

JVMs are small and quick to start. A training run writes the class archive
(`harness.machine.java`) of one Kafka and one Java, once.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from linkflap.harness.machine import cache, children
from linkflap.harness.machine.java import Java, properties_file
from linkflap.harness.machine.java import with_archive as use
from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.distribution import cluster_mirroring
from linkflap.harness.runtimes.distribution.cluster_mirroring import Generation
from linkflap.harness.runtimes.distribution.kafka import Kafka
from linkflap.harness.runtimes.kraft.broker import ServicePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What a cluster is made from: a Kafka, a Java, a formatted directory, and the folder of class
    archives. `image` is the image of its containers; the paths of Kafka and Java are then those
    inside. `mirroring` is the generation of Cluster Mirroring (KIP-1279) in this Kafka, if any."""

    kafka: Kafka
    java: Java
    template: Path
    archives: Path | None
    image: str = ""
    mirroring: Generation | None = None

    def archive_of(self, main: str) -> Path | None:
        """The class archive for this main class, if there is one."""
        path = self.archives / main if self.archives else None
        return path if path and path.is_file() else None


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


def broker_command(
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


def service_command(installation: Installation, plan: ServicePlan) -> list[str]:
    """The words that start a service in its folder."""
    return broker_command(
        installation.kafka,
        installation.java,
        main=plan.main,
        arguments=plan.arguments,
        memory=SERVICE_MEMORY,
        log=plan.folder / "service.log",
        archive=plan.jvm_options or use(installation.java, installation.archive_of(plan.main)),
    )


def archive_name(kafka: Kafka, java: Java) -> str:
    """The archives' folder in the cache. It differs between two Javas, two Kafkas, and the same
    Kafka in two folders."""
    state = f"{java.path}{java.path.stat().st_mtime_ns}{kafka.classpath}"
    return (
        f"archives/{kafka.key}-java{java.major}-{hashlib.sha256(state.encode()).hexdigest()[:12]}"
    )


_ANY_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
_FORMAT: Final = """\
node.id=1
process.roles=broker,controller
controller.quorum.voters=1@127.0.0.1:1
listeners=INTERNAL://127.0.0.1:2,CONTROLLER://127.0.0.1:1
listener.security.protocol.map=INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=INTERNAL
controller.listener.names=CONTROLLER
"""
# FeatureLevelRecord (metadata/src/main/resources/common/metadata/FeatureLevelRecord.json) as a
# record's value: frame version 1, api key 12, version 0, compact string, int16.
_FEATURE: Final = re.compile(rb"\x01\x0c\x00(.)([a-z][a-z.]+)(..)\x00", re.DOTALL)


def fresh_id() -> str:
    """A random id in Kafka's notation: 16 bytes in URL-safe base64, without a leading dash, which
    would look like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def log_dir_template(kafka: Kafka, java: Java) -> Path:
    """The folder with the files that StorageTool writes besides meta.properties; made once per
    Kafka. Raises SetupError."""
    doing = f"formatting a log directory with Kafka {kafka.version}"
    return cache.once(
        f"formatted/{kafka.key}", lambda target: _run_storage_tool(kafka, java, target), doing=doing
    )


def _run_storage_tool(kafka: Kafka, java: Java, target: Path) -> None:
    properties = target / "server.properties"
    # A log directory formatted without these features is refused by brokers that have them, and
    # vice versa.
    unstable = cluster_mirroring.UNSTABLE if cluster_mirroring.generation(kafka) else {}
    settings = {"log.dirs": str(target), **unstable}
    properties.write_text(_FORMAT + properties_file(settings))
    command = [
        str(java.path),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        kafka.classpath,
        "kafka.tools.StorageTool",
    ]
    command += ["format", "-t", _ANY_ID, "-c", str(properties)]
    output = target / "output.log"
    status = children.run(command, name="StorageTool", folder=target, output=output, within=120)
    if status:
        lines = output.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise SetupError(
            f"StorageTool of Kafka {kafka.version} failed ({lines[-1]}); are all its jars in one "
            "directory?"
        )
    output.unlink()
    properties.unlink()
    (target / "meta.properties").unlink()


def format_log_dir(template: Path, folder: Path, *, cluster_id: str, node: int) -> None:
    """Does the same to `folder` as StorageTool would, except that the node's directory id is
    given."""
    shutil.copytree(template, folder)
    lines = [
        "version=1",
        f"cluster.id={cluster_id}",
        f"node.id={node}",
        f"directory.id={fresh_id()}",
    ]
    (folder / "meta.properties").write_text("\n".join(lines) + "\n")


def expected_features(template: Path) -> dict[str, int]:
    """Feature -> the level that a cluster made from this template must have finalized."""
    found: dict[str, int] = {}
    for checkpoint in template.rglob("*.checkpoint"):
        for length, name, level in _FEATURE.findall(checkpoint.read_bytes()):
            if length[0] == len(name) + 1:
                found[name.decode()] = int.from_bytes(level, "big")
    if "metadata.version" not in found:
        raise SetupError(
            f"{template} has no readable bootstrap checkpoint; remove that folder and start again"
        )
    return found
