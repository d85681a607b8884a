"""One fault from its start to its end, each step recorded; schedules and the Python API share it.

The order is fixed: start, inject, bite, heal, end. A step that fails is an event too, so it is
never silent.
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
        """Says that it begins; nothing is broken yet."""
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
        """Injects the fault; the error where that failed, which stands for its bite then."""
        try:
            self.fault.inject()
        except LinkflapError as error:
            self._not_applied(error)
            return error
        return None

    def bite(self) -> Bite | LinkflapError:
        """Measures it, after `inject`; an error where that failed."""
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
            )
        )

    def heal(self) -> LinkflapError | None:
        """Takes it back, and checks that; why it is not healed."""
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
        """Says that it is over."""
        self._recorder.write(FaultEnd(target=self.spec.target, id=self.spec.id))
