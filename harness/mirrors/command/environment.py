"""The environment variables of a mirror's commands: addresses of its clusters, the topics to
mirror, and the login of secured clusters."""

from __future__ import annotations

from pathlib import Path

from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.security import entered_by, security_of
from linkflap.harness.model.topology import LinkSpec, topic_pattern


def environment_of(
    deployment: Deployment, link: LinkSpec, homes: tuple[str, ...], folder: Path
) -> dict[str, str]:
    """The environment variables of every command of a link's mirror (docs/own-mirror.md). The
    mirror may keep files in `folder`."""
    source, destination = (
        deployment.links[link.name].bootstrap,
        deployment.clusters[link.destination].bootstrap,
    )
    return {
        "LINKFLAP_LINK": link.name,
        "LINKFLAP_SOURCE": link.source,
        "LINKFLAP_DESTINATION": link.destination,
        "LINKFLAP_SOURCE_BOOTSTRAP": source,
        "LINKFLAP_DESTINATION_BOOTSTRAP": destination,
        "LINKFLAP_TOPIC_PATTERN": topic_pattern(homes),
        "LINKFLAP_FOLDER": str(folder.absolute()),
        **_entered("SOURCE", source),
        **_entered("DESTINATION", entered_by(destination, "mirror")),
        **_entered("DESTINATION_SAMPLER", entered_by(destination, "sampler")),
    }


def _entered(side: str, address: str) -> dict[str, str]:
    """The files with the login of a secured cluster: one with Java's names, one with
    librdkafka's."""
    security = security_of(address)
    if not security.file:
        return {}
    return {
        f"LINKFLAP_{side}_PROPERTIES": security.file,
        f"LINKFLAP_{side}_CONFIG": security.librdkafka_file,
    }
