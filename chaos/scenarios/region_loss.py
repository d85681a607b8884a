"""region-loss: clients write in every region, and one region is lost for good.

Guarantee at stake: what each region promised before stays true on those that are left. What the
dead region had not received yet, or had received and nobody can ask it for, is not due: only the
dead could show it. What it had shown to readers or acknowledged to clients must be in its logs, and
what it had not sent on is the recovery point of the failover. A violation is a record of a living
region that is missing there, a record of the dead region that another one had shown and has no
more, or clients that do not go on.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import (
    ScenarioRequest,
    default_workloads_at_every_home,
    failover_of_first,
)
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Minimums, Scenario
from linkflap.topologies import parse


def build(request: ScenarioRequest) -> Scenario:
    """A<->B: clients write on both; A is killed for good with transactions open, and its clients
    continue on B.

    In another topology the source of the first link is killed. Raises InputError if that link
    carries topics of other clusters too, as in a ring.
    """
    topology = request.topology or parse("A<->B")
    link = topology.links[0]
    failover = tuple(failover_of_first(topology, round(request.rng.uniform(4.0, 6.0), 2), ()))
    if not failover:
        raise InputError(
            f"region-loss moves the clients of {link.source} over {link.name}, which carries topics"
            f" of {', '.join(topology.homes_over(link))}; name first a link that carries "
            "the topics of its source alone, e.g. 'A<->B'"
        )
    return Scenario(
        name="region-loss",
        about=(
            f"clients write in every region; {link.source} is killed for good with transactions "
            f"open; its clients continue on {link.destination}"
        ),
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=default_workloads_at_every_home(topology),
        schedule=failover,
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=request.duration or 9.0,
    )
