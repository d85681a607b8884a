"""Creates topics on a cluster, with as many replicas as it can have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.model.errors import InputError, SetupError
from linkflap.harness.model.security import security_of
from linkflap.harness.model.wait import until

_NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_MOST_PARTITIONS: Final = 10_000
_MADE_WITHIN: Final = 60.0


def check(name: str, partitions: int, replicas: int) -> None:
    """Raises InputError for topics that no cluster would create."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is not a topic's name; write up to 249 letters, digits, dots, hyphens and "
            "underscores"
        )
    if not 1 <= partitions <= _MOST_PARTITIONS or replicas < 1:
        raise InputError(
            f"topic {name} cannot have {partitions} partitions and {replicas} replicas; give 1 to "
            f"{_MOST_PARTITIONS} partitions and 1 replica or more"
        )


def _led(admin: AdminClient, name: str, partitions: int) -> bool:
    """Whether its brokers list every partition with a leader."""
    found = admin.list_topics(timeout=_MADE_WITHIN).topics.get(name)
    return (
        found is not None
        and len(found.partitions) == partitions
        and all(p.leader >= 0 for p in found.partitions.values())
    )


def create(
    name: str,
    *,
    cluster: str,
    bootstrap: str,
    brokers: int,
    partitions: int,
    replicas: int,
    config: Mapping[str, str],
) -> None:
    """Creates a topic with the requested number of replicas, or one on each broker; all but one
    must be in sync.

    Raises InputError for an existing topic, SetupError if the cluster creates none.
    """
    check(name, partitions, replicas)
    replicas = min(replicas, brokers)
    settings = {"min.insync.replicas": str(max(1, replicas - 1)), **config}
    admin = AdminClient(
        {"bootstrap.servers": bootstrap, "log_level": 0, **security_of(bootstrap).librdkafka()}
    )
    try:
        made = admin.create_topics(
            [NewTopic(name, partitions, replicas, config=settings)], operation_timeout=30
        )
        made[name].result(_MADE_WITHIN)
        # Brokers list it a moment later: a mirror that started now would not see it.
        until(
            lambda: _led(admin, name, partitions),
            within=_MADE_WITHIN,
            what=f"leaders of {name} on cluster {cluster}",
        )
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            raise InputError(
                f"there is a topic {name} on cluster {cluster} already; choose another name"
            ) from None
        raise SetupError(
            f"topic {name} could not be created on cluster {cluster}: {reason.str()}"
        ) from error
