"""VK3 on stock brokers: a link that flaps all the time, and what is left of the mirrored log when
it holds again."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.scenario_files import NONE, judged


def _judged(bench: Bench, ids: str) -> Observation:
    found = judged(bench, "flap-storm.toml", {'producer_ids = "jump"': f'producer_ids = "{ids}"'})
    return Observation(shown=found.verdict != "valid", facts=found.facts)


CASE = Case(
    name="VK3-flap-storm",
    title=(
        "A mirror whose link flaps some twenty times keeps the source's log byte for byte, and "
        "fails over without an anomaly"
    ),
    kind="guarantee",
    claim_text=(
        "Anomaly: after a storm of short outages a check of the mirrored log, of readers or of the "
        "failover finds an anomaly."
    ),
    sources=(
        (
            "KIP-1279 discussion, VK3 (Vaquar Khan): flap storms; its load on the control plane "
            "needs the branch"
        ),
    ),
    expected=(Expected(shows=False, since="3.9.1", basis="runs"),),
    schedule=(
        "1. clients write on A; 2. the link is cut and restored for 12 s, 0.25 s each; 3. A is "
        "killed with transactions open; 4. its clients go on at B; 5. all is judged"
    ),
    reproduced="a verdict that is invalid",
    control_text=(
        "the same storm over a mirror that negates producer ids: read_committed readers of B get "
        "aborted records"
    ),
    refuted="an anomaly of any check",
    topology=NONE,
    claim=partial(_judged, ids="jump"),
    control=partial(_judged, ids="negate"),
    control_shows=True,
    runs=1,
    oldest="3.9.1",
    apart=True,
)
