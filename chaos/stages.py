"""Triggers that need a report from a mirror, a group coordinator or a leader; and helpers of all
triggers that find the target's partitions."""

from __future__ import annotations

from typing import Final

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.harness.model.protocols import MirrorStage, ReportsStage, World
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import TopicPartition, is_data_topic
from linkflap.harness.wire.offsets import leader_epochs, quiet

ANSWERS_WITHIN: Final = 2.0
_REBALANCING: Final = (
    ConsumerGroupState.PREPARING_REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING,
)


def source(spec: FaultSpec) -> str:
    """The source of the target link, or the cluster of the target broker."""
    return spec.on.source


def own(cluster: str, world: World) -> list[tuple[str, int]]:
    """(topic, partition) of the data topics whose home is this cluster."""
    return [
        (topic, n)
        for topic, count in world.topics.items()
        if is_data_topic(topic, (cluster,))
        for n in range(count)
    ]


def mirror_holds(spec: FaultSpec, world: World, least: int = 1) -> bool:
    """The mirror holds records that it has fetched and the destination's replicas do not have yet;
    `:5000`, at least 5000 bytes of them."""
    stage = _stage(spec, world)
    return stage is not None and stage.held >= least


def handing_over(spec: FaultSpec, world: World, least: int = 1) -> bool:
    """The mirror is handing its topics over: a failover has begun and not ended."""
    stage = _stage(spec, world)
    return stage is not None and stage.handing_over


def partly_promoted(spec: FaultSpec, world: World, least: int = 1) -> bool:
    """During a failover: the destination's own brokers lead some of the mirrored partitions, and
    not all; `:2`, at least two."""
    destination = spec.on.destination or source(spec)
    cluster = world.deployment.clusters[destination]
    stage = _stage(spec, world)
    if stage is None or not stage.handing_over:
        return False
    led = _leaders(destination, world)
    promoted = [led.get(tp, -1) in cluster.brokers for tp in _mirrored_to(destination, world)]
    return least <= sum(promoted) < len(promoted)


def _stage(spec: FaultSpec, world: World) -> MirrorStage | None:
    """The state that the target's mirror reports, or for a cluster the mirror into it. None if the
    mirror does not answer."""
    cluster = spec.target.removeprefix("*->") if spec.target.startswith("*") else source(spec)
    named = (
        [spec.target]
        if spec.target in world.mirrors
        else [n for n in world.mirrors if n.endswith(f"->{cluster}")]
    )
    mirrors = [world.mirrors[name] for name in named]
    return next(
        (
            found
            for m in mirrors
            if isinstance(m, ReportsStage) and (found := m.stage()) is not None
        ),
        None,
    )


def _mirrored_to(cluster: str, world: World) -> list[tuple[str, int]]:
    """(topic, partition) of the data topics whose home is another cluster."""
    return [
        (name, n)
        for name, count in world.topics.items()
        if not is_data_topic(name, (cluster,))
        for n in range(count)
    ]


def _leaders(cluster: str, world: World) -> dict[tuple[str, int], int]:
    """(topic, partition) -> broker id of its leader, from the cluster's metadata. Empty while the
    cluster does not answer."""
    try:
        topics = (
            AdminClient(quiet(world.deployment.clusters[cluster].bootstrap))
            .list_topics(timeout=ANSWERS_WITHIN)
            .topics
        )
    except KafkaException:
        return {}
    return {
        (name, number): p.leader
        for name, topic in topics.items()
        for number, p in topic.partitions.items()
    }


def rebalancing(spec: FaultSpec, world: World, least: int = 1) -> bool:
    """A consumer group on the target's source is rebalancing; `:2`, at least two groups."""
    admin = AdminClient(quiet(world.deployment.clusters[source(spec)].bootstrap))
    try:
        states = set(_REBALANCING)
        found = admin.list_consumer_groups(states=states, request_timeout=ANSWERS_WITHIN).result(
            2 * ANSWERS_WITHIN
        )
    except (KafkaException, TimeoutError):
        return False
    return len(found.valid) >= least


def epochs(spec: FaultSpec, world: World) -> dict[TopicPartition, int]:
    """Since the fault began to wait, the leader epoch of a partition of the target's source has
    changed; `:2`, of at least two partitions."""
    admin = AdminClient(quiet(world.deployment.clusters[source(spec)].bootstrap))
    return leader_epochs(admin, own(source(spec), world), within=ANSWERS_WITHIN)
