"""MirrorMaker 2 with read_uncommitted under load: the records of the target's readers, judged by
their polls and both logs."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.scenario_files import NONE, judged


@case(
    "MM2-isolation-under-load",
    NONE,
    claim={"isolation": "read_uncommitted"},
    control={"isolation": "read_committed"},
)
def mirror_maker_aborted(bench: Bench, isolation: str) -> Observation:
    """MirrorMaker 2 with read_uncommitted under load: the records of the target's readers, judged
    by their polls and both logs."""
    found = judged(bench, "mm2-isolation.toml", {"read_uncommitted-by-the-mirror": isolation})
    return Observation(shown="aborted-read/aborted-read" in found.kinds, facts=found.facts)
