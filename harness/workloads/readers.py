"""Readers: consumers in groups or with fixed partitions, which record each poll's result, their
positions, and their errors: the same error at most once a second.

Positions count control records too: librdkafka's position moves over commit and abort markers, and
the end-of-partition notice (`enable.partition.eof`) reports how far an empty fetch has read.
Starting positions are explicit: the committed offset of the group, or the log start. If an offset
is out of range, the reader resets it and records that; it does not leave the reset to librdkafka.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import msgspec
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from linkflap.harness.model.history import Fetched, Isolation, Poll, PollKind
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.payload import FOREIGN, uid_in
from linkflap.harness.model.scenario import group_of
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import now
from linkflap.harness.workloads.client import SLICE, VIA, Client, Context, Options
from linkflap.harness.workloads.library import (
    ClientConsumer,
    ClientMessage,
    consumer_config,
    describe,
)
from linkflap.harness.workloads.protocol import ClientState

ISOLATIONS: Final = ("read_committed", "read_uncommitted")
SAME_ERROR_EVERY: Final = int(1e9)


class PollingClient(Client):
    """A client whose history is its polls. `group` is its consumer group, empty for none."""

    def __init__(self, context: Context, name: str, cluster: str) -> None:
        super().__init__(context, name, cluster)
        self.group, self.isolation = group_in(context), isolation_in(context)
        self.positions: dict[TopicPartition, int] = {}
        self._rows = context.writer.polls(name)
        self._process = self._looked_at = 0
        self._errors: dict[str, int] = {}
        self._drained: dict[TopicPartition, int] = {}

    @abstractmethod
    def drained(self, partitions: Sequence[TopicPartition]) -> None:
        """Records the positions of these partitions, now that the requested ends are reached."""

    def not_drained(self, missing: str) -> None:
        """Records the ends that were not reached in time."""
        self._write(now(), "error", error=f"not drained: {missing}")

    def state(self) -> ClientState:
        positions, drained = (
            tuple((*tp, at) for tp, at in list(known.items()))
            for known in (self.positions, self._drained)
        )
        return msgspec.structs.replace(super().state(), positions=positions, drained=drained)

    def _error(self, invoked: int, text: str) -> None:
        """Records an error, but the same one at most once a second: a dead cluster causes one at
        every poll."""
        if invoked - self._errors.get(text, 0) >= SAME_ERROR_EVERY:
            self._errors[text] = invoked
            self.tally.errors += 1
            self._write(invoked, "error", error=text)

    def _write(
        self, invoked: int, kind: PollKind, rows: Iterable[Fetched] = (), error: str = ""
    ) -> None:
        self._rows.write(
            Poll(
                time=invoked,
                returned=now(),
                reader=self.name,
                process=self._process,
                cluster=self.cluster,
                isolation=self.isolation,
                kind=kind,
                group=self.group,
                fetched=tuple(rows),
                error=error,
            )
        )


def group_in(context: Context) -> str:
    """The group of a workload's readers; empty where each is assigned its partitions."""
    if "assign" in context.options and context.flag("assign"):
        return ""
    return context.text("group") or group_of(context.spec)


def follows_in(context: Context) -> bool:
    """Whether a workload's readers move to the new cluster in a failover; by default, those of a
    group do."""
    return context.flag("follow") if "follow" in context.spec.options else bool(group_in(context))


def isolation_in(context: Context) -> Isolation:
    return "read_committed" if context.text("isolation") == ISOLATIONS[0] else "read_uncommitted"


def rows_at(positions: Mapping[TopicPartition, int]) -> tuple[Fetched, ...]:
    """Positions as a poll's row has them, in order."""
    return tuple(
        Fetched(topic=t, partition=p, position=at) for (t, p), at in sorted(positions.items())
    )


Runs = tuple[tuple[int, int, int], ...]


def fetched(messages: Iterable[ClientMessage]) -> dict[TopicPartition, Runs]:
    """The runs of each partition. Records of other programs have uid FOREIGN and runs of one."""
    collected: dict[TopicPartition, list[list[int]]] = {}
    for message in messages:
        tp, offset = partition_of(message), message.offset()
        if tp is None or offset is None:
            continue
        uid = uid_in(cast("Sequence[tuple[str, bytes | None]] | None", message.headers()))
        runs = collected.setdefault(tp, [])
        if runs and uid != FOREIGN:
            last = runs[-1]
            if last[0] != FOREIGN and uid == last[0] + last[2] and offset == last[1] + last[2]:
                last[2] += 1
                continue
        runs.append([uid, offset, 1])
    return {
        tp: tuple((uid, offset, count) for uid, offset, count in runs)
        for tp, runs in collected.items()
    }


def partition_of(message: ClientMessage) -> TopicPartition | None:
    """The partition of a message or event; None when it concerns none."""
    topic, partition = message.topic(), message.partition()
    return None if topic is None or partition is None or partition < 0 else (topic, partition)


ASK: Final = 5.0


PROTOCOLS: Final = ("classic", "consumer")
"""Group protocols: the classic one, and that of KIP-848, which only Java's clients use here."""
READS: Final[Options] = {
    "via": VIA,
    "cluster": OptionAbout(
        default="", takes="a cluster (default: home)", about="the cluster on which they begin"
    ),
    "isolation": OptionAbout(
        default=ISOLATIONS[0], choices=ISOLATIONS, about="their isolation level"
    ),
    "group": OptionAbout(
        default="", takes="a text (default: one of their own)", about="the name of their group"
    ),
    "follow": OptionAbout(default=True, about="whether they move to the new cluster in a failover"),
}
"""Options of all clients that poll."""
READER_OPTIONS: Final[Options] = {
    **READS,
    "assign": OptionAbout(
        default=False, about="true: no group; every partition is assigned, and they stay"
    ),
    "commit_every": OptionAbout(default=1.0, low=0.05, about="seconds between commits of offsets"),
    "batch": OptionAbout(default=500, low=1, high=100_000, about="records of a poll at most"),
    "protocol": OptionAbout(
        default=PROTOCOLS[0],
        choices=PROTOCOLS,
        about="group protocol; consumer: that of KIP-848, with Java's clients only",
    ),
}
LOOK_EVERY: Final = int(0.5e9)
ENDS_A_CONSUMER: Final = (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)
"""After these errors, each reported once, a consumer gets no more records. A static member can
cause that itself: if its session expires while it does not poll, librdkafka sends heartbeats
without a member id (docs/findings/librdkafka-3437.md)."""


def reader_cluster(context: Context) -> str:
    """The cluster on which the readers of a workload begin: option `cluster`, by default the home
    of the topics."""
    return context.text("cluster") or context.spec.home


class ReaderClient(PollingClient):
    """One poll per step. In group mode subscribed, with explicit group commits; else assigned to
    every partition of the home."""

    def __init__(self, context: Context, name: str, cluster: str) -> None:
        super().__init__(context, name, cluster)
        self._protocol = context.text("protocol")
        self._commit_every = int(context.number("commit_every") * 1e9)
        self._batch = context.count("batch")
        self._consumer: ClientConsumer | None = None
        self._committed_at = 0
        self._committing = self._down = self._ended = False
        self._committed: dict[TopicPartition, int] = {}
        self._out_of_range: set[TopicPartition] = set()

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
        ends: dict[TopicPartition, int] = {}
        for message in messages:
            if message.error() is not None:
                self._notice(consumer, invoked, message, ends)
        runs = fetched(data)
        positions: dict[TopicPartition, int] = {}
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
        self, consumer: ClientConsumer, partitions: set[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        if not partitions:
            return {}
        asked = consumer.position(
            [KafkaPartition(topic, partition) for topic, partition in partitions]
        )
        return {(p.topic, p.partition): p.offset for p in asked}

    def _notice(
        self,
        consumer: ClientConsumer,
        invoked: int,
        message: ClientMessage,
        ends: dict[TopicPartition, int],
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
        self._out_of_range -= self._begin(
            consumer, invoked, self._out_of_range, error="reset to earliest"
        )

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
        self._begin(consumer, invoked, new)

    def _begin(
        self,
        consumer: ClientConsumer,
        invoked: int,
        partitions: Iterable[TopicPartition],
        error: str = "",
    ) -> set[TopicPartition]:
        """Reads partitions from their log starts on, and records that. Returns those whose log
        start is known; the others are left out."""
        starts = {tp: at for tp in partitions if (at := self._log_start(consumer, *tp)) >= 0}
        if starts:
            self.positions.update(starts)
            self._assign(consumer)
            self._write(invoked, "assign", rows_at(starts), error=error)
        return {*starts}

    def drained(self, partitions: Sequence[TopicPartition]) -> None:
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

    def _assign(self, consumer: ClientConsumer) -> None:
        consumer.assign(
            [
                KafkaPartition(t, p, at if at >= 0 else OFFSET_BEGINNING)
                for (t, p), at in self.positions.items()
            ]
        )

    def _log_start(self, consumer: ClientConsumer, topic: str, partition: int) -> int:
        try:
            asked = KafkaPartition(topic, partition)
            return max(-1, int(consumer.get_watermark_offsets(asked, timeout=ASK)[0]))
        except KafkaException:
            return -1

    def _on_assign(self, consumer: ClientConsumer, partitions: list[KafkaPartition]) -> None:
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
            committed = [KafkaPartition(p.topic, p.partition) for p in partitions]
        starts: dict[TopicPartition, int] = {}
        for p in committed:
            tp = p.topic, p.partition
            starts[tp] = p.offset if p.offset >= 0 else self._log_start(consumer, *tp)
        for tp in starts:  # the member's other partitions keep their positions
            self._committed.pop(tp, None)
            self._out_of_range.discard(tp)
        self.positions.update(starts)
        self._assign(consumer)
        self._write(invoked, "assign", rows_at(starts))

    def _on_revoke(self, consumer: ClientConsumer, partitions: list[KafkaPartition]) -> None:
        self._revoked(partitions, "")

    def _on_lost(self, consumer: ClientConsumer, partitions: list[KafkaPartition]) -> None:
        self._revoked(partitions, "lost")

    def _revoked(self, partitions: Sequence[KafkaPartition], error: str) -> None:
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
                offsets=[KafkaPartition(t, p, at) for (t, p), at in due.items()], asynchronous=True
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

    def _on_commit(self, error: KafkaError | None, partitions: list[KafkaPartition]) -> None:
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
