"""Draws a topology in text: a box per cluster, a line per link.

Chains, pairs, fan-ins, fan-outs, round trips, rings and their combinations are drawn as a graph,
where no lines cross. Lines that crossed or met could be read in two ways, so any other topology is
drawn as rows instead: each cluster with where it leads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology

_CHANNEL: Final = 9  # columns between two boxes
_BOX_HEIGHT: Final = 5
UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
_LINES: Final = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"
_ASCII: Final = str.maketrans("╵╷│╴┘┐┤╶└┌├─┴┬┼▶◀▲", "|||-+++-+++-+++><^")


def draw(topology: Topology, *, ascii_only: bool = False) -> str:
    """The drawing, without a newline at its end. Raises InputError for a topology that is none."""
    known = {cluster.name for cluster in topology.clusters}
    for link in topology.links:
        if missing := {link.source, link.destination} - known:
            raise InputError(
                f"link {link.name} names {min(missing)}, which is no cluster of the topology"
            )
    if not known:
        raise InputError("the topology has no cluster")
    text = _Graph(topology).text()
    if text is None:
        text = _rows(topology)
    return text.translate(_ASCII) if ascii_only else text


def label(cluster: ClusterSpec) -> tuple[str, str, str]:
    """What stands in a cluster's box: name, brokers, Kafka."""
    plural = "broker" if cluster.brokers == 1 else "brokers"
    kafka = cluster.kafka if len(cluster.kafka) <= 24 else "…" + cluster.kafka[-23:]
    secured = f", {cluster.security}" if cluster.security else ""
    return (
        cluster.name,
        f"{cluster.brokers} {plural}{secured}",
        f"Kafka {kafka}" if kafka[0].isdigit() else kafka,
    )


def _rows(topology: Topology) -> str:
    width = max(len("  ".join(label(c))) for c in topology.clusters)
    lines = []
    for cluster in topology.clusters:
        to = ", ".join(link.destination for link in topology.links if link.source == cluster.name)
        lines.append(
            f"{'  '.join(label(cluster)):<{width}}  ─▶ {to}" if to else "  ".join(label(cluster))
        )
    return "\n".join(lines)


class _Canvas:
    """Characters at (row, column); lines that meet are joined."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, int], int] = {}
        self._text: dict[tuple[int, int], str] = {}

    def line(self, row: int, column: int, strokes: int) -> None:
        self._lines[row, column] = self._lines.get((row, column), 0) | strokes

    def across(self, row: int, first: int, last: int) -> None:
        for column in range(first, last + 1):
            self.line(
                row, column, (LEFT if column > first else 0) | (RIGHT if column < last else 0)
            )

    def down(self, column: int, first: int, last: int) -> None:
        for row in range(first, last + 1):
            self.line(row, column, (UP if row > first else 0) | (DOWN if row < last else 0))

    def write(self, row: int, column: int, text: str) -> None:
        for index, character in enumerate(text):
            self._text[row, column + index] = character

    def text(self) -> str:
        cells = {cell: _LINES[strokes] for cell, strokes in self._lines.items()} | self._text
        height, width = max(row for row, _ in cells) + 1, max(column for _, column in cells) + 1
        return "\n".join(
            "".join(cells.get((row, column), " ") for column in range(width)).rstrip()
            for row in range(height)
        )


class _Graph:
    """Clusters in columns by their distance from a source, links between neighbouring columns, at
    most one link back below."""

    def __init__(self, topology: Topology) -> None:
        self._clusters = {c.name: c for c in topology.clusters}
        self._both = {(link.source, link.destination) for link in topology.links}
        self._column = self._columns(topology.links)
        self._row: dict[str, int] = {}
        for name in self._clusters:
            self._row[name] = sum(
                1 for other in self._row if self._column[other] == self._column[name]
            )

    def _columns(self, links: Sequence[LinkSpec]) -> Mapping[str, int]:
        """Longest way from a source, links back left out; sources stand right before what they
        feed."""
        order, forward = list(self._clusters), self._forward(links)
        column = dict.fromkeys(order, 0)
        for _ in order:
            for a, b in forward:
                column[b] = max(column[b], column[a] + 1)
        fed = {b for _, b in forward}
        for name in order:
            nexts = [column[b] for a, b in forward if a == name]
            if name not in fed and nexts:
                column[name] = min(nexts) - 1
        return column

    def _forward(self, links: Sequence[LinkSpec]) -> list[tuple[str, str]]:
        """Forward links: of a pair, the one that leaves the first-named cluster; no link that
        closes a ring."""
        order = list(self._clusters)
        ways = [(link.source, link.destination) for link in links]
        firsts = [
            (a, b) for a, b in ways if (b, a) not in self._both or order.index(a) < order.index(b)
        ]
        return [(a, b) for a, b in firsts if not self._closes(a, b, firsts)]

    def _closes(self, a: str, b: str, links: Sequence[tuple[str, str]]) -> bool:
        """Whether a->b closes a ring: it leads back to a cluster named earlier, from which `a` can
        be reached."""
        order = list(self._clusters)
        if order.index(b) > order.index(a):
            return False
        reached, frontier = {b}, [b]
        while frontier:
            here = frontier.pop()
            new = {y for x, y in links if x == here} - reached
            reached |= new
            frontier.extend(new)
        return a in reached

    def text(self) -> str | None:
        """The drawing, or None when it would be ambiguous."""
        forward, back = [], []
        for a, b in sorted(
            self._both, key=lambda ab: (self._column[ab[0]], self._row[ab[0]], self._row[ab[1]])
        ):
            if self._column[b] - self._column[a] == 1:
                forward.append((a, b))
            elif not ((b, a) in self._both and self._column[a] - self._column[b] == 1):
                back.append((a, b))
        bundles = self._bundles(forward)
        if (
            bundles is None
            or len(back) > 1
            or not all(self._lowest(name) for ab in back for name in ab)
        ):
            return None
        canvas = _Canvas()
        for name in self._clusters:
            self._box(canvas, name)
        for bundle in bundles:
            self._bundle(canvas, bundle)
        for a, b in back:
            self._return(canvas, a, b)
        return canvas.text()

    def _lowest(self, name: str) -> bool:
        return all(
            self._row[o] <= self._row[name]
            for o in self._clusters
            if self._column[o] == self._column[name]
        )

    def _bundles(self, links: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]] | None:
        """Links that share an end, together; None where a bundle could be misread or two would
        cross."""
        bundles = _joined(links)
        if not all(self._is_clear(bundle) for bundle in bundles):
            return None
        meeting = any(
            self._meet(one, other) for index, one in enumerate(bundles) for other in bundles[:index]
        )
        return None if meeting else bundles

    def _is_clear(self, bundle: Sequence[tuple[str, str]]) -> bool:
        """Whether a bundle can be read in one way: one end is one cluster, and all its links have
        the same arrows."""
        one_sided = len({a for a, _ in bundle}) == 1 or len({b for _, b in bundle}) == 1
        return one_sided and len({(b, a) in self._both for a, b in bundle}) == 1

    def _meet(self, one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> bool:
        """Whether two bundles need the same rows of the same channel."""
        (channel, top, bottom), (other_channel, other_top, other_bottom) = (
            self._span(one),
            self._span(other),
        )
        return channel == other_channel and top <= other_bottom and other_top <= bottom

    def _span(self, bundle: Sequence[tuple[str, str]]) -> tuple[int, int, int]:
        """The channel of a bundle, by the column before it, and its first and last row."""
        rows = [self._row[name] for link in bundle for name in link]
        return self._column[bundle[0][0]], min(rows), max(rows)

    def _width(self, column: int) -> int:
        return (
            max(
                len(text)
                for name, c in self._clusters.items()
                if self._column[name] == column
                for text in label(c)
            )
            + 4
        )

    def _left(self, column: int) -> int:
        return sum(self._width(c) + _CHANNEL for c in range(column))

    def _top(self, name: str) -> int:
        return self._row[name] * (_BOX_HEIGHT + 1)

    def _box(self, canvas: _Canvas, name: str) -> None:
        top, left, width = (
            self._top(name),
            self._left(self._column[name]),
            self._width(self._column[name]),
        )
        for row in (top, top + _BOX_HEIGHT - 1):
            canvas.across(row, left, left + width - 1)
        for column in (left, left + width - 1):
            canvas.down(column, top, top + _BOX_HEIGHT - 1)
        for index, text in enumerate(label(self._clusters[name])):
            canvas.write(top + 1 + index, left + 2, text)

    def _bundle(self, canvas: _Canvas, bundle: Sequence[tuple[str, str]]) -> None:
        first = self._left(self._column[bundle[0][0]]) + self._width(self._column[bundle[0][0]])
        last, middle = first + _CHANNEL - 1, first + _CHANNEL // 2
        rows = [self._top(name) + 2 for ab in bundle for name in ab]
        canvas.down(middle, min(rows), max(rows))
        for a, b in bundle:
            canvas.across(self._top(a) + 2, first - ((b, a) not in self._both), middle)
            canvas.across(self._top(b) + 2, middle, last)
            canvas.write(self._top(b) + 2, last, "▶")
            if (b, a) in self._both:
                canvas.write(self._top(a) + 2, first, "◀")

    def _return(self, canvas: _Canvas, a: str, b: str) -> None:
        """A link back (or over a column): out of the bottom of `a`, below all boxes, into the
        bottom of `b`."""
        floor = max(self._top(name) for name in self._clusters) + _BOX_HEIGHT + 1
        at, to = (
            self._left(self._column[name]) + self._width(self._column[name]) // 2 for name in (a, b)
        )
        canvas.down(at, self._top(a) + _BOX_HEIGHT - 1, floor)
        canvas.down(to, self._top(b) + _BOX_HEIGHT, floor)
        canvas.across(floor, min(at, to), max(at, to))
        canvas.write(self._top(b) + _BOX_HEIGHT, to, "▲")


def _joined(links: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Links in bundles: those that share an end with one another, directly or by others."""
    bundles: list[list[tuple[str, str]]] = []
    for link in links:
        touching = [
            bundle for bundle in bundles if any(link[0] == a or link[1] == b for a, b in bundle)
        ]
        bundles = [bundle for bundle in bundles if bundle not in touching]
        bundles.append([*(ab for bundle in touching for ab in bundle), link])
    return bundles
