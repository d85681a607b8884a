"""Asks one broker about itself, by raw requests: leaders, coordinators, states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from linkflap.harness.model.wait import until
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import access_to
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.peer import Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """One partition as a broker's metadata has it; `leader` is -1 when it has none."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class BrokerAnswers:
    """One node, asked one request at a time, on a connection of its own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._peer = Peer(address, replace(access_to(address), client="linkflap-case"))

    def call(self, api: str, version: int, body: Message, *, within: float = 15.0) -> Message:
        """The response. Raises Unanswered."""
        return self._peer.call(api, version, body, within=within)

    def close(self) -> None:
        self._peer.close()

    def leadership(self, topic: str) -> Mapping[int, Leadership]:
        """What this broker's metadata says of a topic; empty while it does not know it."""
        m = messages.request("metadata", 12)
        wanted = (m.MetadataRequestTopic(topic_id=None, name=topic),)
        body = m.MetadataRequest(
            topics=wanted,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        answer = self.call("metadata", 12, body)
        return {
            int(p.partition_index): Leadership(
                leader=int(p.leader_id),
                epoch=int(p.leader_epoch),
                replicas=tuple(map(int, p.replica_nodes)),
                in_sync=tuple(map(int, p.isr_nodes)),
            )
            for t in answer.topics
            for p in t.partitions
        }

    def coordinator(self, key: str, kind: int) -> int:
        """The broker that coordinates a transactional id or a group, once there is one."""
        m = messages.request("find_coordinator", 4)
        body = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
        seen: Message = None

        def found() -> int | None:
            nonlocal seen
            (seen,) = self.call("find_coordinator", 4, body).coordinators
            return int(seen.node_id) if seen.error_code == Error.none else None

        return until(found, within=60, what=f"a coordinator of {key}", state=lambda: seen)

    def transaction_state(self, transactional_id: str) -> tuple[str, int]:
        """State of a transactional id as its coordinator has it (KIP-664), and how many partitions
        are in its transaction."""
        m = messages.request("describe_transactions", 0)
        (state,) = self.call(
            "describe_transactions",
            0,
            m.DescribeTransactionsRequest(transactional_ids=(transactional_id,)),
        ).transaction_states
        if state.error_code != Error.none:
            return f"({state.error_code.name})", 0
        return str(state.transaction_state), sum(len(topic.partitions) for topic in state.topics)
