"""Base of all producing clients: one producer instance ("incarnation") per cluster, a pace, and a
record of how every operation ended."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from confluent_kafka import KafkaException

from linkflap.harness.model.clock import now
from linkflap.harness.model.events import ProducerReplaced
from linkflap.harness.model.protocols import Moment
from linkflap.harness.model.values import KEYS, LARGEST, Values
from linkflap.harness.workloads import endings
from linkflap.harness.workloads.client import Client
from linkflap.harness.workloads.context import Context
from linkflap.harness.workloads.in_flight import InvokedOperation
from linkflap.harness.workloads.incarnation import Incarnation
from linkflap.harness.workloads.librdkafka import describe
from linkflap.harness.workloads.protocol import ClientState

COMMON: Final = frozenset(
    {
        "via",
        "rate",
        "records",
        "value_size",
        "keys",
        "skew",
        "tombstones",
        "compression",
        "timeout",
        "partitions",
    }
)
RETRY: Final = 0.2
INIT_WITHIN: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Options of every producing workload: operations per second and client (0: no limit), records
    and partitions of each, bytes of a value, how many keys, how unevenly they are used, the share
    of tombstones, compression, and the transaction or delivery timeout in seconds."""

    rate: float
    records: int
    partitions: int
    value_size: int
    keys: int
    skew: float
    tombstones: float
    compression: str
    timeout: float

    @classmethod
    def of(cls, context: Context) -> Shape:
        """From a workload's options; InputError when one is wrong."""
        return cls(
            rate=context.number("rate", 20.0),
            records=context.count("records", 20),
            partitions=context.count("partitions", 2),
            value_size=context.count("value_size", 200, low=1, high=LARGEST),
            keys=context.count("keys", KEYS),
            skew=context.number("skew", 1.0, low=1.0, high=100.0),
            tombstones=context.number("tombstones", 0.0, high=1.0),
            compression=context.choice("compression", ("none", "lz4", "zstd", "snappy", "gzip")),
            timeout=context.number("timeout", 10.0, low=1.0, high=900.0),
        )


class Producing(Client):
    """A client with at most one incarnation and at most one operation in flight."""

    transactional = True

    def __init__(self, context: Context, name: str, cluster: str) -> None:
        super().__init__(context, name, cluster)
        self.shape = Shape.of(context)
        # The successor of a dead client uses another seed: the same draws could kill it at once
        # again, so that nothing else is tested.
        self.random = random.Random(
            f"linkflap {context.seed} {name}" + (f" {context.deaths}" if context.deaths else "")
        )
        self.incarnation: Incarnation | None = None
        self.flight: InvokedOperation | None = None
        self._rows = context.writer.operations(name)
        self._values = Values(
            context.seed,
            self.shape.value_size,
            keys=self.shape.keys,
            skew=self.shape.skew,
            tombstones=self.shape.tombstones,
        )
        self._due = 0
        self._written = dict(context.topics)

    @property
    def open_transaction(self) -> bool:
        """Whether a transaction that has written records is still open, as far as this client
        knows."""
        flight = self.flight
        return (
            self.transactional and flight is not None and not flight.returned and flight.acked > 0
        )

    def in_flight_at(self, moment: Moment) -> int | None:
        flight = self.flight
        if flight is None or flight.returned:
            return None
        committing = flight.ending == "commit" and flight.ended_at > 0
        there = {
            "any": True,
            "transaction": self.open_transaction and not flight.ended_at,
            "commit": committing,
        }[moment]
        return flight.number if there else None

    def state(self) -> ClientState:
        committing = self.in_flight_at("commit") is not None
        return msgspec.structs.replace(
            super().state(), open=self.open_transaction, committing=committing
        )

    def plan(self) -> Sequence[tuple[str, int, int]]:
        """(topic, partition, how many records) of the next operation, drawn from the seed."""
        self._take_in_growth()
        partitions = [
            (topic, p) for topic, count in sorted(self._written.items()) for p in range(count)
        ]
        chosen = self.random.sample(
            partitions, min(self.shape.partitions, len(partitions), self.shape.records)
        )
        share, rest = divmod(self.shape.records, len(chosen))
        return [(topic, p, share + (n < rest)) for n, (topic, p) in enumerate(chosen)]

    def _take_in_growth(self) -> None:
        """Writes to a new partition only once the producer's own metadata has it: before that,
        librdkafka rejects records for it."""
        wanted = self.context.topics
        if self.incarnation is None or wanted == self._written:
            return
        for topic in [topic for topic, count in wanted.items() if count > self._written[topic]]:
            known = self.incarnation.partitions(topic)
            self._written[topic] = max(self._written[topic], min(wanted[topic], known))

    def pace(self) -> None:
        """Waits until the next operation is due; a late one is not compensated."""
        if self.shape.rate <= 0:
            return
        self.rest((self._due - now()) / 1e9)
        self._due = max(self._due, now() - 1_000_000) + int(1e9 / self.shape.rate)

    def ready(self) -> Incarnation | None:
        """The incarnation in use, or a new, initialised one; None if that failed (it is
        retried)."""
        if self.incarnation is None:
            self.incarnation = self._born()
            if self.incarnation is None:
                self.rest(RETRY)
        return self.incarnation

    def new_incarnation(self, transactional_id: str) -> Incarnation:
        """A producer for the client's cluster that has sent nothing yet."""
        shape = self.shape
        return Incarnation(
            self,
            self._rows,
            self._values,
            transactional_id=transactional_id,
            timeout=shape.timeout,
            compression=shape.compression,
            largest=shape.value_size,
        )

    def _born(self) -> Incarnation | None:
        incarnation = self.new_incarnation(self.name if self.transactional else "")
        flight = incarnation.invoke("init")
        ended = endings.CallEnd(outcome="ok", usable=True)
        if self.transactional:
            ended = endings.initialise(incarnation, lambda: self.ending, within=INIT_WITHIN)
        if ended.usable:
            incarnation.learn_identity()
        incarnation.returned(flight, ended.outcome, ended.error)
        if ended.usable:
            return incarnation
        incarnation.drop()
        return None

    def forget(self) -> None:
        """Drops the incarnation: the next step begins with a new one, under a new process
        number."""
        if self.flight is not None and self.incarnation is not None:
            self.incarnation.returned(self.flight, "info", "given up")
        if self.incarnation is not None:
            self.incarnation.drop()
        self.incarnation = self.flight = None

    def leave(self, *, clean: bool) -> None:
        self.forget()

    def conclude(
        self, incarnation: Incarnation, flight: InvokedOperation, ended: endings.CallEnd
    ) -> None:
        """Writes the end of an operation; an incarnation that can do no more is replaced."""
        incarnation.serve(0)
        incarnation.returned(flight, ended.outcome, ended.error or incarnation.fatal)
        self.flight = None
        if incarnation.fatal or not ended.usable:
            self.forget()
        elif ended.outcome != "ok":
            incarnation.learn_identity()  # an abortable error can raise the epoch (KIP-360)

    def begin(self, incarnation: Incarnation) -> bool:
        """Begins a transaction; False when the incarnation had to be dropped."""
        try:
            incarnation.producer.begin_transaction()
        except KafkaException as error:
            self.context.writer.write(
                ProducerReplaced(
                    client=self.name, process=incarnation.process, reason=describe(error)
                )
            )
            self.forget()
            self.rest(RETRY)
            return False
        return True
