"""min.insync.replicas of topics: a topic's own setting, and temporary values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from linkflap.harness.model.errors import FaultError
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.wire.offsets import quiet

ANSWERS_WITHIN: Final = 20.0
IN_SYNC: Final = "min.insync.replicas"
_OF_TOPIC: Final = ConfigSource.DYNAMIC_TOPIC_CONFIG.value


def own_value(cluster: Cluster, topic: str) -> str | None:
    """The topic's own min.insync.replicas; None if it has the brokers' default."""
    admin, resource = (
        AdminClient(quiet(cluster.bootstrap)),
        ConfigResource(ResourceType.TOPIC, topic),
    )
    try:
        entry = admin.describe_configs([resource])[resource].result(ANSWERS_WITHIN)[IN_SYNC]
    except (KafkaException, TimeoutError) as error:
        raise FaultError(
            f"cluster {cluster.name} does not name the configs of {topic}: {error}"
        ) from error
    return str(entry.value) if entry.source == _OF_TOPIC else None


def set_values(cluster: Cluster, values: Mapping[str, str | None]) -> None:
    """Sets min.insync.replicas of topics; None removes a topic's own value. Raises FaultError."""
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(
                    IN_SYNC,
                    value,
                    incremental_operation=(
                        AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
                    ),
                )
            ],
        )
        for topic, value in values.items()
    ]
    admin = AdminClient(quiet(cluster.bootstrap))
    try:
        for done in admin.incremental_alter_configs(resources).values() if resources else ():
            done.result(ANSWERS_WITHIN)
    except (KafkaException, TimeoutError) as error:
        raise FaultError(f"cluster {cluster.name} did not change {IN_SYNC}: {error}") from error
