"""org.apache.kafka.clients.producer.KafkaProducer, with the interface of confluent-kafka's Producer
that workloads use.

Records are collected here and sent many at a time. They pass to the JVM as one serialized Java
array, one method handle creates and sends them there, and one call reads their outcomes from the
futures. Java's own states show which errors can be aborted and which are fatal. Java's calls wait
`BLOCKS` seconds at most, and a call that timed out is resumed by calling it again, as with
librdkafka. The producer id and epoch are read from the transaction manager, which changes them at
the end of each transaction if the brokers have transactions V2 (KIP-890).
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from linkflap.harness.jvm import Handle
from linkflap.harness.model.wait import now
from linkflap.harness.workloads.java.clients import (
    JavaClients,
    JavaError,
    Partitions,
    TopicsByName,
    raised,
)

Record = tuple[bytes | None, ...]
"""Key, value, and one value for each header."""
_MAGIC: Final = struct.pack(">HH", 0xACED, 5)
_NULL, _REFERENCE, _CLASS, _ARRAY, _END = b"\x70", b"\x71", b"\x72", b"\x75", b"\x78"
_FIRST_HANDLE: Final = 0x7E0000


def _class(name: str) -> bytes:
    """An array class: no fields, Serializable. Java does not compare the version of array
    classes."""
    text = name.encode()
    return (
        _CLASS + struct.pack(">H", len(text)) + text + struct.pack(">qBH", 0, 2, 0) + _END + _NULL
    )


def serialized(records: Sequence[Record]) -> bytes:
    """Records as a `byte[][][]` in Java's serialization."""
    # Handle numbers for back references: a class, then the array of it, in the order of their first
    # bytes.
    parts = [_MAGIC, _ARRAY, _class("[[[B"), struct.pack(">i", len(records))]
    next_handle = _FIRST_HANDLE + 2
    of_record = of_bytes = b""
    for record in records:
        if of_record:
            parts += [_ARRAY, of_record]
        else:
            parts += [_ARRAY, _class("[[B")]
            of_record, next_handle = _REFERENCE + struct.pack(">i", next_handle), next_handle + 1
        parts.append(struct.pack(">i", len(record)))
        next_handle += 1
        for value in record:
            if value is None:
                parts.append(_NULL)
                continue
            if of_bytes:
                parts += [_ARRAY, of_bytes]
            else:
                parts += [_ARRAY, _class("[B")]
                of_bytes, next_handle = _REFERENCE + struct.pack(">i", next_handle), next_handle + 1
            next_handle += 1
            parts += [struct.pack(">i", len(value)), value]
    return b"".join(parts)


BATCH: Final = 500
BATCH_BYTES: Final = 4 << 20
_WAIT_MS: Final = 20
_IDENTITY: Final = re.compile(r"producerId=(-?\d+), epoch=(-?\d+)")
Delivered = Callable[["KafkaError | None", "Delivery"], None]


@dataclass(frozen=True, slots=True)
class Delivery:
    """The partition and offset of an appended record; -1 if the broker did not report it."""

    at: int

    def offset(self) -> int:
        return self.at


@dataclass(slots=True, kw_only=True)
class _SentRecords:
    """Records of one partition with the same headers, and where their reports go."""

    topic: str
    partition: int
    headers: tuple[str, ...]
    records: list[Record] = field(default_factory=list)
    reports: list[Delivered] = field(default_factory=list)


class JavaProducer:
    """One producer. Not thread-safe, except `send_offsets_to_transaction`."""

    def __init__(
        self,
        clients: JavaClients,
        config: Mapping[str, object],
        identified: Callable[[int, int], None],
    ) -> None:
        """`config` has Java's names; `identified` is called with the producer id and epoch whenever
        they may have changed."""
        self._clients, self._identified = clients, identified
        self._transactional = "transactional.id" in config
        self._waiting: list[_SentRecords] = []
        self._bytes = 0
        self._known: dict[str, int] = {}
        self._reports: list[Delivered] = []
        self._reported = 0
        self._senders: dict[tuple[str, int, tuple[str, ...]], Handle] = {}
        with raised():
            self._client = clients.producer(config)
            self._futures, self._forget = clients.producers.futures()
            self._state, self._identity = clients.states(self._client)

    # --- records

    def __len__(self) -> int:
        """Records whose delivery was not reported."""
        return (
            sum(len(sent.records) for sent in self._waiting) + len(self._reports) - self._reported
        )

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_delivery: Delivered,
        *,
        headers: Sequence[tuple[str, str | bytes | None]] = (),
    ) -> None:
        """Accepts a record. Raises BufferError while the producer does not know the partition, or
        its buffer is full."""
        if self._known.get(topic, 0) <= partition and self._partitions(topic) <= partition:
            raise BufferError(f"{topic}-{partition} is not known yet")
        names = tuple(name for name, _ in headers)
        last = self._waiting[-1] if self._waiting else None
        if last is None or (last.topic, last.partition, last.headers) != (topic, partition, names):
            last = _SentRecords(topic=topic, partition=partition, headers=names)
            self._waiting.append(last)
        last.records.append(
            (key, value, *(text.encode() if isinstance(text, str) else text for _, text in headers))
        )
        last.reports.append(on_delivery)
        self._bytes += len(value or b"")
        if len(last.records) >= BATCH or self._bytes >= BATCH_BYTES:
            self._send()

    def _partitions(self, topic: str) -> int:
        try:
            with raised():
                self._known[topic] = int(self._client.partitionsFor(topic).size())
        except JavaError:
            return 0
        return self._known[topic]

    def _send(self) -> None:
        """Sends the collected records. Even if Java's send fails for one record, others may have
        been accepted: each has its own error."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        for number, sent in enumerate(waiting):
            try:
                with raised():
                    self._clients.producers.send(serialized(sent.records), self._sender(sent))
            except JavaError as error:
                self._not_taken(waiting[number:], error)
                return
            self._reports += sent.reports

    def _not_taken(self, waiting: Sequence[_SentRecords], error: JavaError) -> None:
        with raised():
            taken = int(self._futures.size()) - len(self._reports)
        reports = [report for sent in waiting for report in sent.reports]
        self._reports += reports[:taken]
        self._collect()
        cause = self._clients.errors.of(error.kind, error.text)
        for report in reports[taken:]:
            report(cause, Delivery(-1))

    def _sender(self, sent: _SentRecords) -> Handle:
        key = sent.topic, sent.partition, sent.headers
        if key not in self._senders:
            self._senders[key] = self._clients.producers.sender(self._client, self._futures, *key)
        return self._senders[key]

    def poll(self, timeout: float) -> int:
        """Sends the collected records, and reports deliveries; waits for one if there is none.
        Returns how many."""
        deadline = now() + int(timeout * 1e9)
        self._send()
        done = self._collect()
        while not done and (left := (deadline - now()) / 1e6) > 0:
            self._wait(min(left, _WAIT_MS))
            done = self._collect()
        if done or not self._transactional or timeout:
            self._identify()
        return done

    def _wait(self, milliseconds: float) -> None:
        if self._reported < len(self._reports):
            with raised():
                self._clients.producers.wait(self._futures.get(len(self._reports) - 1))
        else:
            threading.Event().wait(milliseconds / 1000)

    def _collect(self) -> int:
        """Reports the deliveries that are known. Returns how many."""
        if self._reported == len(self._reports):
            return 0
        with raised():
            texts = self._clients.producers.outcomes(self._futures)
        done: list[tuple[Delivered, str]] = []
        for number, text in enumerate(texts):
            if text and self._reports[number] is not _reported:
                done.append((self._reports[number], text))
                self._reports[number] = _reported
        self._reported += len(done)
        if self._reported == len(self._reports):
            self._reports, self._reported = [], 0
            with raised():
                self._forget()
        for report, text in done:
            self._report(report, text)
        return len(done)

    def _report(self, report: Delivered, text: str) -> None:
        if text[0] == "!":
            report(self._clients.errors.delivery(text[1:]), Delivery(-1))
        else:
            report(None, Delivery(int(text)))

    def list_topics(self, topic: str, timeout: float) -> TopicsByName:
        """How many partitions a topic has, as far as the producer knows. Raises KafkaException."""
        del timeout
        known = self._partitions(topic)
        if not known:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{topic} is not known"))
        return TopicsByName({topic: Partitions(range(known))})

    # --- transactions

    def init_transactions(self, timeout: float) -> None:
        self._transaction("initTransactions")

    def begin_transaction(self) -> None:
        self._transaction("beginTransaction")

    def commit_transaction(self, timeout: float) -> None:
        self._ending("commitTransaction")

    def abort_transaction(self, timeout: float) -> None:
        self._ending("abortTransaction")

    def _ending(self, name: str) -> None:
        """Reports the known deliveries before it raises, like librdkafka."""
        self._send()
        try:
            self._transaction(name)
        finally:
            self._collect()

    def _transaction(self, name: str) -> None:
        """Raises KafkaException: one that can be resumed by the same call, one that has to be
        aborted, or a fatal one."""
        try:
            with raised():
                getattr(self._client, name)()
        except JavaError as error:
            raise KafkaException(self._in_state(error)) from error
        self._identify()

    def _in_state(self, error: JavaError) -> KafkaError:
        """An error of a transactional call, classified by Java's own state."""
        with raised():
            state = str(self._state())
        abortable, fatal = state == "ABORTABLE_ERROR", state == "FATAL_ERROR"
        timed_out = error.simple == "TimeoutException" and not abortable and not fatal
        return self._clients.errors.of(
            error.kind, error.text, fatal=fatal, retriable=timed_out, abortable=abortable
        )

    def send_offsets_to_transaction(
        self, offsets: Sequence[TopicPartition], metadata: Handle, timeout: float
    ) -> None:
        """Raises KafkaException when the offsets were not added in time."""
        self._send()
        deadline = now() + int(timeout * 1e9)
        while True:
            try:
                with raised():
                    self._client.sendOffsetsToTransaction(self._clients.offsets(offsets), metadata)
            except JavaError as error:
                cause = self._in_state(error)
                if not cause.retriable() or now() >= deadline:
                    raise KafkaException(cause) from error
            else:
                return

    def _identify(self) -> None:
        with raised():
            found = _IDENTITY.search(str(self._identity()))
        if found:
            self._identified(int(found[1]), int(found[2]))

    def purge(self, *, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        """Closes the producer without waiting: drops its queue, aborts nothing, and reports its
        records."""
        del in_queue, in_flight, blocking  # all of it
        waiting, self._waiting = self._waiting, []
        try:
            with raised():
                self._client.close(self._clients.duration(0))
        except JavaError:
            pass  # a producer that cannot be closed is abandoned anyway
        self._collect()
        cause = KafkaError(KafkaError._PURGE_QUEUE, "given up")
        for report in (report for sent in waiting for report in sent.reports):
            report(cause, Delivery(-1))


def _reported(_error: KafkaError | None, _delivery: Delivery) -> None:
    """Stands where a delivery was reported."""
