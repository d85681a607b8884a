"""Plays a schedule: the only timeline of a run. Every fault is injected, measured, held, healed and
recorded.

One thread per fault, because windows overlap. The order within a fault is fixed (inject, bite,
hold, heal). heal runs whatever happened before it. A fault that raises is an event, never silent:
without a bite the verdict is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from linkflap.chaos.fault_window import FaultWindow
from linkflap.chaos.faults import FAULTS
from linkflap.chaos.triggers import condition
from linkflap.harness.model.clock import now
from linkflap.harness.model.errors import FaultError, LinkflapError
from linkflap.harness.model.events import FaultBite, Trigger
from linkflap.harness.model.faults import REVERSE
from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec, Scenario
from linkflap.harness.model.wait import patient, pause, until

TRIGGER_DEADLINE = 60.0
"""Seconds that a fault's condition may take to come true, more on a busy machine; then the fault is
not played: unknown."""
FOLLOWS_WITHIN = 600.0
"""Seconds, more on a busy machine, that a fault waits for the one that it follows."""
HELD_FOR = 30.0
"""Seconds, more on a busy machine, that a fault is held open for faults that must begin during it
and whose condition is not true yet."""


class Watcher(Protocol):
    """Who is notified of faults as they start and end (the live display)."""

    def fault_started(self, id: str, fault: str, target: str, seconds: float) -> None: ...
    def fault_ended(self, id: str) -> None: ...


class Player:
    """Plays the faults of one run in its own threads."""

    def __init__(self, schedule: Sequence[FaultSpec], world: World, watcher: Watcher) -> None:
        self._world = world
        self._watcher = watcher
        self._began = now()
        # Daemons: a heal that hangs (its brokers are gone, say) must not hold up the end of the
        # process.
        self._threads = [
            threading.Thread(
                target=self._guarded, args=(spec,), name=f"fault {spec.id}", daemon=True
            )
            for spec in schedule
        ]
        self._lasting = {spec.id for spec in schedule if spec.duration}
        self._within = {
            spec.id: [other.id for other in schedule if spec.id in condition(other.when).during]
            for spec in schedule
        }
        self._under_way: dict[str, FaultSpec] = {}
        self._begun = {spec.id: threading.Event() for spec in schedule}
        self._begun_at: dict[str, int] = {}
        self._measured = {spec.id: threading.Event() for spec in schedule}
        self._ended = {spec.id: threading.Event() for spec in schedule}
        self._healed_at: dict[str, int] = {}
        self.last_ended: int | None = None
        """When the last fault so far ended, played or not, in nanoseconds since the epoch; None
        before the first."""
        self.failures: list[LinkflapError] = []
        """Faults that could not be healed: the run's verdict cannot be better than unknown."""
        self.crashes: list[BaseException] = []
        """Defects of a fault: raised by `join`."""

    def start(self) -> None:
        self._began = now()
        for thread in self._threads:
            thread.start()

    def under_way(self) -> Sequence[FaultSpec]:
        """The faults that may be in effect right now; one that is never healed stays among them."""
        return list(self._under_way.values())

    @property
    def playing(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def join(self, *, within: float, tick: Callable[[], object]) -> None:
        """Returns when every fault has ended; calls `tick` while waiting. Re-raises a defect of a
        fault."""

        def over() -> bool:
            tick()
            return not self.playing

        until(
            over,
            within=within,
            what="the schedule to end",
            every=0.1,
            state=lambda: [t.name for t in self._threads if t.is_alive()],
        )
        for crash in self.crashes:
            raise crash

    def _guarded(self, spec: FaultSpec) -> None:
        try:
            self._play(spec)
        except BaseException as crash:  # noqa: BLE001  (handed to the main thread by join)
            self.crashes.append(crash)
        finally:
            self.last_ended = now()
            self._ended[spec.id].set()

    def _play(self, spec: FaultSpec) -> None:
        if not self._due(spec):
            return
        window = FaultWindow(spec, FAULTS[spec.fault](spec, self._world), self._world.recorder)
        window.start()
        self._watcher.fault_started(spec.id, spec.fault, spec.target, spec.duration)
        self._begun_at[spec.id] = now()
        self._begun[spec.id].set()
        self._under_way[spec.id] = spec
        try:
            self._break(window)
        finally:
            if self._heal(window):
                self._healed_at[spec.id] = now()
                if spec.fault == REVERSE:
                    self._undo_failovers(spec.target)
            if window.fault.restores:
                del self._under_way[spec.id]
            window.end()
            self._watcher.fault_ended(spec.id)

    def _undo_failovers(self, target: str) -> None:
        """A mirror that was reversed has no dead brokers or mirror behind it any more that a
        failover could be blamed for."""
        for name, other in list(self._under_way.items()):
            if other.target == target and other.name.fails_over:
                del self._under_way[name]

    def _due(self, spec: FaultSpec) -> bool:
        """Waits for the fault's time and condition; False when the run ends first (then there is no
        bite, hence no valid)."""
        world, waits = self._world, condition(spec.when)
        waited = now()
        try:
            began = max(
                [
                    self._began,
                    *(self._follows(spec, name) for name in waits.after),
                    *(self._joins(spec, name) for name in waits.during),
                ]
            )
            pause((began - now()) / 1e9 + spec.at, lambda: world.stopping)
            waited, holds = now(), waits.watch(spec, world)
            until(
                lambda: world.stopping or holds() or self._over(waits.during),
                within=patient(TRIGGER_DEADLINE),
                what=f"{spec.when} before fault {spec.id}",
                every=0.005,
            )
            self._joined(spec, waits.during)
        except LinkflapError as error:
            self._triggered(spec, waited, hit=False)
            self._world.recorder.write(
                FaultBite(
                    target=spec.target,
                    id=spec.id,
                    bit=False,
                    observable=spec.when,
                    measured=str(error),
                    expected=spec.when,
                )
            )
            return False
        if not world.stopping:
            self._triggered(spec, waited, hit=True)
        return not world.stopping

    def _triggered(self, spec: FaultSpec, since: int, *, hit: bool) -> None:
        if spec.when != "always":
            seconds = round((now() - since) / 1e9, 3)
            self._world.recorder.write(
                Trigger(target=spec.target, id=spec.id, when=spec.when, hit=hit, seconds=seconds)
            )

    def _follows(self, spec: FaultSpec, before: str) -> int:
        """Waits for the fault that this one follows; when that had ended. Raises FaultError when it
        did not end as it should."""
        ended = self._ended[before]
        until(
            lambda: ended.is_set() or self._world.stopping,
            within=patient(FOLLOWS_WITHIN),
            what=f"fault {before} to end before fault {spec.id}",
        )
        if before not in self._healed_at and not self._world.stopping:
            raise FaultError(f"fault {before}, which it follows, was not played to its end")
        return self._healed_at.get(before, self._began)

    def _joins(self, spec: FaultSpec, other: str) -> int:
        """Waits for the fault that this one is to overlap; when that began. Raises FaultError when
        it was never played.

        One that lasts is measured first: a cluster that died meanwhile would answer over no link,
        however slow. Of others, such as a failover, the measurement is their end.
        """
        begun, ended = self._begun[other], self._ended[other]
        began = self._measured[other] if other in self._lasting else begun
        until(
            lambda: began.is_set() or ended.is_set() or self._world.stopping,
            within=patient(FOLLOWS_WITHIN),
            what=f"fault {other} to begin before fault {spec.id}",
        )
        if not begun.is_set() and not self._world.stopping:
            raise FaultError(f"fault {other}, which it is to overlap, was not played")
        return self._begun_at.get(other, self._began)

    def _joined(self, spec: FaultSpec, during: Sequence[str]) -> None:
        """Raises FaultError where a fault that this one is to overlap has ended meanwhile."""
        if over := self._over(during):
            raise FaultError(f"fault {over[0]}, which {spec.id} is to overlap, had ended before")

    def _over(self, faults: Sequence[str]) -> list[str]:
        return [fault for fault in faults if self._ended[fault].is_set()]

    def _break(self, window: FaultWindow) -> None:
        """Holds it open for its duration, once it was measured. It waits for the faults that must
        begin during it, and then lasts for its duration once more: otherwise the timing of their
        conditions would decide whether they are played.
        """
        injected, lasts = now(), window.spec.duration
        if window.inject() is None and not isinstance(window.bite(), LinkflapError):
            self._measured[window.spec.id].set()
            pause((injected - now()) / 1e9 + lasts, lambda: self._world.stopping)
            if not self._joined_by_all(window.spec.id):
                pause(
                    patient(HELD_FOR),
                    lambda: self._world.stopping or self._joined_by_all(window.spec.id),
                )
                pause(lasts, lambda: self._world.stopping)

    def _joined_by_all(self, fault: str) -> bool:
        """Whether those that are to begin during a fault have begun, or will not be played."""
        return all(
            self._begun[other].is_set() or self._ended[other].is_set()
            for other in self._within[fault]
        )

    def _heal(self, window: FaultWindow) -> bool:
        """Whether it is healed."""
        failure = window.heal()
        if failure is not None:
            self.failures.append(failure)
        return failure is None


def spared(scenario: Scenario) -> Mapping[str, bool]:
    """Links to which a schedule does nothing, nor to their clusters, and whether clients write what
    passes over each.

    None where nothing is broken.
    """
    targets = [spec.target for spec in scenario.schedule]
    written = {workload.home for workload in scenario.workloads}
    if not targets:
        return {}
    hit = {spec.on.entered for spec in scenario.schedule if not spec.on.link}
    return {
        link.name: not written.isdisjoint(scenario.topology.homes_over(link))
        for link in scenario.topology.links
        if link.name not in targets
        and link.reverse.name not in targets
        and hit.isdisjoint((link.source, link.destination))
    }


def describe(schedule: Sequence[FaultSpec]) -> Mapping[str, str]:
    """The schedule in words, id -> one line, for `linkflap run --dry-run`."""
    return {
        spec.id: (
            f"at {spec.at:4.1f} s for {spec.duration:4.1f} s  {spec.fault} on "
            f"{spec.target}{_once(spec.when)}" + (f"  {dict(spec.options)}" if spec.options else "")
        )
        for spec in schedule
    }


def _once(when: str) -> str:
    waits = condition(when)
    once = str(replace(waits, after=(), during=()))
    return (
        (f" from the end of {' and '.join(waits.after)} on" if waits.after else "")
        + (f" during {' and '.join(waits.during)}" if waits.during else "")
        + (f" once {once}" if once != "always" else "")
    )
