"""The named scenarios, one file each, and their registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from linkflap.chaos.scenarios import (
    baseline,
    broker_loss,
    chain_flap,
    client_kill,
    compacted_topic,
    failback_divergence,
    failover_open_transactions,
    half_open,
    large_messages,
    link_flap,
    log_append_time,
    mirror_crash,
    partitions_added,
    planned_failover,
    producer_id_collision,
    region_loss,
    relay,
    retention,
    round_trip,
)
from linkflap.chaos.scenarios.base import Builder, ScenarioRequest
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Scenario, with_library
from linkflap.harness.model.spelling import nearest

SCENARIOS: Mapping[str, Builder] = MappingProxyType(
    {
        "link-flap": link_flap.build,
        "baseline": baseline.build,
        "planned-failover": planned_failover.build,
        "mirror-crash": mirror_crash.build,
        "broker-loss": broker_loss.build,
        "half-open": half_open.build,
        "chain-flap": chain_flap.build,
        "round-trip": round_trip.build,
        "region-loss": region_loss.build,
        "failback-divergence": failback_divergence.build,
        "failover-open-transactions": failover_open_transactions.build,
        "producer-id-collision": producer_id_collision.build,
        "relay": relay.build,
        "compacted-topic": compacted_topic.build,
        "retention": retention.build,
        "log-append-time": log_append_time.build,
        "partitions-added": partitions_added.build,
        "large-messages": large_messages.build,
        "client-kill": client_kill.build,
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
