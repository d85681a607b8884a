"""The planted bugs of clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from confluent_kafka import KafkaError, TopicPartition

from linkflap.harness.model.history import OutcomeName
from linkflap.harness.workloads import producers, readers
from linkflap.harness.workloads.incarnation import Acks, Appended, Incarnation, InvokedOperation
from linkflap.harness.workloads.library import ClientConsumer
from linkflap.harness.workloads.producers import CallEnd
from tests.planted import struck

SKIPPED = 10


def _unknown_commit_is_ok() -> None:
    right = producers.Producing.commit

    def commit(
        self: producers.Producing,
        incarnation: Incarnation,
        flight: InvokedOperation,
        *,
        within: float,
    ) -> CallEnd:
        ended = right(self, incarnation, flight, within=within)
        if ended.outcome != "info":
            return ended
        struck(ended.error)
        return replace(ended, outcome="ok", error="")

    producers.Producing.commit = commit  # type: ignore[method-assign] # here the bug is planted


def _purged_is_acknowledged() -> None:
    # When a producer is dropped, its operations in flight are already recorded: the purge itself
    # comes too late.
    delivered, right = Acks.delivered, Incarnation.returned
    ends: dict[tuple[str, int], int] = {}

    def noted(self: Acks, index: int, error: KafkaError | None, message: Appended) -> None:
        delivered(self, index, error, message)
        if error is None and self._offset >= 0:
            ends[self.topic, self.partition] = self._offset

    def returned(
        self: Incarnation, flight: InvokedOperation, outcome: OutcomeName, error: str = ""
    ) -> None:
        if flight.kind == "send" and outcome == "info" and not flight.returned:
            for group in flight.groups:
                _acknowledge(group, ends.get((group.topic, group.partition), -1))
        right(self, flight, outcome, error)

    Acks.delivered = noted  # type: ignore[method-assign] # here the bug is planted
    Incarnation.returned = returned  # type: ignore[method-assign] # here the bug is planted


def _acknowledge(group: Acks, end: int) -> None:
    """Records unanswered records as acknowledged, after the last acknowledged offset of their
    partition."""
    answered = {n for first, count, _ in group._runs for n in range(first, first + count)} | set(
        group._refused
    )
    missing = [n for n in range(group.handed) if n not in answered]
    if end < 0 or not missing:
        return
    struck(f"{group.topic}-{group.partition} at {end}")
    group.acked += len(missing)
    group._runs += [[index, 1, end + at] for at, index in enumerate(missing)]


def _reader_skips_after_death() -> None:
    right = readers.ReaderClient._on_assign

    def on_assign(
        self: readers.ReaderClient, consumer: ClientConsumer, partitions: list[TopicPartition]
    ) -> None:
        right(self, consumer, partitions)
        if self.context.deaths and self.group:
            self.positions = {tp: at + SKIPPED for tp, at in self.positions.items()}
            struck(", ".join(f"{topic}-{number}" for topic, number in self.positions))
            self._assign(consumer)

    readers.ReaderClient._on_assign = on_assign  # type: ignore[method-assign] # here the bug is planted


PLANTED: dict[str, Callable[[], None]] = {
    "unknown-commit-is-ok": _unknown_commit_is_ok,
    "purged-is-acknowledged": _purged_is_acknowledged,
    "reader-skips-after-death": _reader_skips_after_death,
}


def plant(bug: str) -> None:
    """Plants a bug, if it is one of clients."""
    if bug in PLANTED:
        PLANTED[bug]()
