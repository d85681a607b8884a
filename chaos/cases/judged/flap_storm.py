"""VK3 on unmodified brokers: a link that flaps continuously, and the mirrored log afterwards."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.scenario_files import NONE, judged


@case("VK3-flap-storm", NONE, claim={"ids": "jump"}, control={"ids": "negate"})
def flap_storm(bench: Bench, ids: str) -> Observation:
    """VK3 on unmodified brokers: a link flaps continuously, and the mirrored log is judged."""
    found = judged(bench, "flap-storm.toml", {'producer_ids = "jump"': f'producer_ids = "{ids}"'})
    return Observation(shown=found.verdict != "valid", facts=found.facts)
