"""Log generations: a cluster's log between two truncations, with an owner of every offset; and what
a mirror copied over a link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.oracles.plain import NEVER, Plain

Owner = tuple[str, int]


@dataclass(slots=True, eq=False)
class PlainGeneration:
    """A cluster's log between two truncations. `sources[o]` is the cluster from which offset o was
    mirrored; empty for the cluster's own records."""

    cluster: str
    number: int
    began: int
    ended: int
    truncated_to: int
    before: str
    lost: int | None
    owners: list[Owner]
    sources: list[str]
    earlier: list[int]
    settled: int = 0

    @property
    def last(self) -> bool:
        return self.ended == NEVER

    def at(self, offset: int) -> int:
        return max(0, min(offset, len(self.owners) - 1))

    def owner(self, offset: int) -> str:
        return self.owners[self.at(offset)][0]

    def native(self, offset: int) -> bool:
        return not self.sources[self.at(offset)]

    def eras(self) -> list[tuple[int, int, Owner, str]]:
        """(start, end, owner, source) of each range."""
        edges = [
            o for o in range(len(self.owners)) if o == 0 or self.owners[o] != self.owners[o - 1]
        ]
        ends = [*edges[1:], NEVER]
        return [(s, e, self.owners[s], self.sources[s]) for s, e in zip(edges, ends, strict=True)]


@dataclass(slots=True, eq=False)
class PlainMirroredRange:
    """The range that one mirror copied over one link: offsets [start, end) of the destination."""

    source: str
    destination: str
    start: int
    end: int
    began: int
    promotion: Any
    source_generation: int
    far: int = 0
    generation: int = 0
    settled: int = 0


def size_of(plain: Plain) -> int:
    """Higher than any offset in use."""
    ends = [r.end for r in (*plain.replicas, *plain.earlier)] + [
        p.offset for p in plain.view.promotions
    ]
    ends += [o for s in plain.sends for o in s.offsets] + [
        o for r in (*plain.reads, *plain.shares) for o in r.offsets
    ]
    return max([*ends, 0]) + 3


def kept(generation: PlainGeneration, offset: int) -> bool:
    """Whether this generation determines the record at an offset: it is below every later
    truncation."""
    return generation.last or not 0 <= offset < generation.truncated_to
