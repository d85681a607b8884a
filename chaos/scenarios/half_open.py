"""half-open: requests pass and responses do not, first for the mirror, then for clients of A.

The worst of links: what was asked is done, and nobody gets an answer. At stake: a commit whose answer was lost is either
whole or absent (KIP-98), an idempotent producer's retry is not written twice (KIP-98), and clients report what they do not
know as unknown. A violation is a duplicate, or an acknowledged record that is not there.
"""

from __future__ import annotations

from dataclasses import replace

from linkflap.chaos.scenarios.base import Wish, everyday
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario
from linkflap.topologies import parse


def build(wish: Wish) -> Scenario:
    """A->B: the mirror's responses stall, then its requests, then the responses of A's clients."""
    dice = wish.dice
    topology = wish.topology or parse("A->B")
    link = topology.links[0]
    clients = tuple(
        replace(w, options={**w.options, "via": "proxy"}) if w.kind in ("transactional", "idempotent") else w
        for w in everyday(topology, link.source)
    )
    gap = round(dice.uniform(0.5, 1.5), 2)
    return Scenario(
        name="half-open",
        about="A->B; responses stall for the mirror, then requests, then responses of A's clients",
        seed=wish.seed,
        topology=topology,
        mirror=wish.mirrored_by(),
        workloads=clients,
        schedule=(
            FaultSpec(
                id="deaf", fault="link-half-open", target=link.name, at=1.0, duration=3.0, options={"stalled": "responses"}
            ),
            FaultSpec(
                id="mute", fault="link-half-open", target=link.name, at=7.0 + gap, duration=3.0, options={"stalled": "requests"}
            ),
            FaultSpec(
                id="clients",
                fault="link-half-open",
                target=f"*->{link.source}",
                at=14.0 + gap,
                duration=3.0,
                options={"stalled": "responses"},
            ),
        ),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=wish.duration or 22.0,
    )
