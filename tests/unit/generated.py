"""Bounds for the scenarios that tests generate."""

from __future__ import annotations

from linkflap.chaos.generator import Bounds
from linkflap.chaos.generator.bounds import ALL

EVERY = Bounds(topologies=ALL, mirrors=("shadow", "mm2"))
