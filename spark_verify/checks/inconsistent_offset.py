"""inconsistent-offset: at one offset of a log everybody saw the same record (Jepsen's Kafka workload, inconsistent-offsets).

Observers are the bytes, the acknowledgements of producers, and every reader of either isolation: what one of them saw at an
offset, no other may have seen differently, nor the same one another time. Offsets have a meaning within one life of a log
(`spark_verify.eras`): behind a cut there are other records, also behind one that a mirror made when its destination was promoted
and wrote down. What was seen below every cut since then still holds.

ghost-ack and read-committed-visibility hold observers against the bytes; here they are held against each other too, so
that a log which was not captured, or was changed after it was read, still shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from spark_verify.checks.base import AnomalyKind, Check, Finding, Found
from spark_verify.checks.lives import every, examined, kept_since, lives, log_of, own, reads_in, replica_of, sends_of
from spark_verify.checks.logs import runs
from spark_verify.eras import FOREVER, Life
from spark_verify.view import Bools, Ints, PartitionView

KIND = "inconsistent-offset"
LOG: Final = "log"
SHOWN: Final = 8
"""Observers that the evidence names per payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen at which offset, one element per observation, by whom (`observer` is an index into `names`)."""

    offset: Ints
    uid: Ints
    observer: Ints
    names: Sequence[str]


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Puts all observations of each life together."""
    findings: list[Finding] = []
    for life in every(view):
        seen = _together(list(_observations(view, life)))
        seen = _behind(seen, 0 if life.last else life.cut)
        if len(seen.offset):
            findings += own(life, replica_of(view, life), [*examined(life, _shared(seen)), *_judge(life.cluster, seen)])
    return findings


def _observations(view: PartitionView, life: Life) -> Iterator[tuple[str, Ints, Ints]]:
    """(observer, offsets, payload ids) of everybody who saw anything that this life has, or still has."""
    log = log_of(view, life)
    if log is not None:
        yield LOG, log.replica.records.offset, log.replica.records.uid
    for before in lives(view)[life.cluster][: life.number + 1]:
        # Of an earlier life only what no cut since then has taken away.
        end = min(life.earlier[before.number :], default=FOREVER)
        for send in sends_of(view, before):
            acked = (send.offsets >= 0) & (send.offsets < end)
            yield send.client, send.offsets[acked], send.first_uid + np.flatnonzero(acked)
        for read in reads_in(view, before):
            if read.kind == "poll" and len(read.uids):
                kept = read.offsets < min(end, kept_since(view, read))
                yield read.reader, read.offsets[kept], read.uids[kept]


def _together(observations: Sequence[tuple[str, Ints, Ints]]) -> Seen:
    names = list(dict.fromkeys(name for name, _, _ in observations))
    number = {name: place for place, name in enumerate(names)}
    none = np.empty(0, np.int64)
    sizes = [len(offsets) for _, offsets, _ in observations]
    return Seen(
        offset=np.concatenate([none, *(offsets for _, offsets, _ in observations)]),
        uid=np.concatenate([none, *(uids for _, _, uids in observations)]),
        observer=np.repeat(np.array([number[name] for name, _, _ in observations], np.int64), sizes),
        names=names,
    )


def _behind(seen: Seen, start: int) -> Seen:
    """The observations from an offset on, ordered by offset."""
    kept = np.flatnonzero(seen.offset >= start)
    kept = kept[np.argsort(seen.offset[kept], kind="stable")]
    return Seen(offset=seen.offset[kept], uid=seen.uid[kept], observer=seen.observer[kept], names=seen.names)


def _heads(seen: Seen) -> Ints:
    """Where the observations of each offset begin."""
    new: Bools = np.concatenate(([True], seen.offset[1:] != seen.offset[:-1]))
    return np.flatnonzero(new)


def _differ(values: Ints, heads: Ints) -> Bools:
    """Per stretch that begins at one of `heads`, whether it holds two different values."""
    return np.asarray(np.minimum.reduceat(values, heads) != np.maximum.reduceat(values, heads))


def _shared(seen: Seen) -> Ints:
    """Offsets that more than one observer saw."""
    heads = _heads(seen)
    return seen.offset[heads[_differ(seen.observer, heads)]]


def _judge(cluster: str, seen: Seen) -> Sequence[Finding]:
    heads = _heads(seen)
    ends = np.append(heads[1:], len(seen.offset))
    wrong = np.flatnonzero(_differ(seen.uid, heads))
    found: list[Finding] = []
    for start, end in runs(seen.offset[heads[wrong]]):
        first = wrong[start]
        rows = range(int(heads[first]), int(ends[first]))
        evidence = {"records": end - start, "seen": _who(seen, rows)}
        found.append(Found(kind=KIND, cluster=cluster, offset=int(seen.offset[heads[first]]), evidence=evidence))
    return found


def _who(seen: Seen, rows: range) -> Sequence[dict[str, object]]:
    """Every payload that was seen at one offset, and by whom."""
    by_uid: dict[int, dict[str, None]] = {}
    for row in rows:
        by_uid.setdefault(int(seen.uid[row]), {})[seen.names[int(seen.observer[row])]] = None
    return [{"uid": uid, "by": list(names)[:SHOWN]} for uid, names in sorted(by_uid.items())]


CHECK = Check(
    name="inconsistent-offset",
    guarantee="At one offset of a log the bytes, every acknowledgement and every reader have the same record.",
    source="Jepsen kafka workload, inconsistent-offsets",
    inputs=frozenset({"records", "sends", "reads", "promotions"}),
    anomalies=(
        AnomalyKind(
            name=KIND,
            meaning="Two observers, or one at two times, saw different payloads at one offset of one life of a log.",
            smallest="two readers of A got 1 and 2 at offset 0: at offset 0.",
            despite_torn=True,
        ),
    ),
    complete=frozenset({"promotions"}),
    kernel=kernel,
    unit="offsets",
)
