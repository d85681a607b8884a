"""MirrorMaker 2 with read_uncommitted under load: the records of the target's readers, judged by
their polls and both logs."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.scenario_files import NONE, judged


def _judged(bench: Bench, isolation: str) -> Observation:
    found = judged(bench, "mm2-isolation.toml", {"read_uncommitted-by-the-mirror": isolation})
    return Observation(shown="aborted-read/aborted-read" in found.kinds, facts=found.facts)


CASE = Case(
    name="MM2-isolation-under-load",
    title=(
        "With MirrorMaker 2's default isolation level, read_committed readers of the target get "
        "records of aborted transactions"
    ),
    kind="limit",
    claim_text=(
        "`MM2-isolation` shows it with three records; here it happens to ordinary clients: "
        "aborted records of A are plain ones on B."
    ),
    sources=(
        "Kafka documentation, Geo-Replication; consumer default isolation.level",
        "KIP-1279 discussion, MM6",
    ),
    expected=(Expected(shows=True, basis="runs"),),
    schedule=(
        "1. clients commit and abort on A; MirrorMaker 2 copies; 2. readers of B use "
        "read_committed; 3. the run is judged (scenario baseline)"
    ),
    reproduced="check aborted-read finds records of aborted transactions that readers of B got",
    control_text=(
        "the same with isolation.level=read_committed at the mirror's consumer: aborted-read is "
        "valid"
    ),
    refuted="aborted-read valid",
    topology=NONE,
    claim=partial(_judged, isolation="read_uncommitted"),
    control=partial(_judged, isolation="read_committed"),
    runs=1,
    apart=True,
)
