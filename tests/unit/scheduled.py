"""Faults of a schedule that is built by hand."""

from __future__ import annotations

from linkflap.harness.model.scenario import FaultSpec

CUT = FaultSpec(id="cut", fault="link-cut", target="A->B", at=0.0, duration=0.0)
