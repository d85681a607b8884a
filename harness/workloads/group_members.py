"""A reader as a member of its consumer group: where it begins, what a revocation takes, and what it
commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from linkflap.harness.model.clock import now
from linkflap.harness.model.topology import TopicPartition as Partition
from linkflap.harness.workloads.client import SLICE
from linkflap.harness.workloads.library import ClientConsumer
from linkflap.harness.workloads.librdkafka import describe
from linkflap.harness.workloads.polling import PollingClient, rows_at

ASK: Final = 5.0


class GroupMember(PollingClient):
    """The assignments and commits of a reader; what it polls is the reader's."""

    _consumer: ClientConsumer | None
    _commit_every: int
    _committed_at: int
    _committing: bool
    _down: bool
    _committed: dict[Partition, int]
    _out_of_range: set[Partition]

    def _assign(self, consumer: ClientConsumer) -> None:
        consumer.assign(
            [
                TopicPartition(t, p, at if at >= 0 else OFFSET_BEGINNING)
                for (t, p), at in self.positions.items()
            ]
        )

    def _log_start(self, consumer: ClientConsumer, topic: str, partition: int) -> int:
        try:
            return max(
                -1,
                int(
                    consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ASK)[0]
                ),
            )
        except KafkaException:
            return -1

    def _on_assign(self, consumer: ClientConsumer, partitions: list[TopicPartition]) -> None:
        """Looks up where to begin and records it: the group's offset, else the log start (-1 if
        that is unknown).

        If the group's offsets cannot be read, reading begins at the log start: a replay, which a
        group permits, never a skip.
        """
        invoked = now()
        try:
            committed = consumer.committed(partitions, timeout=ASK) if partitions else []
        except KafkaException as error:
            self._error(invoked, describe(error))
            committed = [TopicPartition(p.topic, p.partition) for p in partitions]
        starts: dict[Partition, int] = {}
        for p in committed:
            tp = p.topic, p.partition
            starts[tp] = p.offset if p.offset >= 0 else self._log_start(consumer, *tp)
        for tp in starts:  # the member's other partitions keep their positions
            self._committed.pop(tp, None)
            self._out_of_range.discard(tp)
        self.positions.update(starts)
        self._assign(consumer)
        self._write(invoked, "assign", rows_at(starts))

    def _on_revoke(self, consumer: ClientConsumer, partitions: list[TopicPartition]) -> None:
        self._revoked(partitions, "")

    def _on_lost(self, consumer: ClientConsumer, partitions: list[TopicPartition]) -> None:
        self._revoked(partitions, "lost")

    def _revoked(self, partitions: Sequence[TopicPartition], error: str) -> None:
        self._out_of_range.clear()
        gone = {
            (p.topic, p.partition): self.positions.pop((p.topic, p.partition), -1)
            for p in partitions
        }
        self._write(now(), "revoke", rows_at(gone), error=error)

    def _commit(self, consumer: ClientConsumer) -> None:
        """Requests a commit of the positions that moved. It is asynchronous, because a synchronous
        one blocks for as long as a coordinator is dead.

        It requests none while the cluster is known to be dead: librdkafka keeps the request for the
        length of a session, and destroying the consumer meanwhile waits for that, with a thread
        that spins (librdkafka issue 3740).
        """
        due = {
            tp: at for tp, at in self.positions.items() if at >= 0 and at != self._committed.get(tp)
        }
        if self._committing or not due or now() < self._committed_at + self._commit_every:
            return
        self._committed_at = now()
        if self._down and not self._reached(consumer):
            return
        try:
            consumer.commit(
                offsets=[TopicPartition(t, p, at) for (t, p), at in due.items()], asynchronous=True
            )
        except KafkaException as error:
            self._error(self._committed_at, describe(error))
            return
        self._committing = True

    def _noticed(self, error: KafkaError) -> None:
        self._down = self._down or error.code() == KafkaError._ALL_BROKERS_DOWN

    def _reached(self, consumer: ClientConsumer) -> bool:
        """Whether a broker answers again."""
        try:
            consumer.list_topics(timeout=SLICE)
        except KafkaException:
            return False
        self._down = False
        return True

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._committing = False
        done = {
            (p.topic, p.partition): p.offset
            for p in partitions or ()
            if error is None and p.error is None
        }
        failed = error or next((p.error for p in partitions or () if p.error is not None), None)
        if done:
            self._committed.update(done)
            self._write(self._committed_at, "commit", rows_at(done))
        if failed is not None:
            self._error(
                self._committed_at, f"commit of group offsets: {failed.name()}: {failed.str()}"
            )
