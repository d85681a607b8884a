"""KIP-1279 itself: a reader whose position is beyond the truncation offset of a failback continues
there."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.scenario_files import NONE, judged

SHORT = {"duration = 4.0": "duration = 0.3", "during:cut": "after:cut"}
"""The link is restored, and everything is mirrored, before A is given up: there is nothing to
truncate."""
PLANNED = {
    'fault = "failover-forced"': 'fault = "failover-planned"',
    'options = { source = "stalled" }': "",
}


@case("KIP-1279-beyond-truncation", NONE, claim={"tail": True}, control={"tail": False})
def beyond_truncation(bench: Bench, *, tail: bool) -> Observation:
    """KIP-1279 itself: a reader whose position is beyond the truncation offset of a failback
    continues there."""
    found = judged(bench, "beyond-truncation.toml", {} if tail else SHORT | PLANNED)
    return Observation(
        shown="poll-continuity/skipped-by-truncation" in found.kinds, facts=found.facts
    )
