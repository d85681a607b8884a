"""KIP-545: how MirrorMaker 2 translates group offsets: how far back, and never too far ahead."""

from __future__ import annotations

import contextlib

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools import wire
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until

LAG_MAX = 100
"""MirrorMaker's default of offset.lag.max."""
RECORDS, BEHIND = 1200, 700
TRANSACTIONS = 8
PATIENCE = 20.0


@case("KAFKA-16641", PAIR, claim={"offset": BEHIND}, control={"offset": RECORDS})
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


@case("KIP-545-no-skip", PAIR, claim={"translated": True}, control={"translated": False})
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
