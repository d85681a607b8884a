"""Plays a schedule: the only timeline of a run. Every fault is injected, measured, held, healed and written down.

One thread per fault, because windows overlap. The order within a fault is fixed (inject, bite, hold, heal), heal runs whatever
happened before it, and a fault that raised is an event, never a silence: without a bite the verdict is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from linkflap.chaos.fault_window import FaultWindow
from linkflap.chaos.faults import BY_FAKETIME, FAULTS, IN_CONTAINERS, IN_PROCESSES, OF_CLIENTS, check_options
from linkflap.chaos.triggers import condition, known, unknown
from linkflap.harness.model.clock import now
from linkflap.harness.model.errors import FaultError, InputError, LinkflapError
from linkflap.harness.model.events import FaultBite, Trigger
from linkflap.harness.model.faults import KILL, REVERSE
from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec, Scenario
from linkflap.harness.model.spelling import nearest
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import patient, pause, until
from linkflap.harness.runtimes import faketime

TRIGGER_DEADLINE = 60.0
"""Seconds that a fault's condition may take to come true, more on a busy machine; then the fault is not played: unknown."""
FOLLOWS_WITHIN = 600.0
"""Seconds that a fault waits for the one it follows, which has deadlines of its own."""


class Watcher(Protocol):
    """Who is notified of faults as they start and end (the live display)."""

    def fault_started(self, id: str, fault: str, target: str, seconds: float) -> None: ...
    def fault_ended(self, id: str) -> None: ...


def check(schedule: Sequence[FaultSpec], topology: Topology) -> None:
    """Raises InputError, naming the fault, when a schedule cannot be played on a topology."""
    ids = [spec.id for spec in schedule]
    for spec in schedule:
        if ids.count(spec.id) > 1:
            raise InputError(f"two faults of the schedule are called {spec.id!r}; give each an id of its own")
        if spec.fault not in FAULTS:
            raise InputError(
                f"fault {spec.id!r} is of unknown kind {spec.fault!r}{nearest(spec.fault, FAULTS)}; "
                f"known are {', '.join(sorted(FAULTS))}"
            )
        if unknown(condition(spec.when)) is not None:
            raise InputError(f"fault {spec.id!r} waits for unknown {spec.when!r}; known are {', '.join(known())}")
        reason = FAULTS[spec.fault].applies_to(spec.target, topology)
        if reason:
            raise InputError(f"fault {spec.id!r} ({spec.fault}) cannot be applied to {spec.target!r}: {reason}")
        check_options(spec)
    before = {spec.id: _before(spec, schedule) for spec in schedule}
    for spec in schedule:
        if spec.name.fails_over:
            _check_nothing_revived(spec, schedule, before)
        if spec.name.fails_over or spec.fault in (REVERSE, KILL):
            _check_reversed(spec, before[spec.id], topology)


def check_runtime(schedule: Sequence[FaultSpec], runtime: str) -> None:
    """Raises InputError, naming the fault, when a schedule cannot be played on a runtime."""
    for spec in schedule:
        if spec.fault in IN_CONTAINERS and runtime != "docker":
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) is done to containers, and the runtime {runtime} has none; run it with "
                "--runtime docker"
            )
        if spec.fault in IN_PROCESSES and runtime != "process":
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) is done to processes, and the runtime {runtime} has containers; run it with "
                "--runtime process"
            )
        if spec.fault in BY_FAKETIME:
            faketime.library()


def _before(spec: FaultSpec, schedule: Sequence[FaultSpec]) -> list[FaultSpec]:
    """The faults that a fault follows, directly or by others, the nearest first. Raises InputError."""
    known = {other.id: other for other in schedule}
    found: list[FaultSpec] = []
    asked = [spec]
    while asked:
        one = asked.pop(0)
        for name in condition(one.when).faults:
            if name not in known:
                raise InputError(f"fault {spec.id!r} follows unknown fault {name!r}; known are {', '.join(known)}")
            if name == spec.id:
                raise InputError(
                    f"fault {spec.id!r} follows itself, by way of {one.id!r}; let one of them start at a time of its own"
                )
            if known[name] not in found:
                found.append(known[name])
                asked.append(known[name])
    return found


def _check_nothing_revived(failover: FaultSpec, schedule: Sequence[FaultSpec], before: Mapping[str, Sequence[FaultSpec]]) -> None:
    """Refuses a fault whose heal would start again what a failover has ended: the mirror, or brokers of a dead source.

    Unless it comes after that mirror was reversed.
    """
    for spec in (spec for spec in schedule if spec.fault not in OF_CLIENTS):
        mirror = spec.fault == KILL and spec.target == failover.target
        broker = failover.name.forced and spec.on.cluster == failover.on.source
        if not (mirror or broker) or spec in before[failover.id] or _reversed_between(failover, before[spec.id]):
            continue
        timed = not before[spec.id] and not before[failover.id]
        if not timed or spec.at + spec.duration > failover.at:
            ends = f"{spec.at + spec.duration:g} s" if timed else "a time of its own"
            raise InputError(
                f"fault {spec.id!r} would start {spec.target} again at {ends}, after failover {failover.id!r} "
                f"{f'at {failover.at:g} s ' if timed else ''}has ended it; let it end before"
            )


def _reversed_between(failover: FaultSpec, before: Sequence[FaultSpec]) -> bool:
    """Whether among the faults before some other is this failover, and a reversal of its mirror after it."""
    if failover not in before:
        return False
    return any(other.fault == REVERSE and other.target == failover.target for other in before[: before.index(failover)])


def _check_reversed(spec: FaultSpec, before: Sequence[FaultSpec], topology: Topology) -> None:
    """Refuses to fail over or kill a mirror that there is not, and to reverse one that has not failed over. Raises InputError."""
    turned = spec.on.back
    alive, over = any(link.name == spec.target for link in topology.links), False
    for other in reversed(before):
        if other.target == spec.target and (other.name.reverses or other.name.fails_over):
            alive, over = False, other.fault != REVERSE
        elif other.target == turned and other.fault == REVERSE:
            alive, over = True, False
    if spec.fault == REVERSE and not over:
        raise InputError(
            f"fault {spec.id!r} reverses the mirror of {spec.target}, which has not failed over then; let it follow a failover"
        )
    if spec.fault != REVERSE and not alive:
        does = "kills the mirror of" if spec.fault == KILL else "fails over"
        raise InputError(
            f"fault {spec.id!r} {does} {spec.target}, which nothing mirrors then; let it follow a {REVERSE} of {turned}"
        )


class Player:
    """Plays the faults of one run in threads of its own."""

    def __init__(self, schedule: Sequence[FaultSpec], world: World, watcher: Watcher) -> None:
        self._world = world
        self._watcher = watcher
        self._began = now()
        # Daemons: a heal that hangs (its brokers are gone, say) must not hold up the end of the process.
        self._threads = [
            threading.Thread(target=self._guarded, args=(spec,), name=f"fault {spec.id}", daemon=True) for spec in schedule
        ]
        self._under_way: dict[str, FaultSpec] = {}
        self._begun = {spec.id: threading.Event() for spec in schedule}
        self._begun_at: dict[str, int] = {}
        self._ended = {spec.id: threading.Event() for spec in schedule}
        self._healed_at: dict[str, int] = {}
        self.failures: list[LinkflapError] = []
        """Faults that could not be healed: the run's verdict cannot be better than unknown."""
        self.crashes: list[BaseException] = []
        """Defects of a fault: raised by `join`."""

    def start(self) -> None:
        self._began = now()
        for thread in self._threads:
            thread.start()

    def under_way(self) -> Sequence[FaultSpec]:
        """The faults that may have something broken right now; one that is never healed stays among them."""
        return list(self._under_way.values())

    @property
    def playing(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def join(self, *, within: float, tick: Callable[[], object]) -> None:
        """Returns when every fault has ended; calls `tick` while waiting. Re-raises a defect of a fault."""

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
        """A mirror that was reversed has no dead brokers or mirror behind it any more that a failover could be blamed for."""
        for name, other in list(self._under_way.items()):
            if other.target == target and other.name.fails_over:
                del self._under_way[name]

    def _due(self, spec: FaultSpec) -> bool:
        """Waits for the fault's time and condition; False when the run ends first (then there is no bite, hence no valid)."""
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
                lambda: world.stopping or holds(),
                within=patient(TRIGGER_DEADLINE),
                what=f"{spec.when} before fault {spec.id}",
                every=0.005,
            )
            self._joined(spec, waits.during)
        except LinkflapError as error:
            self._triggered(spec, waited, hit=False)
            self._world.recorder.write(
                FaultBite(
                    target=spec.target, id=spec.id, bit=False, observable=spec.when, measured=str(error), expected=spec.when
                )
            )
            return False
        if not world.stopping:
            self._triggered(spec, waited, hit=True)
        return not world.stopping

    def _triggered(self, spec: FaultSpec, since: int, *, hit: bool) -> None:
        if spec.when != "always":
            seconds = round((now() - since) / 1e9, 3)
            self._world.recorder.write(Trigger(target=spec.target, id=spec.id, when=spec.when, hit=hit, seconds=seconds))

    def _follows(self, spec: FaultSpec, before: str) -> int:
        """Waits for the fault that this one follows; when that had ended. Raises FaultError when it did not end as it should."""
        ended = self._ended[before]
        until(
            lambda: ended.is_set() or self._world.stopping,
            within=FOLLOWS_WITHIN,
            what=f"fault {before} to end before fault {spec.id}",
        )
        if before not in self._healed_at and not self._world.stopping:
            raise FaultError(f"fault {before}, which it follows, was not played to its end")
        return self._healed_at.get(before, self._began)

    def _joins(self, spec: FaultSpec, other: str) -> int:
        """Waits for the fault that this one is to overlap; when that began. Raises FaultError when it was never played."""
        begun, ended = self._begun[other], self._ended[other]
        until(
            lambda: begun.is_set() or ended.is_set() or self._world.stopping,
            within=FOLLOWS_WITHIN,
            what=f"fault {other} to begin before fault {spec.id}",
        )
        if not begun.is_set() and not self._world.stopping:
            raise FaultError(f"fault {other}, which it is to overlap, was not played")
        return self._begun_at.get(other, self._began)

    def _joined(self, spec: FaultSpec, during: Sequence[str]) -> None:
        """Raises FaultError where a fault that this one is to overlap has ended meanwhile."""
        if over := [other for other in during if self._ended[other].is_set()]:
            raise FaultError(f"fault {over[0]}, which {spec.id} is to overlap, had ended before")

    def _break(self, window: FaultWindow) -> None:
        """Holds it open for its duration, once it was measured."""
        injected = now()
        if window.inject() is None and not isinstance(window.bite(), LinkflapError):
            pause((injected - now()) / 1e9 + window.spec.duration, lambda: self._world.stopping)

    def _heal(self, window: FaultWindow) -> bool:
        """Whether it is healed."""
        failure = window.heal()
        if failure is not None:
            self.failures.append(failure)
        return failure is None


def spared(scenario: Scenario) -> Mapping[str, bool]:
    """Links to which a schedule does nothing, nor to their clusters, and whether clients write what passes over each.

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
        if link.name not in targets and link.reverse.name not in targets and hit.isdisjoint((link.source, link.destination))
    }


def describe(schedule: Sequence[FaultSpec]) -> Mapping[str, str]:
    """The schedule in words, id -> one line, for `linkflap run --dry-run`."""
    return {
        spec.id: f"at {spec.at:4.1f} s for {spec.duration:4.1f} s  {spec.fault} on {spec.target}{_once(spec.when)}"
        + (f"  {dict(spec.options)}" if spec.options else "")
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
