"""The clients' operations as the page draws them: when each began, how long it took, and its
outcome. Numbers only, no rows."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.model.events import (
    Event,
    FaultBite,
    FaultEnd,
    FaultHeal,
    FaultStart,
    OfFault,
    of_kind,
)
from linkflap.harness.model.history import Operation
from linkflap.harness.model.payload import PROCESS_SHIFT

_MOMENTS: Final = 10**18
"""Numbers from here on are nanoseconds since 1970."""
_LATEST: Final = 2 * 10**18
"""And from here on they are none that any run had."""


def in_words(value: object) -> str:
    """A value with its parts: names before values, what has parts itself behind semicolons."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        deep = any(isinstance(each, Mapping | list | tuple) for each in value)
        return ("; " if deep else ", ").join(map(in_words, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, int) and _MOMENTS <= value < _LATEST:
        return (
            datetime.fromtimestamp(value / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
        )
    return str(value)


Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
OUTCOMES: Final = ("ok", "fail", "info")
ENDINGS: Final = ("commit", "abort", "open", "none")
NANO: Final = 1e9
"""Nanoseconds in a second."""


@dataclass(slots=True)
class ReturnedOperations:
    """Returned operations, as columns; those that never returned are in `open` until the end.

    `clients` are labels of producer incarnations by their number; `ids` maps a cluster's producer
    id and epoch to their user.
    """

    start: array[int] = field(default_factory=lambda: array("q"))
    took: array[int] = field(default_factory=lambda: array("q"))
    process: array[int] = field(default_factory=lambda: array("q"))
    outcome: array[int] = field(default_factory=lambda: array("b"))
    ending: array[int] = field(default_factory=lambda: array("b"))
    cluster: array[int] = field(default_factory=lambda: array("b"))
    number: array[int] = field(default_factory=lambda: array("q"))
    open: dict[int, tuple[int, int, str, str]] = field(default_factory=dict)
    clusters: dict[str, int] = field(default_factory=dict)
    clients: dict[int, str] = field(default_factory=dict)
    ids: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _incarnations: dict[str, int] = field(default_factory=dict)

    def operation(self, row: Operation) -> None:
        """One of an operation's two rows."""
        if row.process not in self.clients:
            turn = self._incarnations[row.client] = self._incarnations.get(row.client, 0) + 1
            self.clients[row.process] = row.client if turn == 1 else f"{row.client}/{turn}"
        if row.producer_id >= 0:
            self.ids.setdefault((row.cluster, row.producer_id, row.producer_epoch), row.process)
        if row.phase == "invoke":
            self.open[row.number] = (row.time, row.process, row.ending, row.cluster)
        else:
            start = self.open.pop(row.number, (row.time, 0, "", ""))[0]
            self._add(
                start,
                row.time - start,
                row.process,
                row.outcome,
                row.ending,
                row.cluster,
                row.number,
            )

    def _add(
        self,
        start: int,
        took: int,
        process: int,
        outcome: str,
        ending: str,
        cluster: str,
        number: int,
    ) -> None:
        self.start.append(start)
        self.took.append(took)
        self.process.append(process)
        self.outcome.append(OUTCOMES.index(outcome))
        self.ending.append(ENDINGS.index(ending))
        self.cluster.append(self.clusters.setdefault(cluster, len(self.clusters)))
        self.number.append(number)

    def close(self, ended: int) -> None:
        """What never returned is unknown, and lasted to the end."""
        for number, (start, process, ending, cluster) in self.open.items():
            self._add(start, max(0, ended - start), process, "info", ending, cluster, number)
        self.open.clear()

    def ends(self, number: int) -> int | None:
        """When an operation returned."""
        at = (
            np.flatnonzero(np.frombuffer(self.number, np.int64) == number)
            if len(self.number)
            else np.empty(0)
        )
        return self.start[int(at[0])] + self.took[int(at[0])] if len(at) else None


def label(clients: Mapping[int, str], number: object) -> str:
    """A payload or an operation by the client that made it (`idempotent-5 #3`); empty where no
    client is known."""
    if not isinstance(number, int) or number < 0 or number >> PROCESS_SHIFT not in clients:
        return ""
    return f"{clients[number >> PROCESS_SHIFT]} #{number & ((1 << PROCESS_SHIFT) - 1)}"


def latency(done: ReturnedOperations, began: int, edges: Floats) -> Mapping[str, Floats]:
    """Median and 99th percentile, in milliseconds, of what returned ok in each bin; NaN where
    nothing did."""
    found = {name: np.full(len(edges) - 1, np.nan) for name in ("p50", "p99")}
    if not len(done.start):
        return found
    took = np.frombuffer(done.took, np.int64) / 1e6
    ended = (np.frombuffer(done.start, np.int64) - began) / NANO + took / 1e3
    ok = np.frombuffer(done.outcome, np.int8) == OUTCOMES.index("ok")
    at = np.searchsorted(edges, ended, side="right") - 1
    for each in np.unique(at[ok & (at >= 0) & (at < len(edges) - 1)]).tolist():
        found["p50"][each], found["p99"][each] = np.percentile(took[ok & (at == each)], [50, 99])
    return found


def errors(done: ReturnedOperations, began: int, edges: Floats) -> Mapping[str, Floats]:
    """Operations per second that failed, and whose outcome is unknown, when they returned."""
    width = float(edges[1] - edges[0])
    outcome = np.frombuffer(done.outcome, np.int8) if len(done.outcome) else np.empty(0, np.int8)
    start, took = (
        np.frombuffer(column, np.int64) if len(column) else np.empty(0, np.int64)
        for column in (done.start, done.took)
    )
    ended = np.minimum((start + took - began) / NANO, edges[-1])
    return {
        name: np.histogram(ended[outcome == OUTCOMES.index(name)], bins=edges)[0] / width
        for name in ("fail", "info")
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnWindow:
    """A fault's window. `bit` is None if nothing was measured; `end` is that of the run if no heal
    was recorded.

    `bite` and `heal` are the times of their measurements. `lasting`: it is never healed, like a
    failover or a broker that stays dead.
    """

    id: str
    fault: str
    target: str
    start: float
    end: float
    ended: bool
    lasting: bool
    bit: bool | None
    observable: str
    measured: str
    expected: str
    healed: str
    bite: float | None = None
    heal: float | None = None


def windows(events: Sequence[Event], began: int, ended: int) -> list[DrawnWindow]:
    """Every fault that started, in order of its start."""
    steps: dict[str, list[OfFault]] = defaultdict(list)
    for event in of_kind(events, OfFault):
        steps[event.id].append(event)
    found = [
        _window(of_kind(each, FaultStart)[0], each, began, ended)
        for each in steps.values()
        if of_kind(each, FaultStart)
    ]
    return sorted(found, key=lambda window: window.start)


def _window(start: FaultStart, steps: Sequence[OfFault], began: int, ended: int) -> DrawnWindow:
    bite = next(iter(of_kind(steps, FaultBite)), None)
    heal = next(iter(of_kind(steps, FaultHeal)), None)
    end = next(iter(of_kind(steps, FaultEnd)), None) or heal
    return DrawnWindow(
        id=start.id,
        fault=start.fault,
        target=start.target,
        start=(start.time - began) / NANO,
        end=((end.time if end else ended) - began) / NANO,
        ended=end is not None,
        lasting=start.restores is False,
        bit=bite.bit if bite else None,
        observable=bite.observable if bite else "",
        measured=in_words(bite.measured) if bite else "",
        expected=in_words(bite.expected) if bite else "",
        healed=", ".join(heal.checked) if heal else "",
        bite=(bite.time - began) / NANO if bite else None,
        heal=(heal.time - began) / NANO if heal else None,
    )
