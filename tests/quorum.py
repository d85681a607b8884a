"""What a cluster's quorum of controllers says (KIP-595)."""

from __future__ import annotations

import asyncio

from linkflap.harness.model.protocols.clusters import Cluster
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection


def active_controller(cluster: Cluster) -> int:
    """Asked from the quorum; metadata names any broker."""
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
