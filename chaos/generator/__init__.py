"""Generated scenarios: a pure function of (seed, number, coverage so far, bounds), from the
registries alone.

bounds      what may be drawn: topologies, mirrors, faults, durations
coverage    what was exercised so far, and how new a scenario would be
options     values for the options of faults and mirrors
draft       a schedule under construction: what is up, and what each fault holds
packages    the families of faults, and the failovers between them
setting     the rest: workloads, topics, mirror
generate    draws several candidates and takes the one that adds most to the coverage
"""

from linkflap.chaos.generator.bounds import Bounds
from linkflap.chaos.generator.coverage import Coverage, cells_of
from linkflap.chaos.generator.generate import baseline, generate

__all__ = ["Bounds", "Coverage", "baseline", "cells_of", "generate"]
