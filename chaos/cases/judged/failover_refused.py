"""KIP-1279 itself: a build of its branch refuses a failover while the source is dead."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.scenario_files import NONE, judged

STALLED = 'options = { source = "stalled" }'


@case("KIP-1279-dead-source", NONE, claim={"dead": True}, control={"dead": False})
def failover_refused(bench: Bench, *, dead: bool) -> Observation:
    """KIP-1279 itself: a build of its branch refuses a failover while the source is dead."""
    found = judged(bench, "dead-source.toml", {STALLED: ""} if dead else {STALLED: STALLED})
    return Observation(shown="failover/failover-refused" in found.kinds, facts=found.facts)
