"""A cluster's metadata, as one answer has it: brokers, topics, leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from linkflap.harness.model.security import beside
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import AnyOf
from linkflap.harness.wire.messages import Error, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """One partition in a cluster's metadata; `leader` is -1 when it has none, `epoch` is the leader
    epoch."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    id: Message
    partitions: Mapping[int, Led]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSnapshot:
    """A cluster's metadata: unfenced brokers (id -> address on the listener that was asked), and
    topics."""

    brokers: Mapping[int, str]
    topics: Mapping[str, Topic]


async def picture(nodes: AnyOf, topics: Iterable[str] | None = None) -> MetadataSnapshot:
    """Asks any of the nodes for these topics, or for all. Raises Unanswered."""
    m = messages.request("metadata", 12)
    wanted = (
        None
        if topics is None
        else tuple(m.MetadataRequestTopic(topic_id=None, name=name) for name in topics)
    )
    body = m.MetadataRequest(
        topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    answer = await nodes.call("metadata", 12, body)
    entered_as = nodes.addresses[0]
    return MetadataSnapshot(
        brokers={int(b.node_id): beside(entered_as, f"{b.host}:{b.port}") for b in answer.brokers},
        topics={
            str(t.name): Topic(
                id=t.topic_id,
                partitions={
                    int(p.partition_index): Led(
                        leader=int(p.leader_id),
                        epoch=int(p.leader_epoch),
                        replicas=tuple(map(int, p.replica_nodes)),
                        in_sync=tuple(map(int, p.isr_nodes)),
                    )
                    for p in t.partitions
                },
            )
            for t in answer.topics
            if t.error_code == Error.none
        },
    )
