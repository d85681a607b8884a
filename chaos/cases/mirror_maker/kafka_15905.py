"""KAFKA-15905: after a restart of MirrorMaker 2 the offsets of a group that is behind are
translated no more."""

from __future__ import annotations

import contextlib
from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools import wire
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until

RECORDS, BEHIND = 1200, 500
PATIENCE = 15.0
"""Seconds; group offsets are synced every second."""


def _synced(bench: Bench, *, behind: bool) -> Observation:
    """MirrorMaker 2 starts again where it has mirrored all; a group at the log's end shows that it
    syncs offsets."""
    topic, group, witness = bench.topic(), bench.name("group"), bench.name("witness")
    mirror = bench.mirror("mm2")
    mirror.start()
    for start in range(0, RECORDS, 100):
        bench.write(topic, [b"%d" % n for n in range(start, start + 100)])
    bench.drained(mirror)
    mirror.crash()
    wanted = {group: BEHIND if behind else RECORDS, witness: RECORDS}
    for name, offset in wanted.items():
        bench.ask(bench.coordinator(name, wire.GROUP)).commit_offset(name, (topic, 0), offset)
    mirror.restart()
    b = bench.ask(bench.coordinator(witness, wire.GROUP, "B"))
    until(
        lambda: b.committed(witness, (topic, 0)) > 0,
        within=2 * WITHIN,
        what="the group at the end to be on B",
        every=0.2,
    )
    with contextlib.suppress(DeadlineExceeded):
        until(
            lambda: b.committed(group, (topic, 0)) > 0,
            within=PATIENCE,
            what="the group to be on B",
            every=0.2,
        )
    found = b.committed(group, (topic, 0))
    facts = {
        "committed_on_A": wanted[group],
        "on_B": found,
        "of_the_group_at_the_end_on_B": b.committed(witness, (topic, 0)),
    }
    mirror.stop()
    return Observation(shown=found <= 0, facts=facts)


CASE = Case(
    name="KAFKA-15905",
    title=(
        "After MirrorMaker 2 was restarted, the offset of a group that is behind is not on the "
        "target"
    ),
    kind="defect",
    claim_text=(
        "The checkpoint task forgets at its start what it knew of earlier offsets, and translates "
        "no offset below the newest sync: a group that is behind has no offset there, or its old "
        "one, and repeats everything after a failover."
    ),
    sources=("KAFKA-15905 (Apache JIRA): fixed in 3.7.1 and 3.8.0", "KIP-545"),
    expected=(
        Expected(shows=True, until="3.7.0", basis="runs"),
        Expected(shows=False, since="3.8.0", basis="runs"),
    ),
    schedule=(
        f"1. {RECORDS} records are mirrored; 2. the worker is killed; 3. one group commits "
        f"{BEHIND}, another {RECORDS}; 4. it starts"
    ),
    reproduced=(
        f"the group at the end is on the target, and {PATIENCE:g} s later the one that is behind "
        "is not"
    ),
    control_text="both groups at the end: both are on the target",
    refuted="an offset of the group that is behind on the target, not above its own",
    topology=PAIR,
    claim=partial(_synced, behind=True),
    control=partial(_synced, behind=False),
    apart=True,
)
