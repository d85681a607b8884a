"""Asks a broker about itself and its cluster, by raw requests on a new connection, without retries.

Metadata in KRaft names only brokers that are registered and unfenced. Only the active controller
answers DescribeQuorum (KIP-595), so an answer proves that there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from linkflap.harness.runtimes import probe
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import NoAnswer, access_to, host_and_port
from linkflap.harness.wire.messages import Message
from linkflap.harness.wire.peer import BlockingConnection

_ANSWER_WITHIN: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The controllers as the active one reports them; `leader` is -1 while there is none."""

    leader: int
    voters: frozenset[int]


def seen_brokers(address: str) -> frozenset[int]:
    """The unfenced brokers in the metadata of the broker at `address`; empty while it does not
    answer."""
    try:
        return frozenset(
            probe.advertised(
                host_and_port(address), within=_ANSWER_WITHIN, access=access_to(address)
            )
        )
    except NoAnswer:
        return frozenset()


def quorum(address: str) -> Quorum | None:
    """The quorum, which the broker at `address` asks the active controller for; None while it does
    not answer."""
    m = messages.request("describe_quorum", 0)
    partitions = (m.PartitionData(partition_index=0),)
    topics = (m.TopicData(topic_name="__cluster_metadata", partitions=partitions),)
    try:
        response = _asked(address, "describe_quorum", 0, m.DescribeQuorumRequest(topics=topics))
    except NoAnswer:
        return None
    for topic in response.topics:
        for partition in topic.partitions:
            voters = frozenset(int(voter.replica_id) for voter in partition.current_voters)
            return Quorum(leader=int(partition.leader_id), voters=voters)
    return None


def finalized_features(address: str) -> dict[str, int] | None:
    """Feature -> level in force in the cluster (KIP-584); None while the broker does not answer."""
    body = messages.request("api_versions", 3).ApiVersionsRequest(
        client_software_name="linkflap", client_software_version="1"
    )
    try:
        response = _asked(address, "api_versions", 3, body)
    except NoAnswer:
        return None
    return {feature.name: int(feature.max_version_level) for feature in response.finalized_features}


def _asked(address: str, api: str, version: int, body: Message) -> Message:
    """The response. Raises NoAnswer."""
    with BlockingConnection(
        host_and_port(address), within=_ANSWER_WITHIN, access=access_to(address)
    ) as path:
        return path.ask(api, version, body)
