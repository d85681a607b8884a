"""The bounds of generated scenarios. Plain values, kept with a suite so that it continues with the
same bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final

from linkflap.chaos.faults import (
    BY_FAKETIME,
    FAULTS,
    IN_CONTAINERS,
    IN_PROCESSES,
    OF_CERTIFICATES,
    OF_PROGRAMS,
    ON_THE_WIRE,
)
from linkflap.harness import mirrors, runtimes
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import LIBRDKAFKA, NO_MIRROR, MirrorSpec, Scenario, libraries
from linkflap.harness.model.security import secured
from linkflap.harness.model.texts import nearest
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec, of_release
from linkflap.harness.runtimes import faketime
from linkflap.topologies import TOPOLOGIES, parse
from linkflap.topologies.notation import arrows

PAIR: Final = "A->B"
ALL: Final = (
    PAIR,
    "A:3->B:3",
    "A->B->C",
    "A->B->C->D",
    "A->C, B->C",
    "A->B, A->C",
    "A<->B",
    "A->B->C->A",
)
"""Pairs, chains of up to four clusters, fan-in, fan-out, a round trip, a ring."""
PRIVILEGED: Final = frozenset({"broker-disk-full", "broker-disk-slow", "clock-skew"})
"""Faults that need root or packages that not every machine has: drawn only if a suite names
them."""
LOSSY: Final = frozenset({"records-deleted", "service-kill", "topic-recreated", "unclean-election"})
"""Faults after which acknowledged records may be missing without a violation (a service may keep
them in memory): drawn only if a suite names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorBounds:
    """The choices of a generated scenario. Topologies of one cluster have no mirror.

    `topologies` are in arrow notation or by name, `mirrors` and `faults` by name (no fault: all
    that the runtime can play). Each cluster gets one release of `kafka`. The clients of a run use
    one library of `clients`, or alternate between all of them. `longest` is the longest duration of
    a fault in seconds. `most` is the largest number of faults besides failovers.

    `like` is a scenario whose clusters, mirror, topics and workloads every run has: only the faults
    are drawn. `of_scenario` makes the bounds for one.
    """

    topologies: tuple[str, ...] = (PAIR,)
    mirrors: tuple[str, ...] = ("shadow",)
    faults: tuple[str, ...] = ()
    kafka: tuple[str, ...] = (DEFAULT_KAFKA,)
    clients: tuple[str, ...] = (LIBRDKAFKA,)
    runtime: str = "process"
    longest: float = 2.0
    most: int = 4
    like: Scenario | None = None

    @property
    def allowed(self) -> tuple[str, ...]:
        """The faults that may be drawn."""
        apart = (
            PRIVILEGED
            | LOSSY
            | (OF_PROGRAMS - ON_THE_WIRE if self._through_recorders else OF_PROGRAMS)
            | (IN_PROCESSES if self.runtime == "docker" else IN_CONTAINERS)
        )
        apart |= frozenset() if self._all_tls else OF_CERTIFICATES
        return self.faults or tuple(name for name in FAULTS if name not in apart)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of mirror that runs have; `none` on one cluster."""
        linked = {bool(parse(arrows_of(name)).links) for name in self.topologies}
        return (
            *(self.mirrors if True in linked else ()),
            *((NO_MIRROR.kind,) if False in linked else ()),
        )

    @property
    def crews(self) -> tuple[str, ...]:
        """The client libraries that a run can have: each one alone, and if there are several, all
        of them alternating."""
        return self.clients if len(self.clients) == 1 else (*self.clients, ",".join(self.clients))

    @property
    def _clusters(self) -> list[ClusterSpec]:
        """The clusters of every topology."""
        return [cluster for name in self.topologies for cluster in parse(arrows_of(name)).clusters]

    @property
    def _all_tls(self) -> bool:
        """Whether every cluster of every topology uses TLS."""
        return all(secured(cluster.security).tls for cluster in self._clusters)

    @property
    def _through_recorders(self) -> bool:
        """Whether clients can connect through recorders, which present a certificate of their own.
        Those of a scenario are as they are there."""
        refused = self._all_tls and NO_MIRROR.kind in self.kinds  # certificates of clients' paths
        certificates = any(secured(cluster.security).certificates for cluster in self._clusters)
        return self.like is None and not certificates and not refused

    def check(self) -> None:
        """Raises InputError for an unknown name, and for what this machine or the runtime cannot
        play; SetupError where linkflap is offline and the cache lacks something."""
        self._check_played()
        for named in self.clients:
            libraries(named)
        for fault in self.faults:
            if fault not in FAULTS:
                raise InputError(
                    f"there is no fault {fault!r}{nearest(fault, FAULTS)}; known: "
                    f"{', '.join(FAULTS)}"
                )
            if fault in BY_FAKETIME:
                faketime.library()
        if not self.topologies or not self.mirrors or not self.kafka or not self.clients:
            raise InputError(
                "a suite draws from at least one topology, one mirror, one Kafka and one client "
                "library; name one of each"
            )

    def _check_played(self) -> None:
        """The part of `check` about mirrors and topologies on each release."""
        topologies = [parse(arrows_of(name)) for name in self.topologies]
        for alone in (each for each in topologies if not each.links):
            for release in self.kafka:
                runtimes.check(self.runtime, of_release(alone, repeat(release).__next__))
        for kind in self.mirrors:
            mirrors.check_kind(kind)
            for release in self.kafka if kind in self.kinds else ():
                smallest = self.like or _smallest(kind, release)
                mirrors.check_played(smallest, self.runtime)
                runtimes.check(self.runtime, smallest.topology)


def of_scenario(scenario: Scenario, bounds: GeneratorBounds) -> GeneratorBounds:
    """The bounds in which every run is like this scenario, but for its faults."""
    clusters = scenario.topology.clusters
    return replace(
        bounds,
        topologies=(arrows(of_release(scenario.topology, lambda: DEFAULT_KAFKA)),),
        mirrors=(scenario.mirror.kind,) if scenario.topology.links else bounds.mirrors,
        kafka=tuple(dict.fromkeys(cluster.kafka for cluster in clusters)),
        clients=tuple(dict.fromkeys(each.library for each in scenario.workloads)),
        like=replace(scenario, schedule=()),
    )


def _smallest(kind: str, release: str) -> Scenario:
    """A scenario with only a mirror, on two clusters of one release: to check whether this mirror
    is available."""
    return Scenario(
        name="smallest",
        about="",
        seed=0,
        topology=of_release(parse(PAIR), lambda: release),
        mirror=MirrorSpec(kind=kind),
        workloads=(),
        schedule=(),
    )


def arrows_of(name: str) -> str:
    """The arrow notation of a topology, which may be given by name (`pair`) or in this notation."""
    return arrows(TOPOLOGIES[name]()) if name in TOPOLOGIES else name
