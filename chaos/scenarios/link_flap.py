"""link-flap: the main job. A link flaps and slows under load, then its source is killed with transactions open.

Guarantee at stake: what the mirror promises (the shadow equal offsets, MirrorMaker 2 the order), Kafka's own transactions on both
clusters (KIP-98), and that nothing the mirror had shown on B is lost when clients fail over to it. A violation looks like a
record of A missing on B below one that is there, an aborted record that a read_committed reader of B was given, or two writers
under one producer id.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import Wish, everyday
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario
from linkflap.topologies import parse


def build(wish: Wish) -> Scenario:
    """A->B: the link flaps, then slows; A is killed with transactions open; clients go on at B."""
    dice = wish.dice
    topology = wish.topology or parse("A->B")
    link = topology.links[0]
    duration = wish.duration or 12.0
    flap_at = round(dice.uniform(0.5, 1.5), 2)
    slow_at = round(flap_at + 3.0 + dice.uniform(0.2, 0.8), 2)
    kill_at = round(max(slow_at + 3.0 + dice.uniform(0.3, 1.0), duration - 3.0), 2)
    return Scenario(
        name="link-flap",
        about="A->B through a flapping, then slow link; A is killed with transactions open; clients fail over to B and go on",
        seed=wish.seed,
        topology=topology,
        mirror=wish.mirrored_by(),
        workloads=everyday(topology, link.source),
        schedule=(
            FaultSpec(
                id="flap",
                fault="link-flap",
                target=link.name,
                at=flap_at,
                duration=3.0,
                options={"down": round(dice.uniform(0.3, 0.6), 2), "up": round(dice.uniform(0.3, 0.6), 2)},
            ),
            FaultSpec(
                id="slow",
                fault="link-latency",
                target=link.name,
                at=slow_at,
                duration=3.0,
                options={"latency": dice.randrange(80, 160), "jitter": dice.randrange(10, 40)},
            ),
            FaultSpec(
                id="failover", fault="failover-forced", target=link.name, at=kill_at, duration=0.0, when="open-transactions"
            ),
        ),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=duration,
    )
