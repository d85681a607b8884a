"""Raw requests of a case (kio): requests that no client library would send, questions to brokers
about themselves, and a transactional producer whose single requests can be late, repeated or
missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from linkflap.harness.log import layout
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.protocols import Broker
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import until
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered, access_to
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.peer import Peer
from linkflap.harness.wire.requests import (
    Led,
    by_topic,
    fetch,
    fetched,
    metadata,
    new_producer,
    topics_in,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """A producer id and epoch, as InitProducerId returned them."""

    id: int
    epoch: int


def record_batch(
    values: Sequence[bytes],
    *,
    producer: ProducerIdentity | None = None,
    sequence: int = -1,
    transactional: bool = False,
    at: int | None = None,
) -> bytes:
    """One v2 batch of records without keys and headers, as a client sends it: base offset 0, leader
    epoch -1. `at`: the time of its records, in ms; by default now."""
    now = int(time.time() * 1000) if at is None else at
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
_MOST: Final = 10_000_000
"""Bytes that a fetch asks for."""
_SECONDS: Final = timedelta(seconds=10)
_MOVING: Final = (
    Error.coordinator_load_in_progress,
    Error.not_coordinator,
    Error.coordinator_not_available,
)


def _lasting(
    ask: Callable[[], Message],
    what: str,
    *,
    again: Sequence[Message] = (Error.concurrent_transactions,),
    within: float = 30.0,
    every: float = 0.05,
) -> str:
    """The name of the first error code that is not one of `again`, after which clients retry; or
    "none"."""

    def answered() -> str | None:
        code = ask()
        return None if code in again else str(code.name)

    return until(answered, within=within, what=what, every=every)


class Wire:
    """A connection to one node, for single raw requests."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._peer = Peer(address, replace(access_to(address), client="linkflap-case"))

    def call(self, api: str, version: int, body: Message, *, within: float = 15.0) -> Message:
        """The response. Raises Unanswered."""
        return self._peer.call(api, version, body, within=within)

    def close(self) -> None:
        self._peer.close()

    def leadership(self, topic: str) -> Mapping[int, Led]:
        """The leaders of a topic in this broker's metadata; empty while the broker does not know
        the topic."""
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
        """The coordinator's state of a transactional id (KIP-664), and the number of partitions in
        its transaction."""
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
        body = new_producer(transactional_id, timeout=timeout)
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

        def added() -> Message:
            answer = self.call("add_partitions_to_txn", 3, body)
            codes = (
                p.partition_error_code
                for t in answer.results_by_topic_v3_and_below
                for p in t.results_by_partition
            )
            return next((code for code in codes if code != Error.none), Error.none)

        return _lasting(added, f"{transactional_id} to add partitions")

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

        return _lasting(
            lambda: self.call("end_txn", 3, body).error_code,
            f"{transactional_id} to end its transaction",
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
        """Produces one batch. Returns the error's name or "none", and the assigned offset."""
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

    def fetch(self, tp: TopicPartition, offset: int) -> tuple[str, bytes]:
        """Fetches from an offset. Returns the error's name or "none", and the complete batches of
        the response."""
        answer = self.call("fetch", 12, fetch(12, tp[0], tp[1], offset, most=_MOST))
        data = fetched(answer)
        end = max((batch.stop for batch in layout.walk(data)), default=0)
        return str(answer.responses[0].partitions[0].error_code.name), data[:end]

    def fetched(self, tp: TopicPartition, start: int, end: int) -> bytes:
        """All batches from `start` to `end`, as the broker returns them to consumers. Raises
        EnvironmentFailure when it returns none."""
        found = b""
        while start < end:
            error, data = self.fetch(tp, start)
            if not data:
                raise EnvironmentFailure(f"{tp[0]}-{tp[1]} gave nothing at {start} ({error})")
            found += data
            start = 1 + max(batch.last for batch in layout.walk(data))
        return found

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

        return _lasting(
            lambda: self.call("offset_commit", version, body).topics[0].partitions[0].error_code,
            f"the commit of group {group}",
            again=_MOVING,
            within=60,
            every=0.1,
        )

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
    """As `Wire.leadership`; empty if the broker is down."""
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


_RETRIED: Final = (
    "not_enough_replicas",
    "concurrent_transactions",
    "coordinator_load_in_progress",
    "not_leader_or_follower",
)


class WireTransactional:
    """A transactional producer of single requests (transactions V1, or V2 by KIP-890).

    `id` is its transactional id, `producer` its producer id and epoch. `wire` asks its
    `coordinator`, which also leads every partition of a single-broker cluster. Sequences are
    counted per partition.
    """

    def __init__(self, id: str, coordinator: Broker, wire: Wire, *, timeout: float) -> None:
        self.id, self.coordinator, self.wire = id, coordinator, wire
        self.producer = wire.init_producer_id(id, timeout=timeout)
        self._sequences: dict[TopicPartition, int] = {}
        self._taken: tuple[TopicPartition, bytes] = (("", 0), b"")

    def add(self, *partitions: TopicPartition) -> str:
        """AddPartitionsToTxn; the error's name, or "none"."""
        return self.wire.add_partitions(self.id, self.producer, partitions)

    def write(
        self, tp: TopicPartition, *values: bytes, version: int = 9, to: Wire | None = None
    ) -> tuple[str, int]:
        """Produce of one batch; the error's name or "none", and its offset. From version 12 on it
        adds the partition (KIP-890). `to`: the leader, if that is not the coordinator.

        A leader that does not know yet what the coordinator knows is asked again, as clients do.
        """
        at = self._sequences.get(tp, 0)
        batch = record_batch(values, producer=self.producer, sequence=at, transactional=True)
        answer = self._sent(to or self.wire, tp, batch, version)
        if answer[0] == "none":
            self._sequences[tp], self._taken = at + len(values), (tp, batch)
        return answer

    def repeat(self) -> str:
        """Produces the last accepted batch again. Returns the error's name, or "none"."""
        tp, batch = self._taken
        return self._sent(self.wire, tp, batch, version=9)[0]

    def _sent(
        self, leader: Wire, tp: TopicPartition, batch: bytes, version: int
    ) -> tuple[str, int]:
        def answered() -> tuple[str, int] | None:
            answer = leader.produce(tp, batch, transactional_id=self.id, version=version)
            return None if answer[0] in _RETRIED else answer

        return until(
            answered, within=30, what=f"{tp[0]}-{tp[1]} to take a batch of {self.id}", every=0.05
        )

    def end(self, *, commit: bool) -> str:
        """EndTxn of transactions V1; returns once the coordinator has completed it."""
        error = self.wire.end_transaction(self.id, self.producer, commit=commit)
        if error == "none":
            self.settled()
        return error

    def end_v2(self, *, commit: bool, producer: ProducerIdentity | None = None) -> str:
        """EndTxn v5 (KIP-890): on success the epoch is the next one, and sequences begin anew."""
        who = producer or self.producer
        m = messages.request("end_txn", 5)
        body = m.EndTxnRequest(
            transactional_id=self.id, producer_id=who.id, producer_epoch=who.epoch, committed=commit
        )
        seen: Message = None

        def ended() -> bool:
            nonlocal seen
            seen = self.wire.call("end_txn", 5, body)
            return bool(seen.error_code != Error.concurrent_transactions)

        until(ended, within=30, what=f"{self.id} to end its transaction", every=0.05)
        if seen.error_code == Error.none:
            self.producer = ProducerIdentity(
                id=int(seen.producer_id), epoch=int(seen.producer_epoch)
            )
            self._sequences.clear()
            self.settled()
        return str(seen.error_code.name)

    def settled(self) -> None:
        """Waits until no transaction is on its way: markers are written, and the next one can
        begin."""
        done = ("CompleteCommit", "CompleteAbort", "Empty")
        until(
            lambda: self.wire.transaction_state(self.id)[0] in done,
            within=60,
            what=f"the transaction of {self.id} to be complete",
        )

    def send_offsets(
        self,
        wire: Wire,
        group: str,
        tp: TopicPartition,
        offset: int,
        *,
        generation: int = -1,
        member: str = "",
    ) -> str:
        """AddOffsetsToTxn and TxnOffsetCommit (KIP-98; with a generation: KIP-447) at one broker;
        the first error's name, or "none"."""
        m = messages.request("add_offsets_to_txn", 3)
        body = m.AddOffsetsToTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            group_id=group,
        )
        error = _lasting(
            lambda: wire.call("add_offsets_to_txn", 3, body).error_code,
            f"{group} to be in the transaction",
        )
        if error != "none":
            return error
        m = messages.request("txn_offset_commit", 3)
        row = m.TxnOffsetCommitRequestPartition(
            partition_index=tp[1],
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        commit = m.TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            generation_id=generation,
            member_id=member,
            group_instance_id=None,
            topics=(m.TxnOffsetCommitRequestTopic(name=tp[0], partitions=(row,)),),
        )
        return _lasting(
            lambda: wire.call("txn_offset_commit", 3, commit).topics[0].partitions[0].error_code,
            f"offsets of {group}",
            again=_MOVING,
            within=60,
            every=0.1,
        )
