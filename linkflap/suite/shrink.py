"""Shrinks a failing scenario: tries smaller ones until none of them fails in the same way, or the
budget of time is spent.

An oracle runs the candidates, several in parallel, because parallel runs cost little more than one.
Failures of real clusters are intermittent, so the oracle counts failed runs. At the end the
smallest scenario is measured again (`_settled`). If it fails too seldom, the one before it is taken
instead.

Reductions are pure functions: fewer faults, then a smaller setting, then plainer faults, then
shorter times.

Each pass yields candidates that are one step smaller. The shrinker applies a pass until no
candidate of it fails any more (delta debugging, Zeller and Hildebrandt 2002).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Protocol

from linkflap.chaos import scenario_file
from linkflap.chaos.cases import case
from linkflap.chaos.generator.generate import playable
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
        yield replace(
            scenario,
            topology=replace(scenario.topology, clusters=small),
            topics=replace(scenario.topics, replicas=TopicSpec().replicas),
        )
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
    """Each fault with its default options, then with one option or one trigger fewer."""
    for index, fault in enumerate(scenario.schedule):
        if fault.options:
            yield _with(scenario, index, replace(fault, options={}))
        for name in fault.options if len(fault.options) > 1 else ():
            rest = {key: value for key, value in fault.options.items() if key != name}
            yield _with(scenario, index, replace(fault, options=rest))
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


OFTEN: Final = 0.5
"""The share of runs in which the shrunk scenario must fail when it is run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`failed` of `tries` runs failed in the same way."""

    failed: int
    tries: int

    @property
    def share(self) -> float:
        return self.failed / self.tries if self.tries else 0.0

    def __str__(self) -> str:
        return case.words(self.failed, self.tries)

    def __add__(self, other: Rate) -> Rate:
        return Rate(failed=self.failed + other.failed, tries=self.tries + other.tries)


class Oracle(Protocol):
    """Runs each scenario `times` times, and counts how often it fails with the failure that is
    being shrunk."""

    width: int
    """How many scenarios run in parallel."""

    def __call__(self, candidates: Sequence[Scenario], *, times: int) -> list[Rate]: ...
    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The smallest scenario found, how often it fails, and how many steps led to it.
    `without_last` is the rate without its last fault, or None if that was not tried."""

    scenario: Scenario
    rate: Rate
    steps: int
    without_last: Rate | None = None


@dataclass(slots=True, kw_only=True)
class Shrinker:
    """Shrinks one failure. `accepted` is called with each smaller scenario that still fails."""

    fails: Oracle
    accepted: Callable[[Scenario], None] = lambda scenario: None
    times: int = 2
    measures: int = 4
    _tried: dict[str, Rate] = field(default_factory=dict)

    def shrink(self, scenario: Scenario, known: Rate | None = None) -> Shrunk:
        """The smallest scenario that fails like `scenario`, or `scenario` itself if nothing smaller
        fails. `known` is its measured rate."""
        if known is not None:
            self._tried[_key(scenario)] = known
        history = [scenario]
        smaller = True
        while smaller and not self.fails.spent:
            smaller = False
            for reduce in PASSES:
                while (found := self._step(list(reduce(history[-1])))) is not None:
                    history.append(found)
                    self.accepted(found)
                    smaller = True
        return self._settled(history)

    def _step(self, candidates: Sequence[Scenario]) -> Scenario | None:
        """The first candidate that fails often enough; None if none does or the budget is spent."""
        new = [
            made
            for made in candidates
            if made.schedule and playable(made) and _key(made) not in self._tried
        ]
        for group in _groups(
            list({_key(made): made for made in new}.values()),
            max(1, self.fails.width // self.times),
        ):
            if self.fails.spent:
                return None
            rates = self.fails(group, times=self.times)
            self._tried |= {_key(made): rate for made, rate in zip(group, rates, strict=True)}
            for made, rate in zip(group, rates, strict=True):
                if rate.share >= OFTEN:
                    return made
        return None

    def _settled(self, history: list[Scenario]) -> Shrunk:
        """The last step that fails often enough when it is measured again. If none does, the step
        that fails most often."""
        best: tuple[Scenario, Rate] | None = None
        for made in reversed(history):
            rate = self._tried.get(_key(made), Rate(failed=0, tries=0))
            if rate.tries < self.measures:
                rate += self.fails([made], times=self.measures)[0]
            if best is None or rate.share > best[1].share:
                best = (made, rate)
            if rate.share >= OFTEN:
                break
        scenario, rate = best or (history[0], Rate(failed=0, tries=0))
        return Shrunk(
            scenario=scenario,
            rate=rate,
            steps=len(history) - 1,
            without_last=self._without_last(scenario),
        )

    def _without_last(self, scenario: Scenario) -> Rate | None:
        last = [
            made
            for made in fewer_faults(scenario)
            if len(made.schedule) == len(scenario.schedule) - 1
        ]
        rates = [rate for made in last if (rate := self._tried.get(_key(made)))]
        return rates[-1] if rates else None


def _key(scenario: Scenario) -> str:
    return scenario_file.render(scenario)


def _groups(every: Sequence[Scenario], size: int) -> Iterator[list[Scenario]]:
    left = iter(every)
    while group := list(islice(left, size)):
        yield group
