"""Writes the operations of a program's producer to the history."""

from __future__ import annotations

import threading
from bisect import bisect_right

import confluent_kafka
from confluent_kafka import KafkaError

from linkflap.api.flight import Flight
from linkflap.harness.model.clock import now
from linkflap.harness.model.history import Operation, OutcomeName, Phase
from linkflap.harness.rundir import Appender


class WrittenOperations(confluent_kafka.Producer):
    """A producer that writes operations to the history when they are invoked and when they
    return."""

    cluster: str
    _name: str
    _process: int
    _transactional_id: str
    _rows: Appender[Operation]
    _identity: tuple[int, int]
    _transaction: Flight | None
    _flying: dict[int, Flight]
    _let_go: bool
    _acknowledged: list[tuple[int, int]]
    _lock: threading.RLock

    @property
    def open_transaction(self) -> bool:
        flight = self._transaction
        return flight is not None and flight.acked > 0 and not self._let_go

    def acknowledged_since(self, time: int) -> int:
        """Records of operations that returned after `time`."""
        with self._lock:
            times = [at for at, _ in self._acknowledged]
            return sum(count for _, count in self._acknowledged[bisect_right(times, time) :])

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

    def _sent(self, flight: Flight, error: KafkaError | None) -> None:
        """Called with the delivery report of a record outside of transactions: acknowledged (ok),
        certainly refused (fail) or unknown (info)."""
        with self._lock:
            if error is None:
                self._returned(flight, "ok")
            else:
                self._returned(
                    flight, "fail" if flight.groups[0].all_refused else "info", flight.error
                )

    def _failed(self, flight: Flight) -> OutcomeName:
        """The outcome of a transaction whose end failed. EndTxn is sent only after every record was
        delivered, so a commit with a failed delivery was never requested."""
        return "fail" if flight.ending == "commit" and flight.failed else "info"

    def _invoke(self, flight: Flight) -> None:
        if not flight.invoked:
            flight.invoked = True
            self._write(flight, "invoke", flight.began, "info", "")

    def _returned(self, flight: Flight, outcome: OutcomeName, error: str = "") -> None:
        with self._lock:
            if self._let_go:
                return
            self._invoke(flight)
            self._flying.pop(flight.number, None)
            if flight.identity == (-1, -1) and outcome == "ok":
                flight.identity = self._identity
            elif flight.kind == "send" and flight.identity != self._identity:
                flight.identity = (-1, -1)
            returned = now()
            self._write(flight, "return", returned, outcome, error or flight.error)
            self._acknowledged.append((returned, flight.acked))

    def _write(
        self, flight: Flight, phase: Phase, time: int, outcome: OutcomeName, error: str
    ) -> None:
        returned = phase == "return"
        self._rows.write(
            Operation(
                number=flight.number,
                phase=phase,
                time=time,
                client=self._name,
                process=self._process,
                cluster=self.cluster,
                kind=flight.kind,
                ending=flight.ending,
                transactional_id=self._transactional_id,
                outcome=outcome,
                ended_at=flight.ended_at if returned else 0,
                producer_id=flight.identity[0],
                producer_epoch=flight.identity[1],
                sends=tuple(
                    group.outcome() if returned else group.planned() for group in flight.groups
                ),
                error=error,
            )
        )
