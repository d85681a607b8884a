"""The history of the writes that programs asked of a cluster, and of what its brokers acknowledged,
from the requests and answers on the wire.

A row is written before its request is forwarded, and again when the answer has come. A request
without an answer (its connection ended) leaves its operation open: its outcome is unknown, unless
the client repeats the request and gets an answer.

A batch that is sent again, over any connection, is the same batch if it has the same producer id,
epoch, first sequence and number of records. A client that uses these numbers again after it has
asked for the end of their transaction, and for other bytes, wrote another batch: brokers may take
it for the first one. Batches of producers without an id have no such identity: each is an operation
of its own. The exception is a batch that a client repeats byte by byte after its connection ended
without an answer.

A transaction (KIP-98, KIP-890) is one operation. It begins with the first write and ends with the
answer to EndTxn. Its ending is `open` until EndTxn was requested. AddPartitionsToTxn and
AddOffsetsToTxn are not read: without a write they hold back no reader and leave only markers, which
are normal then; and the coordinator's own log (`__transaction_state`) has them.

An acknowledgement by the leader alone (acks=1) is marked: it need not survive a change of leaders.
Writes with acks=0 were promised to nobody, so their outcome stays unknown.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from linkflap.harness.log.layout import (
    CONTROL,
    HEADER_SIZE,
    LENGTH_ENDS,
    MAGIC,
    MOST_RECORDS,
    TRANSACTIONAL,
)
from linkflap.harness.model.history import Ending, Operation, OutcomeName, Phase, Poll, SendGroup
from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.harness.model.topology import ANY_NAME
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import Appender
from linkflap.harness.wire.messages import Error, Malformed, Message
from linkflap.harness.wire.recorder.reads import BATCH_HEADER, WireReads
from linkflap.harness.wire.recorder.settings import FIRST_PROCESS, PROCESSES, Report, Settings
from linkflap.harness.wire.recorder.shares import WireShares

_SENT_AGAIN: Final = 64
"""How many batches of one producer and partition are remembered. An idempotent client has at most
five requests in flight, each with one batch."""
_MOST_UNANSWERED: Final = 10_000
ALL_REPLICAS: Final = -1
"""The acks of a request for the acknowledgement of all in-sync replicas."""
_REFUSALS: Final = (Error.message_too_large, Error.record_list_too_large, Error.invalid_record)
"""Errors that depend only on the record."""
_NOT_DONE: Final = (
    Error.producer_fenced,
    Error.invalid_producer_epoch,
    Error.invalid_txn_state,
    Error.invalid_producer_id_mapping,
)
"""Errors of a coordinator that does not end the transaction."""


@dataclass(slots=True, kw_only=True)
class AskedBatch:
    """Records that a client asked to be written to one partition; `offset`: where they were
    acknowledged, -1 if they were not; `by_leader`: by the leader alone (acks=1)."""

    operation: AskedOperation
    topic: str
    partition: int
    first_uid: int
    count: int
    sequence: int
    crc: int
    offset: int = -1
    by_leader: bool = False
    asked: int = 1
    refused: bool = False

    def group(self) -> SendGroup:
        return SendGroup(
            topic=self.topic,
            partition=self.partition,
            first_uid=self.first_uid,
            count=self.count,
            acks=((0, self.count, self.offset),) if self.offset >= 0 else (),
            refused=((0, self.count),) if self.refused else (),
            sequence=self.sequence,
            crc=self.crc,
            by_leader=self.by_leader,
        )


@dataclass(slots=True, kw_only=True)
class AskedOperation:
    """An operation that has begun: a batch, or a transaction. `end_asked`: how often EndTxn was
    requested."""

    producer: WireProducer
    number: int
    epoch: int
    transactional: bool
    ending: Ending
    batches: list[AskedBatch] = field(default_factory=list)
    ended_at: int = 0
    end_asked: int = 0
    returned: bool = False


@dataclass(slots=True, kw_only=True)
class WireProducer:
    """A producer id on this cluster, or a connection without one. `sent` are its last batches by
    partition."""

    id: int
    process: int
    client: str
    transactional_id: str = ""
    numbers: Iterator[int] = field(default_factory=count)
    uids: int = 0
    transaction: AskedOperation | None = None
    sent: dict[tuple[str, int], OrderedDict[tuple[int, int, int], AskedBatch]] = field(
        default_factory=dict
    )


class WireHistory:
    """The history of one cluster's programs, over all of their connections."""

    def __init__(
        self,
        settings: Settings,
        rows: Appender[Operation],
        polls: Appender[Poll],
        report: Report,
    ) -> None:
        self.report = report
        self.reads = WireReads(settings, polls, report)
        self.shares = WireShares(settings, self.reads)
        self.names: dict[UUID, str] = {}
        """Topics by their ids, as Metadata had them."""
        self._cluster, self._topics, self._rows = settings.cluster, settings.topics, rows
        first = FIRST_PROCESS + settings.number * PROCESSES
        self._processes = iter(range(first, first + PROCESSES))
        self._producers: dict[int, WireProducer] = {}
        self._unanswered: OrderedDict[tuple[str, str, int, int, int], AskedBatch] = OrderedDict()

    def producer(self, producer_id: int, client: str) -> WireProducer:
        """The producer with this id; for -1 a new one without an id. Raises Malformed for one
        producer too many."""
        found = self._producers.get(producer_id)
        if found is None:
            process = next(self._processes, None)
            if process is None:
                raise Malformed(f"it is of one more than {PROCESSES} producers")
            found = WireProducer(id=producer_id, process=process, client=client)
            if producer_id >= 0:
                self._producers[producer_id] = found
        return found

    @property
    def records_writes(self) -> bool:
        """Whether the writes to any topic are recorded."""
        return bool(self._topics)

    def records(self, topic: str) -> bool:
        """Whether the writes to a topic are recorded."""
        return topic in self._topics or ANY_NAME in self._topics

    def topic(self, part: Message) -> str:
        """The name of a topic in a message, which has its name or its id. Raises Malformed where no
        Metadata had the id."""
        named = getattr(part, "name", None) or getattr(part, "topic", None)
        if named is not None:
            return str(named)
        try:
            return self.names[part.topic_id]
        except KeyError:
            raise Malformed(f"no topic is known to have the id {part.topic_id}") from None

    # Requests, before they are forwarded.

    def write(
        self,
        topic: str,
        partition: int,
        records: bytes,
        client: str,
        unnamed: Callable[[], WireProducer],
    ) -> Iterator[AskedBatch]:
        """Batches that a client asks to be written; `unnamed` is the producer of its connection,
        for those without an id. Raises Malformed."""
        for header in _headers(records):
            crc, attributes, producer_id, epoch, sequence, size = header
            producer = self.producer(producer_id, client) if producer_id >= 0 else unnamed()
            sent = producer.sent.setdefault((topic, partition), OrderedDict())
            before = (
                _unless_reused(sent.get((epoch, sequence, size)), crc)
                if producer_id >= 0
                else self._unanswered.pop((client, topic, partition, crc, size), None)
            )
            if before is not None:
                before.asked += 1
                self.report.unanswered -= producer_id < 0
                yield before
                continue
            self.report.batches += 1
            self.report.written.setdefault(topic, (now(), 0))
            transactional = bool(attributes & TRANSACTIONAL)
            operation = self.begin(producer, epoch) if transactional else _plain(producer, epoch)
            batch = AskedBatch(
                operation=operation,
                topic=topic,
                partition=partition,
                first_uid=(producer.process << PROCESS_SHIFT) + producer.uids,
                count=size,
                sequence=sequence,
                crc=crc,
            )
            producer.uids += size
            operation.batches.append(batch)
            if producer_id >= 0:
                sent[epoch, sequence, size] = batch
                if len(sent) > _SENT_AGAIN:
                    sent.popitem(last=False)
            self._row(operation, "invoke", batch)
            yield batch

    def unanswered(self, batches: Iterable[AskedBatch]) -> None:
        """The connection of requests to write these has ended: their client may send them again."""
        for batch in batches:
            producer = batch.operation.producer
            if producer.id < 0 and batch.offset < 0:
                key = producer.client, batch.topic, batch.partition, batch.crc, batch.count
                self._unanswered[key] = batch
                self.report.unanswered += 1
                if len(self._unanswered) > _MOST_UNANSWERED:
                    self._unanswered.popitem(last=False)

    def begin(self, producer: WireProducer, epoch: int) -> AskedOperation:
        """A producer's transaction in one epoch; begins it if necessary. After its EndTxn was
        requested, no batch joins it: a client that writes on considers it ended, which is unknown
        as long as no answer says so."""
        current = producer.transaction
        if current is not None and current.epoch == epoch and not current.end_asked:
            return current
        if current is not None and current.epoch == epoch:
            # if that EndTxn was not carried out, the next one ends both, perhaps with a commit
            current.ending = "commit"
        self._leave(producer)
        producer.transaction = AskedOperation(
            producer=producer,
            number=_number(producer),
            epoch=epoch,
            transactional=True,
            ending="open",
        )
        return producer.transaction

    def end(self, producer_id: int, epoch: int, *, commit: bool) -> AskedOperation | None:
        """The end of a transaction was requested. Returns it; None if it is not recorded."""
        producer = self._producers.get(producer_id)
        current = producer.transaction if producer is not None else None
        if current is None or current.epoch != epoch or not current.batches:
            return None
        if current.ending != "commit":  # once asked for, it may have been carried out
            current.ending = "commit" if commit else "abort"
        current.ended_at = current.ended_at or now()
        current.end_asked += 1
        self._row(current, "invoke")
        return current

    # Answers, when they come.

    def written(self, batch: AskedBatch, acks: int, error: ErrorCode, offset: int) -> None:
        """The answer to a request to write a batch."""
        asked, accepted = self.report.written.get(batch.topic, (0, 0))
        if error is Error.none and not accepted:
            self.report.written[batch.topic] = asked, now()
        if error is Error.none and offset >= 0:
            self._acknowledged(batch, offset, by_leader=acks != ALL_REPLICAS)
        elif error in (Error.none, Error.duplicate_sequence_number):
            self._settled(batch, "info", "acknowledged without an offset")
        elif error in _REFUSALS and batch.asked == 1:
            batch.refused = True
            self._settled(batch, "fail", error.name)

    def deleting(self, topic: str) -> None:
        """The deletion of a topic was requested."""
        unsure, done = self.report.deleted.get(topic, (0, 0))
        self.report.deleted[topic] = unsure + 1, done

    def deleted(self, topic: str, error: ErrorCode) -> None:
        """The answer to that. One that comes in time says whether it was carried out."""
        if error is not Error.request_timed_out:
            unsure, done = self.report.deleted.get(topic, (1, 0))
            self.report.deleted[topic] = unsure - 1, done + (error is Error.none)

    def _acknowledged(self, batch: AskedBatch, offset: int, *, by_leader: bool) -> None:
        if batch.offset == offset:
            return
        if batch.offset >= 0:
            self._again(batch, offset, by_leader=by_leader)
            return
        self.report.acknowledged += not by_leader
        self.report.by_leader += by_leader
        batch.offset, batch.by_leader = offset, by_leader
        self._settled(batch, "ok", "")

    def _again(self, batch: AskedBatch, offset: int, *, by_leader: bool) -> None:
        """The same batch was acknowledged at another offset: an operation of its own, so that both
        offsets are judged."""
        first = batch.operation
        second = AskedOperation(
            producer=first.producer,
            number=_number(first.producer),
            epoch=first.epoch,
            transactional=first.transactional,
            ending=first.ending,
        )
        other = AskedBatch(
            operation=second,
            topic=batch.topic,
            partition=batch.partition,
            first_uid=batch.first_uid,
            count=batch.count,
            sequence=batch.sequence,
            crc=batch.crc,
            offset=offset,
            by_leader=by_leader,
        )
        second.batches.append(other)
        self._row(second, "invoke", other)
        if not second.transactional:
            self._row(second, "return", outcome="ok")

    def ended(self, transaction: AskedOperation, error: ErrorCode, *, commit: bool) -> None:
        """The answer to EndTxn. After an error that makes the client repeat the request, the
        transaction continues."""
        if error is Error.none:
            transaction.ending = "commit" if commit else "abort"
            self._returned(transaction, "ok", "")
        elif error in _NOT_DONE:
            certain = transaction.end_asked == 1 and transaction.ending == "commit"
            self._returned(transaction, "fail" if certain else "info", error.name)
        else:
            return
        if transaction.producer.transaction is transaction:
            transaction.producer.transaction = None

    def identified(self, transactional_id: str, producer_id: int, client: str) -> None:
        """The answer to InitProducerId: the coordinator has ended the transaction that was open
        under this transactional id."""
        producer = self.producer(producer_id, client)
        producer.transactional_id = transactional_id
        self._leave(producer)

    def _leave(self, producer: WireProducer) -> None:
        """Records that a client left its transaction open and began another."""
        if producer.transaction is not None and producer.transaction.batches:
            self._returned(producer.transaction, "info", "left open")
        producer.transaction = None

    def _settled(self, batch: AskedBatch, outcome: OutcomeName, error: str) -> None:
        """Records the outcome of a batch. A batch of a transaction ends with the transaction."""
        if batch.operation.transactional:
            self._row(batch.operation, "invoke", batch)
        else:
            self._returned(batch.operation, outcome, error)

    def _returned(self, operation: AskedOperation, outcome: OutcomeName, error: str) -> None:
        self._row(operation, "return", outcome=outcome, error=error)
        operation.returned = True

    def _row(
        self,
        operation: AskedOperation,
        phase: Phase,
        batch: AskedBatch | None = None,
        *,
        outcome: OutcomeName = "info",
        error: str = "",
    ) -> None:
        """Writes a row of an operation: with one batch, or with all when it returns. No row follows
        that one."""
        if operation.returned:
            return
        producer = operation.producer
        chosen = [batch] if batch is not None else operation.batches if phase == "return" else []
        self._rows.write(
            Operation(
                number=operation.number,
                phase=phase,
                time=now(),
                client=producer.client,
                process=producer.process,
                cluster=self._cluster,
                kind="transaction" if operation.transactional else "send",
                ending=operation.ending,
                transactional_id=producer.transactional_id,
                outcome=outcome,
                ended_at=operation.ended_at if phase == "return" else 0,
                producer_id=producer.id,
                producer_epoch=operation.epoch,
                sends=tuple(each.group() for each in chosen),
                error=error,
            )
        )


def _unless_reused(before: AskedBatch | None, crc: int) -> AskedBatch | None:
    """The batch with the same numbers; None if its transaction has ended and this is another one.
    Until then other bytes are a retry: some clients give their records new timestamps."""
    if before is not None and before.operation.end_asked and before.crc != crc:
        return None
    return before


def _number(producer: WireProducer) -> int:
    return (producer.process << PROCESS_SHIFT) + next(producer.numbers)


def _plain(producer: WireProducer, epoch: int) -> AskedOperation:
    return AskedOperation(
        producer=producer,
        number=_number(producer),
        epoch=epoch,
        transactional=False,
        ending="none",
    )


def _headers(records: bytes) -> Iterator[tuple[int, int, int, int, int, int]]:
    """CRC, attributes, producer id, epoch, first sequence and number of records of each batch.
    Raises Malformed."""
    at = 0
    while at < len(records):
        if len(records) - at < HEADER_SIZE:
            raise Malformed("its last batch ends within its header")
        (
            _, length, _, magic, crc, attributes, _, _, _, producer_id, epoch, sequence, size,
        ) = BATCH_HEADER.unpack_from(records, at)  # fmt: skip
        whole = length >= HEADER_SIZE - LENGTH_ENDS
        if magic != MAGIC or attributes & CONTROL or not 0 < size <= MOST_RECORDS or not whole:
            raise Malformed(f"a batch of format {magic} with {size} records, {length} bytes long")
        yield crc, attributes, producer_id, epoch, sequence, size
        at += LENGTH_ENDS + length
