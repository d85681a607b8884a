"""Plays a schedule: the only timeline of a run. Every fault is injected, measured, held, healed and written down.

One thread per fault, because windows overlap. The order within a fault is fixed (inject, bite, hold, heal), heal runs whatever
happened before it, and a fault that raised is an event, never a silence: without a bite the verdict is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from chaos.faults import FAULTS, check_options
from chaos.triggers import TRIGGERS
from harness.model.clock import now
from harness.model.errors import InputError, LinkflapError
from harness.model.protocols import Fault, World
from harness.model.scenario import FaultSpec
from harness.model.topology import Topology
from harness.model.wait import pause, until

TRIGGER_DEADLINE = 60.0
"""Seconds that a fault's condition may take to come true; then it is not played, and the verdict is unknown."""


class Watcher(Protocol):
    """Who is told of faults as they start and end (the live display)."""

    def fault_started(self, id: str, fault: str, target: str, seconds: float) -> None: ...
    def fault_ended(self, id: str) -> None: ...


def check(schedule: Sequence[FaultSpec], topology: Topology) -> None:
    """Raises InputError, naming the fault, when a schedule cannot be played on a topology."""
    ids = [spec.id for spec in schedule]
    for spec in schedule:
        if ids.count(spec.id) > 1:
            raise InputError(f"two faults of the schedule are called {spec.id!r}; give each an id of its own")
        if spec.fault not in FAULTS:
            raise InputError(f"fault {spec.id!r} is of unknown kind {spec.fault!r}; known are {', '.join(sorted(FAULTS))}")
        if spec.when not in TRIGGERS:
            raise InputError(f"fault {spec.id!r} waits for unknown {spec.when!r}; known are {', '.join(sorted(TRIGGERS))}")
        reason = FAULTS[spec.fault].applies_to(spec.target, topology)
        if reason:
            raise InputError(f"fault {spec.id!r} ({spec.fault}) cannot be applied to {spec.target!r}: {reason}")
        check_options(spec)
    for failover in schedule:
        if failover.fault.startswith("failover-"):
            _check_nothing_revived(failover, schedule)


def _check_nothing_revived(failover: FaultSpec, schedule: Sequence[FaultSpec]) -> None:
    """Refuses a fault whose heal would start again what a failover has ended: the mirror, or brokers of a dead source."""
    source = failover.target.split("->")[0]
    for spec in schedule:
        mirror = spec.fault == "mirror-kill" and spec.target == failover.target
        broker = failover.fault == "failover-forced" and spec.target.startswith(f"{source}/")
        if (mirror or broker) and spec.at + spec.duration > failover.at:
            ends = spec.at + spec.duration
            raise InputError(
                f"fault {spec.id!r} would start {spec.target} again at {ends:g} s, after failover {failover.id!r} "
                f"at {failover.at:g} s has ended it; let it end before"
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

    def _play(self, spec: FaultSpec) -> None:
        if not self._due(spec):
            return
        fault = FAULTS[spec.fault](spec, self._world)
        self._event(
            "fault-start", spec, fault=spec.fault, options=dict(spec.options), restores=fault.restores, **{"for": spec.duration}
        )
        self._watcher.fault_started(spec.id, spec.fault, spec.target, spec.duration)
        self._under_way[spec.id] = spec
        try:
            self._bite(spec, fault)
        finally:
            self._heal(spec, fault)
            if fault.restores:
                del self._under_way[spec.id]
            self._event("fault-end", spec)
            self._watcher.fault_ended(spec.id)

    def _due(self, spec: FaultSpec) -> bool:
        """Waits for the fault's time and condition; False when the run ends first (then there is no bite, hence no valid)."""
        world = self._world
        pause((self._began - now()) / 1e9 + spec.at, lambda: world.stopping)
        try:
            until(
                lambda: world.stopping or TRIGGERS[spec.when](spec, world),
                within=TRIGGER_DEADLINE,
                what=f"{spec.when} before fault {spec.id}",
                every=0.005,
            )
        except LinkflapError as error:
            self._event("fault-bite", spec, bit=False, observable=spec.when, measured=str(error), expected=spec.when)
            return False
        return not world.stopping

    def _bite(self, spec: FaultSpec, fault: Fault) -> None:
        injected = now()
        try:
            fault.inject()
            bite = fault.bite()
        except LinkflapError as error:
            self._event("fault-bite", spec, bit=False, observable="injection", measured=str(error), expected="applied")
            return
        self._event("fault-bite", spec, bit=bite.bit, observable=bite.observable, measured=bite.measured, expected=bite.expected)
        pause((injected - now()) / 1e9 + spec.duration, lambda: self._world.stopping)

    def _heal(self, spec: FaultSpec, fault: Fault) -> None:
        try:
            checked = list(fault.heal())
        except LinkflapError as error:
            self.failures.append(error)
            self._event("fault-heal", spec, healed=False, checked=[str(error)])
            return
        self._event("fault-heal", spec, healed=True, checked=checked)

    def _event(self, kind: str, spec: FaultSpec, **data: object) -> None:
        self._world.recorder.event(kind, spec.target, id=spec.id, **data)


def describe(schedule: Sequence[FaultSpec]) -> Mapping[str, str]:
    """The schedule in words, id -> one line, for `linkflap run --dry-run`."""
    return {
        spec.id: f"at {spec.at:4.1f} s for {spec.duration:4.1f} s  {spec.fault} on {spec.target}"
        + (f" once {spec.when}" if spec.when != "always" else "")
        + (f"  {dict(spec.options)}" if spec.options else "")
        for spec in schedule
    }
