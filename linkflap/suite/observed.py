"""The coverage of a run, as observed in its run directory: each fault with the log state in which
it struck, and what followed.

States at the moment when the fault was injected, on the cluster that it targets:

    open-transactions     a transaction was open, and neither commit nor abort was requested yet
    commit-in-flight      a commit was requested and had not returned
    abort-in-flight       an abort was requested and had not returned
    mirror-behind         in the latest samples, a high watermark of the destination was below that
                          of the source
    epoch-changed         a leader epoch changed within the last second
    rebalancing           a consumer got or lost partitions of a group within the last second
    after-failover        the run had a failover before; after-failover-2: at least two
    after-failback        the run had a truncation before
    plain                 none of these
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from linkflap.chaos.generator.coverage import PLAIN, option_cells, strike, surroundings
from linkflap.harness.model.events import (
    BrokerDied,
    ClientDied,
    Event,
    Failover,
    FaultBite,
    FaultEnd,
    FaultStart,
    MirrorCrashed,
    ProducerReplaced,
    Promotion,
    TopicGivenUp,
    Trigger,
    Truncation,
    of_kind,
)
from linkflap.harness.model.history import Operation, Poll, Watermark
from linkflap.harness.model.scenario import FaultSpec, Scenario
from linkflap.harness.rundir import Damage, RunReader

STATES: Final = (
    "open-transactions",
    "commit-in-flight",
    "abort-in-flight",
    "mirror-behind",
    "epoch-changed",
    "rebalancing",
    "after-failover",
    "after-failback",
    "after-failover-2",
    PLAIN,
)
"""Every log state, in the order of the table in suite.html."""
RECENT: Final = 1_000_000_000
"""Nanoseconds: a change of a leader epoch or of a group's assignment is recent for this long."""
FOLLOWS: Final = 3_000_000_000
"""Nanoseconds after the end of a fault: events until then count as its outcomes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The coverage of one run: its cells, `missed` conditions that never came true, and how often
    each outcome followed a fault."""

    cells: tuple[str, ...]
    missed: tuple[str, ...]
    outcomes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Span:
    """One transaction. Times are in nanoseconds; `asked` is when commit or abort (`ending`) was
    requested, 0 if never."""

    cluster: str
    began: int
    asked: int
    ended: int
    ending: str
    outcome: str


def observed(folder: Path) -> Observed:
    """Reads a run directory. Damaged parts are skipped. Raises InputError if run.json cannot be
    read."""
    reader = RunReader(folder)
    scenario, damage = reader.run.scenario, list[Damage]()
    events, torn = reader.events()
    damage += torn
    struck = _struck(events, scenario)
    history = _History(reader, damage, events)
    kind = scenario.mirror.kind
    cells = surroundings(scenario)
    outcomes: Counter[str] = Counter()
    for fault, at, until in struck:
        cells |= {
            strike(fault, state, scenario.topology, kind) for state in history.states(fault, at)
        }
        outcomes.update(
            f"{fault.fault}: {outcome}" for outcome in history.followed(at, until + FOLLOWS)
        )
    cells |= set(_orders(struck)) | option_cells([fault for fault, _, _ in struck], kind)
    missed = [f"{e.id}: {e.when}" for e in of_kind(events, Trigger) if not e.hit]
    return Observed(cells=tuple(sorted(cells)), missed=tuple(missed), outcomes=dict(outcomes))


def struck(cells: Iterable[str]) -> Iterator[str]:
    """The faults of these cells, each with the log states in which it struck: `link-cut on link-1
    during open-transactions, rebalancing`."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind, *rest in (cell.split("/") for cell in cells):
        if kind == "strike":
            fault, state, where, _ = rest
            found.setdefault((fault, where), []).append(state)
    for (fault, where), states in found.items():
        during = "" if states == [PLAIN] else f" during {', '.join(states)}"
        yield f"{fault} on {where}{during}"


def _struck(events: Sequence[Event], scenario: Scenario) -> list[tuple[FaultSpec, int, int]]:
    """(fault, injection time, end time) of each fault that bit; nanoseconds."""
    faults = {fault.id: fault for fault in scenario.schedule}
    bit = {e.id for e in of_kind(events, FaultBite) if e.bit}
    ends = {e.id: e.time for e in of_kind(events, FaultEnd)}
    return [
        (faults[e.id], e.time, ends.get(e.id, e.time))
        for e in of_kind(events, FaultStart)
        if e.id in faults and e.id in bit
    ]


def _orders(struck: Sequence[tuple[FaultSpec, int, int]]) -> Iterator[str]:
    """Cells for the order of faults: `after/A/B` if B was the last fault that ended before A began,
    `over/A/B` if A began while B lasted."""
    for fault, at, _ in struck:
        before = [(end, other) for other, _, end in struck if end <= at and other is not fault]
        if before:
            yield f"after/{fault.fault}/{max(before, key=lambda pair: pair[0])[1].fault}"
        for other, began, end in struck:
            if other is not fault and began < at < end:
                yield f"over/{fault.fault}/{other.fault}"


_CONSEQUENCES: Final = (
    ProducerReplaced,
    ClientDied,
    Truncation,
    Promotion,
    MirrorCrashed,
    BrokerDied,
    TopicGivenUp,
)
"""Events that can be consequences of a fault."""


class _History:
    """The transactions, watermarks, rebalances and events of a run, to be looked up by time."""

    def __init__(self, reader: RunReader, damage: list[Damage], events: Sequence[Event]) -> None:
        self._spans = list(_spans(reader.each(Operation, damage)))
        self._marks = sorted(reader.each(Watermark, damage), key=lambda row: row.returned)
        self._groups = [
            p.time for p in reader.each(Poll, damage) if p.kind in ("assign", "revoke") and p.group
        ]
        self._events = events

    def states(self, fault: FaultSpec, at: int) -> set[str]:
        """The log states at the time of a fault's injection; `plain` alone if there is none."""
        cluster, link = fault.on.entered, fault.on.link
        found = set(self._of_clients(cluster, at))
        if link and self._behind(link.source, link.destination, at):
            found.add("mirror-behind")
        if self._epoch_changed(cluster, at):
            found.add("epoch-changed")
        if any(at - RECENT <= time <= at for time in self._groups):
            found.add("rebalancing")
        found |= self._been_through(at)
        return found or {PLAIN}

    def _of_clients(self, cluster: str, at: int) -> Iterator[str]:
        for span in self._spans:
            if span.cluster == cluster and span.began <= at < span.ended:
                if not span.asked or at < span.asked:
                    yield "open-transactions"
                else:
                    yield "commit-in-flight" if span.ending == "commit" else "abort-in-flight"

    def _behind(self, source: str, destination: str, at: int) -> bool:
        latest: dict[tuple[str, str, int], int] = {}
        for row in self._marks:
            if row.returned > at:
                break
            latest[row.cluster, row.topic, row.partition] = row.high_watermark
        return any(
            latest.get((destination, topic, partition), 0) < end
            for (cluster, topic, partition), end in latest.items()
            if cluster == source and end > 0 and not topic.startswith(f"{destination}.")
        )

    def _epoch_changed(self, cluster: str, at: int) -> bool:
        known: dict[tuple[str, int], int] = {}
        for row in self._marks:
            if row.returned > at:
                return False
            if row.cluster != cluster or row.leader_epoch < 0:
                continue
            before = known.get((row.topic, row.partition))
            known[row.topic, row.partition] = row.leader_epoch
            if before not in (None, row.leader_epoch) and row.returned >= at - RECENT:
                return True
        return False

    def _been_through(self, at: int) -> set[str]:
        failovers = sum(e.time < at for e in of_kind(self._events, Failover))
        reversed_ = any(e.time < at for e in of_kind(self._events, Truncation))
        found = {"after-failover"} if failovers else set()
        found |= {"after-failback"} if reversed_ else set()
        return found | ({"after-failover-2"} if failovers > 1 else set())

    def followed(self, begin: int, end: int) -> Iterable[str]:
        """Endings of transactions that were not ok, and consequences, from `begin` to `end`. Each
        kind is listed once."""
        found = {
            f"{s.ending} {s.outcome}"
            for s in self._spans
            if begin <= s.ended <= end and s.outcome != "ok"
        }
        found |= {
            e.kind for e in self._events if begin <= e.time <= end and isinstance(e, _CONSEQUENCES)
        }
        return sorted(found) or ["nothing"]


def _spans(rows: Iterable[Operation]) -> Iterator[_Span]:
    """Joins the first row and the return of each transaction. A transaction that never returned
    lasts until the end of the run."""
    invoked: dict[tuple[str, int, int], Operation] = {}
    for row in rows:
        if row.kind != "transaction":
            continue
        key = (row.client, row.process, row.number)
        if row.phase == "invoke":
            invoked.setdefault(key, row)
        elif begun := invoked.pop(key, None):
            yield _Span(row.cluster, begun.time, row.ended_at, row.time, row.ending, row.outcome)
    for begun in invoked.values():
        yield _Span(begun.cluster, begun.time, 0, 1 << 63, begun.ending, "info")
