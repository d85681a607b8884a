"""Cases that record and judge a whole run: a check finds the anomaly."""

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


STALLED = 'options = { source = "stalled" }'


@case("KIP-1279-dead-source", NONE, claim={"dead": True}, control={"dead": False})
def failover_refused(bench: Bench, *, dead: bool) -> Observation:
    """KIP-1279 itself: a build of its branch refuses a failover while the source is dead."""
    found = judged(bench, "dead-source.toml", {STALLED: ""} if dead else {STALLED: STALLED})
    return Observation(shown="failover/failover-refused" in found.kinds, facts=found.facts)


@case("VK3-flap-storm", NONE, claim={"ids": "jump"}, control={"ids": "negate"})
def flap_storm(bench: Bench, ids: str) -> Observation:
    """VK3 on unmodified brokers: a link flaps continuously, and the mirrored log is judged."""
    found = judged(bench, "flap-storm.toml", {'producer_ids = "jump"': f'producer_ids = "{ids}"'})
    return Observation(shown=found.verdict != "valid", facts=found.facts)


@case("kept-ids-under-load", NONE, claim={"ids": "keep"}, control={"ids": "jump"})
def kept_ids(bench: Bench, ids: str) -> Observation:
    """Kept producer ids under load: a forced failover of a mirror that keeps the source's ids,
    judged by acknowledgements and bytes."""
    found = judged(bench, "kept-ids.toml", {'producer_ids = "keep"': f'producer_ids = "{ids}"'})
    return Observation(shown="ghost-ack/ghost-ack" in found.kinds, facts=found.facts)


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
