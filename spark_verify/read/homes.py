"""Where topics of any name are at home: the cluster on which programs wrote them first.

Recorders know when a batch was first asked to be written to a topic of their cluster, and when one
was first accepted. A topic that nobody wrote, or whose writers were not recorded, is at home on the
cluster that has it and that no link leads to from another one that has it; so is one that was
written only after a failover had promoted it. A topic is judged where this leaves no doubt; the
others are named, and make the verdict unknown:

- one that was written on a second cluster before a failover had promoted it there: a mirror may
  have carried the records of one into those of the other, and nothing says which copy is meant;
- one that only a failback carried on from its home, against the links of the topology;
- one that its home has no log of: it was deleted, and its copies have nothing to be compared with;
- one whose name Kafka or a mirror uses for itself: mirrors do not carry it.

A topic that a program deleted itself, on whatever cluster, is named and not judged, and the verdict
rests on the others: its records were to go, and another topic may have its name since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from linkflap.harness.model.events import Event, Promotion, WireRecorded, of_kind
from linkflap.harness.model.topology import ANY_NAME, LinkSpec, Topology, is_data_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWrite:
    """When programs first wrote a topic on a cluster (ns): asked, and accepted (0: never)."""

    cluster: str
    asked: int
    accepted: int

    @property
    def time(self) -> int:
        return self.accepted or self.asked


@dataclass(slots=True, kw_only=True)
class Homes:
    """The home of each topic that is judged, and why others are not; `deleted`: those that programs
    deleted themselves, with what is said of them."""

    of: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    deleted: dict[str, str] = field(default_factory=dict)


def inferred(
    topology: Topology, events: Sequence[Event], captured: Mapping[str, Collection[str]]
) -> Homes:
    """The homes of topics in a run whose topics have any names; `captured`: by cluster, the topics
    of which it has a log."""
    homes, writes = Homes(), _first_writes(events)
    on_disk = {topic for topics in captured.values() for topic in topics}
    _find_deleted(events, captured, homes)
    for topic in sorted((on_disk | writes.keys()) - homes.deleted.keys()):
        if is_data_topic(topic, (ANY_NAME,)):
            _find(topic, topology, writes.get(topic, ()), events, captured, homes)
        elif topic in writes:
            homes.doubts.append(
                f"topic {topic} was written and is not judged, as Kafka or mirrors use names like "
                "it for themselves; give it another name"
            )
    return homes


def carried(
    topology: Topology, events: Sequence[Event], homes: Mapping[str, str]
) -> Sequence[Event]:
    """Events without the promotions of topics that are not judged, and of those that are at home
    where a link leads: MirrorMaker's failover promotes all that its destination has, and these came
    over no link."""
    over = {link.name for link in topology.links}

    def judged(event: Promotion) -> bool:
        home = homes.get(event.topic)
        return home is not None and (event.link not in over or home != event.between.destination)

    return [event for event in events if not isinstance(event, Promotion) or judged(event)]


def _find_deleted(
    events: Sequence[Event], captured: Mapping[str, Collection[str]], homes: Homes
) -> None:
    for report in of_kind(events, WireRecorded):
        for topic, (unsure, done) in (report.deleted or {}).items():
            there = topic in captured.get(report.cluster, ())
            if done or unsure:
                homes.deleted[topic] = (
                    f"topic {topic} was deleted on {report.cluster} by a program, and is not judged"
                )
            if unsure and not done and there:
                homes.doubts.append(
                    f"a program asked {report.cluster} to delete topic {topic} and got no answer, "
                    "so that nothing says whether the one that is there is the same; write to "
                    "topics that you do not delete"
                )


def _first_writes(events: Sequence[Event]) -> Mapping[str, Sequence[FirstWrite]]:
    """By topic, the first on each cluster that wrote it, the earliest first."""
    found: dict[str, list[FirstWrite]] = {}
    for report in of_kind(events, WireRecorded):
        for topic, (asked, accepted) in (report.written or {}).items():
            found.setdefault(topic, []).append(
                FirstWrite(cluster=report.cluster, asked=asked, accepted=accepted)
            )
    # a write that was accepted comes before one that never was
    return {
        topic: sorted(some, key=lambda first: (not first.accepted, first.time))
        for topic, some in found.items()
    }


def _find(
    topic: str,
    topology: Topology,
    writes: Sequence[FirstWrite],
    events: Sequence[Event],
    captured: Mapping[str, Collection[str]],
    homes: Homes,
) -> None:
    having = [c.name for c in topology.clusters if topic in captured.get(c.name, ())]
    promoted = [e for e in of_kind(events, Promotion) if e.topic == topic]
    # what nobody wrote before its failover came from where its mirror did
    mirrored = bool(writes) and _written_after(writes[0], promoted, having)
    home = writes[0].cluster if writes and not mirrored else _upstream(topology, having)
    for other in (write for write in writes if write.cluster != home):
        if not _written_after(other, promoted):
            homes.doubts.append(
                f"topic {topic} was written on {home} and on {other.cluster}, where no failover "
                "had promoted it, so that nothing says which of them has its records; write it on "
                "one cluster, or on the other after a failover"
            )
            return
    if home not in having:
        homes.doubts.append(
            f"topic {topic} was written on {home} and is not there any more, so that its records "
            "cannot be judged; do not delete it before the end"
        )
        return
    if _only_failed_back(topology, home, promoted):
        homes.doubts.append(
            f"topic {topic} was written first on {home}, and a failback carried it where no link "
            "of the topology leads, so that its copies there are not judged; write it before the "
            "failover"
        )
        return
    homes.of[topic] = home


def _only_failed_back(topology: Topology, home: str, promotions: Iterable[Promotion]) -> bool:
    """Whether a mirror against the links of the topology carried a topic on from its home."""
    links = {link.name for link in topology.links}
    return any(e.link not in links and e.between.source == home for e in promotions)


def _written_after(
    write: FirstWrite, promotions: Iterable[Promotion], sources: Collection[str] | None = None
) -> bool:
    """Whether a failover promoted the topic on a cluster before that accepted a write; `sources`:
    one away from any of these."""
    times = [
        each.time
        for each in promotions
        if each.cluster == write.cluster
        and (sources is None or LinkSpec.parse(each.link).source in sources)
    ]
    return bool(times) and not 0 < write.accepted < min(times)


def _upstream(topology: Topology, having: Sequence[str]) -> str:
    """The first of these clusters that no link leads to from another of them."""
    led_to: Iterable[str] = {link.destination for link in topology.links if link.source in having}
    return next((name for name in having if name not in led_to), having[0])
