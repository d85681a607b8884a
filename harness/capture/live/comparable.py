"""The comparable part of logs that were read from running clusters: which cluster owned a
partition, and where each copy is truncated.

A mirror is compared up to its first sampled end, its source up to its last: by then the source had
everything that the mirror had. So clusters are read from the far end of the links. If the end of a
source could not be read, because its cluster went away, the mirror's copy is truncated there too;
otherwise its records would look as if no client had written them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from linkflap.harness.capture.live.copy import Copied, trim
from linkflap.harness.model.events import Event, Promotion, of_kind
from linkflap.harness.model.topology import LinkSpec, TopicPartition

Ends = Mapping[str, Mapping[TopicPartition, int]]
"""Per cluster and partition an offset."""


def far_first(names: Sequence[str], links: Sequence[LinkSpec]) -> list[str]:
    """Clusters so that a link's destination comes before its source; of a ring, somewhere."""
    left, order = list(names), list[str]()
    while left:
        ends = [
            n
            for n in left
            if not any(link.source == n and link.destination in left for link in links)
        ]
        order.append((ends or left)[0])
        left.remove(order[-1])
    return order


def truncate(
    copies: Sequence[Copied],
    first: Ends,
    events: Sequence[Event],
    homes: Mapping[str, str],
    links: Sequence[LinkSpec],
) -> None:
    """Truncates the copies where they can be compared, and sets `end` of each to that offset."""
    ends = {(c.cluster, c.tp): _end(c, first, events, homes) for c in copies}
    short = {
        (c.cluster, c.tp): min(c.position, ends[c.cluster, c.tp]) for c in copies if not c.complete
    }
    for copied in copies:
        upstream = (
            short[name, copied.tp]
            for name in _before(copied.cluster, links)
            if (name, copied.tp) in short
        )
        copied.end = min([ends[copied.cluster, copied.tp], *upstream])
        trim(copied.folder, copied.end)


def truncate_moved(
    copies: Sequence[Copied],
    names: Mapping[tuple[str, str], str],
    first: Ends,
    homes: Mapping[str, str],
) -> None:
    """The same where offsets move: a mirror's copy ends at its first sampled end."""
    for copied in copies:
        home = homes[names[copied.cluster, copied.tp[0]]]
        asked = copied.end if copied.cluster == home else first[copied.cluster][copied.tp]
        copied.end = min(asked, copied.position) if copied.position >= 0 else copied.start
        trim(copied.folder, copied.end)


def _end(copied: Copied, first: Ends, events: Sequence[Event], homes: Mapping[str, str]) -> int:
    """Where a copy ends, as far as its own cluster is concerned."""
    promoted = [e.cluster for e in of_kind(events, Promotion) if e.tp == copied.tp]
    owner = promoted[-1] if promoted else homes[copied.tp[0]]
    asked = copied.end if copied.cluster == owner else first[copied.cluster][copied.tp]
    return min(asked, copied.position) if copied.position >= 0 else copied.start


def _before(name: str, links: Sequence[LinkSpec]) -> Iterator[str]:
    """The clusters from which records may have been mirrored to this one."""
    seen, frontier = {name}, [name]
    while frontier:
        here = frontier.pop()
        for link in links:
            if link.destination == here and link.source not in seen:
                seen.add(link.source)
                frontier.append(link.source)
                yield link.source
