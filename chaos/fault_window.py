"""One fault window: plays a fault from start to end and records each step. Schedules and the Python
API use it.

The order is fixed: start, inject, bite, heal, end. A step that fails is recorded too.
"""

from __future__ import annotations

from linkflap.harness.model.errors import LinkflapError
from linkflap.harness.model.events import FaultBite, FaultEnd, FaultHeal, FaultStart
from linkflap.harness.model.protocols import Bite, Fault, Recorder
from linkflap.harness.model.scenario import FaultSpec


class FaultWindow:
    """The steps of one fault."""

    def __init__(self, spec: FaultSpec, fault: Fault, recorder: Recorder) -> None:
        self.spec, self.fault = spec, fault
        self._recorder = recorder

    def start(self) -> None:
        """Records that the fault begins, before anything is broken."""
        spec = self.spec
        self._recorder.write(
            FaultStart(
                target=spec.target,
                id=spec.id,
                fault=spec.fault,
                options=dict(spec.options),
                restores=self.fault.restores,
                duration=spec.duration,
            )
        )

    def inject(self) -> LinkflapError | None:
        """Injects the fault. Returns the error if that failed, and records it as a missing bite."""
        try:
            self.fault.inject()
        except LinkflapError as error:
            self._not_applied(error)
            return error
        return None

    def bite(self) -> Bite | LinkflapError:
        """Measures and records the bite, after `inject`. Returns the error if that failed."""
        try:
            bite = self.fault.bite()
        except LinkflapError as error:
            self._not_applied(error)
            return error
        self._bite(bite)
        return bite

    def _not_applied(self, error: LinkflapError) -> None:
        self._bite(Bite(bit=False, observable="injection", measured=str(error), expected="applied"))

    def _bite(self, bite: Bite) -> None:
        self._recorder.write(
            FaultBite(
                target=self.spec.target,
                id=self.spec.id,
                bit=bite.bit,
                observable=bite.observable,
                measured=bite.measured,
                expected=bite.expected,
                lost=bite.lost,
            )
        )

    def heal(self) -> LinkflapError | None:
        """Heals the fault and checks the result. Returns the error if it is not healed."""
        try:
            checked = list(self.fault.heal())
        except LinkflapError as error:
            self._healed(False, str(error))
            return error
        self._healed(True, *checked)
        return None

    def _healed(self, healed: bool, *checked: str) -> None:
        self._recorder.write(
            FaultHeal(target=self.spec.target, id=self.spec.id, healed=healed, checked=checked)
        )

    def end(self) -> None:
        """Records that the fault has ended."""
        self._recorder.write(FaultEnd(target=self.spec.target, id=self.spec.id))
