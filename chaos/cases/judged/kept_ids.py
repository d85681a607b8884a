"""Kept producer ids under load: a forced failover of a mirror that keeps the source's ids, judged
by acknowledgements and bytes."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.scenario_files import NONE, judged


@case("kept-ids-under-load", NONE, claim={"ids": "keep"}, control={"ids": "jump"})
def kept_ids(bench: Bench, ids: str) -> Observation:
    """Kept producer ids under load: a forced failover of a mirror that keeps the source's ids,
    judged by acknowledgements and bytes."""
    found = judged(bench, "kept-ids.toml", {'producer_ids = "keep"': f'producer_ids = "{ids}"'})
    return Observation(shown="ghost-ack/ghost-ack" in found.kinds, facts=found.facts)
