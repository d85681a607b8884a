"""half-open: requests pass and responses do not, first for the mirror, then for clients of A.

Brokers execute requests, but their responses are lost. Guarantee at stake: a commit without a
response is either complete or absent (KIP-98), an idempotent producer's retry is not written twice
(KIP-98), and clients report unknown outcomes as unknown. A violation is a duplicate, or an
acknowledged record that is missing.
"""

from __future__ import annotations

from dataclasses import replace

from linkflap.chaos.scenarios.base import ScenarioRequest, default_workloads_at_every_home, id_of
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario
from linkflap.harness.model.topology import hyphen_free
from linkflap.topologies import parse


def build(request: ScenarioRequest) -> Scenario:
    """A->B: the mirror's responses stall, then its requests, then the responses of A's clients.

    In another topology the responses and requests of every link stall, then those of the clients of
    every home cluster.
    """
    rng = request.rng
    topology = request.topology or parse("A->B")
    clients = tuple(
        (
            replace(w, options={**w.options, "via": "proxy"})
            if w.kind in ("transactional", "idempotent")
            else w
        )
        for w in default_workloads_at_every_home(topology)
    )
    gap = round(rng.uniform(0.5, 1.5), 2)
    writers = dict.fromkeys(workload.home for workload in clients)
    links = ", ".join(link.name for link in topology.links)
    return Scenario(
        name="half-open",
        about=(
            f"{links}; responses stall for the mirror, then requests, then responses of clients of "
            f"{' and '.join(writers)}"
        ),
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=clients,
        schedule=(
            *(
                _stalled(id_of("deaf", link, topology), link.name, 1.0, "responses")
                for link in topology.links
            ),
            *(
                _stalled(id_of("mute", link, topology), link.name, 7.0 + gap, "requests")
                for link in topology.links
            ),
            *(
                _stalled(
                    "clients" if n == 0 else f"clients-{hyphen_free(home)}",
                    f"*->{home}",
                    14.0 + gap,
                    "responses",
                )
                for n, home in enumerate(writers)
            ),
        ),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=request.duration or 22.0,
    )


def _stalled(id: str, target: str, at: float, direction: str) -> FaultSpec:
    return FaultSpec(
        id=id,
        fault="link-half-open",
        target=target,
        at=at,
        duration=3.0,
        options={"stalled": direction},
    )
