"""An operation of a `linkflap.Producer` that is in flight: its records and their outcomes."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, Message

from linkflap.harness.model.clock import now
from linkflap.harness.model.history import Ending, OperationKind
from linkflap.harness.workloads.incarnation import Acks


class Flight:
    """One operation. `groups` are the records given to librdkafka, in order, as groups with
    consecutive uids."""

    def __init__(self, number: int, kind: OperationKind) -> None:
        self.number, self.kind = number, kind
        self.began, self.ended_at = now(), 0
        self.ending: Ending = "none"
        self.identity = (-1, -1)
        self.groups: list[Acks] = []
        self.invoked = False

    def record(
        self, topic: str, partition: int, uid: int
    ) -> Callable[[KafkaError | None, Message], None]:
        """Adds a record; returns the callback for its delivery report."""
        last = self.groups[-1] if self.groups else None
        if last is None or (last.topic, last.partition, last.first_uid + last.count) != (
            topic,
            partition,
            uid,
        ):
            last = Acks(topic, partition, uid, 0)
            self.groups.append(last)
        index, group = last.count, last
        group.count += 1
        group.handed += 1
        return lambda error, message: group.delivered(index, error, message)

    def refuse(self) -> None:
        """librdkafka did not accept the last record, so it was never sent."""
        self.groups[-1].handed -= 1

    @property
    def acked(self) -> int:
        return sum(group.acked for group in self.groups)

    @property
    def failed(self) -> int:
        return sum(group.failed for group in self.groups)

    @property
    def error(self) -> str:
        return next((group.error for group in self.groups if group.error), "")
