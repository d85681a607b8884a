"""KIP-1279 itself: a reader whose position is beyond the truncation offset of a failback continues
there."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.scenario_files import NONE, judged

SHORT = {"duration = 4.0": "duration = 0.3", "during:cut": "after:cut"}
"""The link is restored, and everything is mirrored, before A is given up: there is nothing to
truncate."""
PLANNED = {
    'fault = "failover-forced"': 'fault = "failover-planned"',
    'options = { source = "stalled" }': "",
}


def _judged(bench: Bench, *, tail: bool) -> Observation:
    found = judged(bench, "beyond-truncation.toml", {} if tail else SHORT | PLANNED)
    return Observation(
        shown="poll-continuity/skipped-by-truncation" in found.kinds, facts=found.facts
    )


CASE = Case(
    name="KIP-1279-beyond-truncation",
    title=(
        "A build of the KIP-1279 branch truncates a log under a reader, which skips the records "
        "that replace it"
    ),
    kind="proposal",
    claim_text=(
        "A reader of A has read a tail that was never mirrored. For the failback, A is truncated "
        "and gets B's records at the same offsets. The reader continues at its position, without "
        "an error and without the records below it."
    ),
    sources=(
        "docs/findings/cluster-mirroring-beyond-truncation.md",
        "KIP-320 (a client learns of a truncation from the end of its leader epoch)",
    ),
    expected=(Expected(shows=True, since="4.2.0"),),
    schedule=(
        "1. the link is cut, clients continue to write and read at A; 2. A is half-open, B is "
        "promoted, A is killed; 3. clients write at B; 4. A comes back and follows B; 5. planned "
        "failover to A; 6. the run is judged"
    ),
    reproduced="check poll-continuity finds skipped-by-truncation",
    control_text="everything is mirrored before a planned failover: nothing is truncated",
    refuted="every reader of A gets the records that replaced the tail",
    topology=NONE,
    claim=partial(_judged, tail=True),
    control=partial(_judged, tail=False),
    runs=3,
    needs="a build of the KIP-1279 branch (--kafka DIRECTORY)",
    apart=True,
)
