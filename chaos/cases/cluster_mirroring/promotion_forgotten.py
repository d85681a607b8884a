"""KIP-1279 itself: a promoted topic whose state is lost when a broker dies, so that its clients can
never go back."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import BUILD, branch_mirror
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools import wire
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.model.wait import until

PROMOTED: Final = {"STOPPED": 1}


def _promoted(bench: Bench, *, kill: bool) -> Observation:
    """The leader of the promoted partition dies, and is started again."""
    topic = bench.topic()
    bench.write(topic, [b"of A"] * 5)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        mirror.stop()
        until(
            lambda: mirror.states() == PROMOTED,
            within=WITHIN,
            what=f"{topic} to be STOPPED",
            every=0.2,
            state=mirror.states,
        )
        bench.write(topic, [b"of B"], cluster="B")
        leader = bench.broker(wire.leader(bench.bootstrap("B").split(",")[0], topic), "B")
        if kill:
            others = [
                broker for broker in bench.cluster("B").brokers.values() if broker.id != leader.id
            ]
            leader.kill()
            led = partial(wire.leader, others[0].client_address, topic)
            until(
                lambda: led() not in (-1, leader.id),
                within=WITHIN,
                what=f"another leader of {topic}",
                every=0.2,
            )
            leader.start()
            bench.led(topic, cluster="B")
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: mirror.states() == PROMOTED,
                within=WITHIN,
                what=f"{topic} to be STOPPED again",
                every=0.5,
            )
        states = dict(mirror.states())
    facts = {"broker": leader.id, "killed": kill, "states_a_minute_later": states}
    return Observation(shown=states != PROMOTED, facts=facts)


CASE = Case(
    name="KIP-1279-promotion-forgotten",
    title=(
        "A build of the KIP-1279 branch forgets that a topic was promoted when the broker that "
        "leads it dies"
    ),
    kind="proposal",
    claim_text=(
        "A topic is STOPPED: promoted, and written by clients. The broker that leads it dies and "
        "comes back; describe says UNKNOWN of it from then on. A failback is refused for as long "
        "as that is so: the mirror of the topic has not stopped."
    ),
    sources=(
        "docs/findings/cluster-mirroring-promotion-forgotten.md",
        "KIP-1279: states of partitions, __mirror_state",
    ),
    expected=(Expected(shows=True, since="4.2.0", basis="runs"),),
    schedule=(
        "1. three brokers of B; a topic is mirrored; 2. stop: STOPPED; 3. kill -9 of its leader; 4."
        " another leads; 5. the start of the first"
    ),
    reproduced="describe says another state than STOPPED, and still does a minute later",
    control_text="the same without the kill: STOPPED",
    refuted="STOPPED within a minute",
    topology=Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3)),
        links=PAIR.links,
    ),
    claim=partial(_promoted, kill=True),
    control=partial(_promoted, kill=False),
    clients=("java",),
    needs=BUILD,
)
