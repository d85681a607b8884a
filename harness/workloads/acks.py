"""The acknowledgements of one send group, as runs: one cheap call per record, a handful of numbers
per group.

Producers report the deliveries of an idempotent producer in order per partition, but purged and
refused records come between them in any order. So each report has the index of its record, and
nothing here relies on order.
"""

from __future__ import annotations

from typing import Final, Protocol

from confluent_kafka import KafkaError

from linkflap.harness.model.history import Fetched, SendGroup

REFUSALS: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
    }
)
"""Errors that depend only on the record. An earlier attempt whose answer was lost must have met
them too, so the record is certainly not written. Fencing, timeouts and purges are not among them: a
first attempt may have been appended before the retry was rejected. Neither are errors that depend
on the broker (POLICY_VIOLATION: a mirror leads the partition by now) or on the time
(INVALID_TIMESTAMP, _UNKNOWN_PARTITION)."""


class Appended(Protocol):
    """The delivery report of an appended record."""

    def offset(self) -> int | None: ...


class Acks:
    """Collects the deliveries of `count` records with consecutive uids to one partition. One thread
    at a time."""

    __slots__ = (
        "_index",
        "_offset",
        "_refused",
        "_runs",
        "acked",
        "count",
        "error",
        "failed",
        "first_uid",
        "handed",
        "made_from",
        "partition",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        first_uid: int,
        count: int,
        made_from: Fetched | None = None,
    ) -> None:
        self.topic, self.partition, self.first_uid, self.count = topic, partition, first_uid, count
        self.made_from = made_from
        self.handed = 0
        self.acked = 0
        self.failed = 0
        self.error = ""
        self._runs: list[list[int]] = []
        self._refused: list[int] = []
        self._index = self._offset = -1

    def delivered(self, index: int, error: KafkaError | None, message: Appended) -> None:
        """Delivery report of record `index` of the group; never raises, because the poll would
        raise it."""
        if error is not None:
            self._failed(index, error)
            return
        offset = message.offset()
        # persisted, and the broker did not report the offset (DUPLICATE_SEQUENCE_NUMBER): unknown
        if offset is None or offset < 0:
            self.error = self.error or "acknowledged without an offset"
            return
        self.acked += 1
        if index == self._index and offset == self._offset:
            self._runs[-1][1] += 1
        else:
            self._runs.append([index, 1, offset])
        self._index, self._offset = index + 1, offset + 1

    def _failed(self, index: int, error: KafkaError) -> None:
        self.error = self.error or error.name()
        self.failed += 1
        if error.code() in REFUSALS:
            self._refused.append(index)

    @property
    def complete(self) -> bool:
        """Whether every record was acknowledged."""
        return self.acked == self.count

    @property
    def all_refused(self) -> bool:
        """Whether every record was refused for certain, or never handed over."""
        return len(self._refused) + self.count - self.handed >= self.count

    def planned(self) -> SendGroup:
        """The group before it is sent."""
        return SendGroup(
            topic=self.topic,
            partition=self.partition,
            first_uid=self.first_uid,
            count=self.count,
            made_from=self.made_from,
        )

    def outcome(self) -> SendGroup:
        """The present state of the group; records that were never sent count as refused."""
        refused = {*self._refused, *range(self.handed, self.count)}
        return SendGroup(
            topic=self.topic,
            partition=self.partition,
            first_uid=self.first_uid,
            count=self.count,
            acks=tuple((index, count, offset) for index, count, offset in sorted(self._runs)),
            refused=_runs(sorted(refused)),
            made_from=self.made_from,
        )


def _runs(indices: list[int]) -> tuple[tuple[int, int], ...]:
    """Sorted indices as runs (first, how many)."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and runs[-1][0] + runs[-1][1] == index:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return tuple(runs)
