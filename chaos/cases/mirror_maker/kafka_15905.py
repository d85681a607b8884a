"""KAFKA-15905: after a restart, MirrorMaker 2 no longer translates the offsets of a group that is
behind."""

from __future__ import annotations

import contextlib

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools import wire
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until

RECORDS, BEHIND = 1200, 500
PATIENCE = 15.0
"""Seconds; group offsets are synced every second."""


@case("KAFKA-15905", PAIR, claim={"behind": True}, control={"behind": False})
def kafka_15905(bench: Bench, *, behind: bool) -> Observation:
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
