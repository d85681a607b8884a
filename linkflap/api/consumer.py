"""`linkflap.Consumer`: confluent-kafka's Consumer with a recorded history, so that its reads are
judged too.

Each assignment, revocation, seek and commit, and each poll that returned messages, is a row of its
history. It need not read to the end: linkflap's own readers prove that all records can be read
(`linkflap.deploy(readers=True)`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from linkflap.api.own_clients import CONSUMER, at
from linkflap.harness.model.history import Fetched, Isolation, Poll, PollKind
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import now
from linkflap.harness.workloads.library import describe
from linkflap.harness.workloads.readers import fetched, partition_of

ASK: Final = 5.0


@final
class Consumer(confluent_kafka.Consumer):
    """A confluent_kafka.Consumer with a recorded history."""

    def __init__(self, config: Mapping[str, Any] | None = None, **more: Any) -> None:  # noqa: ANN401  (confluent-kafka's own)
        given = {**(config or {}), **more}
        self._clients, self.cluster = at(given.get("bootstrap.servers"))
        given = {**self._clients.entry(self.cluster, "reader"), **given}
        self._group = str(given.get("group.id") or "")
        uncommitted = given.get("isolation.level") == "read_uncommitted"
        self._isolation: Isolation = "read_uncommitted" if uncommitted else "read_committed"
        self._reset = str(given.get("auto.offset.reset", "latest"))
        self._their_commits = given.pop("on_commit", None)
        self._process = self._clients.numbers.next()
        self._let_go = False
        given.setdefault("log_level", 0)  # brokers die here on purpose
        super().__init__({**given, "on_commit": self._on_commit})
        self._name = self._clients.take_in(self, CONSUMER)
        self._rows = self._clients.writer.polls(self._name)
        self._clients.sample(self._group)

    homes: Final[frozenset[str]] = frozenset()
    transactional: Final = False
    open_transaction: Final = False
    committing: Final = False

    def acknowledged_since(self, time: int) -> int:
        """A consumer writes nothing."""
        del time
        return 0

    def let_go(self) -> None:
        """The run is over: nothing more is recorded."""
        self._let_go = True

    # The caller's methods.

    def poll(self, timeout: float | None = None) -> Message | None:
        """As confluent-kafka's."""
        invoked = now()
        message = super().poll(-1 if timeout is None else timeout)
        if message is not None:
            self._took(invoked, [message])
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As confluent-kafka's."""
        invoked = now()
        messages = super().consume(num_messages, timeout)
        if messages:
            self._took(invoked, messages)
        return messages

    def _took(self, invoked: int, messages: Sequence[Message]) -> None:
        runs = fetched([message for message in messages if message.error() is None])
        ends: dict[TopicPartition, int] = {}
        for message in messages:
            error, where = message.error(), partition_of(message)
            if (
                error is not None
                and where is not None
                and error.code() == KafkaError._PARTITION_EOF
            ):
                ends[where] = message.offset() or 0
            elif error is not None:
                self._write(invoked, "error", error=f"{error.name()}: {error.str()}")
        after = {where: own[-1][1] + own[-1][2] for where, own in runs.items()}
        rows = tuple(
            Fetched(
                topic=where[0],
                partition=where[1],
                runs=runs.get(where, ()),
                position=max(after.get(where, -1), ends.get(where, -1)),
            )
            for where in sorted({*runs, *ends})
        )
        if rows:
            self._write(invoked, "poll", rows)

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[..., None] | None = None,
        on_revoke: Callable[..., None] | None = None,
        on_lost: Callable[..., None] | None = None,
        **more: Any,  # noqa: ANN401  (confluent-kafka's own)
    ) -> None:
        """As confluent-kafka's."""

        def assigned(_: object, partitions: list[KafkaPartition]) -> None:
            self._assigned(partitions)
            if on_assign is not None:
                on_assign(self, partitions)

        def revoked(_: object, partitions: list[KafkaPartition]) -> None:
            self._revoked(partitions, "")
            if on_revoke is not None:
                on_revoke(self, partitions)

        def lost(_: object, partitions: list[KafkaPartition]) -> None:
            self._revoked(partitions, "lost")
            if (theirs := on_lost or on_revoke) is not None:
                theirs(self, partitions)

        super().subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=lost, **more)

    def assign(self, partitions: list[KafkaPartition]) -> None:
        """As confluent-kafka's."""
        self._assigned(partitions)
        super().assign(partitions)

    def seek(self, partition: KafkaPartition) -> None:
        """As confluent-kafka's."""
        invoked = now()
        super().seek(partition)
        self._write(invoked, "assign", (_at(partition, max(partition.offset, -1)),))

    def _assigned(self, partitions: Sequence[KafkaPartition]) -> None:
        """Records the start position of each partition: the requested offset, the group's committed
        offset or the log start; -1 if it is unknown."""
        invoked = now()
        committed: dict[TopicPartition, int] = {}
        if self._group:
            try:
                committed = {
                    (p.topic, p.partition): p.offset
                    for p in self.committed(list(partitions), timeout=ASK)
                }
            except KafkaException as error:
                self._write(invoked, "error", error=describe(error))
        rows = tuple(
            _at(p, self._start(p, committed.get((p.topic, p.partition), -1))) for p in partitions
        )
        if rows:
            self._write(invoked, "assign", rows)

    def _start(self, partition: KafkaPartition, committed: int) -> int:
        if partition.offset >= 0:
            return int(partition.offset)
        beginning = partition.offset == confluent_kafka.OFFSET_BEGINNING
        if committed >= 0 and not beginning and partition.offset != confluent_kafka.OFFSET_END:
            return committed
        if beginning or (
            self._reset in ("earliest", "smallest", "beginning")
            and partition.offset != confluent_kafka.OFFSET_END
        ):
            try:
                return max(-1, int(self.get_watermark_offsets(partition, timeout=ASK)[0]))
            except KafkaException:
                return -1
        return -1

    def _revoked(self, partitions: Sequence[KafkaPartition], error: str) -> None:
        if partitions:
            self._write(now(), "revoke", tuple(_at(p, -1) for p in partitions), error=error)

    def _on_commit(self, error: KafkaError | None, partitions: list[KafkaPartition]) -> None:
        done = (
            []
            if error is not None
            else [p for p in partitions or () if p.error is None and p.offset >= 0]
        )
        if done:
            self._write(now(), "commit", tuple(_at(p, p.offset) for p in done))
        if self._their_commits is not None:
            self._their_commits(error, partitions)

    def commit(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  (overloads)
        """Like confluent-kafka's. A synchronous commit is recorded here, others by `on_commit`."""
        invoked = now()
        done: list[KafkaPartition] | None = super().commit(*arguments, **named)
        rows = tuple(_at(p, p.offset) for p in done or () if p.error is None and p.offset >= 0)
        if rows:
            self._write(invoked, "commit", rows)
        return done

    def _write(
        self, invoked: int, kind: PollKind, rows: tuple[Fetched, ...] = (), error: str = ""
    ) -> None:
        if self._let_go:
            return
        self._rows.write(
            Poll(
                time=invoked,
                returned=now(),
                reader=self._name,
                process=self._process,
                cluster=self.cluster,
                isolation=self._isolation,
                kind=kind,
                group=self._group,
                fetched=rows,
                error=error,
            )
        )


def _at(partition: KafkaPartition, position: int) -> Fetched:
    return Fetched(topic=partition.topic, partition=partition.partition, position=position)
