"""write-cycles: no transaction read, directly or through others, what depends on itself (Adya's G1c with wr edges alone; Elle).

A transaction that reads says what its records were made from (`Send.input_uids`): an edge leads from the transaction that wrote
such a record to the one that read it. Who reads committed gets a record only after its transaction has ended, and begins to write
after that, so time runs along every edge and no circle can close: one that does means that somebody read what was not
committed yet. Edges by write order (ww) are left out: transactions of Kafka interleave in a partition, so a circle with those
is legal. Of a circle every member reads and writes; what was never committed is in none.

Where no workload reads inside of its transactions (a relay does) nothing is due.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from harness.model.scenario import Scenario
from spark_verify.checks.base import AnomalyKind, Check, Clue, Combined, Examined, Finding, Found
from spark_verify.checks.logs import runs
from spark_verify.checks.outcomes import never
from spark_verify.sends import Sends
from spark_verify.view import Origin, PartitionView, Promotion, Send

KIND = "write-cycle"
RELAY = "relay"
"""The kind of workload whose transactions read."""
SHOWN = 16
"""Transactions of a circle that the evidence names."""


def kernel(view: PartitionView) -> Sequence[Finding]:
    """One clue per cluster: what its transactions that read wrote to this partition, and from what they made it."""
    by_cluster: dict[str, list[Send]] = {}
    every = Sends.of(view.sends)
    for send in every.take(every.says("kind", "transaction") & (every.sizes_of("input_uids") > 0) & ~never(every)):
        by_cluster.setdefault(send.cluster, []).append(send)
    findings: list[Finding] = []
    for cluster, sends in sorted(by_cluster.items()):
        rows = [[s.number, s.first_uid, len(s.offsets), int(s.offsets[0]) if len(s.offsets) else -1, _runs(s)] for s in sends]
        findings.append(Clue(cluster=cluster, offset=-1, data={"sends": rows}))
        findings.append(Examined(cluster=cluster, origin="native", count=len({s.number for s in sends})))
    return findings


def _runs(send: Send) -> list[list[int]]:
    """What was read, as runs (first payload id, how many)."""
    uids = np.sort(send.input_uids)
    return [[int(uids[start]), end - start] for start, end in runs(uids)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrote:
    """What one transaction wrote to one partition: payload ids [first, first + count), the first at `offset`."""

    operation: int
    first: int
    count: int
    clue: Clue
    offset: int


def combine(clues: Sequence[Clue]) -> Sequence[Combined]:
    """Every circle once, where its first transaction wrote."""
    wrote: list[Wrote] = []
    read: dict[int, list[tuple[int, int]]] = {}
    for clue in clues:
        rows = clue.data["sends"]
        for operation, first, count, offset, inputs in rows if isinstance(rows, list) else ():
            wrote.append(Wrote(operation=operation, first=first, count=count, clue=clue, offset=offset))
            read.setdefault(operation, []).extend((start, length) for start, length in inputs)
    edges = _edges(wrote, read)
    places = {each.operation: each for each in reversed(wrote)}
    return [_circle(members, edges, places[min(members)]) for members in components(edges) if _closed(members, edges)]


def _edges(wrote: Sequence[Wrote], read: Mapping[int, Sequence[tuple[int, int]]]) -> dict[int, dict[int, int]]:
    """writer -> reader -> a payload that the one wrote and the other read."""
    ordered = sorted(wrote, key=lambda w: w.first)
    firsts = np.array([w.first for w in ordered], np.int64)
    edges: dict[int, dict[int, int]] = {operation: {} for operation in read}
    for reader, inputs in read.items():
        for start, length in inputs:
            begin = max(0, int(np.searchsorted(firsts, start, side="right")) - 1)
            for each in ordered[begin : int(np.searchsorted(firsts, start + length, side="left"))]:
                if max(start, each.first) < min(start + length, each.first + each.count):
                    edges[each.operation].setdefault(reader, max(start, each.first))
    return edges


def components(edges: Mapping[int, Mapping[int, int]]) -> Iterator[Sequence[int]]:
    """Strongly connected components (Tarjan), without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    waiting: set[int] = set()
    for root in sorted(edges):
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        waiting.add(root)
        while work:
            node, further = work[-1]
            following = next((n for n in further if n not in index or n in waiting), None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    place = stack.index(node)
                    yield tuple(stack[place:])
                    waiting.difference_update(stack[place:])
                    del stack[place:]
            elif following in index:
                low[node] = min(low[node], index[following])
            else:
                index[following] = low[following] = len(index)
                stack.append(following)
                waiting.add(following)
                work.append((following, iter(edges[following])))


def _closed(members: Sequence[int], edges: Mapping[int, Mapping[int, int]]) -> bool:
    """Whether there is a circle: several members, or one that read what it wrote itself."""
    return len(members) > 1 or members[0] in edges[members[0]]


def _circle(members: Sequence[int], edges: Mapping[int, Mapping[int, int]], at: Wrote) -> Combined:
    path = _shortest(at.operation, set(members), edges)
    steps = [{"wrote": one, "uid": edges[one][other], "read_by": other} for one, other in pairwise(path)]
    evidence = {"transactions": len(members), "operation": at.operation, "circle": steps[:SHOWN]}
    found = Found(kind=KIND, cluster=at.clue.cluster, offset=at.offset, evidence=evidence)
    return Combined(found=found, topic=at.clue.topic, partition=at.clue.partition)


def _shortest(start: int, members: Collection[int], edges: Mapping[int, Mapping[int, int]]) -> Sequence[int]:
    """The shortest way from a transaction back to itself."""
    came: dict[int, int] = {}
    front = [start]
    while start not in came:
        ahead = []
        for node in front:
            for following in edges[node]:
                if following in members and following not in came:
                    came[following] = node
                    ahead.append(following)
        front = ahead
    path = [start]
    while len(path) == 1 or path[-1] != start:
        path.append(came[path[-1]])
    return path[::-1]


def _due(scenario: Scenario, promotions: Sequence[Promotion]) -> Collection[tuple[str, Origin]]:
    """Where a relay begins."""
    return {(str(w.options.get("cluster", w.home)), "native") for w in scenario.workloads if w.kind == RELAY}


CHECK = Check(
    name="write-cycles",
    guarantee="No transaction that reads committed has read, directly or through others, what depends on its own writes.",
    source="Adya G1c (wr edges); Elle; Jepsen kafka workload (ww edges are legal in Kafka)",
    inputs=frozenset({"sends"}),
    anomalies=(
        AnomalyKind(
            name=KIND,
            meaning="Transactions that each read a record of the one before, in a circle; the offset is the first one's record.",
            smallest="one transaction wrote 1 made from 2, another wrote 2 made from 1: at the offset of 1.",
            despite_torn=True,
        ),
    ),
    kernel=kernel,
    combine=combine,
    unit="transactions",
    due_at=_due,
    when="native ones where a workload reads inside of its transactions",
)
