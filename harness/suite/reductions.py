"""Smaller scenarios than a given one: fewer faults, then a smaller setting, then plainer faults,
then shorter times. Pure.

Each step is one of a few that are tried until none of them fails any more (delta debugging, Zeller
and Hildebrandt 2002).
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
"""Seconds below which no fault is shortened: its bite could not be measured."""
_EXTRAS: Final = ("relay", "zombie", "idempotent")
"""Workloads that others do not need; readers stay, since without them little can be judged."""


def without(schedule: Sequence[FaultSpec], gone: Collection[str]) -> tuple[FaultSpec, ...]:
    """A schedule without some faults: what waited for one of them waits for what that had waited
    for."""
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
    """A fault and all that wait for it, directly or by others."""
    found = {id_}
    for _ in schedule:
        found |= {fault.id for fault in schedule if found & set(condition(fault.when).faults)}
    return found


def fewer_faults(scenario: Scenario) -> Iterator[Scenario]:
    """Without half of the faults, a quarter, …, one; and without one and all that follow it."""
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
    """Without clusters that no fault is about, with one broker each, default options, and plain
    topics."""
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
    """The topology without a cluster; None where that is both a source and a destination, or
    another would have no link left."""
    if name in {link.source for link in topology.links} & {
        link.destination for link in topology.links
    }:
        return None  # what is behind it would hang in the air
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
    """Each fault with its default options, and with less that it waits for."""
    for index, fault in enumerate(scenario.schedule):
        if fault.options:
            yield _with(scenario, index, replace(fault, options={}))
        waits = condition(fault.when)
        for n in range(len(waits.triggers)):
            fewer = (*waits.triggers[:n], *waits.triggers[n + 1 :])
            yield _with(scenario, index, replace(fault, when=str(replace(waits, triggers=fewer))))


def shorter_times(scenario: Scenario) -> Iterator[Scenario]:
    """All faults half as long, each half as long, each at once."""
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
