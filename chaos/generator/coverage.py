"""The coverage of generated runs as counts of cells, and how much a scenario would add to it.

A cell is a text: its kind and two to four parts. The generator computes the cells that a scenario
is meant to hit (`cells_of`). The cells that a run did hit are read from its run directory
(`linkflap.suite.observed`).

    strike    fault, log state in which it struck, position, mirror
              strike/link-cut/open-transactions/link-1/shadow
    after     fault, fault that ended before it         after/mirror-kill/failover-forced
    over      fault, fault that lasted when it began    over/mirror-kill/link-cut
    again     fault, mirror: the fault struck the same target at least twice
              again/mirror-kill/shadow
    how       fault, an option with a choice, mirror    how/client-kill/workload=readers/shadow
    with      mirror, an option with its value          with/shadow/bound=lso
    on        mirror, shape of the topology             on/shadow/A->B->C
    kafka     mirror, releases on both sides of a link  kafka/mm2/3.9.2->4.3.1
    clients   mirror, client library if not librdkafka  clients/shadow/java,librdkafka
    workload  mirror, kind of workload                  workload/shadow/relay
    topic     mirror, a topic config with its value     topic/mm2/cleanup.policy=compact
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from linkflap.chaos.faults import FAULTS
from linkflap.chaos.triggers import condition
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.faults import Target
from linkflap.harness.model.scenario import LIBRARIES, LIBRDKAFKA, FaultSpec, Scenario
from linkflap.harness.model.texts import nearest
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.workloads import KINDS

PLAIN = "plain"
"""The log state of a fault if none of the named states was true."""
_OF_ALL = {"kafka": 3, "clients": 3}
"""Weights of cells in `novelty` (default: 1). A pair of releases or a client library counts more:
it applies to a whole run, while every fault adds several cells."""


_KINDS = (
    "strike", "after", "over", "again", "how", "with", "on", "kafka", "clients", "workload",
    "topic",
)  # fmt: skip
_POSITIONS = ("clients", "source", "middle", "destination", *(
    f"{way}-{hop}" for way in ("link", "back") for hop in range(1, 10)
))  # fmt: skip
_FREE = re.compile(r".*(=|->|,|\d\.\d).*")
"""Parts of cells that are not of a list: options, topologies, releases, libraries."""


def check_pattern(pattern: str, also: Iterable[str]) -> None:
    """Raises InputError for a pattern that no cell, nor a part of one, can match. `also`: the log
    states and mirrors of a suite."""
    known = (*_KINDS, *_POSITIONS, *FAULTS, *KINDS, *LIBRARIES, *also)
    for part in pattern.split("/"):
        if not _FREE.fullmatch(part) and not fnmatch.filter(known, part):
            raise InputError(
                f"--reach {pattern!r}: no run of this suite can reach {part!r}"
                f"{nearest(part, known)}; name log states, faults or mirrors, or cells of the "
                "coverage (linkflap docs suites)"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many runs hit each cell."""

    hits: Mapping[str, int] = field(default_factory=dict)

    def with_run(self, cells: Iterable[str]) -> Coverage:
        """The coverage with one more run, which hit these cells."""
        counts = Counter(self.hits)
        counts.update(set(cells))
        return Coverage(hits=dict(counts))

    def novelty(self, cells: Iterable[str]) -> float:
        """The sum of weight / (1 + hits) over these cells: rarely hit cells count most."""
        return sum(
            _OF_ALL.get(cell.partition("/")[0], 1) / (1 + self.hits.get(cell, 0))
            for cell in set(cells)
        )


def position(target: str, topology: Topology) -> str:
    """Where a fault strikes: `link-1` (the first hop), `back-1` (its reverse), `clients` (the path
    of clients), or the role of a cluster: `source`, `middle` or `destination`."""
    on = Target.parse(target)
    if on.is_client_path:
        return "clients"
    if target in topology.service_links:
        return "service"
    into = {link.destination for link in topology.links}
    out = {link.source for link in topology.links}
    if not on.link:
        return (
            "middle"
            if on.cluster in into & out
            else "destination"
            if on.cluster in into
            else "source"
        )
    if on.link in topology.links:
        return f"link-{hop(on.source, topology)}"
    return f"back-{hop(on.destination, topology)}"


def hop(cluster: str, topology: Topology) -> int:
    """The number of the hop that begins at a cluster: 1 plus the links before it. In a ring every
    hop is 1."""
    seen, frontier, depth = {cluster}, {cluster}, 1
    while True:
        frontier = {link.source for link in topology.links if link.destination in frontier} - seen
        if not frontier:
            return depth if len(seen) < len(topology.clusters) or not _ring(topology) else 1
        seen |= frontier
        depth += 1


def _ring(topology: Topology) -> bool:
    into = {link.destination for link in topology.links}
    return all(cluster.name in into for cluster in topology.clusters)


def shape(topology: Topology) -> str:
    """The topology without releases and settings: `A:3->B:3`."""
    names = {
        c.name: c.name if c.brokers == 1 else f"{c.name}:{c.brokers}" for c in topology.clusters
    }
    links = [f"{names[link.source]}->{names[link.destination]}" for link in topology.links]
    return ",".join(links or names.values())


def strike(fault: FaultSpec, state: str, topology: Topology, mirror: str) -> str:
    """The `strike` cell of one fault in one log state."""
    return f"strike/{fault.fault}/{state}/{position(fault.target, topology)}/{mirror}"


def surroundings(scenario: Scenario) -> set[str]:
    """The cells of a run that do not depend on its faults."""
    kind = scenario.mirror.kind
    cells = {f"on/{kind}/{shape(scenario.topology)}"}
    cells |= {f"with/{kind}/{name}={value}" for name, value in scenario.mirror.options.items()}
    cells |= {f"topic/{kind}/{name}={value}" for name, value in scenario.topics.config.items()}
    cells |= {f"workload/{kind}/{workload.kind}" for workload in scenario.workloads}
    cells |= {
        f"clients/{kind}/{workload.library}"
        for workload in scenario.workloads
        if workload.library != LIBRDKAFKA
    }
    cells |= {f"kafka/{kind}/{a.kafka}->{b.kafka}" for a, b in _linked(scenario.topology)}
    return cells


def _linked(topology: Topology) -> list[tuple[ClusterSpec, ClusterSpec]]:
    return [
        (topology.cluster(link.source), topology.cluster(link.destination))
        for link in topology.links
    ]


def cells_of(scenario: Scenario) -> set[str]:
    """The cells that a scenario is meant to hit."""
    kind, cells = scenario.mirror.kind, surroundings(scenario)
    faults = {fault.id: fault for fault in scenario.schedule}
    for fault in scenario.schedule:
        waits = condition(fault.when)
        states = [name for name, _ in waits.triggers] or [PLAIN]
        cells |= {strike(fault, state, scenario.topology, kind) for state in states}
        cells |= {f"after/{fault.fault}/{faults[other].fault}" for other in waits.after}
        cells |= {f"over/{fault.fault}/{faults[other].fault}" for other in waits.during}
    return cells | option_cells(scenario.schedule, kind)


def option_cells(struck: Sequence[FaultSpec], mirror: str) -> set[str]:
    """The cells `how` (options that are choices) and `again` of faults."""
    chosen = (
        (fault, name, value)
        for fault in struck
        for name, value in fault.options.items()
        if isinstance(value, str)
    )
    return repeated(struck, mirror) | {
        f"how/{fault.fault}/{name}={value}/{mirror}" for fault, name, value in chosen
    }


def repeated(struck: Iterable[FaultSpec], mirror: str) -> set[str]:
    """The cells `again`: faults that struck the same target more than once."""
    counts = Counter((fault.fault, fault.target) for fault in struck)
    return {f"again/{fault}/{mirror}" for (fault, _), count in counts.items() if count > 1}
