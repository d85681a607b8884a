"""One fault from its start to its end, each step written down: what a schedule and the Python API have in common.

The order is fixed: start, inject, bite, heal, end. A step that fails is an event, never a silence.
"""

from __future__ import annotations

from linkflap.harness.model.errors import LinkflapError
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
        self._event(
            "fault-start", fault=spec.fault, options=dict(spec.options), restores=self.fault.restores, **{"for": spec.duration}
        )

    def inject(self) -> LinkflapError | None:
        """Breaks what is to be broken; why it could not be, which is its bite then."""
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
        self._event("fault-bite", bit=bite.bit, observable=bite.observable, measured=bite.measured, expected=bite.expected)
        return bite

    def _not_applied(self, error: LinkflapError) -> None:
        self._event("fault-bite", bit=False, observable="injection", measured=str(error), expected="applied")

    def heal(self) -> LinkflapError | None:
        """Takes it back, and checks that; why it is not healed."""
        try:
            checked = list(self.fault.heal())
        except LinkflapError as error:
            self._event("fault-heal", healed=False, checked=[str(error)])
            return error
        self._event("fault-heal", healed=True, checked=checked)
        return None

    def end(self) -> None:
        """Says that it is over."""
        self._event("fault-end")

    def _event(self, kind: str, **data: object) -> None:
        self._recorder.event(kind, self.spec.target, id=self.spec.id, **data)
