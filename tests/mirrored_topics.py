"""Topics on both sides of a shadow: their configs, records and partitions, and topics that the
shadow gave up."""

from __future__ import annotations

from typing import cast

from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions

from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.wire.offsets import quiet
from tests.events import Rows
from tests.shadows import TOPIC, own_write

OTHER = "A.other"


def admin_of(deployment: Deployment, cluster: str) -> AdminClient:
    return AdminClient(quiet(deployment.clusters[cluster].bootstrap))


def configs_of(deployment: Deployment, cluster: str, topic: str = TOPIC) -> dict[str, str]:
    """The configs that are set on the topic itself."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = admin_of(deployment, cluster)  # the answers are freed together with their client
    found = admin.describe_configs([resource])[resource].result(20)
    return {name: entry.value for name, entry in found.items() if int(entry.source) == 1}


def write_to(deployment: Deployment, topic: str, wanted: int) -> None:
    for _ in range(wanted):
        assert isinstance(own_write(deployment.clusters["A"].bootstrap, topic), int)


def given_up(mirror: ShadowMirror) -> dict[str, str]:
    """The run's events about topics that were given up. A request for the lag makes the mirror
    report them."""
    mirror.lag()
    return {
        str(data["topic"]): str(data["reason"])
        for kind, _, data in cast(Rows, mirror._recorder)
        if kind == "topic-given-up"
    }


def grow(deployment: Deployment, wanted: int) -> None:
    admin = admin_of(deployment, "A")
    admin.create_partitions([NewPartitions(TOPIC, wanted)])[TOPIC].result(30)
