"""`linkflap.Producer`: confluent-kafka's Producer with a recorded history, so that every check
judges its writes.

Every record gets the header `linkflap` with its payload id. If a record has no partition, this
class chooses the one that librdkafka's partitioner (`partitioner`, by default consistent_random)
would choose, because the history must name it. A transaction is recorded when its end is requested.
If this process dies before that, the run never ended and is not judged.
"""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from linkflap.api.own_clients import at
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.history import Ending, OperationKind, OutcomeName
from linkflap.harness.model.payload import HEADER, LAYOUT
from linkflap.harness.model.scenario import OWN_PRODUCER
from linkflap.harness.model.wait import now
from linkflap.harness.workloads.client import Tally
from linkflap.harness.workloads.incarnation import InvokedOperation, OperationRows
from linkflap.harness.workloads.library import STATISTICS_MS, describe, identity_in

PARTITIONERS: Final = ("consistent_random", "consistent", "random")
"""The partitioners of librdkafka that are implemented here; the first is librdkafka's default."""


def known(partitioner: str) -> str:
    """Returns the name. Raises InputError for an unknown one."""
    if partitioner not in PARTITIONERS:
        raise InputError(
            f"partitioner is {partitioner!r}, which linkflap.Producer does not know; give each "
            f"record its partition, or use one of {', '.join(PARTITIONERS)}"
        )
    return partitioner


def partition_of(key: str | bytes | None, count: int, partitioner: str) -> int:
    """The partition of a key in a topic with `count` partitions."""
    content = key.encode() if isinstance(key, str) else key
    if partitioner == "random" or (not content and partitioner != "consistent"):
        return random.randrange(count)
    return zlib.crc32(content or b"") % count


Headers = dict[str, Any] | list[tuple[str, Any]] | None


@final
class Producer(confluent_kafka.Producer):
    """A confluent_kafka.Producer with a recorded history."""

    def __init__(self, config: Mapping[str, Any] | None = None, **more: Any) -> None:  # noqa: ANN401  (confluent-kafka's own)
        given = {**(config or {}), **more}
        self._clients, self.cluster = at(given.get("bootstrap.servers"))
        given = {**self._clients.entry(self.cluster, "client"), **given}
        self.transactional = bool(given.get("transactional.id"))
        self._partitioner = known(str(given.get("partitioner", PARTITIONERS[0])))
        self._default_report = given.pop("on_delivery", None)
        self._their_statistics = given.pop("stats_cb", None)
        given.setdefault("statistics.interval.ms", STATISTICS_MS)
        given.setdefault("log_level", 0)  # brokers die here on purpose
        self._counters: dict[tuple[str, int], int] = {}
        self._counts: dict[str, int] = {}
        self._identity = (-1, -1)
        self._transaction: InvokedOperation | None = None
        self._flying: dict[int, InvokedOperation] = {}
        self._committing = self._let_go = False
        self._homes: set[str] = set()
        self._tally = Tally()
        self._lock = threading.RLock()
        super().__init__({**given, "stats_cb": self._statistics})
        name = self._clients.take_in(self, OWN_PRODUCER)
        self._operations = OperationRows(
            self._clients.writer.operations(name),
            client=name,
            process=self._clients.numbers.next(),
            cluster=self.cluster,
            transactional_id=str(given.get("transactional.id") or ""),
        )

    def _statistics(self, text: str) -> None:
        self._identity = identity_in(text)
        if self._their_statistics is not None:
            self._their_statistics(text)

    # Asked by faults, and at the end of the run.

    @property
    def homes(self) -> frozenset[str]:
        return frozenset(self._homes)

    @property
    def committing(self) -> bool:
        return self._committing

    # The caller's methods.

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Callable[..., Any] | None = None,
        on_delivery: Callable[..., Any] | None = None,
        timestamp: int = 0,
        headers: Headers = None,
    ) -> None:
        """As confluent_kafka.Producer.produce. Raises InputError once the run is over."""
        with self._lock:
            if self._let_go:
                raise InputError("the run is over: records written now would be in no history")
            chosen = partition if partition >= 0 else self._choose(topic, key)
            flight, uid = self._begun(), self._operations.uids(1)
            group = flight.add(topic, chosen, uid)
            index = group.count - 1
            counter = self._counters.get((topic, chosen), 0)
            if flight.kind == "send":
                self._operations.invoked(flight)
            theirs = on_delivery or callback or self._default_report
            own = (HEADER, LAYOUT.pack(uid, flight.number, counter))
            named = [*(headers.items() if isinstance(headers, dict) else headers or ()), own]

            def delivered(error: KafkaError | None, message: Message) -> None:
                group.delivered(index, error, message)
                if flight.kind == "send":
                    self._sent(flight, error)
                if theirs is not None:
                    theirs(error, message)

            try:
                super().produce(
                    topic,
                    value,
                    key,
                    chosen,
                    on_delivery=delivered,
                    timestamp=timestamp,
                    headers=named,
                )
            except BaseException:
                group.handed -= 1  # it was never sent
                if flight.kind == "send":
                    self._returned(flight, "fail", "not taken by librdkafka")
                raise
            self._counters[topic, chosen] = counter + 1
            self._homes.add(topic.partition(".")[0])

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: Callable[..., Any] | None = None,
        on_delivery: Callable[..., Any] | None = None,
    ) -> int:
        """As confluent_kafka.Producer.produce_batch: calls `produce` for each message, and returns
        how many were taken; of the others `_error` has the reason."""
        shared = {"partition": partition, "callback": callback, "on_delivery": on_delivery}
        taken = 0
        for message in messages:
            try:
                self.produce(topic, **{**shared, **message})
                taken += 1
            except BufferError:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            except KafkaException as error:
                message["_error"] = error.args[0]
        return taken

    def _begun(self) -> InvokedOperation:
        if not self.transactional:
            return self._new("send")
        if self._transaction is None:
            raise KafkaException(
                KafkaError(
                    KafkaError._STATE,
                    "produce outside of a transaction: call begin_transaction first",
                )
            )
        return self._transaction

    def _new(self, kind: OperationKind) -> InvokedOperation:
        flight = self._operations.new(kind, identity=self._identity)
        if kind == "send":
            self._flying[flight.number] = flight
        return flight

    def _choose(self, topic: str, key: str | bytes | None) -> int:
        count = self._counts.get(topic) or self._clients.topics.get(topic) or self._asked(topic)
        if not count:
            raise KafkaException(
                KafkaError(
                    KafkaError._UNKNOWN_TOPIC, f"topic {topic} has no partitions on {self.cluster}"
                )
            )
        self._counts[topic] = count
        return partition_of(key, count, self._partitioner)

    def _asked(self, topic: str) -> int:
        """The number of partitions of a topic that was created later. Raises KafkaException if no
        broker answers."""
        return len(self.list_topics(topic, timeout=10).topics[topic].partitions)

    def init_transactions(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401  (confluent-kafka's own)
        """As confluent-kafka's."""
        flight = self._new("init")
        self._operations.invoked(flight)
        try:
            super().init_transactions(*arguments, **named)
        except KafkaException as error:
            self._returned(flight, "info", describe(error))
            raise
        self._learn_identity()
        self._returned(flight, "ok")

    def _learn_identity(self) -> None:
        """Serves statistics until they report the producer id and epoch. Gives up after three
        seconds; both are unknown then."""
        deadline = now() + 3_000_000_000
        self._identity = (-1, -1)
        while self._identity[0] < 0 and now() < deadline:
            self.poll(STATISTICS_MS / 1000)

    def begin_transaction(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401  (confluent-kafka's own)
        """As confluent-kafka's."""
        super().begin_transaction(*arguments, **named)
        with self._lock:
            self._transaction = self._new("transaction")

    def commit_transaction(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401  (confluent-kafka's own)
        """As confluent-kafka's."""
        self._end("commit", lambda: super(Producer, self).commit_transaction(*arguments, **named))

    def abort_transaction(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401  (confluent-kafka's own)
        """As confluent-kafka's."""
        self._end("abort", lambda: super(Producer, self).abort_transaction(*arguments, **named))

    def _end(self, ending: Ending, call: Callable[[], None]) -> None:
        flight = self._transaction
        if flight is not None:
            # After a timeout the caller may request the end again: the first request counts.
            flight.ending = flight.ending if flight.ended_at else ending
            flight.ended_at = flight.ended_at or now()
            self._operations.invoked(flight)
        self._committing = ending == "commit"
        try:
            call()
        except KafkaException as error:
            if flight is not None and not error.args[0].retriable():
                self._returned(flight, self._failed(flight), describe(error))
                self._transaction = None
            raise
        finally:
            self._committing = False
        self.poll(0)
        if flight is not None:
            self._transaction = None
            self._returned(flight, "ok" if flight.ending == ending else "info")

    @property
    def open_transaction(self) -> bool:
        flight = self._transaction
        return flight is not None and flight.acked > 0 and not self._let_go

    def acknowledged_since(self, time: int) -> int:
        """Records of operations that returned after `time`."""
        return self._tally.acknowledged_since(time, self.cluster)

    def let_go(self) -> None:
        """Called at the end of the run. Operations in flight get the outcome info, and nothing more
        is written."""
        with self._lock:
            if self._let_go:
                return
            if self._transaction is not None:
                self._transaction.ending = "open"
                self._returned(self._transaction, "info", "the run ended")
            for flight in list(self._flying.values()):
                self._returned(flight, "info", "the run ended")
            self._let_go = True

    def _sent(self, flight: InvokedOperation, error: KafkaError | None) -> None:
        """Called with the delivery report of a record outside of transactions: acknowledged (ok),
        certainly refused (fail) or unknown (info)."""
        with self._lock:
            if error is None:
                self._returned(flight, "ok")
            else:
                self._returned(flight, "fail" if flight.groups[0].all_refused else "info")

    def _failed(self, flight: InvokedOperation) -> OutcomeName:
        """The outcome of a transaction whose end failed. EndTxn is sent only after every record was
        delivered, so a commit with a failed delivery was never requested."""
        return "fail" if flight.ending == "commit" and flight.failed else "info"

    def _returned(self, flight: InvokedOperation, outcome: OutcomeName, error: str = "") -> None:
        with self._lock:
            if self._let_go:
                return
            self._flying.pop(flight.number, None)
            if self._operations.returned(flight, outcome, error, self._identity):
                self._tally.acknowledge(self.cluster, flight.acked)
