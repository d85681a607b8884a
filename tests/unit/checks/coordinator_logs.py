"""Logs of internal topics in the histories of internal-topics, and the findings in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

from linkflap.harness.log.coordinators import (
    EMPTY,
    FORGOTTEN,
    GROUPS,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTIONS,
    CoordinatorEntry,
    GroupCommit,
    TransactionState,
)
from linkflap.harness.model.history import GroupOffset
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import Header, History, Log, but, poll, view
from tests.unit.checks.verdicts import results, unjudged

CHECK = REGISTRY["internal-topics"]


TOPIC_PARTITION = ("A.t", 0)


END = {PREPARE_COMMIT: "commit", PREPARE_ABORT: "abort"}


def own(
    log: Log | Sequence[Log],
    topic: str = TRANSACTIONS,
    entries: Sequence[CoordinatorEntry] = (),
    compacted: Mapping[str, int] | None = None,
) -> PartitionView:
    """A partition of an internal topic on one cluster, with these entries."""
    logs = [log] if isinstance(log, Log) else log
    seen = view(logs, topic=topic, compacted=compacted)
    return replace(
        seen,
        replicas=[replace(r, entries=tuple(entries) if r.canonical else ()) for r in seen.replicas],
    )


def written(records: int, **header: Unpack[Header]) -> Log:
    log = Log("A")
    for _ in range(records):
        log.data(-1, **header)
    return log


class Fields(TypedDict, total=False):
    """The other fields of a state."""

    timeout: int
    updated: int
    started: int
    written: int
    previous_id: int
    next_id: int
    version: int


def state(
    kind: int,
    *partitions: tuple[str, int],
    at: int = 0,
    pid: int = 7,
    epoch: int = 0,
    name: str = "t",
    **rest: Unpack[Fields],
) -> TransactionState:
    return TransactionState(
        offset=at,
        transactional_id=name,
        producer_id=pid,
        producer_epoch=epoch,
        state=kind,
        partitions=tuple(partitions),
        **rest,
    )


class Windows(TypedDict):
    """When a fault was active."""

    windows: Sequence[Window]


class Producer(TypedDict, total=False):
    """The producer of the transactions."""

    pid: int
    epoch: int
    name: str


def coordinator(
    *kinds: int,
    partitions: tuple[tuple[str, int], ...] = (TOPIC_PARTITION,),
    log: Log | None = None,
    **rest: Unpack[Producer],
) -> PartitionView:
    """The entries of A's coordinator, one state after the other; those of a transaction that goes
    on or is prepared name the partitions. Behind an Empty for each epoch up to the one that is
    given."""
    begun = rest.get("epoch", 0) + 1
    first = state(EMPTY, **rest)
    entries = [replace(first, offset=n, producer_epoch=n) for n in range(begun)]
    entries += [
        state(k, *(partitions if EMPTY < k <= PREPARE_ABORT else ()), at=n, **rest)
        for n, k in enumerate(kinds, start=begun)
    ]
    return own(log or written(len(entries)), entries=entries)


def states(*each: TransactionState, log: Log | None = None) -> PartitionView:
    """The entries of A's coordinator, with their places as offsets. None is updated before the one
    before it, and each is written when it is updated unless it says otherwise."""
    now = 0
    entries = []
    for at, one in enumerate(each):
        entries.append(_dated(replace(one, offset=at), now))
        now = max(now, entries[-1].written)
    return own(log or written(len(entries)), entries=entries)


def _dated(one: TransactionState, now: int) -> TransactionState:
    if one.state == FORGOTTEN:
        return one
    updated = max(one.updated, now)
    begins = -1 < one.started == one.updated
    return replace(
        one,
        updated=updated,
        started=updated if begins else one.started,
        written=max(one.written, updated),
    )


def set_to(
    seen: PartitionView,
    name: str = "",
    value: int = 0,
    *,
    kafka: str = "4.3.1",
    on: str = "AB",
) -> PartitionView:
    """The same, of clusters with this setting of their brokers, or of this release."""
    topology = seen.topology
    clusters = tuple(
        replace(c, config={name: str(value)} if name and c.name in on else {}, kafka=kafka)
        for c in topology.clusters
    )
    return but(seen, topology=replace(topology, clusters=clusters))


def groups(*committed: int, log: Log | None = None) -> PartitionView:
    """The entries of A's group coordinator, one commit after the other."""
    entries = [
        GroupCommit(offset=n, group="g", topic="A.t", partition=0, committed=c)
        for n, c in enumerate(committed)
    ]
    return own(log or written(len(committed)), GROUPS, entries)


def data(*ends: str | None, **rest: Unpack[History]) -> PartitionView:
    """A's partition with one transaction per end; None: it has no marker yet."""
    log = Log("A")
    for number, end in enumerate(ends, start=1):
        log.txn(number, pid=7, end=end)
    return view([log], **rest)


def twice(end: str, then: tuple[str, ...] = (), start: int = 0) -> PartitionView:
    """A's partition with a transaction whose marker its coordinator wrote twice, and others after
    it."""
    log = Log("A", start=start).txn(1, pid=7, end=end).marker(end, pid=7, leader_epoch=1)
    for number, other in enumerate(then, start=2):
        log.txn(number, pid=7, end=other)
    return view([log])


def cleaned(last: str) -> PartitionView:
    """A's partition of three transactions, from which a cleaner removed the second."""
    return view([Log("A").txn(1, pid=7).skip(2).txn(3, pid=7, end=last)], compacted={"A": 4})


def sampled(*offsets: int, windows: Sequence[Window] = ()) -> PartitionView:
    rows = [
        GroupOffset(time=n, cluster="A", group="g", topic="A.t", partition=0, offset=o)
        for n, o in enumerate(offsets)
    ]
    return view([Log("A").data(1)], groups=rows, windows=windows)


def led_again(*epochs: int) -> Log:
    """A's internal partition, with a batch of each leader epoch."""
    log = Log("A")
    for epoch in epochs:
        log.data(-1, leader_epoch=epoch)
    return log


def fault(name: str, target: str, at: int) -> Windows:
    return {"windows": [Window(id="f", fault=name, target=target, start=at, end=at)]}


def transaction(end: str | None) -> Log:
    """A's internal partition with a batch of a transaction; None: it has no marker."""
    log = Log("A").data(-1, pid=7, transactional=True)
    return log.marker(end, pid=7) if end else log


def acknowledged(offset: int) -> PartitionView:
    return view([Log("A").data(1)], reads=[poll(kind="commit", group="g", position=offset)])


def judged(*seen: PartitionView) -> tuple[list[tuple[str, str, str, int]], list[str]]:
    """The findings in the partitions of one run: (kind, cluster, topic, offset); and the reasons
    why something is unknown."""
    found = [
        (f.kind, f.cluster, topic, f.offset)
        for topic, f in results(CHECK.name, *seen)
        if isinstance(f, Found)
    ]
    return found, unjudged(CHECK.name, *seen)


def second(*ids: int, **header: Unpack[Header]) -> Log:
    log = Log("A", broker=2, canonical=False, leader=False)
    for _ in ids:
        log.data(-1, **header)
    return log


def torn(log: Log) -> Log:
    return log.torn("half a batch")


def above(log: Log, high_watermark: int) -> Log:
    log.high_watermark = high_watermark
    return log
