"""Clients that produce: transactional ones, idempotent ones, and zombies. Each has one producer
instance ("incarnation") per cluster, a pace, and a record of how every operation ended.

Transactions are initialised, committed and aborted with outcomes that claim only what is certain
(Jepsen's ok, fail, info). Calls are made in slices: after a timeout librdkafka resumes a call that
is made again. So a client of a dead cluster can be interrupted.

When a commit was certainly not done: librdkafka sends EndTxn only after every record of the
transaction was delivered (rd_kafka_commit_transaction flushes first and turns a failed delivery
into an abortable error). So a failed commit of a transaction with a failed delivery was never
requested. Any other failed commit may have been done, with the answer lost: info. That includes
librdkafka's "fenced", because the answer to the first EndTxn may have been lost before the fence
was noticed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from confluent_kafka import KafkaException

from linkflap.harness.model.events import ProducerReplaced
from linkflap.harness.model.history import Ending, OutcomeName
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.payload import KEYS, LARGEST_VALUE, VALUE_SIZE, Values
from linkflap.harness.model.protocols import Moment
from linkflap.harness.model.scenario import transactional_id_of
from linkflap.harness.model.wait import now
from linkflap.harness.workloads.client import SLICE, VIA, Client, Context, Options
from linkflap.harness.workloads.incarnation import Incarnation, InvokedOperation
from linkflap.harness.workloads.library import describe
from linkflap.harness.workloads.protocol import ClientState


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """How a call ended; `usable`: the incarnation can begin another transaction."""

    outcome: OutcomeName
    usable: bool
    error: str = ""


def _call(
    call: Callable[[float], None], given_up: Callable[[], bool], within: float
) -> KafkaException | None:
    """Calls in slices until done, a final error (which it returns), `within` seconds have passed,
    or `given_up()`."""
    deadline = now() + int(within * 1e9)
    while True:
        try:
            call(SLICE)
        except KafkaException as error:
            if not error.args[0].retriable() or now() >= deadline or given_up():
                return error
        else:
            return None


def _ended(error: KafkaException | None) -> CallEnd:
    if error is None:
        return CallEnd(outcome="ok", usable=True)
    return CallEnd(outcome="info", usable=False, error=describe(error))


COMMON: Final[Options] = {
    "via": VIA,
    "rate": OptionAbout(default=20.0, about="operations per second and client; 0: no limit"),
    "records": OptionAbout(default=20, low=1, high=1_000_000, about="records of an operation"),
    "partitions": OptionAbout(default=2, low=1, high=1_000_000, about="partitions of an operation"),
    "value_size": OptionAbout(
        default=VALUE_SIZE, low=1, high=LARGEST_VALUE, about="bytes of a value"
    ),
    "keys": OptionAbout(default=KEYS, low=1, high=1_000_000, about="how many different keys"),
    "skew": OptionAbout(
        default=1.0, low=1.0, high=100.0, about="above 1, some keys are used more often"
    ),
    "tombstones": OptionAbout(
        default=0.0, high=1.0, about="share of records that have a key and no value"
    ),
    "compression": OptionAbout(
        default="none",
        choices=("none", "lz4", "zstd", "snappy", "gzip"),
        about="compression of batches",
    ),
    "timeout": OptionAbout(
        default=10.0, low=1.0, high=900.0, about="transaction or delivery timeout, seconds"
    ),
}
ABORT_SHARE: Final = OptionAbout(
    default=0.1, high=1.0, about="share of transactions that end by an abort"
)
RETRY: Final = 0.2
INIT_WITHIN: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The options that every producing workload has: see COMMON."""

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
            rate=context.number("rate"),
            records=context.count("records"),
            partitions=context.count("partitions"),
            value_size=context.count("value_size"),
            keys=context.count("keys"),
            skew=context.number("skew"),
            tombstones=context.number("tombstones"),
            compression=context.text("compression"),
            timeout=context.number("timeout"),
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
            self.incarnation = self.born(lambda: self.ending)
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

    def born(self, given_up: Callable[[], bool]) -> Incarnation | None:
        """A new incarnation. InitProducerId with the transactional id ends what an earlier one left
        open, and fences it."""
        incarnation = self.new_incarnation(
            transactional_id_of(self.name) if self.transactional else ""
        )
        flight = incarnation.invoke("init")
        ended = CallEnd(outcome="ok", usable=True)
        if self.transactional:
            ended = _ended(_call(incarnation.producer.init_transactions, given_up, INIT_WITHIN))
        if ended.usable:
            incarnation.learn_identity()
        incarnation.returned(flight, ended.outcome, ended.error)
        if ended.usable:
            return incarnation
        incarnation.drop()
        return None

    def commit(
        self, incarnation: Incarnation, flight: InvokedOperation, *, within: float
    ) -> CallEnd:
        """Commits; after an abortable error it aborts, so that the incarnation can continue."""
        flight.ended_at = now()
        producer = incarnation.producer
        error = _call(producer.commit_transaction, lambda: self.interrupted, within)
        if error is None:
            return _ended(None)
        cause = error.args[0]
        never_asked = flight.failed > 0 and not cause.retriable()
        usable = not cause.fatal() and cause.txn_requires_abort()
        if usable:
            usable = not _call(producer.abort_transaction, lambda: self.interrupted, within)
        outcome: OutcomeName = "fail" if never_asked else "info"
        return CallEnd(outcome=outcome, usable=usable, error=describe(error))

    def abort(
        self, incarnation: Incarnation, flight: InvokedOperation, *, within: float
    ) -> CallEnd:
        """Aborts; from here on the operation's ending is abort, also where a commit was planned."""
        flight.ended_at = now()
        flight.ending = "abort"
        abort = incarnation.producer.abort_transaction
        return _ended(_call(abort, lambda: self.interrupted, within))

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

    def conclude(self, incarnation: Incarnation, flight: InvokedOperation, ended: CallEnd) -> None:
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


IDEMPOTENT_OPTIONS: Final = COMMON


class IdempotentClient(Producing):
    """One group of records per step."""

    transactional = False

    def step(self) -> None:
        incarnation = self.ready()
        if incarnation is None:
            return
        self.pace()
        if self.ending:
            return
        flight = self.flight = incarnation.invoke("send", "none", self.plan())
        refused = incarnation.send(flight)
        incarnation.settle(flight, within=self.shape.timeout + 5.0)
        self.conclude(incarnation, flight, self._ended(flight, refused))

    def _ended(self, flight: InvokedOperation, refused: str) -> CallEnd:
        if flight.complete:
            return CallEnd(outcome="ok", usable=True)
        if all(group.all_refused for group in flight.groups):
            return CallEnd(outcome="fail", usable=not refused, error=refused or flight.error)
        # after a failed delivery the sequence continues in a new epoch, or the producer has a fatal
        # error: only a new producer is certain
        return CallEnd(
            outcome="info",
            usable=False,
            error=refused or flight.error or "not acknowledged in time",
        )


TRANSACTIONAL_OPTIONS: Final[Options] = {
    **COMMON,
    "abort_share": ABORT_SHARE,
    "open_share": OptionAbout(
        default=0.02, high=1.0, about="share of transactions that stay open for `hold` seconds"
    ),
    "hold": OptionAbout(
        default=2.0, high=600.0, about="seconds for which a transaction stays open"
    ),
}


class TransactionalClient(Producing):
    """One transaction per step."""

    def __init__(self, context: Context, name: str, cluster: str) -> None:
        super().__init__(context, name, cluster)
        self._abort_share = context.number("abort_share")
        self._open_share = context.number("open_share")
        self._hold = context.number("hold")

    def _meant(self) -> Ending:
        drawn = self.random.random()
        if drawn < self._abort_share:
            return "abort"
        return "open" if drawn < self._abort_share + self._open_share else "commit"

    def step(self) -> None:
        incarnation = self.ready()
        if incarnation is None:
            return
        self.pace()
        if self.ending or not self.begin(incarnation):
            return
        flight = self.flight = incarnation.invoke("transaction", self._meant(), self.plan())
        refused = incarnation.send(flight)
        self.conclude(incarnation, flight, self._end(incarnation, flight, refused))

    def _end(self, incarnation: Incarnation, flight: InvokedOperation, refused: str) -> CallEnd:
        within = self.shape.timeout + 5.0
        if flight.ending == "open" and not refused:
            self._hold_open(incarnation, flight)
            if self.interrupted:
                return CallEnd(outcome="info", usable=False, error="left open")
        if flight.ending == "commit" and not refused:
            return self.commit(incarnation, flight, within=within)
        # also where records were not accepted: the planned commit was never sent
        return self.abort(incarnation, flight, within=within)

    def _hold_open(self, incarnation: Incarnation, flight: InvokedOperation) -> None:
        until = now() + int(self._hold * 1e9)
        while now() < until and not self.ending:
            incarnation.serve(min(SLICE, 0.1))


ZOMBIE_OPTIONS: Final = COMMON


class ZombieClient(Producing):
    """One takeover per step; the second producer becomes the first of the next step."""

    def step(self) -> None:
        first = self.ready()
        if first is None:
            return
        self.pace()
        if self.ending or not self.begin(first):
            return
        flight = self.flight = first.invoke("transaction", "commit", self.plan())
        refused = first.send(flight)
        first.settle(flight, within=self.shape.timeout)
        within = self.shape.timeout
        if refused or not flight.complete or self.interrupted:
            self.conclude(first, flight, self.abort(first, flight, within=within))
            return
        second = self.born(lambda: self.interrupted)
        self._fenced(first, flight, took_over=second is not None)
        if second is not None:
            self._write_one(second)

    def _fenced(self, first: Incarnation, flight: InvokedOperation, *, took_over: bool) -> None:
        ended = self.commit(first, flight, within=self.shape.timeout)
        outcome = ended.outcome
        if outcome == "info" and took_over:
            # the takeover aborted this transaction before its commit was requested
            outcome = "fail"
        self.conclude(first, flight, CallEnd(outcome=outcome, usable=False, error=ended.error))

    def _write_one(self, second: Incarnation) -> None:
        self.incarnation = second
        if self.ending or not self.begin(second):
            return
        flight = self.flight = second.invoke("transaction", "commit", self.plan())
        end = self.abort if second.send(flight) else self.commit
        self.conclude(second, flight, end(second, flight, within=self.shape.timeout))
