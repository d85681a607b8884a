"""Readers: consumers in groups or with fixed partitions, which record each poll's result and their
positions.

Positions count control records too: librdkafka's position moves over commit and abort markers, and
the end-of-partition notice (`enable.partition.eof`) reports how far an empty fetch has read.
Starting positions are explicit: the committed offset of the group, or the log start. If an offset
is out of range, the reader resets it and records that; it does not leave the reset to librdkafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from linkflap.harness.model.clock import now
from linkflap.harness.model.history import Fetched
from linkflap.harness.model.scenario import group_of
from linkflap.harness.model.topology import TopicPartition as Partition
from linkflap.harness.workloads.client import SLICE
from linkflap.harness.workloads.context import Context
from linkflap.harness.workloads.fetches import fetched, partition_of
from linkflap.harness.workloads.group_members import GroupMember
from linkflap.harness.workloads.library import ClientConsumer, ClientMessage
from linkflap.harness.workloads.librdkafka import consumer_config, describe
from linkflap.harness.workloads.polling import rows_at

OPTIONS: Final = frozenset(
    {
        "via",
        "cluster",
        "isolation",
        "assign",
        "group",
        "follow",
        "commit_every",
        "batch",
        "protocol",
    }
)
PROTOCOLS: Final = ("classic", "consumer")
"""Group protocols: the classic one, and that of KIP-848, which only Java's clients use here."""
LOOK_EVERY: Final = int(0.5e9)
ENDS_A_CONSUMER: Final = (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)
"""After these errors, each reported once, a consumer gets no more records. A static member can
cause that itself: if its session expires while it does not poll, librdkafka sends heartbeats
without a member id (docs/findings/librdkafka-3437.md)."""


def reader_cluster(context: Context) -> str:
    """The cluster on which the readers of a workload begin: option `cluster`, by default the home
    of the topics."""
    return context.text("cluster", context.spec.home)


class ReaderClient(GroupMember):
    """One poll per step. In group mode subscribed, with explicit group commits; else assigned to
    every partition of the home."""

    def __init__(self, context: Context, name: str, cluster: str) -> None:
        assigned, named = context.flag("assign", False), context.text("group", "")
        group = "" if assigned else named or group_of(context.spec)
        super().__init__(
            context, name, cluster, group=group, follows=context.flag("follow", bool(group))
        )
        self._protocol = context.choice("protocol", PROTOCOLS)
        self._commit_every = int(context.number("commit_every", 1.0, low=0.05) * 1e9)
        self._batch = context.count("batch", 500, high=100_000)
        self._consumer: ClientConsumer | None = None
        self._committed_at = 0
        self._committing = self._down = self._ended = False
        self._committed: dict[Partition, int] = {}
        self._out_of_range: set[Partition] = set()

    def _config(self) -> dict[str, str | int | float | bool]:
        # A static member (KIP-345): the successor of a killed one replaces it at once, not only
        # when its session ends.
        member: dict[str, str | int | float | bool] = (
            {"group.instance.id": self.name} if self.group else {}
        )
        if self._protocol != PROTOCOLS[0]:
            member["group.protocol"] = self._protocol
        return {
            **member,
            **consumer_config(
                self.context.bootstrap(self.cluster), self.group or f"linkflap.assigned.{self.name}"
            ),
            "isolation.level": self.isolation,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "allow.auto.create.topics": False,
            "log_level": 0,
        }

    def step(self) -> None:
        if self._ended:
            self.leave(clean=False)
            self.rest(SLICE)
        consumer = self._consumer or self._join()
        if not self.group:
            self._look_for_partitions(consumer)
        invoked = now()
        try:
            messages = consumer.consume(self._batch, 0.1)
        except KafkaException as error:
            self._error(invoked, describe(error))
            self._look_whether_it_ended(error.args[0])
            self.rest(SLICE)
            return
        if messages:
            self._take(consumer, invoked, messages)
        if self._ended:
            return
        if self._out_of_range:
            self._reset(consumer)
        if self.group:
            self._commit(consumer)

    def _join(self) -> ClientConsumer:
        self._process = self.context.numbers.next()
        self.positions, self._committed, self._committing, self._drained = {}, {}, False, {}
        self._down = self._ended = False
        self._out_of_range.clear()
        consumer = self._consumer = self.context.library.consumer(
            self._config(), on_commit=self._on_commit, noticed=self._noticed, batch=self._batch
        )
        if self.group:
            consumer.subscribe(
                sorted(self.context.topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
        return consumer

    def _take(
        self, consumer: ClientConsumer, invoked: int, messages: Sequence[ClientMessage]
    ) -> None:
        data = [message for message in messages if message.error() is None]
        ends: dict[Partition, int] = {}
        for message in messages:
            if message.error() is not None:
                self._notice(consumer, invoked, message, ends)
        runs = fetched(data)
        positions: dict[Partition, int] = {}
        for tp, position in self._asked_positions(
            consumer, {*runs, *ends} & {*self.positions}
        ).items():
            known = max(position, ends.get(tp, -1))
            positions[tp] = known if known >= 0 else self.positions[tp]
        rows = tuple(
            Fetched(
                topic=tp[0], partition=tp[1], runs=runs.get(tp, ()), position=positions.get(tp, -1)
            )
            for tp in sorted({*runs, *positions})
        )
        if rows:
            self._write(invoked, "poll", rows)
            self.tally.read += len(data)
            # after the row: a position that is visible here has been recorded
            self.positions.update(positions)

    def _look_whether_it_ended(self, error: object) -> None:
        """If the consumer gets no more records, the next step replaces it by a new one, which joins
        again."""
        if isinstance(error, KafkaError) and (error.fatal() or error.code() in ENDS_A_CONSUMER):
            self._ended = True

    def _asked_positions(
        self, consumer: ClientConsumer, partitions: set[Partition]
    ) -> Mapping[Partition, int]:
        if not partitions:
            return {}
        asked = consumer.position(
            [TopicPartition(topic, partition) for topic, partition in partitions]
        )
        return {(p.topic, p.partition): p.offset for p in asked}

    def _notice(
        self,
        consumer: ClientConsumer,
        invoked: int,
        message: ClientMessage,
        ends: dict[Partition, int],
    ) -> None:
        """An event that came instead of a record: the end of a partition, an offset out of range,
        or an error."""
        error = message.error()
        tp = partition_of(message)
        self._look_whether_it_ended(error)
        if error is None or tp is None:
            self._error(
                invoked, f"{error.name()}: {error.str()}" if error else "an event without an error"
            )
        elif error.code() == KafkaError._PARTITION_EOF:
            ends[tp] = message.offset() or 0
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._error(
                invoked, f"{error.name()}: {tp[0]}-{tp[1]} at {message.offset()}: {error.str()}"
            )
            self._out_of_range.add(tp)
        else:
            self._error(invoked, f"{error.name()} {tp[0]}-{tp[1]}: {error.str()}")

    def _reset(self, consumer: ClientConsumer) -> None:
        """Continues at the log start, as auto.offset.reset=earliest would, and records that.

        This comes after the rows of the poll, because all partitions are assigned again at their
        positions (seek is refused in this state). A partition whose log start is unknown stays out
        of range, and is looked up again.
        """
        invoked = now()
        starts = {
            tp: start for tp in self._out_of_range if (start := self._log_start(consumer, *tp)) >= 0
        }
        self._out_of_range -= starts.keys()
        if starts:
            self.positions.update(starts)
            self._assign(consumer)
            self._write(invoked, "assign", rows_at(starts), error="reset to earliest")

    def _look_for_partitions(self, consumer: ClientConsumer) -> None:
        """Assigns new partitions: those of a mirrored topic appear on the destination during the
        run, and some topics grow."""
        if (
            len(self.positions) == len(self.context.partitions)
            or now() < self._looked_at + LOOK_EVERY
        ):
            return
        self._looked_at = invoked = now()
        try:
            known = consumer.list_topics(timeout=1.0).topics
        except KafkaException as error:
            self._error(invoked, describe(error))
            return
        new = [
            (t, p)
            for t, p in self.context.partitions
            if t in known and p in known[t].partitions and (t, p) not in self.positions
        ]
        starts = {tp: start for tp in new if (start := self._log_start(consumer, *tp)) >= 0}
        if starts:
            self.positions.update(starts)
            self._assign(consumer)
            self._write(invoked, "assign", rows_at(starts))

    def drained(self, partitions: Sequence[Partition]) -> None:
        """Records that these partitions were read to the requested ends, except those that it has
        lost since."""
        held = dict(self.positions)
        if reached := {tp: held[tp] for tp in partitions if tp in held}:
            self._write(now(), "drained", rows_at(reached))
            self._drained.update(reached)

    def leave(self, *, clean: bool) -> None:
        del clean
        if self._consumer is not None:
            self.context.library.discard(self._consumer)
        self._consumer = None
        self.positions = {}
