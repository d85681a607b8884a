"""KIP-545: how MirrorMaker 2 translates group offsets: how far back, and never too far ahead."""

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

LAG_MAX = 100
"""MirrorMaker's default of offset.lag.max."""
RECORDS, BEHIND = 1200, 700
TRANSACTIONS = 8
PATIENCE = 20.0


def _behind(bench: Bench, *, offset: int) -> Observation:
    """A group that is behind on A, and its offset on B once it no longer changes."""
    topic, group, witness = bench.topic(), bench.name("group"), bench.name("witness")
    mirror = bench.mirror("mm2")
    mirror.start()
    for start in range(0, RECORDS, 100):
        bench.write(topic, [b"%d" % n for n in range(start, start + 100)])
        bench.drained(mirror)
    for name, at in ((group, offset), (witness, RECORDS)):
        bench.ask(bench.coordinator(name, wire.GROUP)).commit_offset(name, (topic, 0), at)
    b = bench.ask(bench.coordinator(witness, wire.GROUP, "B"))
    until(
        lambda: b.committed(witness, (topic, 0)) > 0,
        within=2 * WITHIN,
        what="the group at the end to be on B",
        every=0.2,
    )
    with contextlib.suppress(DeadlineExceeded):
        until(
            lambda: b.committed(group, (topic, 0)) >= offset - LAG_MAX,
            within=PATIENCE,
            what="the group on B",
            every=0.3,
        )
    found = b.committed(group, (topic, 0))
    facts = {
        "committed_on_A": offset,
        "on_B": found,
        "read_again": offset - found,
        "offset.lag.max": LAG_MAX,
    }
    mirror.stop()
    return Observation(shown=0 <= found < offset - LAG_MAX, facts=facts)


def _skipped(bench: Bench, *, translated: bool) -> Observation:
    """A's log has markers between its records, B's has none. A group in the middle of A's log fails
    over to B."""
    topic, group = bench.topic(), bench.name("group")
    mirror = bench.mirror("mm2")
    mirror.start()
    writer = bench.transactional()
    for number in range(TRANSACTIONS):
        writer.begin()
        writer.send(topic, b"%d" % number)
        writer.flush()
        writer.commit()
    bench.led(topic, cluster="B")

    def arrived() -> bool:
        return len(bench.read(topic, cluster="B")) == TRANSACTIONS

    until(arrived, within=2 * WITHIN, what="B to have all", every=0.3)
    done = TRANSACTIONS // 2
    offset = bench.read(topic)[done][0]
    bench.ask(bench.coordinator(group, wire.GROUP)).commit_offset(group, (topic, 0), offset)
    b = bench.ask(bench.coordinator(group, wire.GROUP, "B"))
    if translated:
        until(
            lambda: b.committed(group, (topic, 0)) >= 0,
            within=2 * WITHIN,
            what="the group to be on B",
            every=0.3,
        )
    else:
        b.commit_offset(group, (topic, 0), offset)
    at = b.committed(group, (topic, 0))
    mirror.stop()
    left = [value.decode() for where, value in bench.read(topic, cluster="B") if where >= at]
    skipped = [n for n in range(done, TRANSACTIONS) if str(n) not in left]
    facts = {"committed_on_A": offset, "on_B": at, "read_on_B": left, "skipped": skipped}
    return Observation(shown=bool(skipped), facts=facts)


CASES = [
    Case(
        name="KAFKA-16641",
        title=(
            "MirrorMaker 2 sets a group that is behind further back on the target than "
            "offset.lag.max"
        ),
        kind="defect",
        claim_text=(
            "MirrorMaker 2 keeps fewer and fewer of the old offset syncs, and translates to the "
            "sync before an offset. A group that is behind reads many times offset.lag.max "
            "records again."
        ),
        sources=("KAFKA-16641 (Apache JIRA), open: interpolate between sparse syncs", "KIP-545"),
        expected=(Expected(shows=True, basis="runs"),),
        schedule=(
            f"1. {RECORDS} records are mirrored; 2. a group commits {BEHIND}, another the end; 3. "
            "offsets are synced"
        ),
        reproduced=f"the group's offset on the target is more than {LAG_MAX} below its own",
        control_text="the group is at the end: its offset on the target is not that far back",
        refuted=f"an offset at most {LAG_MAX} below",
        topology=PAIR,
        claim=partial(_behind, offset=BEHIND),
        control=partial(_behind, offset=RECORDS),
        apart=True,
    ),
    Case(
        name="KIP-545-no-skip",
        title="A group that fails over to MirrorMaker 2's target skips no record",
        kind="guarantee",
        claim_text=(
            "Anomaly: the synced offset of a group on the target is above a record that the "
            "group has not read on the source."
        ),
        sources=("KIP-545: automated consumer offset sync", "KIP-1279 discussion, VK12 and A13"),
        expected=(Expected(shows=False, basis="runs"),),
        schedule=(
            f"1. {TRANSACTIONS} transactions of one record are mirrored; 2. a group commits the "
            "middle; 3. it continues on the target"
        ),
        reproduced="a record of the second half that the group does not read on the target",
        control_text=(
            "A's offset is committed on B unchanged: the group skips records, because B has no "
            "markers in between"
        ),
        refuted="a skipped record",
        topology=PAIR,
        claim=partial(_skipped, translated=True),
        control=partial(_skipped, translated=False),
        control_shows=True,
        apart=True,
    ),
]
