"""One producer incarnation: a producer with a process number, which numbers all its records and
operations; its operations in flight, and their acknowledgements.

The producer id and epoch are those that its library reports, also for records that never reached a
log. Destroying a producer does not block in any state of the cluster: its queue is purged, never
flushed (measured with librdkafka 2.16: about a millisecond with a commit in flight to a paused or a
dead broker).

Acknowledgements of one send group are kept as runs: one cheap call per record, a handful of numbers
per group. Producers report the deliveries of an idempotent producer in order per partition, but
purged and refused records come between them in any order. So each report has the index of its
record, and nothing here relies on order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, zip_longest
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException

from linkflap.harness.model.history import (
    Ending,
    Fetched,
    Operation,
    OperationKind,
    OutcomeName,
    Phase,
    SendGroup,
)
from linkflap.harness.model.payload import HEADER, LAYOUT, PROCESS_SHIFT, Values
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import Appender
from linkflap.harness.workloads.client import SLICE, Client
from linkflap.harness.workloads.library import STATISTICS_MS, describe, producer_config

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
        return replace(
            self.planned(),
            acks=tuple((index, count, offset) for index, count, offset in sorted(self._runs)),
            refused=_runs(sorted(refused)),
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


@dataclass(slots=True, kw_only=True)
class InvokedOperation:
    """An operation in flight. `groups` are its records in order, those with consecutive uids in one
    group."""

    number: int
    kind: OperationKind
    ending: Ending = "none"
    identity: tuple[int, int] = (-1, -1)
    group: str = ""
    began: int = field(default_factory=now)
    groups: list[Acks] = field(default_factory=list)
    ended_at: int = 0
    invoked: bool = False
    returned: bool = False

    def add(self, topic: str, partition: int, uid: int) -> Acks:
        """Adds one record, which is given to the producer next; its group, in which it is the last
        one."""
        last = self.groups[-1] if self.groups else None
        if last is None or (last.topic, last.partition, last.first_uid + last.count) != (
            topic,
            partition,
            uid,
        ):
            last = Acks(topic, partition, uid, 0)
            self.groups.append(last)
        last.count += 1
        last.handed += 1
        return last

    @property
    def acked(self) -> int:
        return sum(group.acked for group in self.groups)

    @property
    def complete(self) -> bool:
        """Whether every record was acknowledged."""
        return all(group.complete for group in self.groups)

    @property
    def failed(self) -> int:
        """Records whose delivery was reported as failed."""
        return sum(group.failed for group in self.groups)

    @property
    def error(self) -> str:
        """The first delivery error, if any."""
        return next((group.error for group in self.groups if group.error), "")


class OperationRows:
    """Numbers the operations and records of one producer, and writes the operations to the history
    when they are invoked and when they return."""

    def __init__(
        self,
        rows: Appender[Operation],
        *,
        client: str,
        process: int,
        cluster: str,
        transactional_id: str,
    ) -> None:
        self._rows, self._client, self._process = rows, client, process
        self._cluster, self._transactional_id = cluster, transactional_id
        self._numbers = count(process << PROCESS_SHIFT)
        self._uid = process << PROCESS_SHIFT

    def new(
        self,
        kind: OperationKind,
        ending: Ending = "none",
        *,
        identity: tuple[int, int],
        group: str = "",
    ) -> InvokedOperation:
        """The next operation. `identity`: the producer's present id and epoch."""
        return InvokedOperation(
            number=next(self._numbers), kind=kind, ending=ending, identity=identity, group=group
        )

    def uids(self, records: int) -> int:
        """The first of so many consecutive payload ids."""
        first = self._uid
        self._uid += records
        return first

    def invoked(self, operation: InvokedOperation) -> None:
        """Writes it with the records that it has now; the first call counts."""
        if not operation.invoked:
            operation.invoked = True
            sends = tuple(group.planned() for group in operation.groups)
            self._write(operation, "invoke", operation.began, sends, "info", "")

    def returned(
        self,
        operation: InvokedOperation,
        outcome: OutcomeName,
        error: str,
        identity: tuple[int, int],
    ) -> bool:
        """Writes how it ended; False if that was written before. `identity`: the producer's present
        id and epoch."""
        if operation.returned:
            return False
        self.invoked(operation)
        operation.returned = True
        _settle_identity(operation, outcome, identity)
        sends = tuple(group.outcome() for group in operation.groups)
        self._write(operation, "return", now(), sends, outcome, error or operation.error)
        return True

    def _write(
        self,
        operation: InvokedOperation,
        phase: Phase,
        time: int,
        sends: tuple[SendGroup, ...],
        outcome: OutcomeName,
        error: str,
    ) -> None:
        self._rows.write(
            Operation(
                number=operation.number,
                phase=phase,
                time=time,
                client=self._client,
                process=self._process,
                cluster=self._cluster,
                kind=operation.kind,
                ending=operation.ending,
                transactional_id=self._transactional_id,
                outcome=outcome,
                ended_at=operation.ended_at if phase == "return" else 0,
                producer_id=operation.identity[0],
                producer_epoch=operation.identity[1],
                sends=sends,
                error=error,
                group=operation.group,
            )
        )


def _settle_identity(
    operation: InvokedOperation, outcome: OutcomeName, identity: tuple[int, int]
) -> None:
    """The epoch of a transactional producer changes only between transactions, that of an
    idempotent one at any time."""
    if operation.kind == "send" and operation.identity not in ((-1, -1), identity):
        operation.identity = (-1, -1)
    elif operation.identity == (-1, -1) and outcome == "ok" and not operation.error:
        operation.identity = identity


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
        self._client, self._values = client, values
        self._operations = OperationRows(
            rows,
            client=client.name,
            process=self.process,
            cluster=self.cluster,
            transactional_id=transactional_id,
        )
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
        flight = self._operations.new(kind, ending, identity=self.identity, group=group)
        flight.groups = [
            Acks(topic, partition, self._operations.uids(records), records, origin)
            for (topic, partition, records), origin in zip_longest(plan, made_from)
        ]
        self._operations.invoked(flight)
        return flight

    def returned(self, flight: InvokedOperation, outcome: OutcomeName, error: str = "") -> None:
        """Records that an operation returned, and counts its acknowledgements."""
        if not self._operations.returned(flight, outcome, error, self.identity):
            return
        self._client.tally.acknowledge(self.cluster, flight.acked)
        if outcome == "ok" and flight.ending == "abort":
            self._client.tally.aborted += flight.acked
            self._client.tally.aborts += 1
        if outcome == "ok" and flight.ending == "commit":
            self._client.tally.commits += 1
        if error or outcome != "ok":
            self._client.tally.errors += 1

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
