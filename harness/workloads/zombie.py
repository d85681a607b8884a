"""Zombies: a second producer takes the transactional id of a running one in mid-transaction (KIP-98
fencing, KIP-360).

In each round the first producer writes and waits for its acknowledgements. The second initialises
the same id, which aborts the first's open transaction and fences the first. The first then requests
its commit and must be refused. The second writes a transaction of its own and commits it. If the
second's initialisation was confirmed before the commit was requested, a refused commit was
certainly not done: fail. A commit that succeeds is recorded as ok, whatever that means for Kafka.
"""

from __future__ import annotations

from typing import Final

from linkflap.harness.workloads import endings
from linkflap.harness.workloads.in_flight import InvokedOperation
from linkflap.harness.workloads.incarnation import Incarnation
from linkflap.harness.workloads.producers import COMMON, INIT_WITHIN, Producing

OPTIONS: Final = COMMON


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
        if refused or not flight.complete or self.interrupted:
            self.conclude(
                first,
                flight,
                endings.abort(first, flight, lambda: self.interrupted, within=self.shape.timeout),
            )
            return
        second, took_over = self._take_over()
        self._fenced(first, flight, took_over)
        if second is not None:
            self._write_one(second)

    def _take_over(self) -> tuple[Incarnation | None, bool]:
        """A second incarnation under the same id, and whether its initialisation was confirmed."""
        second = self.new_incarnation(self.name)
        init = second.invoke("init")
        ended = endings.initialise(second, lambda: self.interrupted, within=INIT_WITHIN)
        if ended.usable:
            second.learn_identity()
        second.returned(init, ended.outcome, ended.error)
        if ended.usable:
            return second, True
        second.drop()
        return None, False

    def _fenced(self, first: Incarnation, flight: InvokedOperation, took_over: bool) -> None:
        ended = endings.commit(first, flight, lambda: self.interrupted, within=self.shape.timeout)
        outcome = ended.outcome
        if outcome == "info" and took_over:
            # the takeover aborted this transaction before its commit was requested
            outcome = "fail"
        self.conclude(
            first, flight, endings.CallEnd(outcome=outcome, usable=False, error=ended.error)
        )

    def _write_one(self, second: Incarnation) -> None:
        self.incarnation = second
        if self.ending or not self.begin(second):
            return
        flight = self.flight = second.invoke("transaction", "commit", self.plan())
        if second.send(flight):
            ended = endings.abort(
                second, flight, lambda: self.interrupted, within=self.shape.timeout
            )
        else:
            ended = endings.commit(
                second, flight, lambda: self.interrupted, within=self.shape.timeout
            )
        self.conclude(second, flight, ended)
