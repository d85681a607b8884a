"""The user's description of logs that linkflap did not record: links, homes, topics, promotions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from linkflap.harness.capture.promotions_from_bytes import Given
from linkflap.harness.guarantees import declared
from linkflap.harness.machine.cache import LOG
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.model.scenario import MirrorSpec, Option
from linkflap.harness.model.topology import (
    ClusterSpec,
    LinkSpec,
    TopicPartition,
    Topology,
    is_of_mirrors,
)

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """One replica of one partition as a folder of segments. `root` is where its broker's checkpoint
    files would be."""

    cluster: str
    broker: int
    topic: str
    partition: int
    path: Path
    root: Path

    @property
    def tp(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def on_disk(self) -> TopicPartition:
        """The topic's name on its broker's disk; the topic may be compared under another one
        (`names_of`)."""
        return self.path.name.rpartition("-")[0], self.partition

    @property
    def segments(self) -> list[Path]:
        """In offset order."""
        return sorted(self.path.glob("*.log"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsRequest:
    """The user's description of copied logs: the folder of each cluster, the links, and the
    promotions with their offsets.

    The first link is the original one: topics are at home on its source. A second link in the other
    direction means that the mirror was reversed after its destination was promoted. `topics`: a
    regular expression for complete names. `kind` and `options` are the mirror's, `promised` the
    guarantee of a mirror that linkflap does not know. `mirror_named`: the user said which mirror it
    is; else that it keeps offsets is an assumption.
    """

    logs: Mapping[str, Path]
    links: Sequence[LinkSpec]
    promotions: Given
    options: Mapping[str, Option] = field(default_factory=dict)
    topics: str = ".*"
    kind: str = "exact"
    promised: Guarantee | None = None
    mirror_named: bool = False

    @property
    def mirror(self) -> MirrorSpec:
        """The mirror, with its guarantee."""
        return declared(MirrorSpec(kind=self.kind, options=self.options, declared=self.promised))

    @property
    def offsets_kept(self) -> bool:
        return self.mirror.guarantee.offsets_kept


def check_ids(ids: Mapping[str, str]) -> None:
    """Raises InputError for two clusters with the same id; a cluster whose id is unknown has an
    empty one."""
    names: dict[str, str] = {}
    for name, id_ in ids.items():
        if (other := names.setdefault(id_, name)) != name and id_:
            raise InputError(
                f"{other} and {name} are one cluster (cluster.id {id_}), and none is a mirror of "
                f"itself; give the address or the logs of the other cluster for one of them"
            )


def check_promotions(asked: LogsRequest, known: Collection[tuple[str, str, int]]) -> None:
    """Raises InputError for a promotion of a partition that is not `known` (cluster, topic,
    partition), or of a cluster that no link leads to."""
    for promotion in asked.promotions:
        if promotion not in known:
            raise InputError(
                f"--promotion names {promotion[0]}:{promotion[1]}-{promotion[2]}, which has no log "
                "here; correct the name, or give its log too"
            )
        if promotion[0] not in {link.destination for link in asked.links}:
            raise InputError(
                f"--promotion names {promotion[0]}, which is no link's destination; add the "
                f"link over which it was mirrored: --link '…->{promotion[0]}'"
            )


def check_promotions_within(
    asked: LogsRequest, ends: Iterable[tuple[tuple[str, str, int], int]]
) -> None:
    """Raises InputError for a promotion beyond the end of its log; `ends` has the log end of every
    replica, by (cluster, topic, partition)."""
    last: dict[tuple[str, str, int], int] = {}
    for key, end in ends:
        last[key] = max(end, last.get(key, 0))
    for key, offsets in asked.promotions.items():
        if max(offsets) > last[key]:
            cluster, topic, partition = key
            raise InputError(
                f"--promotion {cluster}:{topic}-{partition}={max(offsets)} is beyond the end of "
                f"that log, which is {last[key]}; give the first offset of {cluster}'s own "
                "records, markers included, or the end of the log if it has none"
            )


def chosen(every: Sequence[Folder], topics: str, own: Sequence[str] = ()) -> list[Folder]:
    """The folders of topics whose full name matches `topics`; of Kafka's internal topics, only
    those in `own`."""
    pattern = pattern_of(topics)
    found = [
        f
        for f in every
        if pattern.fullmatch(f.topic) and (f.topic in own or not f.topic.startswith("__"))
    ]
    if not found:
        names = ", ".join(sorted({f.topic for f in every})[:5])
        raise InputError(
            f"--topics {topics!r} matches none of the topics there ({names}); change it (topics of "
            "Kafka's own are never judged)"
        )
    return found


def pattern_of(topics: str) -> re.Pattern[str]:
    """Raises InputError for an invalid regular expression."""
    try:
        return re.compile(topics)
    except re.error as error:
        raise InputError(
            f"--topics {topics!r} is not a regular expression ({error}); correct it"
        ) from None


def topology_of(asked: LogsRequest, *, option: str) -> Topology:
    """Raises InputError for links that fit no cluster; `option` is how a cluster is named on the
    command line."""
    names = list(asked.logs)
    for link in asked.links:
        for name in (link.source, link.destination):
            if name not in names:
                raise InputError(
                    f"--link {link.name} names {name}, which has no logs here; add {option} "
                    f"{name}=…"
                )
    if len(names) > 1 and not asked.links:
        raise InputError(
            f"which of {', '.join(names)} was mirrored to which? add, for example, --link "
            f"'{names[0]}->{names[1]}'"
        )
    return Topology(
        clusters=tuple(ClusterSpec(name=name, kafka="unknown") for name in names),
        links=tuple(asked.links),
    )


def homes_of(topics: Iterable[tuple[str, str]], asked: LogsRequest) -> Mapping[str, str]:
    """The home of each topic, of which (cluster, topic) are there: by its name (`A.orders`), else
    the source of the first link. Where offsets move, other topics may be there too: a topic that
    only one cluster has is its own."""
    found: dict[str, set[str]] = {}
    for cluster, topic in sorted(topics):
        found.setdefault(topic, set()).add(cluster)
    return {
        topic: min(clusters)
        if len(clusters) == 1 and not asked.offsets_kept
        else _home(topic, asked)
        for topic, clusters in found.items()
    }


def names_of(
    topics: Mapping[str, Collection[str]], asked: LogsRequest
) -> Mapping[tuple[str, str], str]:
    """Per cluster and topic the name under which it is compared.

    MirrorMaker 2's DefaultReplicationPolicy calls `orders` of the source `<alias>.orders` on the
    destination. Where a destination has such topics, every topic is called by the cluster that it
    is at home on (`east.orders`), on that cluster too. Topics that mirrors keep for themselves are
    left out.
    """
    mine = {cluster: {t for t in own if not _of_mirrors(t)} for cluster, own in topics.items()}
    came = {} if asked.offsets_kept else _renamed(mine, asked.links)
    names: dict[tuple[str, str], str] = {}

    def named(cluster: str, topic: str, depth: int) -> str:
        if (cluster, topic) in came and depth:
            return named(*came[cluster, topic], depth - 1)
        return f"{cluster}.{topic}" if came and not _is_homed(topic, asked) else topic

    for cluster, own in (topics if asked.offsets_kept else mine).items():
        for topic in own:
            names[cluster, topic] = named(cluster, topic, len(topics))
    return names


def selected(topics: str, names: Mapping[tuple[str, str], str]) -> Mapping[tuple[str, str], str]:
    """The names that --topics selects: by the name on any cluster, or by the compared name."""
    pattern = pattern_of(topics)
    wanted = {
        name
        for (_, topic), name in names.items()
        if pattern.fullmatch(topic) or pattern.fullmatch(name)
    }
    return {key: name for key, name in names.items() if name in wanted}


def log_lacking_topics(names: Mapping[tuple[str, str], str], asked: LogsRequest) -> None:
    """Logs which topics only the source of a link has, before a verdict that takes a minute.
    `names`: (cluster, topic) -> the name under which it is compared."""
    for link in asked.links:
        own = {key: name for key, name in names.items() if not key[1].startswith("__")}
        there, here = (
            {name for (cluster, _), name in own.items() if cluster == end} for end in link.ends
        )
        if lacking := sorted(there - here):
            more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
            LOG.info(
                "%s has no log of %s%s, which %s has: what %s mirrored of it is not compared",
                link.destination, ", ".join(lacking[:_SHOWN]), more, link.source, link.name,
            )  # fmt: skip


def _is_homed(topic: str, asked: LogsRequest) -> bool:
    first, dot, _ = topic.partition(".")
    return bool(dot) and first in asked.logs


def _renamed(
    mine: Mapping[str, Collection[str]], links: Sequence[LinkSpec]
) -> Mapping[tuple[str, str], tuple[str, str]]:
    """(destination, its topic) -> (source, that topic's name there), of topics with a prefix."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for link in links:
        sources = mine.get(link.source, ())
        for topic in mine.get(link.destination, ()):
            alias, dot, rest = topic.partition(".")
            if dot and alias and topic not in sources and rest in sources:
                found[link.destination, topic] = (link.source, rest)
    return found


def _of_mirrors(topic: str) -> bool:
    """Whether MirrorMaker 2 keeps it for itself."""
    return is_of_mirrors(topic) or topic.rpartition(".")[2] == "heartbeats"


def check_mirror_named(topics: Mapping[str, Collection[str]], asked: LogsRequest) -> None:
    """Raises InputError where the topics show a mirror that moves offsets, and the user has not
    said which mirror it is."""
    if asked.mirror_named:
        return
    for link in asked.links:
        ends = [(name, topic) for name in link.ends for topic in sorted(topics.get(name, ()))]
        own = next(
            (
                f"{name} has MirrorMaker 2's topic {topic}"
                for name, topic in ends
                if _MM2.fullmatch(topic)
            ),
            "",
        )
        renamed = next(
            (
                f"{there[0]}'s topic {there[1]} looks like {here[0]}'s {here[1]}"
                for there, here in sorted(_renamed(topics, [link]).items())
            ),
            "",
        )
        if own or renamed:
            raise InputError(
                f"{own or renamed}, and MirrorMaker 2 does not keep offsets: add --mirror mm2; or "
                f"--mirror exact, if another mirror of {link.name} keeps them"
            )


_MM2: Final = re.compile(
    r"mm2-(?:configs|offsets|status|offset-syncs)\..*\.internal|.+\.checkpoints\.internal"
)


def _home(topic: str, asked: LogsRequest) -> str:
    first, dot, _ = topic.partition(".")
    if dot and first in asked.logs:
        return first
    return asked.links[0].source if asked.links else next(iter(asked.logs))
