"""Raw requests of a case (kio): requests that no client library would send, and questions to
brokers about themselves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from linkflap.harness.log import layout
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import until
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered, access_to
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.peer import Peer
from linkflap.harness.wire.requests import Led, by_topic, metadata, topics_in


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """What InitProducerId gave."""

    id: int
    epoch: int


def record_batch(
    values: Sequence[bytes],
    *,
    producer: ProducerIdentity | None = None,
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """One v2 batch of records without keys and headers, as a client sends it: base offset 0, leader
    epoch -1."""
    now = int(time.time() * 1000)
    who = producer or ProducerIdentity(id=-1, epoch=-1)
    return layout.batch(
        [(None, value) for value in values],
        leader_epoch=-1,
        attributes=layout.TRANSACTIONAL if transactional else 0,
        time=now,
        producer=(who.id, who.epoch),
        sequence=sequence,
    )


TRANSACTION: Final = 1
GROUP: Final = 0
_GROUP_RESOURCE: Final = 32
_SECONDS: Final = timedelta(seconds=10)


class Wire:
    """One node, asked by requests of our own, one at a time; a connection of its own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._peer = Peer(address, replace(access_to(address), client="linkflap-case"))

    def call(self, api: str, version: int, body: Message, *, within: float = 15.0) -> Message:
        """The response. Raises Unanswered."""
        return self._peer.call(api, version, body, within=within)

    def close(self) -> None:
        self._peer.close()

    def leadership(self, topic: str) -> Mapping[int, Led]:
        """What this broker's metadata says of a topic; empty while it does not know it."""
        known = topics_in(self.call("metadata", 12, metadata([topic])))
        return known[topic].partitions if topic in known else {}

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

    def init_producer_id(
        self, transactional_id: str | None = None, *, timeout: float = 60.0
    ) -> ProducerIdentity:
        """A producer id, of a transactional id or of none. Raises EnvironmentFailure when it is
        refused for a minute."""
        m = messages.request("init_producer_id", 4)
        body = m.InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout=timedelta(seconds=timeout),
            producer_id=-1,
            producer_epoch=-1,
        )
        seen: Message = None

        def given() -> ProducerIdentity | None:
            nonlocal seen
            seen = self.call("init_producer_id", 4, body)
            ok = seen.error_code == Error.none
            return (
                ProducerIdentity(id=int(seen.producer_id), epoch=int(seen.producer_epoch))
                if ok
                else None
            )

        return until(
            given,
            within=60,
            what=f"a producer id from {self.address}",
            every=0.1,
            state=lambda: seen,
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[TopicPartition],
    ) -> str:
        """AddPartitionsToTxn v3, as clients before KIP-890 send it; the first error's name, or
        "none"."""
        m = messages.request("add_partitions_to_txn", 3)
        body = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=tuple(
                m.AddPartitionsToTxnTopic(name=name, partitions=tuple(numbers))
                for name, numbers in by_topic(partitions).items()
            ),
        )

        def added() -> str | None:
            answer = self.call("add_partitions_to_txn", 3, body)
            codes = [
                p.partition_error_code
                for t in answer.results_by_topic_v3_and_below
                for p in t.results_by_partition
            ]
            wrong = next((code for code in codes if code != Error.none), Error.none)
            return None if wrong == Error.concurrent_transactions else str(wrong.name)

        return until(added, within=30, what=f"{transactional_id} to add partitions", every=0.05)

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdentity, *, commit: bool
    ) -> str:
        """EndTxn v3; the error's name, or "none". In later versions the epoch rises with it
        (KIP-890)."""
        m = messages.request("end_txn", 3)
        body = m.EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        )

        def ended() -> str | None:
            code = self.call("end_txn", 3, body).error_code
            return None if code == Error.concurrent_transactions else str(code.name)

        return until(
            ended, within=30, what=f"{transactional_id} to end its transaction", every=0.05
        )

    def produce(
        self,
        tp: TopicPartition,
        batch: bytes,
        *,
        transactional_id: str | None = None,
        acks: int = -1,
        version: int = 9,
    ) -> tuple[str, int]:
        """Produce of one batch; the error's name or "none", and the offset that the broker gave
        it."""
        m = messages.request("produce", version)
        body = m.ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout=_SECONDS,
            topic_data=(
                m.TopicProduceData(
                    name=tp[0], partition_data=(m.PartitionProduceData(index=tp[1], records=batch),)
                ),
            ),
        )
        (topic,) = self.call("produce", version, body).responses
        (row,) = topic.partition_responses
        return str(row.error_code.name), int(row.base_offset)

    def write_markers(
        self, tp: TopicPartition, producer: ProducerIdentity, *, commit: bool, transactions: int = 0
    ) -> str:
        """WriteTxnMarkers, as a coordinator sends it (KIP-98); the error's name, or "none".

        `transactions` is the transaction protocol's version (KIP-1228), for which brokers before
        4.2 have no field.
        """
        version = 2 if transactions and self._peer.takes("write_txn_markers", 2) else 1
        m = messages.request("write_txn_markers", version)
        marker = m.WritableTxnMarker(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            transaction_result=commit,
            topics=(m.WritableTxnMarkerTopic(name=tp[0], partition_indexes=(tp[1],)),),
            coordinator_epoch=0,
            **({"transaction_version": transactions} if version > 1 else {}),
        )
        (answer,) = self.call(
            "write_txn_markers", version, m.WriteTxnMarkersRequest(markers=(marker,))
        ).markers
        return str(answer.topics[0].partitions[0].error_code.name)

    def commit_offset(
        self,
        group: str,
        tp: TopicPartition,
        offset: int,
        *,
        leader_epoch: int = -1,
        member: str = "",
        member_epoch: int = -1,
    ) -> str:
        """OffsetCommit, as an admin client sends it for a group without members; the error's name,
        or "none".

        With a member and its epoch, as one of a KIP-848 group.
        """
        version = 9 if member else 8
        m = messages.request("offset_commit", version)
        partition = m.OffsetCommitRequestPartition(
            partition_index=tp[1],
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata="",
        )
        body = m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=member_epoch,
            member_id=member,
            group_instance_id=None,
            topics=(m.OffsetCommitRequestTopic(name=tp[0], partitions=(partition,)),),
        )

        def committed() -> str | None:
            code = self.call("offset_commit", version, body).topics[0].partitions[0].error_code
            waiting = (
                Error.coordinator_load_in_progress,
                Error.not_coordinator,
                Error.coordinator_not_available,
            )
            return None if code in waiting else str(code.name)

        return until(committed, within=60, what=f"the commit of group {group}", every=0.1)

    def committed(self, group: str, tp: TopicPartition, *, stable: bool = False) -> int:
        """The committed offset of a group, -1 where it has none; `stable` waits for transactions to
        be complete (KIP-447)."""
        m = messages.request("offset_fetch", 7)
        wanted = m.OffsetFetchRequestTopic(name=tp[0], partition_indexes=(tp[1],))
        body = m.OffsetFetchRequest(group_id=group, topics=(wanted,), require_stable=stable)

        def fetched() -> tuple[int] | None:
            answer = self.call("offset_fetch", 7, body)
            if answer.error_code != Error.none:
                return None
            row = answer.topics[0].partitions[0]
            return (int(row.committed_offset),) if row.error_code == Error.none else None

        return until(fetched, within=60, what=f"the offset of group {group}", every=0.02)[0]

    def group_setting(self, group: str, name: str, value: str) -> None:
        """Sets a configuration of a group (KIP-848, KIP-932). Raises EnvironmentFailure when it is
        refused."""
        m = messages.request("incremental_alter_configs", 1)
        row = m.AlterableConfig(name=name, config_operation=0, value=value)
        resource = m.AlterConfigsResource(
            resource_type=_GROUP_RESOURCE, resource_name=group, configs=(row,)
        )
        body = m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        (answer,) = self.call("incremental_alter_configs", 1, body).responses
        if answer.error_code != Error.none:
            raise EnvironmentFailure(
                f"{name}={value} of group {group} was refused: {answer.error_message}"
            )

    def features(self) -> Mapping[str, int]:
        """Feature -> level in force (KIP-584)."""
        m = messages.request("api_versions", 3)
        answer = self.call(
            "api_versions",
            3,
            m.ApiVersionsRequest(client_software_name="linkflap", client_software_version="1"),
        )
        return {
            str(feature.name): int(feature.max_version_level)
            for feature in answer.finalized_features
        }

    def upgrade(self, feature: str, level: int) -> None:
        """Raises a feature's level (KIP-584). Raises EnvironmentFailure when that is refused."""
        self._update(feature, level, upgrade_type=1)

    def downgrade(self, feature: str, level: int) -> None:
        """Lowers a feature's level. Raises EnvironmentFailure when that is refused."""
        self._update(feature, level, upgrade_type=2)

    def _update(self, feature: str, level: int, *, upgrade_type: int) -> None:
        m = messages.request("update_features", 1)
        update = m.FeatureUpdateKey(
            feature=feature, max_version_level=level, upgrade_type=upgrade_type
        )
        answer = self.call(
            "update_features",
            1,
            m.UpdateFeaturesRequest(
                timeout=_SECONDS, feature_updates=(update,), validate_only=False
            ),
        )
        wrong = [row for row in answer.results if row.error_code != Error.none]
        if answer.error_code != Error.none or wrong:
            raise EnvironmentFailure(
                f"{feature} could not be set to {level}: {answer.error_message or wrong}"
            )
        until(
            lambda: self.features().get(feature, 0) == level,
            within=30,
            what=f"{feature} {level} to be in force",
        )


def answered(address: str, topic: str) -> Mapping[int, Led]:
    """As `Wire.leadership`, of a broker that may be down: then empty."""
    wire = Wire(address)
    try:
        return wire.leadership(topic)
    except Unanswered:
        return {}
    finally:
        wire.close()


def leader(address: str, topic: str, partition: int = 0) -> int:
    """The leader of a partition by a broker's metadata: -1 when it has none, -2 when the broker
    does not say."""
    seen = answered(address, topic)
    return seen[partition].leader if partition in seen else -2
