"""Generated scenarios: a pure function of (seed, number, coverage so far, bounds), from the
registries alone.

bounds      what may be drawn: topologies, mirrors, faults, durations
coverage    what was exercised so far, and how much of a scenario would be new
packages    the families of faults: their options and targets, the schedule under construction, and
            the failovers between them
setting     the rest: topology, mirror, workloads, topics
generate    draws several candidates, and takes the one that adds most to the coverage
"""

from linkflap.chaos.generator.bounds import GeneratorBounds
from linkflap.chaos.generator.coverage import Coverage, cells_of
from linkflap.chaos.generator.generate import baseline, generate

__all__ = ["Coverage", "GeneratorBounds", "baseline", "cells_of", "generate"]
