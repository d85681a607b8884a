"""Kept producer ids under load: a forced failover of a mirror that keeps the source's ids, judged
by acknowledgements and bytes."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.scenario_files import NONE, judged


def _judged(bench: Bench, ids: str) -> Observation:
    found = judged(bench, "kept-ids.toml", {'producer_ids = "keep"': f'producer_ids = "{ids}"'})
    return Observation(shown="ghost-ack/ghost-ack" in found.kinds, facts=found.facts)


CASE = Case(
    name="kept-ids-under-load",
    title=(
        "After a failover with kept producer ids, clients under load have acknowledgements of "
        "records that do not exist"
    ),
    kind="proposal",
    claim_text=(
        "`kept-ids` shows it with two batches; here it happens to ordinary clients. After the "
        "failover, the destination allocates ids that mirrored producers had. It takes these "
        "producers' first batches for duplicates, and acknowledges them without appending."
    ),
    sources=("Redpanda PR 31659 (August 2026)", "KIP-1279 discussion, RS12 and msg155161"),
    expected=(Expected(shows=True, since="3.9.1", basis="runs"),),
    schedule=(
        "1. clients write on A and on B; the shadow mirror keeps ids; 2. A is killed with open "
        "transactions; 3. its producers continue at B for some seconds; 4. the run is judged "
        "(scenario producer-id-collision)"
    ),
    reproduced="check ghost-ack finds an acknowledged offset that does not have the record",
    control_text=(
        "the same with the destination's ids moved past the mirrored ones: ghost-ack is valid"
    ),
    refuted="ghost-ack valid with ids kept",
    topology=NONE,
    claim=partial(_judged, ids="keep"),
    control=partial(_judged, ids="jump"),
    oldest="3.9.1",
    apart=True,
)
