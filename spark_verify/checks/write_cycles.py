"""write-cycles: no transaction read, directly or through others, a record that depends on itself
(Adya's G1c with wr edges alone; Elle).

A transaction that reads records its inputs (`Send.input_uids`): an edge leads from the transaction
that wrote such a record to the one that read it. A read_committed reader gets a record only after
its transaction has ended, and begins to write after that. So time runs along every edge and no
cycle can close: a cycle means that somebody read a record that was not committed yet. Edges by
write order (ww) are left out: transactions of Kafka interleave in a partition, so a cycle with
those is legal. Every member of a cycle reads and writes; a transaction that was never committed is
in none.

If no workload reads inside its transactions (a relay does), nothing is due.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Due,
    Examined,
    Finding,
    Found,
    PartialFinding,
)
from linkflap.spark_verify.checks.log_model.logs import among, chunks, distinct, locate
from linkflap.spark_verify.checks.log_model.outcomes import never
from linkflap.spark_verify.facts.partition_facts import LogPromotion
from linkflap.spark_verify.facts.sends_and_reads import Sends
from linkflap.spark_verify.facts.view import Ints, PartitionView

KIND = "write-cycle"
RELAY = "relay"
"""The kind of workload whose transactions read."""
SHOWN = 16
"""Transactions of a circle that the evidence names."""
FEW = 16
"""The remaining edges are searched one by one as soon as fewer than one in so many can be left out
at once."""


def kernel(view: PartitionView) -> Iterator[Finding]:
    """One partial finding per cluster: what its transactions that read wrote to this partition, and
    from what they made it."""
    every = Sends.of(view.sends)
    every = every.take(
        every.says("kind", "transaction") & (every.sizes_of("input_uids") > 0) & ~never(every)
    )
    for cluster in sorted(every.words("cluster")):
        sends = every.take(every.says("cluster", cluster))
        yield PartialFinding(cluster=cluster, offset=-1, data=_columns(sends))
        yield Examined(
            cluster=cluster, origin="native", count=len(distinct(sends.column("number")))
        )


def _columns(sends: Sends) -> Mapping[str, Ints]:
    """Per send its operation, and the payload ids that it wrote, [first, first + count), the first
    at `offset`.

    What each read are as many `runs` of payload ids [start, start + length), one send's after the
    other's.
    """
    offsets, sizes = sends.each("offsets"), sends.sizes
    first = np.full(len(sends), -1, np.int64)
    first[sizes > 0] = offsets[(np.cumsum(sizes) - sizes)[sizes > 0]]
    reader = np.repeat(np.arange(len(sends)), sends.sizes_of("input_uids"))
    uids = sends.each("input_uids")
    uids = uids[np.lexsort((uids, reader))]
    begins = np.flatnonzero(np.concatenate(([True], (np.diff(uids) != 1) | (np.diff(reader) != 0))))
    return {
        "operation": sends.column("number"), "first": sends.column("first_uid"), "count": sizes,
        "offset": first,
        "runs": np.bincount(reader[begins], minlength=len(sends)),
        "start": uids[begins], "length": np.diff(np.append(begins, len(uids))),
    }  # fmt: skip


def combine(partials: Sequence[PartialFinding]) -> Sequence[Combined]:
    """Every circle once, where its first transaction wrote."""
    if not partials:
        return []
    parts: list[Mapping[str, Any]] = [partial.data for partial in partials]
    columns = {name: np.concatenate([data[name] for data in parts]) for name in parts[0]}
    of = np.repeat(np.arange(len(partials)), [len(data["operation"]) for data in parts])
    edges, found = _edges(columns), []
    for members in components(edges):
        if _closed(members, edges):
            row = int(locate(columns["operation"], np.array([min(members)]))[0])
            found.append(_circle(members, edges, partials[of[row]], int(columns["offset"][row])))
    return found


def _edges(columns: Mapping[str, Ints]) -> dict[int, dict[int, int]]:
    """writer -> reader -> a payload that the one wrote and the other read; without edges that
    are in no cycle."""
    operation = columns["operation"]
    # A transaction is known by the first row that tells of it.
    node = locate(operation, operation)
    reader = np.repeat(node, columns["runs"])
    order = np.argsort(reader, kind="stable")
    found = _shared(columns, node, reader[order], columns["start"][order], columns["length"][order])
    while found.shape[1]:
        # A transaction that nobody read from is in no cycle; nor then is one that only such
        # transactions read from.
        kept = among(found[1], found[0])
        rest = found[:, kept]
        few = FEW * (len(kept) - rest.shape[1]) < len(kept)
        found = rest
        if few:
            break
    edges: dict[int, dict[int, int]] = {}
    for writer, other, uid in zip(
        operation[found[0]].tolist(), operation[found[1]].tolist(), found[2].tolist(), strict=True
    ):
        edges.setdefault(writer, {}).setdefault(other, uid)
        edges.setdefault(other, {})
    return edges


def _shared(
    columns: Mapping[str, Ints], node: Ints, reader: Ints, start: Ints, length: Ints
) -> Ints:
    """Reads of records that transactions wrote which also read: (writer, reader, payload) of each
    run of records, one column each."""
    order = np.argsort(columns["first"], kind="stable")
    firsts, ends = columns["first"][order], (columns["first"] + columns["count"])[order]
    writer = node[order]
    found = [np.zeros((3, 0), np.int64)]
    for some in chunks(start):
        begin = np.maximum(np.searchsorted(firsts, start[some], side="right") - 1, 0)
        sizes = np.maximum(
            np.searchsorted(firsts, start[some] + length[some], side="left") - begin, 0
        )
        run = np.repeat(np.arange(some.start, some.start + len(sizes)), sizes)
        index = np.repeat(begin - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(run))
        payload = np.maximum(start[run], firsts[index])
        hit = payload < np.minimum(start[run] + length[run], ends[index])
        found.append(np.stack((writer[index], reader[run], payload))[:, hit])
    return np.concatenate(found, axis=1)


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
                    members = [stack.pop()]
                    while members[-1] != node:
                        members.append(stack.pop())
                    waiting.difference_update(members)
                    yield tuple(reversed(members))
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


def _circle(
    members: Sequence[int],
    edges: Mapping[int, Mapping[int, int]],
    partial: PartialFinding,
    offset: int,
) -> Combined:
    operation = min(members)
    path = _shortest(operation, set(members), edges)
    steps = [
        {"wrote": one, "uid": edges[one][other], "read_by": other} for one, other in pairwise(path)
    ]
    found = Found.at(
        KIND,
        partial.cluster,
        offset,
        transactions=len(members),
        operation=operation,
        circle=steps[:SHOWN],
    )
    return partial.combined(found)


def _shortest(
    start: int, members: Collection[int], edges: Mapping[int, Mapping[int, int]]
) -> Sequence[int]:
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


def _due(scenario: Scenario, promotions: Sequence[LogPromotion]) -> Due:
    """Where a relay begins."""
    return {
        (str(w.options.get("cluster", w.home)), "native")
        for w in scenario.workloads
        if w.kind == RELAY
    }


CHECK = Check(
    name="write-cycles",
    guarantee="""No read_committed transaction has read, directly or through others, a record that
        depends on its own writes.""",
    source="Adya G1c (wr edges); Elle; Jepsen kafka workload (ww edges are legal in Kafka)",
    wire="Nothing: the inputs of a transaction are not on the wire.",
    inputs={"sends"},
    complete=frozenset(),
    anomalies=(
        AnomalyKind(
            name=KIND,
            meaning="""Each of several transactions read a record of the previous one, in a cycle;
                the offset is that of the first one's record.""",
            sentence="""{transactions} transactions of {cluster} read each other's writes in a
                circle, {operation} at {at} first""",
            counted="cycle of transactions|cycles of transactions",
            smallest="""one transaction wrote 1 made from 2, another wrote 2 made from 1: at the
                offset of 1.""",
            despite_torn=True,
        ),
    ),
    follows={"aborted-read", "uncommitted-read", "torn-transaction"},
    kernel=kernel,
    combine=combine,
    unit="transactions",
    due_at=_due,
    when="native ones where a workload reads inside of its transactions",
)
