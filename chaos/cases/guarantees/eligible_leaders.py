"""KIP-966: a replica with every acknowledged record can lead, even if the last in-sync replica is
dead."""

from __future__ import annotations

import contextlib

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import nodes
from linkflap.chaos.cases.tools import wire
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until

FEATURE = "eligible.leader.replicas.version"
PATIENCE = 15.0


@case("KIP-966-eligible-leader", nodes(5), claim={"eligible": True}, control={"eligible": False})
def eligible_leaders(bench: Bench, *, eligible: bool) -> Observation:
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
