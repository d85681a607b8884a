"""Members of share groups (KIP-932): they acquire records and acknowledge each. They record both,
and the brokers' confirmations.

Only Java's share consumer: librdkafka has none. An acknowledgement is recorded before it is sent,
so that the request of a killed member is known; and again when its broker confirmed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from linkflap.harness.model.history import SHARE_LOCK_MS, Fetched, PollKind
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import now
from linkflap.harness.workloads.client import SLICE, Context, Options
from linkflap.harness.workloads.library import consumer_config, describe
from linkflap.harness.workloads.readers import READS, PollingClient, fetched, rows_at

if TYPE_CHECKING:
    from linkflap.harness.workloads.java.consumer import (
        Acknowledgement,
        Acquired,
        JavaShareConsumer,
    )

KIND: Final = "share-group"
OPTIONS: Final[Options] = {
    **READS,
    "batch": OptionAbout(default=100, low=1, high=10_000, about="records of a poll at most"),
    "release": OptionAbout(default=0.02, high=1.0, about="share of records that they release"),
    "reject": OptionAbout(default=0.0, high=1.0, about="share of records that they reject"),
    "renew": OptionAbout(default=0.0, high=1.0, about="share of records whose lock they renew"),
}
CONFIRMED: Final[Mapping[Acknowledgement, PollKind]] = {
    "accept": "accepted",
    "release": "released",
    "reject": "rejected",
    "renew": "renewed",
}
CONFIRMS_WITHIN: Final = 2.0
LOOK_EVERY: Final = int(1e9)
OFTEN: Final = 3
"""A record with this delivery count is not released again: at five, brokers archive it."""


class ShareClient(PollingClient):
    """One poll per step, and the acknowledgement of all its records."""

    def __init__(self, context: Context, name: str, cluster: str) -> None:
        super().__init__(context, name, cluster)
        self._batch = context.count("batch")
        self._shares: dict[Acknowledgement, float] = {
            "release": context.number("release"),
            "reject": context.number("reject"),
            "renew": context.number("renew"),
        }
        self._consumer: JavaShareConsumer | None = None
        self._settle: frozenset[TopicPartition] = frozenset()
        self._random = Random(f"{context.seed} {name}")

    def step(self) -> None:
        try:
            consumer = self._consumer or self._join()
            invoked = now()
            records = consumer.acquire(0.1)
            if records:
                self._take(consumer, invoked, records)
            self._look(consumer)
        except KafkaException as error:
            self._error(now(), describe(error))
            self.leave(clean=False)
            self.rest(SLICE)

    def _join(self) -> JavaShareConsumer:
        """A new member. Sets the configs of its group first: otherwise the group begins at the end
        of the log."""
        self._process = self.context.numbers.next()
        config = consumer_config(self.context.bootstrap(self.cluster), self.group)
        consumer = self._consumer = self.context.library.share_consumer(config, batch=self._batch)
        consumer.configure(
            {
                "share.auto.offset.reset": "earliest",
                "share.isolation.level": self.isolation,
                "share.record.lock.duration.ms": str(SHARE_LOCK_MS),
            }
        )
        consumer.subscribe(sorted(self.context.topics))
        return consumer

    def _take(self, consumer: JavaShareConsumer, invoked: int, records: Sequence[Acquired]) -> None:
        counts = sorted({record.deliveries for record in records})
        self._write(
            invoked,
            "acquire",
            [row for n in counts for row in _rows((r for r in records if r.deliveries == n), n)],
        )
        self.tally.read += len(records)
        chosen: dict[Acknowledgement, list[Acquired]] = {}
        for record in records:
            chosen.setdefault(self._chosen(record), []).append(record)
        self._acknowledge(consumer, chosen)

    def _acknowledge(
        self, consumer: JavaShareConsumer, chosen: Mapping[Acknowledgement, Sequence[Acquired]]
    ) -> None:
        """Records acknowledgements before it sends them, and again once a broker confirmed them."""
        asked = now()
        for how, theirs in chosen.items():
            self._write(asked, how, _rows(theirs))
        consumer.acknowledge({how: theirs for how, theirs in chosen.items() if how != "accept"})
        answers = consumer.confirm(CONFIRMS_WITHIN)
        for how, theirs in chosen.items():
            if confirmed := [record for record in theirs if answers.get(record.where) == ""]:
                self._write(asked, CONFIRMED[how], _rows(confirmed))
        for (topic, partition), wrong in answers.items():
            if wrong:
                self._error(now(), f"acknowledging {topic}-{partition}: {wrong}")

    def _chosen(self, record: Acquired) -> Acknowledgement:
        """The acknowledgement type of a record: mostly accept."""
        drawn = self._random.random()
        for how, share in self._shares.items():
            if drawn < share:
                return how if record.deliveries < OFTEN or how == "reject" else "accept"
            drawn -= share
        return "accept"

    def _look(self, consumer: JavaShareConsumer) -> None:
        """Reads the group's start offsets from time to time, and records those that changed or were
        requested."""
        asked = now()
        if not self._settle and asked < self._looked_at + LOOK_EVERY:
            return
        self._looked_at, due, before = asked, self._settle, self.positions
        self.positions = consumer.starts()
        known = {tp: at for tp, at in self.positions.items() if at >= 0}
        if new := {tp: at for tp, at in known.items() if tp in due or at != before.get(tp)}:
            self._write(asked, "settled", rows_at(new))
        self._drained.update({tp: at for tp, at in known.items() if tp in due})
        self._settle -= due

    def drained(self, partitions: Sequence[TopicPartition]) -> None:
        """Makes it record at its next step how far its group is finished with these partitions."""
        self._settle |= frozenset(partitions)

    def leave(self, *, clean: bool) -> None:
        del clean  # brokers redeliver its acquired records to others
        if self._consumer is not None:
            self.context.library.discard(self._consumer)
        self._consumer = None
        self.positions = {}


def _rows(records: Iterable[Acquired], deliveries: int = -1) -> list[Fetched]:
    runs = sorted(fetched(records).items())
    return [
        Fetched(topic=topic, partition=partition, runs=some, position=deliveries)
        for (topic, partition), some in runs
    ]
