"""The planted bugs of clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from confluent_kafka import KafkaError, TopicPartition

from linkflap.harness.workloads import endings, readers
from linkflap.harness.workloads.acks import Acks
from tests.planted import struck

SKIPPED = 10


def _unknown_commit_is_ok() -> None:
    right = endings.commit

    def commit(*given, **named):
        ended = right(*given, **named)
        if ended.outcome != "info":
            return ended
        struck(ended.error)
        return replace(ended, outcome="ok", error="")

    endings.commit = commit


def _purged_is_acknowledged() -> None:
    right = Acks._failed

    def failed(self: Acks, index: int, error: KafkaError) -> None:
        purged = error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
        if not purged or not self._runs or self._offset < 0:
            right(self, index, error)
            return
        struck(f"after {self._offset}")
        self.acked += 1
        self._runs.append([index, 1, self._offset])
        self._index, self._offset = index + 1, self._offset + 1

    Acks._failed = failed


def _reader_skips_after_death() -> None:
    right = readers.ReaderClient._on_assign

    def on_assign(self: readers.ReaderClient, consumer, partitions: list[TopicPartition]) -> None:
        right(self, consumer, partitions)
        if self.context.deaths and self.group:
            self.positions = {tp: at + SKIPPED for tp, at in self.positions.items()}
            struck(", ".join(f"{topic}-{number}" for topic, number in self.positions))
            self._assign(consumer)

    readers.ReaderClient._on_assign = on_assign


PLANTED: dict[str, Callable[[], None]] = {
    "unknown-commit-is-ok": _unknown_commit_is_ok,
    "purged-is-acknowledged": _purged_is_acknowledged,
    "reader-skips-after-death": _reader_skips_after_death,
}


def plant(bug: str) -> None:
    """Puts a bug in, where it is one of clients."""
    if bug in PLANTED:
        PLANTED[bug]()
