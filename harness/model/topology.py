"""A topology: clusters and directed links between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from linkflap.harness.model.errors import InputError

DEFAULT_KAFKA = "4.3.1"
DISKLESS: Final = "diskless.enable"
"""The setting of topics without a log on disk (KIP-1150), in builds that have them."""
CANARY = "linkflap-canary"
"""Topic (with a home, as any other) that mirrors prove their path with: it is neither captured nor
verified."""
RECREATED: Final = "linkflap-recreated"
"""Topics (with a home, and a name behind it) of the fault topic-recreated: mirrored like any other,
and neither captured nor verified, because that fault itself judges their copies."""

ANY_NAME: Final = "*"
"""Among names of topics: all data topics, whatever their names. Among homes: also of topics whose
names say no home."""

TopicPartition = tuple[str, int]
"""A partition of a topic, on whatever cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """A service that a cluster needs besides Kafka: a database, an object store. `command` runs it
    in `folder`; `ready` is a command that exits with 0 once it serves (empty: it serves once it
    answers). `{host}` and `{port}` in their words are where it listens, `{folder}` is an empty
    folder of the run. `protocol` is how it is asked (`harness.runtimes.toxiproxy.service_link`). In
    containers both commands run in one of `image`, in its folder of the run.
    """

    command: tuple[str, ...]
    protocol: str
    folder: str = ""
    ready: tuple[str, ...] = ()
    ready_within: float = 60.0
    image: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A requested cluster. `kafka` is a released version, a directory of jars or an unpacked
    distribution, or an image.

    `config` are settings of its brokers, by Kafka's names, beside those that linkflap sets.
    `security` is the security of its listeners, in the words of `harness.model.security`
    (`tls+scram`); empty: plain text, and no ACLs.

    `bootstrap` (host:port, with commas between several) is a cluster that runs already: linkflap
    attaches to it, and neither starts nor ends its brokers. Then `kafka` is the release of mirrors
    and Java clients beside it, and `brokers` means nothing. `properties` names the client
    properties of the cluster (`harness.machine.client_properties`); empty: as plain text.
    `toxiproxy` is the API of a Toxiproxy that others run, for the paths into this cluster
    (`harness.runtimes.toxiproxy.shared`); empty: each path has a server of linkflap's own.

    `services`: name -> what its brokers need besides Kafka. Each is reached over a link of its own
    (`A->NAME`), whose address replaces `{NAME}` in `config`.
    """

    name: str
    brokers: int = 1
    kafka: str = DEFAULT_KAFKA
    config: Mapping[str, str] = field(default_factory=dict)
    security: str = ""
    bootstrap: str = ""
    properties: str = ""
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    folder: str = ""
    toxiproxy: str = ""
    services: Mapping[str, ServiceSpec] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """A directed link: what is in `source` may be mirrored to `destination`."""

    source: str
    destination: str

    @property
    def name(self) -> str:
        """The link as it is written everywhere: `A->B`."""
        return f"{self.source}->{self.destination}"

    @property
    def ends(self) -> tuple[str, str]:
        """The source and the destination."""
        return self.source, self.destination

    @property
    def reverse(self) -> LinkSpec:
        """The link that leads back."""
        return LinkSpec(source=self.destination, destination=self.source)

    @classmethod
    def parse(cls, name: str) -> LinkSpec:
        """The link of a name (`A->B`). Raises ValueError where it is none."""
        source, arrow, destination = name.partition("->")
        if not (source and arrow and destination) or "->" in destination:
            raise ValueError(f"{name!r} is no link; links are written A->B")
        return cls(source=source, destination=destination)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Clusters in the order they were named, and the links between them.

    `any_names`: programs of the user's make topics with names of their own. Then all topics are
    data but Kafka's own and those of mirrors, and the run shows where each is at home
    (`spark_verify.read.plan`). Else the name of a topic begins with its home (`topic_name`).
    """

    clusters: tuple[ClusterSpec, ...]
    links: tuple[LinkSpec, ...]
    any_names: bool = False

    @property
    def attached(self) -> bool:
        """Whether its clusters run already, and linkflap only attaches to them."""
        return any(cluster.bootstrap for cluster in self.clusters)

    @property
    def service_links(self) -> tuple[str, ...]:
        """The names of the links over which brokers reach services: `A->postgres`."""
        return tuple(f"{c.name}->{service}" for c in self.clusters for service in c.services)

    def cluster(self, name: str) -> ClusterSpec:
        """The cluster called `name`; InputError when there is none."""
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        known = ", ".join(c.name for c in self.clusters)
        raise InputError(f"topology has no cluster {name!r}; it has {known}")

    def link(self, name: str) -> LinkSpec:
        """The link called `name` (`A->B`); InputError when there is none."""
        for link in self.links:
            if link.name == name:
                return link
        known = ", ".join(link.name for link in self.links)
        raise InputError(f"topology has no link {name!r}; it has {known}")

    @property
    def homes(self) -> tuple[str, ...]:
        """The home clusters of topics: those that no link leads to, or all clusters if a link leads
        to each."""
        mirrored = {link.destination for link in self.links}
        every = tuple(cluster.name for cluster in self.clusters)
        return tuple(name for name in every if name not in mirrored) or every

    def homes_over(self, link: LinkSpec) -> tuple[str, ...]:
        """The clusters whose own topics cross `link`: those that reach its source without passing
        its destination.

        So `B->C` in `A->B->C` carries A's and B's topics, and in `A<->B` each direction carries its
        source's alone.
        """
        homes, frontier = {link.source}, [link.source]
        while frontier:
            here = frontier.pop()
            for other in self.links:
                if (
                    other.destination == here
                    and other.source != link.destination
                    and other.source not in homes
                ):
                    homes.add(other.source)
                    frontier.append(other.source)
        return tuple(c.name for c in self.clusters if c.name in homes)

    def named(self, *homes: str) -> tuple[str, ...]:
        """The argument of `is_data_topic` for the topics of these homes."""
        return (*homes, ANY_NAME) if self.any_names else homes

    @property
    def has_cycle(self) -> bool:
        """Whether links lead from a cluster back to it."""
        left = self.links
        while True:
            reached = {link.destination for link in left}
            rest = tuple(link for link in left if link.source in reached)
            if rest == left:
                return bool(left)
            left = rest


def of_release(topology: Topology, release: Callable[[], str]) -> Topology:
    """The topology, each cluster with a release of its own."""
    return replace(
        topology,
        clusters=tuple(replace(cluster, kafka=release()) for cluster in topology.clusters),
    )


def hyphen_free(name: str) -> str:
    """A cluster's name as part of a name whose parts hyphens join: `mm2-us.east-eu.west` can be
    read in one way only."""
    return name.replace("-", ".").replace("_", ".")


def id_of(fault: str, link: LinkSpec, topology: Topology) -> str:
    """The id of a fault that every link has. It includes the link's name, except for the first
    link."""
    first = link is topology.links[0]
    return fault if first else f"{fault}-{hyphen_free(link.source)}-{hyphen_free(link.destination)}"


def topic_name(home: str, name: str) -> str:
    """The name of a topic whose first writers are on cluster `home`: the home is part of it, so
    that mirrors can tell."""
    return f"{home}.{name}"


def topic_pattern(homes: tuple[str, ...]) -> str:
    """A Java and Python regular expression for all topics of these homes."""
    if ANY_NAME in homes:
        return "(?!__|[.])(?!.*[.-]internal$).*"
    return "(" + "|".join(homes) + r")\..*"


MIRROR_STATE: Final = "__mirror_state"
"""Where a cluster that mirrors keeps the states of its partitions (KIP-1279); released Kafka has no
such topic."""
INTERNAL_TOPICS: Final = (
    "__consumer_offsets",
    "__transaction_state",
    "__cluster_metadata",
    MIRROR_STATE,
)
"""Kafka's own topics that producers, transactions, groups and mirrors are judged by."""


def is_data_topic(name: str, homes: tuple[str, ...]) -> bool:
    """Whether this is a topic of workloads at home on one of `homes`: what mirrors carry and checks
    judge.

    MirrorMaker names its copies of heartbeats `<source>.heartbeats` and copies of those
    `A.C.heartbeats`, as if they were at home there. It never copies topics that begin with `__` or
    a dot, or end in `-internal` (ReplicationPolicy.isInternalTopic): among topics of any name
    these are no data, with every mirror.
    """
    home, _, rest = name.partition(".")
    if ANY_NAME in homes:
        if name.startswith(("__", ".")) or name.endswith("-internal"):
            return False
        home, rest = ANY_NAME, rest or name
    named = rest not in ("", CANARY) and not is_recreated(name)
    heartbeats = rest.rpartition(".")[2] == "heartbeats"
    return home in homes and named and not heartbeats and not is_of_mirrors(name)


def is_among(topic: str, names: Collection[str]) -> bool:
    """Whether a topic is one of these, which may be all data topics (ANY_NAME)."""
    return topic in names or (ANY_NAME in names and is_data_topic(topic, (ANY_NAME,)))


def is_of_mirrors(name: str) -> bool:
    """Whether mirrors keep their own state in this topic. MirrorMaker names its checkpoints
    `<source>.checkpoints.internal`, as if they were data of the source."""
    return name.endswith(".internal")


def is_recreated(name: str) -> bool:
    """Whether the fault topic-recreated made this topic."""
    return name.partition(".")[2].startswith(f"{RECREATED}.")
