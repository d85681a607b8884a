"""The named topologies and their registry: one function and one line for each.

The rules that every topology must satisfy: names, sizes, versions, and that no topic reaches a
cluster twice.

Two brokers are refused: every broker is a voter of its cluster's quorum, so the death of either one
stops both, and such a cluster is only a less available one-broker cluster. Even numbers from four
on are allowed: they are wasteful, not wrong. A diamond is refused: topics keep their names over a
link (with every mirror here), so two ways from A to D would write each record of A twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from string import ascii_uppercase
from typing import Final, Protocol

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.security import secured
from linkflap.harness.model.topology import (
    DEFAULT_KAFKA,
    ClusterSpec,
    LinkSpec,
    Topology,
    hyphen_free,
)

MOST_CLUSTERS: Final = 9
MOST_BROKERS: Final = 9
LONGEST_NAME: Final = 32
_TAKEN: Final = ("clients", "mm2", "run", "services", "shadow")
"""Names that a run directory and containers use beside clusters."""
_RELEASE: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")


def check(topology: Topology) -> Topology:
    """The topology itself when it is legal; InputError otherwise."""
    if not topology.clusters:
        raise InputError("it has no cluster; write for example A->B, or A")
    if len(topology.clusters) > MOST_CLUSTERS:
        raise InputError(
            f"it has {len(topology.clusters)} clusters, and {MOST_CLUSTERS} are the most; leave "
            "some out"
        )
    for cluster in topology.clusters:
        check_name(cluster.name)
        check_brokers(cluster.name, cluster.brokers)
        check_kafka(cluster.name, cluster.kafka)
        secured(cluster.security)
    _check_attached(topology)
    _check_spelling([c.name for c in topology.clusters])
    _check_links(topology)
    _check_single_way(topology)
    return topology


def check_name(name: str) -> None:
    """Names are part of topic names, listener names and folder names: ASCII letters and digits, in
    parts that - or _ joins."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*", name):
        raise InputError(
            f"{name!r} is not a cluster's name; begin with a letter, then letters and digits, with "
            "single - or _ between them: A, us-east, eu_west2"
        )
    if name.lower() in _TAKEN:
        raise InputError(
            f"{name!r} cannot be a cluster's name, for it means something else in a run directory; "
            "choose another"
        )
    if len(name) > LONGEST_NAME:
        raise InputError(
            f"the name {name!r} has {len(name)} characters, and {LONGEST_NAME} are the most; choose"
            " a shorter one"
        )


def check_brokers(name: str, brokers: int) -> None:
    if brokers < 1:
        raise InputError(f"cluster {name} has {brokers} brokers; it needs at least 1")
    if brokers > MOST_BROKERS:
        raise InputError(
            f"cluster {name} has {brokers} brokers, and {MOST_BROKERS} are the most; ask for fewer"
        )
    if brokers == 2:
        raise InputError(
            f"cluster {name} has 2 brokers, a quorum that the death of either one stops; use "
            f"{name}:1 or {name}:3"
        )


def check_kafka(name: str, kafka: str) -> None:
    """A release has three numbers; a folder or an image, and no typing error, has a slash, colon,
    dot or tilde."""
    if not kafka:
        raise InputError(
            f"the Kafka version of {name} is empty; write for example {name}@{DEFAULT_KAFKA}"
        )
    if not kafka.isprintable():
        raise InputError(
            f"the Kafka {kafka!r} of {name} holds an unprintable character; name the folder or "
            "image without it"
        )
    if _RELEASE.fullmatch(kafka) or "/" in kafka or kafka.startswith("~"):
        return
    if re.fullmatch(r"[a-z][a-z0-9._-]*[:@]\S+", kafka) or kafka in (".", ".."):
        return
    raise InputError(
        f"{kafka!r} is not a Kafka for {name}; write a release ({DEFAULT_KAFKA}), a folder (./dist)"
        " or an image"
    )


def check_bootstrap(name: str, bootstrap: str) -> None:
    """The addresses of a cluster that runs already: host:port, with commas between several."""
    for address in bootstrap.split(","):
        if not _HOST_AND_PORT.fullmatch(address) or not 0 < int(address.rpartition(":")[2]) < 65536:
            raise InputError(
                f"{address!r} is not an address of cluster {name}; write host:port, for example "
                f"{name}@bootstrap:localhost:9092"
            )


_HOST_AND_PORT: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


def _check_attached(topology: Topology) -> None:
    """Attached are all clusters of a topology, or none."""
    attached = [cluster for cluster in topology.clusters if cluster.bootstrap]
    for cluster in attached:
        check_bootstrap(cluster.name, cluster.bootstrap)
        if cluster.security:
            raise InputError(
                f"cluster {cluster.name} runs already, and its client properties say how it is "
                f"secured; name their file in the braces, or env:NAME"
            )
        if cluster.brokers != 1:
            raise InputError(
                f"cluster {cluster.name} runs already and has the brokers that it has; leave their "
                "number out"
            )
    others = [cluster.name for cluster in topology.clusters if not cluster.bootstrap]
    if attached and others:
        raise InputError(
            f"cluster {attached[0].name} runs already, and linkflap would have to start "
            f"{others[0]}; give the addresses of all clusters, or of none"
        )


def _check_spelling(names: list[str]) -> None:
    """Kafka's listener names are upper case, and some file systems do not tell case: East and EAST
    would meet there.

    In names of containers hyphens and underscores are one: us-east and us_east would meet there.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(hyphen_free(name).upper(), name)
        if other != name:
            raise InputError(
                f"clusters {other} and {name} differ only in case, or in - and _; rename one"
            )
    if len(set(names)) != len(names):
        raise InputError("a cluster is in it twice; name each once")


def _check_links(topology: Topology) -> None:
    known = {c.name for c in topology.clusters}
    for link in topology.links:
        if link.source == link.destination:
            raise InputError(
                f"the link {link.name} leads from a cluster to itself; name two clusters"
            )
        if not {link.source, link.destination} <= known:
            raise InputError(
                f"the link {link.name} names a cluster that is not there; it has "
                f"{', '.join(sorted(known))}"
            )
    if len(set(topology.links)) != len(topology.links):
        raise InputError("a link is in it twice; leave one out")
    alone = known - {name for link in topology.links for name in (link.source, link.destination)}
    if alone and len(known) > 1:
        raise InputError(f"cluster {min(alone)} has no link; join it to another or leave it out")


def _check_single_way(topology: Topology) -> None:
    arrived: dict[tuple[str, str], str] = {}
    for link in topology.links:
        for home in topology.homes_over(link):
            other = arrived.setdefault((home, link.destination), link.name)
            if other != link.name:
                raise InputError(
                    f"the topics of {home} reach {link.destination} by two ways, over {other} and "
                    f"over {link.name}, and would be written twice; leave one link out"
                )


def letters(count: int) -> list[str]:
    """A, B, C, …; at most 26, far above what is legal."""
    return list(ascii_uppercase[:count])


def build(
    names: Sequence[str], links: Iterable[tuple[str, str]], *, brokers: int, kafka: str
) -> Topology:
    """A legal topology; InputError otherwise."""
    return check(
        Topology(
            clusters=tuple(ClusterSpec(name=name, brokers=brokers, kafka=kafka) for name in names),
            links=tuple(
                LinkSpec(source=source, destination=destination) for source, destination in links
            ),
        )
    )


def pair(*, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->B: two clusters, one link."""
    return build(["A", "B"], [("A", "B")], brokers=brokers, kafka=kafka)


def chain(*, clusters: int = 3, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->B->C: a row of clusters, each linked to the next."""
    names = letters(clusters)
    return build(names, pairwise(names), brokers=brokers, kafka=kafka)


def round_trip(*, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A<->B: two clusters, a link in each direction."""
    return build(["A", "B"], [("A", "B"), ("B", "A")], brokers=brokers, kafka=kafka)


def fan_in(*, sources: int = 2, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->C, B->C: several links into one cluster."""
    *names, destination = letters(sources + 1)
    return build(
        [*names[:1], destination, *names[1:]],
        [(name, destination) for name in names],
        brokers=brokers,
        kafka=kafka,
    )


def fan_out(*, destinations: int = 2, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->B, A->C: several links out of one cluster."""
    source, *names = letters(destinations + 1)
    return build([source, *names], [(source, name) for name in names], brokers=brokers, kafka=kafka)


def ring(*, clusters: int = 3, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->B->C->A: a row of clusters whose last is linked to the first."""
    names = letters(clusters)
    return build(
        names, zip(names, names[1:] + names[:1], strict=True), brokers=brokers, kafka=kafka
    )


class Build(Protocol):
    """Makes a topology whose clusters all have these brokers and this Kafka."""

    def __call__(self, *, brokers: int = ..., kafka: str = ...) -> Topology: ...


TOPOLOGIES: Final[Mapping[str, Build]] = {
    "chain": chain,
    "fan_in": fan_in,
    "fan_out": fan_out,
    "pair": pair,
    "ring": ring,
    "round_trip": round_trip,
}
