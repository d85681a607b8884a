"""KIP-966: a replica with every acknowledged record can lead, even if the last in-sync replica is
dead."""

from __future__ import annotations

import contextlib
from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import nodes
from linkflap.chaos.cases.tools import wire
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until

FEATURE = "eligible.leader.replicas.version"
PATIENCE = 15.0


def _elected(bench: Bench, *, eligible: bool) -> Observation:
    """Two replicas acknowledge. The second shuts down, the first dies, and only the second comes
    back."""
    first, second, *others = bench.cluster().brokers.values()
    asked = bench.ask(others[0])
    level = asked.features().get(FEATURE, 0)
    if level and not eligible:
        asked.downgrade(FEATURE, 0)
    topic = bench.topic(replicas=[first.id, second.id], config={"min.insync.replicas": "2"})
    bench.write(topic, [b"%d" % number for number in range(10)])
    second.stop()
    until(
        lambda: asked.leadership(topic)[0].in_sync == (first.id,),
        within=WITHIN,
        what="the first to be alone in sync",
        every=0.2,
    )
    first.kill()
    until(
        lambda: wire.leader(others[0].client_address, topic) == -1,
        within=WITHIN,
        what=f"{topic} to have no leader",
        every=0.2,
    )
    second.start()
    with contextlib.suppress(DeadlineExceeded):
        until(
            lambda: wire.leader(others[0].client_address, topic) == second.id,
            within=PATIENCE,
            what=f"broker {second.id} to lead",
            every=0.2,
        )
    leader = wire.leader(others[0].client_address, topic)
    first.start()
    until(
        lambda: len(asked.leadership(topic)[0].in_sync) == 2,
        within=WITHIN,
        what="both to be in sync",
        every=0.2,
    )
    # with fewer in-sync replicas than min.insync.replicas, the leader does not advance the high
    # watermark, which limits reads (KIP-966)
    read = len(bench.read(topic))
    facts = {
        FEATURE: level if eligible else 0,
        "leader_with_the_first_down": leader,
        "read": read,
        "written": 10,
    }
    return Observation(shown=leader != second.id or read != 10, facts=facts)


CASE = Case(
    name="KIP-966-eligible-leader",
    title=(
        "A replica that left the ISR with every acknowledged record leads when the last in-sync "
        "replica is dead, and has them all"
    ),
    kind="guarantee",
    claim_text=(
        "Anomaly: with min.insync.replicas=2, a replica left the ISR by a clean shutdown, and "
        "the other one died. Nothing was acknowledged in between. Yet the partition has no "
        "leader, or its leader lacks an acknowledged record."
    ),
    sources=("KIP-966, part 1: eligible leader replicas, on by default in new clusters since 4.1",),
    expected=(Expected(shows=False, since="4.1.0", basis="runs"),),
    schedule=(
        "1. five nodes; two replicas, min.insync.replicas=2; ten records, acks=all; 2. the "
        "second replica's broker shuts down; 3. kill -9 of the first; 4. the second starts"
    ),
    reproduced="the second does not lead, or lacks some of the ten records",
    control_text=f"{FEATURE}=0: no leader before the first is back",
    refuted="a partition without a leader, or a missing record",
    topology=nodes(5),
    claim=partial(_elected, eligible=True),
    control=partial(_elected, eligible=False),
    control_shows=True,
    clients=("wire",),
    oldest="4.1.0",
    apart=True,
)
