"""What can be compared of logs that were read while clusters went on: whose log a partition's was, and where each copy is cut.

A mirror is compared as it was at first asking, with its source as it was at last asking: by then the source had all that the
mirror had. So clusters are asked from the far end of the links. What is missing of a source, because its cluster went away, is
cut off the mirror's copy as well: it would look as if nobody had written it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.capture.live.cluster import Place
from harness.capture.live.copy import Copied, trim
from harness.model.history import Event
from harness.model.topology import LinkSpec

Ends = Mapping[str, Mapping[Place, int]]
"""Per cluster and partition an offset."""


def far_first(names: Sequence[str], links: Sequence[LinkSpec]) -> list[str]:
    """Clusters so that a link's destination comes before its source; of a ring, somewhere."""
    left, order = list(names), list[str]()
    while left:
        ends = [n for n in left if not any(link.source == n and link.destination in left for link in links)]
        order.append((ends or left)[0])
        left.remove(order[-1])
    return order


def cut(
    copies: Sequence[Copied], first: Ends, events: Sequence[Event], homes: Mapping[str, str], links: Sequence[LinkSpec]
) -> None:
    """Cuts the copies where they can be compared, and says in each (`end`) where that is."""
    ends = {(c.cluster, c.place): _end(c, first, events, homes) for c in copies}
    short = {(c.cluster, c.place): min(c.position, ends[c.cluster, c.place]) for c in copies if not c.whole}
    for copied in copies:
        upstream = (short[name, copied.place] for name in _before(copied.cluster, links) if (name, copied.place) in short)
        copied.end = min([ends[copied.cluster, copied.place], *upstream])
        trim(copied.folder, copied.end)


def _end(copied: Copied, first: Ends, events: Sequence[Event], homes: Mapping[str, str]) -> int:
    """Where a copy ends, as far as its own cluster is concerned."""
    promoted = [str(e.data["cluster"]) for e in events if e.kind == "promotion" and _place(e) == copied.place]
    owner = promoted[-1] if promoted else homes[copied.place[0]]
    asked = copied.end if copied.cluster == owner else first[copied.cluster][copied.place]
    return min(asked, copied.position) if copied.position >= 0 else copied.start


def _place(event: Event) -> tuple[object, object]:
    return event.data["topic"], event.data["partition"]


def _before(name: str, links: Sequence[LinkSpec]) -> Iterator[str]:
    """The clusters from which something may have come to this one."""
    seen, frontier = {name}, [name]
    while frontier:
        here = frontier.pop()
        for link in links:
            if link.destination == here and link.source not in seen:
                seen.add(link.source)
                frontier.append(link.source)
                yield link.source
