"""Reductions of a scenario, for shrinking: fewer faults, then a smaller setting, then plainer
faults, then shorter times. All functions are pure.

Each pass yields candidates that are one step smaller. The shrinker applies a pass until no
candidate of it fails any more (delta debugging, Zeller and Hildebrandt 2002).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from linkflap.chaos.triggers import Condition, condition
from linkflap.harness.model.faults import Target
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec, Scenario, TopicSpec, WorkloadSpec
from linkflap.harness.model.topology import Topology

SHORTEST: Final = 0.3
"""Seconds: no fault is made shorter, because the bite of a shorter one cannot be measured."""
_EXTRAS: Final = ("relay", "zombie", "idempotent")
"""Workloads that no other workload needs. Readers stay: most checks need what they read."""


def without(schedule: Sequence[FaultSpec], gone: Collection[str]) -> tuple[FaultSpec, ...]:
    """A schedule without the faults `gone` (ids). A fault that waited for a removed one now waits
    for the faults that the removed one waited for."""
    known = {fault.id: condition(fault.when) for fault in schedule}

    def before(name: str) -> list[str]:
        return (
            [name]
            if name not in gone
            else [found for other in known[name].after for found in before(other)]
        )

    kept = []
    for fault in schedule:
        if fault.id in gone:
            continue
        waits = known[fault.id]
        after = dict.fromkeys(found for name in waits.after for found in before(name))
        during = tuple(name for name in waits.during if name not in gone)
        kept.append(
            replace(
                fault,
                when=str(Condition(after=tuple(after), during=during, triggers=waits.triggers)),
            )
        )
    return tuple(kept)


def followers(schedule: Sequence[FaultSpec], id_: str) -> set[str]:
    """The ids of a fault and of all faults that wait for it, directly or through others."""
    found = {id_}
    for _ in schedule:
        found |= {fault.id for fault in schedule if found & set(condition(fault.when).faults)}
    return found


def fewer_faults(scenario: Scenario) -> Iterator[Scenario]:
    """Removes half of the faults, a quarter, …, one; then one fault with all that wait for it."""
    schedule = scenario.schedule
    size = (len(schedule) + 1) // 2
    while size:
        for begin in range(0, len(schedule), size):
            yield replace(
                scenario, schedule=without(schedule, [f.id for f in schedule[begin : begin + size]])
            )
        size //= 2
    for fault in schedule:
        yield replace(scenario, schedule=without(schedule, followers(schedule, fault.id)))


def smaller_setting(scenario: Scenario) -> Iterator[Scenario]:
    """Removes clusters that no fault targets; then tries one broker for each cluster, default
    options of the mirror, plain topics and fewer clients."""
    yield from (replace(made, name=scenario.name) for made in _fewer_clusters(scenario))
    if any(cluster.brokers > 1 for cluster in scenario.topology.clusters):
        small = tuple(replace(cluster, brokers=1) for cluster in scenario.topology.clusters)
        yield replace(scenario, topology=replace(scenario.topology, clusters=small))
    if scenario.mirror.options:
        yield replace(scenario, mirror=MirrorSpec(kind=scenario.mirror.kind))
        for name in scenario.mirror.options:
            rest = {key: value for key, value in scenario.mirror.options.items() if key != name}
            yield replace(scenario, mirror=MirrorSpec(kind=scenario.mirror.kind, options=rest))
    if scenario.topics.config:
        yield replace(scenario, topics=replace(scenario.topics, config={}))
    usual = TopicSpec().partitions
    for count in {1, usual} - {scenario.topics.partitions}:
        if count < scenario.topics.partitions:
            yield replace(scenario, topics=replace(scenario.topics, partitions=count))
    yield from _fewer_clients(scenario)


def _fewer_clusters(scenario: Scenario) -> Iterator[Scenario]:
    for cluster in scenario.topology.clusters:
        rest = _without_cluster(scenario.topology, cluster.name)
        if rest is None or any(
            cluster.name in _clusters(fault.target) for fault in scenario.schedule
        ):
            continue
        left = [
            w for w in scenario.workloads if cluster.name not in (w.home, w.options.get("cluster"))
        ]
        yield replace(scenario, topology=rest, workloads=tuple(left))


def _without_cluster(topology: Topology, name: str) -> Topology | None:
    """The topology without a cluster. None if this cluster is both a source and a destination, or
    if another cluster would have no link left."""
    if name in {link.source for link in topology.links} & {
        link.destination for link in topology.links
    }:
        return None  # the chain would break: clusters behind it would have no source
    links = tuple(link for link in topology.links if name not in (link.source, link.destination))
    kept = tuple(cluster for cluster in topology.clusters if cluster.name != name)
    linked = {end for link in links for end in (link.source, link.destination)}
    return (
        Topology(clusters=kept, links=links)
        if links and linked >= {cluster.name for cluster in kept}
        else None
    )


def _clusters(target: str) -> list[str]:
    on = Target.parse(target)
    return [name for name in (on.source, on.destination) if name]


def _fewer_clients(scenario: Scenario) -> Iterator[Scenario]:
    for kind in _EXTRAS:
        rest = tuple(w for w in scenario.workloads if w.kind != kind)
        if len(rest) < len(scenario.workloads):
            yield replace(scenario, workloads=rest)
    plain = tuple(_plain(workload) for workload in scenario.workloads)
    if plain != scenario.workloads:
        yield replace(scenario, workloads=plain)


def _plain(workload: WorkloadSpec) -> WorkloadSpec:
    shaped = ("value_size", "keys", "skew", "tombstones", "compression", "records", "partitions")
    return replace(
        workload,
        options={name: value for name, value in workload.options.items() if name not in shaped},
    )


def plainer_faults(scenario: Scenario) -> Iterator[Scenario]:
    """Each fault with its default options, then with one trigger fewer."""
    for index, fault in enumerate(scenario.schedule):
        if fault.options:
            yield _with(scenario, index, replace(fault, options={}))
        waits = condition(fault.when)
        for n in range(len(waits.triggers)):
            fewer = (*waits.triggers[:n], *waits.triggers[n + 1 :])
            yield _with(scenario, index, replace(fault, when=str(replace(waits, triggers=fewer))))


def shorter_times(scenario: Scenario) -> Iterator[Scenario]:
    """Halves the duration of all faults, then of each, and the time before each."""
    halved = tuple(_halved(fault) for fault in scenario.schedule)
    if halved != scenario.schedule:
        yield replace(scenario, schedule=halved)
    for index, fault in enumerate(scenario.schedule):
        if _halved(fault) != fault:
            yield _with(scenario, index, _halved(fault))
        if fault.at > SHORTEST:
            yield _with(scenario, index, replace(fault, at=round(fault.at / 2, 2)))


def _halved(fault: FaultSpec) -> FaultSpec:
    return (
        replace(fault, duration=round(fault.duration / 2, 2))
        if fault.duration / 2 >= SHORTEST
        else fault
    )


def _with(scenario: Scenario, index: int, fault: FaultSpec) -> Scenario:
    schedule = (*scenario.schedule[:index], fault, *scenario.schedule[index + 1 :])
    return replace(scenario, schedule=schedule)


PASSES: Final[Sequence[Callable[[Scenario], Iterator[Scenario]]]] = (
    fewer_faults,
    smaller_setting,
    plainer_faults,
    shorter_times,
)
