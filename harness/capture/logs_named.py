"""The user's description of logs that linkflap did not record: links, homes, topics, promotions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from linkflap.harness.capture.promotions_from_bytes import Given
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Option
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, TopicPartition, Topology


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
    def segments(self) -> list[Path]:
        """In offset order."""
        return sorted(self.path.glob("*.log"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsRequest:
    """The user's description of copied logs: the folder of each cluster, the links, and the
    promotions with their offsets.

    The first link is the original one: topics are at home on its source. A second link in the other
    direction means that the mirror was reversed after its destination was promoted. `topics`: a
    regular expression for complete names.
    """

    logs: Mapping[str, Path]
    links: Sequence[LinkSpec]
    promotions: Given
    options: Mapping[str, Option] = field(default_factory=dict)
    topics: str = ".*"


def check_promotions(asked: LogsRequest, known: Collection[tuple[str, str, int]]) -> None:
    """Raises InputError for a promotion of what is not `known` (cluster, topic, partition), or that
    no link explains."""
    for promotion in asked.promotions:
        if promotion not in known:
            raise InputError(
                f"--promotion names {promotion[0]}:{promotion[1]}-{promotion[2]}, of which there is"
                " no log"
            )
        if promotion[0] not in {link.destination for link in asked.links}:
            raise InputError(
                f"--promotion names {promotion[0]}, to which no link leads; add --link with what "
                "was mirrored there"
            )


def chosen(every: Sequence[Folder], topics: str, own: Sequence[str] = ()) -> list[Folder]:
    """Those of topics whose full name the regular expression fits; of Kafka's own topics only those
    that are named in `own`."""
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
                    f"--link {link.name} names {name}, of which there are no logs; add {option} "
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


def homes_of(topics: Iterable[str], asked: LogsRequest) -> Mapping[str, str]:
    """The home of each topic: by its name (`A.orders`), else the source of the first link."""
    return {topic: _home(topic, asked) for topic in sorted(topics)}


def _home(topic: str, asked: LogsRequest) -> str:
    first, dot, _ = topic.partition(".")
    if dot and first in asked.logs:
        return first
    return asked.links[0].source if asked.links else next(iter(asked.logs))
