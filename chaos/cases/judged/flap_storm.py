"""VK3 on unmodified brokers: a link that flaps continuously, and the mirrored log afterwards."""

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
        "A mirror whose link flaps about twenty times keeps the source's log byte for byte, and "
        "fails over without an anomaly"
    ),
    kind="guarantee",
    claim_text=(
        "Anomaly: after a storm of short outages, a check of the mirrored log, of readers or of "
        "the failover finds an anomaly."
    ),
    sources=(
        (
            "KIP-1279 discussion, VK3 (Vaquar Khan): flap storms; its load on the control plane "
            "needs the branch"
        ),
    ),
    expected=(Expected(shows=False, since="3.9.1", basis="runs"),),
    schedule=(
        "1. clients write on A; 2. for 12 s the link is cut and restored, 0.25 s each; 3. A is "
        "killed with open transactions; 4. its clients continue at B; 5. the run is judged"
    ),
    reproduced="the verdict is invalid",
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
