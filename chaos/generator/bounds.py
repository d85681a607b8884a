"""The bounds of generated scenarios. Plain values, kept with a suite so that it continues with the
same bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from linkflap.chaos.faults import (
    BY_FAKETIME,
    FAULTS,
    IN_CONTAINERS,
    IN_PROCESSES,
    OF_CERTIFICATES,
    OF_PROGRAMS,
)
from linkflap.harness import mirrors
from linkflap.harness.model.clients import LIBRDKAFKA, libraries
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import MirrorSpec, Scenario
from linkflap.harness.model.security import secured
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.runtimes import faketime
from linkflap.topologies import TOPOLOGIES, parse
from linkflap.topologies.arrows import arrows

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
"""Pairs, chains to four clusters, fan-in, fan-out, a round trip, a ring."""
PRIVILEGED: Final = frozenset({"broker-disk-full", "broker-disk-slow", "clock-skew"})
"""Faults that take rights or packages which not every machine has: drawn only where a suite names
them."""
LOSSY: Final = frozenset({"records-deleted", "topic-recreated", "unclean-election"})
"""Faults after which acknowledged records may be missing without a violation: drawn only if a suite
names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`topologies` in their notation, `mirrors` by kind, `faults` by name (empty: all that the
    runtime can do), `kafka` the releases of which each cluster gets one, `clients` the libraries of
    which a run has one, or all by turns; `longest` seconds that one fault is held, `most` faults
    beside failovers."""

    topologies: tuple[str, ...] = (PAIR,)
    mirrors: tuple[str, ...] = ("shadow",)
    faults: tuple[str, ...] = ()
    kafka: tuple[str, ...] = (DEFAULT_KAFKA,)
    clients: tuple[str, ...] = (LIBRDKAFKA,)
    runtime: str = "process"
    longest: float = 2.0
    most: int = 4

    @property
    def allowed(self) -> tuple[str, ...]:
        """The faults that may be drawn."""
        apart = (
            PRIVILEGED
            | LOSSY
            | OF_PROGRAMS
            | (IN_PROCESSES if self.runtime == "docker" else IN_CONTAINERS)
        )
        apart |= frozenset() if self._all_tls else OF_CERTIFICATES
        return self.faults or tuple(name for name in FAULTS if name not in apart)

    @property
    def crews(self) -> tuple[str, ...]:
        """Whose clients a run can have: each library alone, and where there are several, all of
        them by turns."""
        return self.clients if len(self.clients) == 1 else (*self.clients, ",".join(self.clients))

    @property
    def _all_tls(self) -> bool:
        """Whether every cluster of every topology shows certificates."""
        every = [cluster for name in self.topologies for cluster in parse(arrows_of(name)).clusters]
        return all(secured(cluster.security).tls for cluster in every)

    def check(self) -> None:
        """Raises InputError for an unknown name."""
        for name in self.topologies:
            parse(arrows_of(name))
        for kind in self.mirrors:
            if kind not in mirrors.MIRRORS:
                raise InputError(
                    f"there is no mirror {kind!r}; there is {', '.join(mirrors.MIRRORS)}"
                )
            for release in self.kafka:
                mirrors.check_played(_smallest(kind, release), self.runtime)
        for named in self.clients:
            libraries(named)
        for fault in self.faults:
            if fault not in FAULTS:
                raise InputError(f"there is no fault {fault!r}; there is {', '.join(FAULTS)}")
            if fault in BY_FAKETIME:
                faketime.library()
        if not self.topologies or not self.mirrors or not self.kafka or not self.clients:
            raise InputError(
                "a suite draws from at least one topology, one mirror, one Kafka and one client "
                "library; name one of each"
            )


def _smallest(kind: str, release: str) -> Scenario:
    """Only a mirror on clusters of one release: shows whether the mirror is available at all."""
    pair = parse(PAIR)
    topology = replace(
        pair, clusters=tuple(replace(cluster, kafka=release) for cluster in pair.clusters)
    )
    return Scenario(
        name="smallest",
        about="",
        seed=0,
        topology=topology,
        mirror=MirrorSpec(kind=kind),
        workloads=(),
        schedule=(),
    )


def arrows_of(name: str) -> str:
    """The notation of a topology: the given one, or that of a named topology."""
    return arrows(TOPOLOGIES[name]()) if name in TOPOLOGIES else name
