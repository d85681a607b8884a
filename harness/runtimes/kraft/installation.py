"""The files that a cluster is started from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from linkflap.harness.machine.java import Java
from linkflap.harness.runtimes.distribution.cluster_mirroring import Generation
from linkflap.harness.runtimes.distribution.kafka import Kafka


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
