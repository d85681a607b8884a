"""KAFKA-15905: after a restart, MirrorMaker 2 no longer translates the offsets of a group that is
behind."""

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
    """MirrorMaker 2 restarts after it has mirrored everything. A group at the log end shows that it
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
        "After a restart of MirrorMaker 2, the offset of a group that is behind is not on the "
        "target"
    ),
    kind="defect",
    claim_text=(
        "At its start, the checkpoint task loses the earlier offset syncs, and translates no "
        "offset below the newest one. A group that is behind has no offset on the target, or its "
        "old one, and reads everything again after a failover."
    ),
    sources=("KAFKA-15905 (Apache JIRA): fixed in 3.7.1 and 3.8.0", "KIP-545"),
    expected=(
        Expected(shows=True, until="3.7.0", basis="runs"),
        Expected(shows=False, since="3.8.0", basis="runs"),
    ),
    schedule=(
        f"1. {RECORDS} records are mirrored; 2. the worker is killed; 3. one group commits "
        f"{BEHIND}, another {RECORDS}; 4. the worker restarts"
    ),
    reproduced=(
        f"the group at the end is on the target, but {PATIENCE} s later the one that is behind is "
        "not"
    ),
    control_text="both groups at the end: both are on the target",
    refuted="the group that is behind has an offset on the target, not above its own",
    topology=PAIR,
    claim=partial(_synced, behind=True),
    control=partial(_synced, behind=False),
    apart=True,
)
