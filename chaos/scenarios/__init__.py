"""The named scenarios, by what they break, and their registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from linkflap.chaos.scenarios import clusters, failovers, links, topics
from linkflap.chaos.scenarios.base import Builder, ScenarioRequest
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Scenario, with_library
from linkflap.harness.model.texts import nearest

SCENARIOS: Mapping[str, Builder] = MappingProxyType(
    {
        "link-flap": links.link_flap,
        "baseline": clusters.baseline,
        "planned-failover": failovers.planned_failover,
        "mirror-crash": failovers.mirror_crash,
        "broker-loss": clusters.broker_loss,
        "half-open": links.half_open,
        "chain-flap": links.chain_flap,
        "round-trip": links.round_trip,
        "region-loss": failovers.region_loss,
        "failback-divergence": failovers.failback_divergence,
        "failover-open-transactions": failovers.failover_open_transactions,
        "producer-id-collision": failovers.producer_id_collision,
        "relay": links.relay,
        "compacted-topic": topics.compacted_topic,
        "retention": topics.retention,
        "log-append-time": topics.log_append_time,
        "partitions-added": topics.partitions_added,
        "large-messages": topics.large_messages,
        "client-kill": clusters.client_kill,
    }
)


def scenario(name: str, request: ScenarioRequest) -> Scenario:
    """The scenario `name` with the user's options. Raises InputError if there is none."""
    if name not in SCENARIOS:
        raise InputError(
            f"there is no scenario {name!r}{nearest(name, SCENARIOS)}; known: "
            f"{', '.join(SCENARIOS)}"
        )
    made = SCENARIOS[name](request)
    if request.clients is not None:
        made = replace(made, workloads=with_library(made.workloads, request.clients))
    return _stalled(made) if request.stall_source else made


def _stalled(made: Scenario) -> Scenario:
    """The scenario with half-open sources at its forced failovers. Raises InputError if it has no
    forced failover."""
    if not any(fault.name.forced for fault in made.schedule):
        raise InputError(
            f"--stall-source is about forced failovers, and scenario {made.name} has none; leave "
            "it out"
        )
    return replace(
        made,
        schedule=tuple(
            (
                replace(fault, options={**fault.options, "source": "stalled"})
                if fault.name.forced
                else fault
            )
            for fault in made.schedule
        ),
    )


__all__ = ["SCENARIOS", "ScenarioRequest", "scenario"]
