"""KAFKA-15905: after a restart of MirrorMaker 2 the offsets of a group that is behind are translated no more."""

from __future__ import annotations

import contextlib
from functools import partial

from linkflap.chaos.cases.bench import WITHIN, Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until

RECORDS, FIRST, SECOND = 1200, 500, 700
PATIENCE = 25.0
"""Seconds; group offsets are synced every second."""


def _synced(bench: Bench, *, restart: bool) -> Observation:
    """A group that is behind moves on, on A; what B has of it, with and without a restart of the worker before that."""
    topic, group = bench.topic(), bench.name("group")
    for start in range(0, RECORDS, 100):
        bench.write(topic, [b"%d" % n for n in range(start, start + 100)])
    a = bench.ask(bench.coordinator(group, 0))
    a.commit_offset(group, (topic, 0), FIRST)
    mirror = bench.mirror("mm2")
    mirror.start()
    b = bench.ask(bench.coordinator(group, 0, "B"))
    until(lambda: b.committed(group, (topic, 0)) > 0, within=2 * WITHIN, what="the group to be on B", every=0.2)
    if restart:
        mirror.crash()
        mirror.restart()
    before = b.committed(group, (topic, 0))
    a.commit_offset(group, (topic, 0), SECOND)
    with contextlib.suppress(DeadlineExceeded):
        until(lambda: b.committed(group, (topic, 0)) > before, within=PATIENCE, what="the group to move on", every=0.3)
    after = b.committed(group, (topic, 0))
    mirror.stop()
    facts = {"committed_on_A": [FIRST, SECOND], "on_B_before": before, "on_B_after": after}
    return Observation(shown=after <= before, facts=facts)


CASE = Case(
    name="KAFKA-15905",
    title="After MirrorMaker 2 was restarted, a group that is behind stands still on the target",
    kind="defect",
    claim_text=(
        "The checkpoint task forgets at its start what it knew of earlier offsets, and translates no offset "
        "below the newest sync: a "
        "group that is behind keeps its old offset on the target, and repeats everything since after a failover."
    ),
    sources=("KAFKA-15905 (Apache JIRA): fixed in 3.7.1 and 3.8.0", "KIP-545"),
    expected=(Expected(shows=True, until="3.7.0"), Expected(shows=False, since="3.8.0")),
    schedule=(
        f"1. {RECORDS} records, a group at {FIRST}; 2. its offset is on the target; 3. the worker is killed and started; "
        f"4. the group commits {SECOND}"
    ),
    reproduced=f"the group's offset on the target does not rise within {PATIENCE:g} s",
    control_text="the same without the restart: it rises",
    refuted="an offset that rises after the restart",
    topology=PAIR,
    claim=partial(_synced, restart=True),
    control=partial(_synced, restart=False),
    apart=True,
)
