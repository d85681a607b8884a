"""Conditions that a planned fault waits for, so that it is not placed by hoping for the right second.

A trigger is a function of the fault and the world, on the state of the logs. `FaultSpec.when` holds its name, or says which
faults must have ended before, or both: `open-transactions`, `after:failover`, `after:flap,slow and open-transactions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from confluent_kafka.admin import AdminClient

from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import is_data_topic
from linkflap.harness.wire.offsets import answered_bounds, quiet

UNDER_WAY: Final = 1000
ANSWERS_WITHIN: Final = 2.0
_AFTER: Final = "after:"
_AND: Final = " and "
Trigger = Callable[[FaultSpec, World], bool]


def _always(spec: FaultSpec, world: World) -> bool:
    """Nothing is waited for: the fault starts at its time."""
    return True


def _open_transactions(spec: FaultSpec, world: World) -> bool:
    """Some transaction on the source of the link (or the cluster of the broker) has written and is not ended."""
    return world.clients.open_transactions(spec.target.split("->")[0].split("/")[0]) > 0


def _commit_in_flight(spec: FaultSpec, world: World) -> bool:
    """Some commit was asked for on the source of the link (or the cluster of the broker), and is not answered."""
    return world.clients.commits_in_flight(spec.target.split("->")[0].split("/")[0]) > 0


def _under_way(spec: FaultSpec, world: World) -> bool:
    """1,000 records were acknowledged on the source of the link (or the cluster of the broker): every kind of client is at it."""
    return world.clients.acknowledged_since(0, spec.target.split("->")[0].split("/")[0]) >= UNDER_WAY


def _segments_deleted(spec: FaultSpec, world: World) -> bool:
    """Every partition on the source of the link (or the cluster) has lost segments to retention: its log begins above 0."""
    cluster = spec.target.split("->")[0].split("/")[0]
    own = [(topic, n) for topic, count in world.topics.items() if is_data_topic(topic, (cluster,)) for n in range(count)]
    starts = answered_bounds(
        AdminClient(quiet(world.deployment.clusters[cluster].bootstrap)), own, "start", within=ANSWERS_WITHIN
    )
    return len(starts) == len(own) and all(start > 0 for start in starts.values())


def _mirror_behind(spec: FaultSpec, world: World) -> bool:
    """The mirror has read less than there is: killing it now interrupts a write."""
    return bool(world.mirrors[spec.target].lag())


TRIGGERS: Mapping[str, Trigger] = MappingProxyType(
    {
        "always": _always,
        "open-transactions": _open_transactions,
        "commit-in-flight": _commit_in_flight,
        "mirror-behind": _mirror_behind,
        "segments-deleted": _segments_deleted,
        "under-way": _under_way,
    }
)


def parts(when: str) -> tuple[tuple[str, ...], str]:
    """(ids of the faults that must have ended; name of the trigger), of what `FaultSpec.when` holds."""
    if not when.startswith(_AFTER):
        return (), when
    before, also, trigger = when.removeprefix(_AFTER).partition(_AND)
    return tuple(before.split(",")), trigger if also else "always"


def after(*faults: str, once: str = "always") -> str:
    """What `FaultSpec.when` holds of a fault that follows others: the opposite of `parts`."""
    return f"{_AFTER}{','.join(faults)}" + (f"{_AND}{once}" if once != "always" else "")
