"""Faults as context managers. Entering injects the fault and measures its effect, leaving heals it;
both are recorded.

They are the faults of schedules (chaos.faults), with the same names: `world.fault("link-latency",
"A->B", latency=200)`. The common ones are also methods of the objects that they break.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Self, final

from linkflap.chaos.faults import FAULTS, IN_CONTAINERS, ON_THE_WIRE, check_options
from linkflap.chaos.schedule import FaultWindow
from linkflap.harness.model.errors import FaultError, InputError, LinkflapError
from linkflap.harness.model.faults import FORCED, PLANNED
from linkflap.harness.model.protocols import Bite, Direction
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.texts import nearest
from linkflap.recording.world import RunWorld

BITE_IN_BLOCK: Final = {PLANNED, FORCED} | ON_THE_WIRE
"""Faults whose bite is what clients do after them: it is measured at the end of the block."""


@final
class Window:
    """One fault. Used once, in a with statement. `bite` is the measurement on the faulted path."""

    def __init__(self, spec: FaultSpec, playing: Faults) -> None:
        self.spec = spec
        self._bite: Bite | None = None
        self._playing = playing
        self._window: FaultWindow | None = None

    @property
    def bite(self) -> Bite:
        """The measurement. Raises InputError before it was taken: before the with statement, and in
        the block of a failover."""
        if self._bite is None:
            raise InputError(
                f"the bite of fault {self.spec.id} is not measured yet; read it in the with block, "
                "or after the block if the fault is a failover or one of programs"
            )
        return self._bite

    def __enter__(self) -> Self:
        """Injects the fault. Raises InputError for a wrong target or option. If the fault did not
        bite, heals it and raises FaultError."""
        if self._window is not None:
            raise InputError(
                f"fault {self.spec.id} was used already; make a new one for each with statement"
            )
        self._window = self._playing.begin(self.spec)
        try:
            failure = self._window.inject()
            if failure is not None:
                raise failure
            if self.spec.fault not in BITE_IN_BLOCK:
                self._measure()
        except BaseException:
            self._end()
            raise
        return self

    def _measure(self) -> None:
        assert self._window is not None
        bite = self._window.bite()
        if isinstance(bite, LinkflapError):
            raise bite
        self._bite = bite
        if not bite.bit:
            raise FaultError(
                f"fault {self.spec.id} ({self.spec.fault} on {self.spec.target}) did not bite: "
                f"{bite.observable} was {bite.measured}, expected {bite.expected}"
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        """Heals the fault. Raises FaultError if that fails, unless the block raised an error
        itself."""
        failure: LinkflapError | None = None
        try:
            if self.spec.fault in BITE_IN_BLOCK and kind is None:
                self._measure()
        except LinkflapError as unseen:
            failure = unseen
        failure = self._end() or failure
        if failure is not None and kind is None:
            raise failure

    def _end(self) -> LinkflapError | None:
        assert self._window is not None
        failure = self._window.heal()
        self._playing.end(self._window, healed=failure is None)
        return failure


class Faults:
    """All faults of one world. Numbers them by kind, and knows those that are still in effect."""

    def __init__(self, world: RunWorld, runtime: str) -> None:
        self._world, self._runtime = world, runtime
        self._played: list[FaultSpec] = []
        self._under_way: dict[str, FaultSpec] = {}
        self._lock = threading.Lock()

    def make(self, kind: str, target: str, options: dict[str, Option]) -> Window:
        """A fault that is not injected yet. Raises InputError for a wrong kind, target or option,
        and for a runtime that cannot play it."""
        if kind not in FAULTS:
            raise InputError(
                f"there is no fault {kind!r}{nearest(kind, FAULTS)}; known: "
                f"{', '.join(sorted(FAULTS))}"
            )
        reason = FAULTS[kind].applies_to(target, self._world.deployment.topology)
        if reason:
            raise InputError(f"{kind} cannot be applied to {target!r}: {reason}")
        if kind in IN_CONTAINERS and self._runtime != "docker":
            raise InputError(
                f"fault {kind} needs containers, and the runtime {self._runtime} has none; deploy "
                'with runtime="docker"'
            )
        with self._lock:
            number = sum(spec.fault == kind for spec in self._played) + 1
            spec = FaultSpec(
                id=f"{kind}-{number}",
                fault=kind,
                target=target,
                at=0.0,
                duration=0.0,
                options=options,
            )
            check_options(spec)
            self._played.append(spec)
        return Window(spec, self)

    def begin(self, spec: FaultSpec) -> FaultWindow:
        """Opens the window of a fault. Raises InputError."""
        window = FaultWindow(spec, FAULTS[spec.fault](spec, self._world), self._world.recorder)
        with self._lock:
            self._under_way[spec.id] = spec
        window.start()
        return window

    def end(self, window: FaultWindow, *, healed: bool) -> None:
        """Ends the window. The fault counts as still in effect if it was not healed, or cannot
        be."""
        window.end()
        with self._lock:
            if healed and window.fault.restores:
                del self._under_way[window.spec.id]

    def under_way(self) -> Sequence[FaultSpec]:
        """The faults that may be in effect now."""
        with self._lock:
            return list(self._under_way.values())


@final
class BreakableLink:
    """A link (`A->B`), or the proxied path of clients to a cluster (`*->A`)."""

    def __init__(self, name: str, bootstrap: str, fault: Callable[..., Window]) -> None:
        self.name, self.bootstrap = name, bootstrap
        self._fault = fault

    def cut(self) -> Window:
        """Ends open connections, and refuses new ones."""
        return self._fault("link-cut", self.name)

    def latency(self, ms: float, *, jitter: float = 0, delayed: Direction = "responses") -> Window:
        """Delays the data of one direction by `ms` milliseconds."""
        return self._fault("link-latency", self.name, latency=ms, jitter=jitter, delayed=delayed)

    def half_open(self, *, stalled: Direction = "responses") -> Window:
        """Stalls one direction while connections stay open."""
        return self._fault("link-half-open", self.name, stalled=stalled)

    def reset(self) -> Window:
        """Resets connections."""
        return self._fault("link-reset", self.name)


@final
class BreakableBroker:
    """One broker, `A/1`."""

    def __init__(self, name: str, address: str, fault: Callable[..., Window]) -> None:
        self.name, self.address = name, address
        self._fault = fault

    def kill(self) -> Window:
        """SIGKILL. At the end of the block the broker starts again with its data."""
        return self._fault("broker-kill", self.name)

    def pause(self) -> Window:
        """SIGSTOP: connections stay open, but the broker does not answer."""
        return self._fault("broker-pause", self.name)

    def restart(self) -> Window:
        """A controlled shutdown. At the end of the block the broker starts again."""
        return self._fault("broker-restart", self.name)
