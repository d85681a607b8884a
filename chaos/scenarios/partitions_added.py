"""partitions-added: the topic gets more partitions under load; readers, mirrors and group offsets
include them; then a failover.

Guarantee at stake: every guarantee covers a partition from its first record on, whenever it was
added (KIP-195). A client that discovers it late must begin at its log start. A violation is a new
partition whose first records the group or the mirror never got.
"""

from __future__ import annotations

from random import Random

from linkflap.chaos.scenarios.base import WITH_TRANSACTIONS_OPEN, ScenarioRequest, one_failover
from linkflap.harness.model.scenario import FaultSpec, Scenario
from linkflap.harness.model.topology import LinkSpec

MIRRORED = 50
"""Offsets of every partition that are on both sides before the failover."""


def build(request: ScenarioRequest) -> Scenario:
    """A->B: the topic grows by two partitions; A is killed with transactions open, and clients go
    on at B."""
    return one_failover(
        request,
        name="partitions-added",
        about=(
            "the topic gets two more partitions under load; {source} is killed, clients continue "
            "on {destination}"
        ),
        before=_grow,
        between=(3.0, 4.0),
        # Nothing can be compared in a partition without mirrored records.
        when=f"after:grow and mirrored:{MIRRORED} and {WITH_TRANSACTIONS_OPEN}",
        duration=11.0,
    )


def _grow(link: LinkSpec, rng: Random) -> tuple[FaultSpec, ...]:
    at = round(rng.uniform(2.0, 3.0), 2)
    return (
        FaultSpec(
            id="grow",
            fault="partitions-added",
            target=link.source,
            at=at,
            duration=0.0,
            when="under-way",
            options={"add": 2},
        ),
    )
