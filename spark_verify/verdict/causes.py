"""Causes and consequences: ranks the violations of a run, beginning with those that follow from no
other.

A check declares the checks whose anomalies may cause its own (`Check.follows`). A kind may declare
causes of its own (`AnomalyKind.follows`), and then ranks like a check of that name. An anomaly
counts as a consequence of another if both concern the same subject: a payload, an offset, an
operation, or a producer id on one cluster. An anomaly that describes a state rather than a record
(samples, polls, sequences, offsets of groups) also follows from one at or before it in its
partition. Within one check, kinds with the same subject are one: the kind that it declares first
represents them. Two causes with a common consequence are joined if the check of one may follow from
the check of the other. For example, a marker and its records lie at different offsets, but readers'
anomalies about both have one cause. If several clusters have a kind at one offset, each copied from
the previous cluster, the first represents all. A pure function of the anomalies; nothing is judged
here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Final

from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks.base import Check

Axis = tuple[object, ...]


@dataclass(slots=True)
class OwnedIntervals:
    """Intervals on one axis, each with its owner."""

    rows: list[tuple[int, int, int]] = field(default_factory=list)
    reach: list[int] = field(default_factory=list)

    def close(self) -> None:
        self.rows.sort()
        self.reach = list(accumulate((end for _, end, _ in self.rows), max))

    def touching(self, start: int, end: int) -> int | None:
        """The last interval that begins before `end` and ends behind `start`."""
        at = bisect_left(self.rows, (end,)) - 1
        while at >= 0 and self.reach[at] > start:
            if self.rows[at][1] > start:
                return self.rows[at][2]
            at -= 1
        return None


def nowhere(anomaly: Anomaly) -> str:
    return ""


def spans_of(anomaly: Anomaly) -> Iterator[tuple[Axis, int, int]]:
    """The subject of an anomaly as intervals, the nearest in its log first."""
    evidence = anomaly.evidence
    count = records if isinstance(records := evidence.get("records"), int) and records > 0 else 1
    pid = _number_of(evidence.get("producer_id"))
    if pid >= 0:
        yield ("producer", anomaly.cluster, anomaly.topic, anomaly.partition), pid, pid + 1
    if (name := evidence.get("transactional_id")) and anomaly.topic:
        yield ("producer", name, anomaly.cluster, anomaly.topic, anomaly.partition), 0, 1
    if anomaly.offset >= 0:
        yield from _offsets(anomaly, count)
    for name, width in (("uid", count), ("operation", 1)):
        if (value := _number_of(evidence.get(name))) >= 0:
            yield (name,), value, value + width
    for uid in _listed(evidence):
        yield ("uid",), uid, uid + 1
    yield from _of_replica(anomaly)
    if link := evidence.get("refused_over"):
        yield ("refused", link), 0, 1
    if pid >= 0:
        yield ("producer", anomaly.cluster), pid, pid + 1


def _offsets(anomaly: Anomaly, count: int) -> Iterator[tuple[Axis, int, int]]:
    """The locations of that many records in its own log, and in the one that they were mirrored
    from."""
    evidence = anomaly.evidence
    first = _number_of(evidence.get("first_offset"))
    start = first if 0 <= first < anomaly.offset and "copy" not in evidence else anomaly.offset
    yield log_of(anomaly, anomaly.cluster), start, anomaly.offset + count
    if "source" in evidence:
        there = _number_of(evidence.get("source_offset", anomaly.offset))
        yield log_of(anomaly, evidence["source"]), there, there + count


def _of_replica(anomaly: Anomaly) -> Iterator[tuple[Axis, int, int]]:
    """The range that one broker lacks or lost: from the new end of its log to the old one."""
    evidence, before = anomaly.evidence, anomaly.evidence.get("before")
    broker = _number_of(evidence.get("missing_on", evidence.get("broker")))
    if broker >= 0 and anomaly.offset >= 0:
        end = _number_of(before.get("log_end")) if isinstance(before, Mapping) else -1
        log = log_of(anomaly, anomaly.cluster)
        yield ("replica", broker, *log[1:]), anomaly.offset, max(end, anomaly.offset + 1)


def _listed(evidence: Mapping[str, object]) -> Iterator[int]:
    for name in ("uids", "seen"):
        several = evidence.get(name)
        for each in several if isinstance(several, list) else ():
            uid = _number_of(each.get("uid") if isinstance(each, Mapping) else each)
            if uid >= 0:
                yield uid


def _number_of(value: object) -> int:
    return value if isinstance(value, int) else -1


def log_of(anomaly: Anomaly, cluster: object) -> Axis:
    return ("offset", cluster, anomaly.topic, anomaly.partition)


TRACED: Final = 500
"""The number of anomalies per check and kind whose cause is traced. The others are counted with the
first one."""
_STATES: Final = frozenset({"samples", "polls"})
Kind = tuple[str, str]
"""Check and kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseGroup:
    """Anomalies of one kind on one cluster that follow from no other, and their consequences by
    kind.

    All numbers are indices of the anomalies that were ranked. `first` is the member that names the
    group: the first by partition and offset, or for a kind without harm of its own, the member with
    the most consequences.
    """

    check: str
    kind: str
    cluster: str
    first: int
    members: Sequence[int]
    consequences: Mapping[Kind, Sequence[int]]

    @property
    def led_to(self) -> int:
        """How many anomalies follow."""
        return sum(map(len, self.consequences.values()))


def rank(
    anomalies: Sequence[Anomaly],
    checks: Mapping[str, Check],
    upstream: Callable[[Anomaly], str] = nowhere,
) -> Sequence[CauseGroup]:
    """The causes, the deepest first; anomalies that the mirror's guarantee allows cause nothing and
    follow from nothing.

    `upstream` names the cluster that an anomaly's offset was mirrored from.
    """
    order = _Order(checks)
    roots: dict[int, int] = {}
    joined: dict[int, int] = {}
    spans: dict[str, list[dict[Axis, OwnedIntervals]]] = defaultdict(list)
    chosen, others = _chosen(anomalies)
    for check, kind in sorted(
        chosen, key=lambda each: (order.depth(order.node(*each)), each[0], order.turn(each))
    ):
        mine: dict[Axis, OwnedIntervals] = defaultdict(OwnedIntervals)
        for number in chosen[check, kind]:
            roots[number] = _root(anomalies, number, order, spans, roots, joined)
            for axis, start, end in spans_of(anomalies[number]):
                mine[axis].rows.append((start, end, number))
        for each in mine.values():
            each.close()
        spans[order.node(check, kind)].append(mine)
        _join_copies(anomalies, chosen[check, kind], upstream, roots, joined)
    roots = {number: _deepest(root, joined) for number, root in roots.items()}
    for number, like in others.items():
        roots[number] = roots[like] if roots[like] != like else number
    return sorted(
        _causes(anomalies, roots, order),
        key=lambda c: (
            order.depth(order.node(c.check, c.kind)),
            -c.led_to,
            c.check,
            c.kind,
            c.cluster,
        ),
    )


def _chosen(anomalies: Sequence[Anomaly]) -> tuple[Mapping[Kind, Sequence[int]], Mapping[int, int]]:
    """The anomalies whose causes are traced, by kind; and for each other anomaly the first one of
    its kind.
    """
    seen: dict[Kind, list[int]] = defaultdict(list)
    others: dict[int, int] = {}
    for number, anomaly in enumerate(anomalies):
        if anomaly.allowed:
            continue
        same = seen[anomaly.check, anomaly.kind]
        if len(same) < TRACED:
            same.append(number)
        else:
            others[number] = same[0]
    return seen, others


class _Order:
    """The order of checks and kinds that the declarations imply."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._own = {
            kind.name: kind.follows
            for check in checks.values()
            for kind in check.anomalies
            if kind.follows is not None
        }
        self.depth = cache(self._depth)
        self.causes = cache(self._ancestors)

    def _depth(self, name: str) -> int:
        # A check keeps its depth when a kind of another is put before it.
        first = -1 if name in self._own else 0
        return max((1 + self.depth(other) for other in self._follows(name)), default=first)

    def node(self, check: str, kind: str) -> str:
        """The name that `follows` has of a kind: its check's, or its own if it has own causes."""
        return kind if kind in self._own else check

    def _follows(self, name: str) -> AbstractSet[str]:
        if name in self._own:
            return self._own[name]
        return self._checks[name].follows if name in self._checks else frozenset()

    def _ancestors(self, name: str) -> Sequence[str]:
        """Every node whose anomalies can cause those of this one, the nearest first."""
        every = set(self._follows(name))
        for other in self._follows(name):
            every |= set(self.causes(other))
        return sorted(every, key=lambda other: (-self.depth(other), other))

    def may_follow(self, anomaly: Anomaly, other: Anomaly) -> bool:
        """Whether an anomaly like the first may be a consequence of one like the other."""
        above = self.causes(self.node(anomaly.check, anomaly.kind))
        return self.node(other.check, other.kind) in above

    def turn(self, kind: Kind) -> int:
        """The index of its kind among the kinds of its check."""
        check = self._checks.get(kind[0])
        names = [each.name for each in check.anomalies] if check else []
        return names.index(kind[1]) if kind[1] in names else len(names)

    def latent(self, kind: Kind) -> bool:
        """Whether the kind does no harm by itself."""
        check = self._checks.get(kind[0])
        return check is not None and any(
            each.name == kind[1] and each.latent for each in check.anomalies
        )

    def of_state(self, name: str) -> bool:
        """Whether the kind describes a state of a partition and not a record."""
        check = self._checks.get(name)
        if check is None:
            return False
        return (
            check.unit in _STATES
            or "groups" in check.inputs
            or any(kind.latent for kind in check.anomalies)
        )


def _root(
    anomalies: Sequence[Anomaly],
    number: int,
    order: _Order,
    spans: Mapping[str, Sequence[Mapping[Axis, OwnedIntervals]]],
    roots: Mapping[int, int],
    joined: dict[int, int],
) -> int:
    """The root of an anomaly; itself if it follows from none. Of several roots it is the nearest,
    which is joined to those that its check can follow from.
    """
    anomaly = anomalies[number]
    about, node = list(spans_of(anomaly)), order.node(anomaly.check, anomaly.kind)
    behind = [mine for name in order.causes(node) for mine in spans.get(name, ())]
    nearest = number
    for mine in (*behind, *spans.get(node, ())):
        for axis, start, end in about:
            found = mine[axis].touching(start, end) if axis in mine else None
            # an id can have anomalies of two causes
            if found is None or (nearest != number and axis[0] == "producer"):
                continue
            root = _deepest(roots[found], joined)
            if nearest == number:
                nearest = root
            elif order.may_follow(anomalies[nearest], anomalies[root]):
                joined[nearest] = root
                nearest = root
    if nearest == number and order.of_state(anomaly.check):
        found = _below(anomaly, behind)
        return number if found is None else roots[found]
    return nearest


def _below(anomaly: Anomaly, behind: Sequence[Mapping[Axis, OwnedIntervals]]) -> int | None:
    """The first of these that is anywhere in the log up to an anomaly of its state, as the last
    stable offset."""
    upto = anomaly.offset + 1 if anomaly.offset >= 0 else 1 << 62
    for mine in behind:
        if (log := mine.get(log_of(anomaly, anomaly.cluster))) and (
            found := log.touching(-1, upto)
        ) is not None:
            return found
    return None


def _deepest(root: int, joined: Mapping[int, int]) -> int:
    """The final root that a root was joined to. Only roots that are not joined yet are joined to
    each other.
    """
    while root in joined:
        root = joined[root]
    return root


def _join_copies(
    anomalies: Sequence[Anomaly],
    numbers: Sequence[int],
    upstream: Callable[[Anomaly], str],
    roots: Mapping[int, int],
    joined: dict[int, int],
) -> None:
    """An anomaly without another root follows from the same kind on the cluster that its own was
    mirrored from."""
    at: dict[Axis, int] = {}
    for number in numbers:
        at.setdefault(
            (*log_of(anomalies[number], anomalies[number].cluster), anomalies[number].offset),
            number,
        )
    if len({axis[1] for axis in at}) < 2:
        return
    for number in numbers:
        anomaly = anomalies[number]
        if anomaly.offset < 0 or roots[number] != number or not (above := upstream(anomaly)):
            continue
        found = at.get((*log_of(anomaly, above), anomaly.offset))
        if found is not None and (root := _deepest(roots[found], joined)) != number:
            joined[number] = root


def _causes(
    anomalies: Sequence[Anomaly], roots: Mapping[int, int], order: _Order
) -> Iterator[CauseGroup]:
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for number, root in sorted(roots.items()):
        groups[anomalies[root].check, anomalies[root].kind, anomalies[root].cluster].append(number)
    for (check, kind, cluster), numbers in groups.items():
        members = [n for n in numbers if roots[n] == n]
        follow = Counter(roots[n] for n in numbers if roots[n] != n)
        by_kind: dict[Kind, list[int]] = defaultdict(list)
        for number in sorted(
            (n for n in numbers if roots[n] != n),
            key=lambda n: (order.depth(order.node(anomalies[n].check, anomalies[n].kind)), n),
        ):
            by_kind[anomalies[number].check, anomalies[number].kind].append(number)
        ranked = order.latent((check, kind))
        first = min(
            members, key=lambda n: (-follow[n] if ranked else 0, anomalies[n].offset < 0, n)
        )
        first_of_all = [first, *(n for n in members if n != first)]
        yield CauseGroup(
            check=check,
            kind=kind,
            cluster=cluster,
            first=first,
            members=first_of_all,
            consequences=by_kind,
        )
