"""The state of a cluster's controllers: the active one (KIP-595), and ongoing reassignments."""

from __future__ import annotations

import asyncio

from linkflap.harness.model.protocols import Cluster
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection


def active_controller(cluster: Cluster) -> int:
    """Asks the quorum, because metadata responses name any broker as the controller."""
    m = messages.request("describe_quorum", 2)
    body = m.DescribeQuorumRequest(
        topics=(
            m.TopicData(
                topic_name="__cluster_metadata", partitions=(m.PartitionData(partition_index=0),)
            ),
        )
    )

    async def ask() -> int:
        connection = Connection(
            next(b.client_address for b in cluster.brokers.values() if b.state == "running")
        )
        try:
            return int(
                (await connection.call("describe_quorum", 2, body))
                .topics[0]
                .partitions[0]
                .leader_id
            )
        finally:
            connection.close()

    return asyncio.run(ask())


def pending(cluster: Cluster) -> list[str]:
    """Topics that are being reassigned (KIP-455)."""
    m = messages.request("list_partition_reassignments", 0)

    async def ask() -> list[str]:
        connection = Connection(
            next(b.client_address for b in cluster.brokers.values() if b.state == "running")
        )
        try:
            body = m.ListPartitionReassignmentsRequest(topics=None)
            return [
                str(topic.name)
                for topic in (await connection.call("list_partition_reassignments", 0, body)).topics
            ]
        finally:
            connection.close()

    return asyncio.run(ask())
