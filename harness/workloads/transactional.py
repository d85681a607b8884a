"""Transactional producers: each transaction writes to several partitions, then commits, aborts, or
stays open for a while.

A transaction that stays open is held with all its records acknowledged. It is aborted after its
time, or when the client has to pause, stop, or move away from a cluster that is alive. If its
cluster dies first, nobody ends it: it is recorded as `open`, outcome info.
"""

from __future__ import annotations

from typing import Final

from linkflap.harness.model.clock import now
from linkflap.harness.model.history import Ending
from linkflap.harness.workloads import endings
from linkflap.harness.workloads.client import SLICE
from linkflap.harness.workloads.context import Context
from linkflap.harness.workloads.in_flight import InvokedOperation
from linkflap.harness.workloads.incarnation import Incarnation
from linkflap.harness.workloads.producers import COMMON, Producing

OPTIONS: Final = COMMON | {"abort_share", "open_share", "hold"}


class TransactionalClient(Producing):
    """One transaction per step."""

    def __init__(self, context: Context, name: str, cluster: str) -> None:
        super().__init__(context, name, cluster)
        self._abort_share = context.number("abort_share", 0.1, high=1.0)
        self._open_share = context.number("open_share", 0.02, high=1.0)
        self._hold = context.number("hold", 2.0, high=600.0)

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

    def _end(
        self, incarnation: Incarnation, flight: InvokedOperation, refused: str
    ) -> endings.CallEnd:
        within = self.shape.timeout + 5.0
        if flight.ending == "open" and not refused:
            self._hold_open(incarnation, flight)
            if self.interrupted:
                return endings.CallEnd(outcome="info", usable=False, error="left open")
        if flight.ending == "commit" and not refused:
            return endings.commit(incarnation, flight, lambda: self.interrupted, within=within)
        # also where records were not accepted: the planned commit was never sent
        return endings.abort(incarnation, flight, lambda: self.interrupted, within=within)

    def _hold_open(self, incarnation: Incarnation, flight: InvokedOperation) -> None:
        until = now() + int(self._hold * 1e9)
        while now() < until and not self.ending:
            incarnation.serve(min(SLICE, 0.1))
