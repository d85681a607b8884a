"""One producer incarnation: a producer with a process number, which numbers all its records and
operations.

The producer id and epoch are those that its library reports, also for records that never reached a
log. Destroying a producer does not block in any state of the cluster: its queue is purged, never
flushed (measured with librdkafka 2.16: about a millisecond with a commit in flight to a paused or a
dead broker).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Final, Literal

from confluent_kafka import KafkaError, KafkaException

from linkflap.harness.model.clock import now
from linkflap.harness.model.history import (
    Ending,
    Fetched,
    Operation,
    OperationKind,
    OutcomeName,
    SendGroup,
)
from linkflap.harness.model.payload import HEADER, LAYOUT, PROCESS_SHIFT
from linkflap.harness.model.values import Values
from linkflap.harness.rundir import Appender
from linkflap.harness.workloads.acks import Acks
from linkflap.harness.workloads.client import SLICE, Client
from linkflap.harness.workloads.in_flight import InvokedOperation
from linkflap.harness.workloads.librdkafka import STATISTICS_MS, describe, producer_config

ORIGIN: Final = "linkflap-input"
"""A header of relayed records, for people: topic-partition@offset of the input record, on the same
cluster."""
ASK: Final = 1.0
"""Timeout of a metadata request about a topic, in seconds."""
IDENTITY_WAIT: Final = 3.0
"""In seconds. A broker that needs a new block of producer ids answers COORDINATOR_LOAD_IN_PROGRESS
until it has one."""


class Incarnation:
    """Made by a client for one cluster. Must not be used after `drop`."""

    def __init__(
        self,
        client: Client,
        rows: Appender[Operation],
        values: Values,
        *,
        transactional_id: str,
        timeout: float,
        compression: str,
        largest: int = 0,
    ) -> None:
        self.process = client.context.numbers.next()
        self.cluster = client.cluster
        self.transactional_id = transactional_id
        self.identity = (-1, -1)
        self.fatal = ""
        self._client, self._rows, self._values = client, rows, values
        self._base = self.process << PROCESS_SHIFT
        self._uid = 0
        self._operation = -1
        self._counters: dict[tuple[str, int], int] = {}
        config = producer_config(
            client.context.bootstrap(self.cluster),
            transactional_id,
            timeout=timeout,
            compression=compression,
            largest=largest,
        )
        self.producer = client.context.library.producer(
            config, identified=self._identified, noticed=self._noticed
        )

    def _identified(self, producer_id: int, epoch: int) -> None:
        self.identity = (producer_id, epoch)

    def _noticed(self, error: KafkaError) -> None:
        """The library's own notices (such as a broker that is down) are only counted: operations
        carry their own errors."""
        self._client.tally.errors += 1

    def serve(self, seconds: float) -> None:
        """Serves deliveries and statistics. confluent-kafka raises a fatal error (fencing) out of
        the next poll: it is kept in `fatal`, and events queued after it are still served."""
        try:
            self.producer.poll(seconds)
        except KafkaException as error:
            self.fatal = self.fatal or describe(error)
            self._client.tally.errors += 1
            with contextlib.suppress(KafkaException):
                self.producer.poll(0)

    def invoke(
        self,
        kind: OperationKind,
        ending: Ending = "none",
        plan: Sequence[tuple[str, int, int]] = (),
        *,
        made_from: Sequence[Fetched] = (),
        group: str = "",
    ) -> InvokedOperation:
        """Numbers an operation and its records, given as (topic, partition, how many), and records
        its begin. `made_from` has, per row of the plan, the input records of its records, as
        members of `group` read them."""
        self._operation += 1
        groups = []
        for (topic, partition, count), origin in zip_longest(plan, made_from):
            groups.append(Acks(topic, partition, self._base + self._uid, count, origin))
            self._uid += count
        number = self._base + self._operation
        flight = InvokedOperation(
            number=number,
            kind=kind,
            ending=ending,
            groups=groups,
            identity=self.identity,
            group=group,
        )
        self._write(flight, "invoke", tuple(group.planned() for group in groups), "info", "")
        return flight

    def returned(self, flight: InvokedOperation, outcome: OutcomeName, error: str = "") -> None:
        """Records that an operation returned, and counts its acknowledgements."""
        if flight.returned:
            return
        flight.returned = True
        self._settle_identity(flight, outcome)
        self._write(
            flight,
            "return",
            tuple(group.outcome() for group in flight.groups),
            outcome,
            error or flight.error,
        )
        self._client.tally.acknowledge(self.cluster, flight.acked)
        if outcome == "ok" and flight.ending == "abort":
            self._client.tally.aborted += flight.acked
            self._client.tally.aborts += 1
        if outcome == "ok" and flight.ending == "commit":
            self._client.tally.commits += 1
        if error or outcome != "ok":
            self._client.tally.errors += 1

    def _settle_identity(self, flight: InvokedOperation, outcome: OutcomeName) -> None:
        """The epoch of a transactional producer changes only between transactions, that of an
        idempotent one at any time."""
        if flight.kind == "send" and flight.identity not in ((-1, -1), self.identity):
            flight.identity = (-1, -1)
        elif flight.identity == (-1, -1) and outcome == "ok" and not flight.error:
            flight.identity = self.identity

    def _write(
        self,
        flight: InvokedOperation,
        phase: Literal["invoke", "return"],
        sends: tuple[SendGroup, ...],
        outcome: OutcomeName,
        error: str,
    ) -> None:
        self._rows.write(
            Operation(
                number=flight.number,
                phase=phase,
                time=now(),
                client=self._client.name,
                process=self.process,
                cluster=self.cluster,
                kind=flight.kind,
                ending=flight.ending,
                transactional_id=self.transactional_id,
                outcome=outcome,
                ended_at=flight.ended_at,
                producer_id=flight.identity[0],
                producer_epoch=flight.identity[1],
                sends=sends,
                error=error,
                group=flight.group,
            )
        )

    def send(self, flight: InvokedOperation) -> str:
        """Passes all records of the operation to the producer. Returns the reason if it did not
        accept them all."""
        for group in flight.groups:
            error = self._send_group(flight.number, group)
            if error:
                return error
        self.serve(0)
        return ""

    def _send_group(self, operation: int, group: Acks) -> str:
        tp = group.topic, group.partition
        counter = self._counters.get(tp, 0)
        produce, pack, values = self.producer.produce, LAYOUT.pack, self._values
        origins = _origins(group.made_from)
        for index, uid in enumerate(range(group.first_uid, group.first_uid + group.count)):
            headers: list[tuple[str, str | bytes | None]] = [
                (HEADER, pack(uid, operation, counter + index)),
                *origins[index : index + 1],
            ]
            delivered = partial(group.delivered, index)
            for _ in self._while_full():
                try:
                    produce(
                        group.topic,
                        values.value(uid),
                        values.key(uid),
                        group.partition,
                        delivered,
                        headers=headers,
                    )
                except BufferError:
                    continue
                except KafkaException as error:
                    return describe(error)
                break
            else:
                return "given up while the producer's queue was full"
            group.handed += 1
        self._counters[tp] = counter + group.count
        return ""

    def _while_full(self) -> Iterator[None]:
        """One attempt, and one more each time that polling made room in the queue, until the client
        is interrupted."""
        yield
        while not self._client.interrupted:
            self.serve(SLICE)
            yield

    def settle(self, flight: InvokedOperation, *, within: float) -> None:
        """Serves deliveries until every record has one, `within` seconds have passed, or the client
        is interrupted."""
        deadline = now() + int(within * 1e9)
        while (
            len(self.producer)
            and now() < deadline
            and not self.fatal
            and not self._client.interrupted
        ):
            self.serve(min(SLICE, max(0.001, (deadline - now()) / 1e9)))
            if flight.complete:
                return

    def partitions(self, topic: str) -> int:
        """The partition count of a topic on the cluster, which the producer knows from then on; 0
        if the cluster does not know the topic."""
        try:
            return len(self.producer.list_topics(topic, timeout=ASK).topics[topic].partitions)
        except (KafkaException, KeyError):
            return 0

    def learn_identity(self) -> None:
        """Waits until the library reports the producer's present id and epoch; after
        `IDENTITY_WAIT` seconds they stay unknown.

        Statistics queued before are served first, so that they are not taken for new ones.
        """
        self.serve(0)
        self.identity = (-1, -1)
        deadline = now() + int(IDENTITY_WAIT * 1e9)
        while (
            self.identity[0] < 0
            and now() < deadline
            and not self.fatal
            and not self._client.interrupted
        ):
            self.serve(STATISTICS_MS / 1000)

    def drop(self) -> None:
        """Destroys the producer: purges what is queued and serves the last deliveries. Does not
        block, aborts nothing."""
        self.producer.purge(in_queue=True, in_flight=True, blocking=False)
        self.serve(0)
        # the producer's callbacks are bound methods of self: without this, the reference cycle
        # would keep the producer until garbage collection
        del self.producer


def _origins(made_from: Fetched | None) -> list[tuple[str, str | bytes | None]]:
    """The ORIGIN header of each relayed record."""
    if made_from is None:
        return []
    where = f"{made_from.topic}-{made_from.partition}"
    return [
        (ORIGIN, f"{where}@{offset + n}")
        for _, offset, count in made_from.runs
        for n in range(count)
    ]
