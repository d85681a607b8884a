"""Formats log directories without a JVM: Kafka's own StorageTool runs once per Kafka, and its
bootstrap checkpoint is kept.

The checkpoint has no ids, only the features that this Kafka starts with (KIP-584, KIP-1022). A
broker also starts without one, or with another version's, and then silently lacks transactions v2,
ELR and the new group coordinator. So `expected_features` is compared with the features that the
running cluster reports.
"""

from __future__ import annotations

import base64
import re
import shutil
import uuid
from pathlib import Path
from typing import Final

from linkflap.harness.machine import cache, children
from linkflap.harness.machine.java import Java
from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.distribution import cluster_mirroring
from linkflap.harness.runtimes.distribution.kafka import Kafka

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


def template(kafka: Kafka, java: Java) -> Path:
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
    flags = "".join(f"{name}={value}\n" for name, value in unstable.items())
    properties.write_text(f"{_FORMAT}log.dirs={target}\n{flags}")
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
