"""A transactional producer of single requests (transactions V1, or V2 by KIP-890): each can be
late, repeated or missing."""

from __future__ import annotations

from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.tools.wire import ProducerIdentity, Wire, record_batch
from linkflap.harness.model.protocols import Broker
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import until
from linkflap.harness.wire import messages
from linkflap.harness.wire.messages import Error, Message

_RETRIED: Final = (
    "not_enough_replicas",
    "concurrent_transactions",
    "coordinator_load_in_progress",
    "not_leader_or_follower",
)


class WireTransactional:
    """`id` is its transactional id, `producer` its id and epoch; sequences are counted per
    partition."""

    def __init__(
        self, bench: Bench, base: str = "writer", *, cluster: str = "A", timeout: float = 60.0
    ) -> None:
        self.id = bench.name(base)
        self.coordinator = bench.coordinator(self.id, cluster=cluster)
        self._at = bench.ask(self.coordinator)
        self.producer = self._at.init_producer_id(self.id, timeout=timeout)
        self._sequences: dict[TopicPartition, int] = {}
        self._taken: tuple[TopicPartition, bytes] = (("", 0), b"")

    @property
    def wire(self) -> Wire:
        """Requests to the coordinator, which also leads every partition of a single-broker
        cluster."""
        return self._at

    def add(self, *partitions: TopicPartition) -> str:
        """AddPartitionsToTxn; the error's name, or "none"."""
        return self._at.add_partitions(self.id, self.producer, partitions)

    def write(self, tp: TopicPartition, *values: bytes, version: int = 9) -> tuple[str, int]:
        """Produce of one batch; the error's name or "none", and its offset. From version 12 on it
        adds the partition (KIP-890).

        A leader that does not know yet what the coordinator knows is asked again, as clients do.
        """
        at = self._sequences.get(tp, 0)
        batch = record_batch(values, producer=self.producer, sequence=at, transactional=True)
        answer = self._sent(tp, batch, version)
        if answer[0] == "none":
            self._sequences[tp], self._taken = at + len(values), (tp, batch)
        return answer

    def repeat(self) -> str:
        """Produce of the last batch that was taken; the error's name, or "none"."""
        tp, batch = self._taken
        return self._sent(tp, batch, version=9)[0]

    def _sent(self, tp: TopicPartition, batch: bytes, version: int) -> tuple[str, int]:
        def answered() -> tuple[str, int] | None:
            answer = self._at.produce(tp, batch, transactional_id=self.id, version=version)
            return None if answer[0] in _RETRIED else answer

        return until(
            answered, within=30, what=f"{tp[0]}-{tp[1]} to take a batch of {self.id}", every=0.05
        )

    def write_to(self, leader: Broker, bench: Bench, tp: TopicPartition, *values: bytes) -> None:
        """As `write`, where another broker than the coordinator leads."""
        mine, self._at = self._at, bench.ask(leader)
        try:
            self.write(tp, *values)
        finally:
            self._at = mine

    def end(self, *, commit: bool) -> str:
        """EndTxn of transactions V1; returns once the coordinator has completed it."""
        error = self._at.end_transaction(self.id, self.producer, commit=commit)
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
            seen = self._at.call("end_txn", 5, body)
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
            lambda: self._at.transaction_state(self.id)[0] in done,
            within=60,
            what=f"the transaction of {self.id} to be complete",
        )


def send_offsets(
    wire: Wire,
    transactional: WireTransactional,
    group: str,
    tp: TopicPartition,
    offset: int,
    *,
    generation: int = -1,
    member: str = "",
) -> str:
    """AddOffsetsToTxn and TxnOffsetCommit (KIP-98; with a generation: KIP-447); the first error's
    name, or "none"."""
    m = messages.request("add_offsets_to_txn", 3)
    who = transactional.producer
    body = m.AddOffsetsToTxnRequest(
        transactional_id=transactional.id,
        producer_id=who.id,
        producer_epoch=who.epoch,
        group_id=group,
    )

    def added() -> str | None:
        code = wire.call("add_offsets_to_txn", 3, body).error_code
        return None if code == Error.concurrent_transactions else str(code.name)

    if (
        error := until(added, within=30, what=f"{group} to be in the transaction", every=0.05)
    ) != "none":
        return error
    m = messages.request("txn_offset_commit", 3)
    row = m.TxnOffsetCommitRequestPartition(
        partition_index=tp[1],
        committed_offset=offset,
        committed_leader_epoch=-1,
        committed_metadata="",
    )
    commit = m.TxnOffsetCommitRequest(
        transactional_id=transactional.id,
        group_id=group,
        producer_id=who.id,
        producer_epoch=who.epoch,
        generation_id=generation,
        member_id=member,
        group_instance_id=None,
        topics=(m.TxnOffsetCommitRequestTopic(name=tp[0], partitions=(row,)),),
    )
    loading = (
        Error.coordinator_load_in_progress,
        Error.coordinator_not_available,
        Error.not_coordinator,
    )

    def committed() -> str | None:
        code = wire.call("txn_offset_commit", 3, commit).topics[0].partitions[0].error_code
        return None if code in loading else str(code.name)

    return until(committed, within=60, what=f"offsets of {group}", every=0.1)


__all__ = ["WireTransactional", "send_offsets"]
