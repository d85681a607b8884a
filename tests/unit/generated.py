"""Bounds for the scenarios that tests generate."""

from __future__ import annotations

from linkflap.chaos.generator import GeneratorBounds
from linkflap.chaos.generator.bounds import ALL

EVERY = GeneratorBounds(topologies=ALL, mirrors=("shadow", "mm2"))
