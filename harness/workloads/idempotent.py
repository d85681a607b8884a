"""Idempotent producers without transactions: groups of records, acknowledged one by one.

An operation is ok when every record was acknowledged, fail when every record was certainly refused,
else info.
"""

from __future__ import annotations

from typing import Final

from linkflap.harness.workloads.endings import CallEnd
from linkflap.harness.workloads.in_flight import InvokedOperation
from linkflap.harness.workloads.producers import COMMON, Producing

OPTIONS: Final = COMMON


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
