"""Relays: consume, transform, produce, exactly once (KIP-98, KIP-447). Every record of a topic
becomes one record of another.

A step polls as a member of a group in read_committed, writes one record for each input, and commits
the group's offsets in the same transaction. It passes the group's metadata to
send_offsets_to_transaction, so that a replaced member is fenced. Outputs go to the partition of the
same number of `<home>.relayed`. After an abort the relay processes the same inputs again. After an
unknown outcome, a new incarnation initialises, which ends the open transaction; the group's offset
is then that of the last commit.

Each send group names its inputs (`SendGroup.made_from`), and so does a header of each record. When
its cluster fails over, the relay continues at the destination, from the group's offset there, which
the mirror has written.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from linkflap.harness.model.history import Ending, Fetched, OutcomeName
from linkflap.harness.model.topology import TopicPartition, topic_name
from linkflap.harness.model.wait import now
from linkflap.harness.workloads import producers
from linkflap.harness.workloads.client import GRACE, SLICE, Context, Options
from linkflap.harness.workloads.incarnation import Incarnation, InvokedOperation
from linkflap.harness.workloads.library import ClientConsumer, describe
from linkflap.harness.workloads.producers import ABORT_SHARE, COMMON, RETRY, Producing
from linkflap.harness.workloads.readers import ASK, READER_OPTIONS, ReaderClient, fetched, rows_at

OUTPUT: Final = "relayed"
"""The topic of each home that only relays write to."""
GROUP: Final = "linkflap.relay"
OPTIONS: Final[Options] = {
    **{name: about for name, about in COMMON.items() if name not in ("records", "partitions")},
    "group": replace(READER_OPTIONS["group"], default=GROUP, takes=""),
    "abort_share": replace(ABORT_SHARE, default=0.05),
    "batch": replace(READER_OPTIONS["batch"], default=100),
}
_INPUT_OPTIONS: Final = ("via", "group", "batch")


class Input(ReaderClient):
    """The consuming half of a relay. Its thread is never started: the relay polls it, and commits
    for it."""

    def __init__(self, context: Context, name: str, cluster: str) -> None:
        options = {
            key: value for key, value in context.spec.options.items() if key in _INPUT_OPTIONS
        }
        spec = replace(
            context.spec,
            options={"batch": 100, "group": GROUP, **options, "isolation": "read_committed"},
        )
        inputs = {
            topic: count
            for topic, count in context.topics.items()
            if topic != topic_name(spec.home, OUTPUT)
        }
        super().__init__(
            replace(context, spec=spec, options=READER_OPTIONS, topics=inputs), name, cluster
        )
        self.lost = False
        """Whether the group's offsets could not be read, so that the starting point is unknown."""

    @property
    def consumer(self) -> ClientConsumer:
        """The consumer in use, or a new one that joins."""
        return self._consumer or self._join()

    def poll(self) -> Mapping[TopicPartition, Fetched]:
        """The records of one poll, by partition, after their row is written; empty if there is
        nothing to do."""
        consumer, invoked = self.consumer, now()
        try:
            messages = consumer.consume(self._batch, 0.1)
        except KafkaException as error:
            self._error(invoked, describe(error))
            self.lost = True
            return {}
        if messages:
            self._take(consumer, invoked, messages)
        if self._ended:
            self.lost = True
            return {}
        runs = fetched(message for message in messages if message.error() is None)
        got = {
            p: Fetched(topic=p[0], partition=p[1], runs=own, position=self.positions[p])
            for p, own in runs.items()
        }
        if self._out_of_range:
            # Records of the other partitions are in the row already, and have to be relayed.
            self._reset(consumer)
        return got

    def rewind(self, before: Mapping[TopicPartition, int]) -> None:
        """Returns to where an aborted transaction began."""
        self.positions.update({tp: at for tp, at in before.items() if tp in self.positions})
        invoked = now()
        self._assign(self.consumer)
        rows = rows_at(self.positions)
        self._write(invoked, "assign", rows, error="the transaction was aborted")

    def committed(self, asked_at: int, positions: Mapping[TopicPartition, Fetched]) -> None:
        """Records that these offsets were committed with a transaction."""
        self._write(
            asked_at, "commit", tuple(replace(each, runs=()) for each in positions.values())
        )

    def _on_assign(self, consumer: ClientConsumer, partitions: list[KafkaPartition]) -> None:
        """Like every reader, except that a relay without the group's offsets does not begin: a
        replay would write records twice."""
        try:
            unknown = (
                any(p.error for p in consumer.committed(partitions, timeout=ASK))
                if partitions
                else False
            )
        except KafkaException as error:
            self._error(now(), describe(error))
            unknown = True
        if unknown:
            self.lost = True
            consumer.assign([])
            return
        super()._on_assign(consumer, partitions)

    def leave(self, *, clean: bool) -> None:
        super().leave(clean=clean)
        self.lost = False


class RelayClient(Producing):
    """One poll and one transaction per step."""

    def __init__(self, context: Context, name: str, cluster: str) -> None:
        context = replace(context, options={**COMMON, **OPTIONS})
        super().__init__(context, name, cluster)
        self._abort_share = context.number("abort_share")
        self._output = topic_name(context.spec.home, OUTPUT)
        self.input = Input(context, name, cluster)

    def step(self) -> None:
        incarnation = self.ready()
        if incarnation is None:
            return
        self.pace()
        if self.ending:
            return
        before = dict(self.input.positions)
        got = self.input.poll()
        self.tally.read = self.input.tally.read
        if self.input.lost:
            self.forget()
            self.rest(RETRY)
        elif got and self.begin(incarnation):
            self._relay(
                incarnation, got, {tp: before.get(tp, first(each)) for tp, each in got.items()}
            )

    def _relay(
        self,
        incarnation: Incarnation,
        got: Mapping[TopicPartition, Fetched],
        before: Mapping[TopicPartition, int],
    ) -> None:
        meant: Ending = "abort" if self.random.random() < self._abort_share else "commit"
        plan = [
            (self._output, tp[1], sum(count for _, _, count in each.runs))
            for tp, each in got.items()
        ]
        flight = self.flight = incarnation.invoke(
            "transaction", meant, plan, made_from=list(got.values()), group=self.input.group
        )
        refused, hangs = incarnation.send(flight), False
        if not refused:
            refused, hangs = self._send_offsets(incarnation, got)
        ended = (
            self._given_up(flight, refused) if hangs else self._end(incarnation, flight, refused)
        )
        done = flight.ending == "commit" and ended.outcome == "ok"
        if done:
            self.input.committed(flight.ended_at, got)
        self.conclude(incarnation, flight, ended)
        if self.incarnation is None:
            return
        if not done and (flight.ending == "abort" or ended.outcome == "fail"):
            self.input.rewind(before)
        elif not done:
            self.forget()

    def _send_offsets(
        self, incarnation: Incarnation, got: Mapping[TopicPartition, Fetched]
    ) -> tuple[str, bool]:
        """Why the offsets could not be added to the transaction, empty when they were; and whether
        that call still hangs. The call runs in a thread that is abandoned if necessary: librdkafka
        does not observe the call's timeout, and may never return when the group's coordinator dies
        during it (librdkafka issues 5456 and 5511; seen with 2.16)."""
        offsets = [KafkaPartition(t, p, each.position) for (t, p), each in got.items()]
        producer, metadata = incarnation.producer, self.input.consumer.consumer_group_metadata()
        answers: queue.SimpleQueue[str] = queue.SimpleQueue()

        def call() -> None:
            try:
                producer.send_offsets_to_transaction(offsets, metadata, self.shape.timeout)
            except KafkaException as error:
                answers.put(describe(error))
            else:
                answers.put("")

        threading.Thread(target=call, name=f"offsets of {self.name}", daemon=True).start()
        deadline = now() + int((self.shape.timeout + GRACE) * 1e9)
        while now() < deadline and not self.interrupted:
            with contextlib.suppress(queue.Empty):
                return answers.get(timeout=SLICE), False
        return "the group's offsets could not be added in time", True

    def _given_up(self, flight: InvokedOperation, refused: str) -> producers.CallEnd:
        """No commit was sent, and none will be. The next incarnation aborts the transaction."""
        outcome: OutcomeName = "fail" if flight.ending == "commit" else "info"
        return producers.CallEnd(outcome=outcome, usable=False, error=refused)

    def _end(
        self, incarnation: Incarnation, flight: InvokedOperation, refused: str
    ) -> producers.CallEnd:
        within = self.shape.timeout + 5.0
        if flight.ending == "commit" and not refused:
            return self.commit(incarnation, flight, within=within)
        ended = self.abort(incarnation, flight, within=within)
        return replace(ended, error=refused) if refused and not ended.error else ended

    def forget(self) -> None:
        """Drops the producer and the consumer together, because a new start needs both."""
        super().forget()
        self.input.leave(clean=False)
        self.input.cluster = self.cluster

    def ready(self) -> Incarnation | None:
        self.input.cluster = self.cluster
        return super().ready()


def first(got: Fetched) -> int:
    """The offset of the first of these records."""
    return got.runs[0][1]
