"""inconsistent-offset: at one offset of a log all observers saw the same record (Jepsen's Kafka
workload, inconsistent-offsets).

Observers are the bytes, the acknowledgements of producers, and every reader of either isolation. No
two of them may have seen different records at an offset, nor one of them different records at
different times. Offsets have a meaning within one generation of a log (`spark_verify.facts.eras`):
behind a truncation there are other records, also behind one that a mirror made and recorded when
its destination was promoted. Observations below every truncation since then remain valid.

ghost-ack and read-committed-visibility compare observers with the bytes. This check compares them
with each other too, so that it finds a violation even in a log that was not captured, or was
changed after it was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, cast

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, grouped
from linkflap.spark_verify.checks.log_model.delivered_records import columns_of
from linkflap.spark_verify.checks.log_model.generations import (
    every,
    examined,
    generations,
    kept_since,
    log_of,
    own,
    polls_in,
    sends_of,
)
from linkflap.spark_verify.checks.log_model.logs import changes, distinct, joined, runs
from linkflap.spark_verify.checks.log_model.lost_records import EVIDENCE, Taken
from linkflap.spark_verify.checks.log_model.outcomes import uids_of
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView

KIND = "inconsistent-offset"
LOG: Final = "log"
AT_ONCE: Final = 1 << 17
"""Offsets that are compared in one step."""
BEYOND: Final = 2**63 - 1
Observation = tuple[str, Ints, Ints, Ints]
"""An observer, the offsets and the payload ids that it saw there, and the losses that took those
away since (-1: none; `log_model.lost_records`)."""
SHOWN: Final = 8
"""Observers that the evidence names per payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Observations as columns: the record, its offset, the observer (an index into `names`), and
    the `loss` that took the record away since."""

    offset: Ints
    uid: Ints
    observer: Ints
    loss: Ints
    names: Sequence[str]


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Puts all observations of each generation together."""
    for generation in every(view):
        taken = Taken(view, generation.cluster)
        observations = list(_observations(view, generation, taken))
        shared, found = [np.empty(0, np.int64)], list[Found]()
        for start, end in _windows(observations, 0 if generation.last else generation.truncated_to):
            seen = _together(observations, start, end)
            if len(seen.offset):
                shared.append(_shared(seen))
                here = list(_judge(generation.cluster, seen, taken))
                found = [*found[:-1], *_joined(found[-1:], here)]
        looked_at = examined(generation, np.concatenate(shared))
        yield from own(view, generation, [*looked_at, *found])


def _windows(observations: Sequence[Observation], start: int) -> Iterator[tuple[int, int]]:
    """Ranges of offsets from `start` on that have about the same number of observations each."""
    most = max((offsets for _, offsets, *_ in observations), key=len, default=np.empty(0, np.int64))
    edges = distinct(most)[AT_ONCE::AT_ONCE].tolist()
    yield from pairwise([start, *(edge for edge in edges if edge > start), BEYOND])


def _joined(last: Sequence[Found], following: Sequence[Found]) -> Iterator[Found]:
    """The findings on both sides of an edge, joined into one anomaly if it crosses the edge."""
    if not last or not following:
        yield from (*last, *following)
        return
    before, after = last[0], following[0]
    records = cast("int", before.evidence["records"])
    same = before.evidence.get(EVIDENCE) == after.evidence.get(EVIDENCE)
    if same and before.offset + records == after.offset:
        yield replace(
            before,
            evidence={
                **before.evidence,
                "records": records + cast("int", after.evidence["records"]),
            },
        )
        yield from following[1:]
    else:
        yield from (before, *following)


def _observations(
    view: PartitionView, generation: LogGeneration, taken: Taken
) -> Iterator[Observation]:
    """Everything that was observed of this log generation: in the log, by producers and by
    readers."""
    log = log_of(view, generation)
    if log is not None:
        records = log.records
        yield LOG, records.offset, records.uid, np.full(len(records), -1, np.int64)
    for before in generations(view)[generation.cluster][: generation.number + 1]:
        # An earlier generation counts only as far as no truncation since then has taken it away.
        end = min(generation.earlier[before.number :], default=FOREVER)
        sends = sends_of(view, before)
        clients, names = sends.codes("client")
        for code in distinct(clients).tolist():
            mine = sends.take(clients == code)
            offsets, (uids, send) = mine.each("offsets"), uids_of(mine)
            acked = (offsets >= 0) & (offsets < end)
            offsets, uids = offsets[acked], uids[acked]
            invoked = mine.column("invoked")[send[acked]]
            yield names[code], offsets, uids, taken.sent(offsets, uids, invoked)
        yield from _observed_by_readers(view, before, end, taken)


def _observed_by_readers(
    view: PartitionView, before: LogGeneration, end: int, taken: Taken
) -> Iterator[Observation]:
    """The records that readers got from a generation below `end`, and below where its log was
    truncated since."""
    polls = grouped(polls_in(view, before), lambda poll: poll.reader)
    for name, mine in polls.items():
        got = columns_of(mine)
        ends = np.array([min(end, kept_since(view, poll)) for poll in mine], np.int64)[got.read]
        kept = got.offset < ends
        losses = taken.read(got.offset, got.uid, got.asked)
        yield name, got.offset[kept], got.uid[kept], losses[kept]


def _together(observations: Sequence[Observation], start: int, end: int) -> Seen:
    """The observations of offsets [start, end), ordered by offset."""
    names = list(dict.fromkeys(name for name, *_ in observations))
    parts: list[list[Ints]] = [[np.empty(0, np.int64)] for _ in range(4)]
    for name, offsets, uids, losses in observations:
        rows = np.flatnonzero((offsets >= start) & (offsets < end))
        for part, values in zip(
            parts,
            (offsets[rows], uids[rows], np.full(len(rows), names.index(name)), losses[rows]),
            strict=True,
        ):
            part.append(values)
    offset, uid, observer, loss = map(np.concatenate, parts)
    order = np.argsort(offset, kind="stable")
    return Seen(
        offset=offset[order],
        uid=uid[order],
        observer=observer[order],
        loss=loss[order],
        names=names,
    )


def _heads(seen: Seen) -> Ints:
    """Where the observations of each offset begin."""
    return np.flatnonzero(changes(seen.offset))


def _differ(values: Ints, heads: Ints) -> Bools:
    """Per range that begins at one of `heads`, whether it holds two different values."""
    return np.asarray(np.minimum.reduceat(values, heads) != np.maximum.reduceat(values, heads))


def _shared(seen: Seen) -> Ints:
    """Offsets that more than one observer saw."""
    heads = _heads(seen)
    return seen.offset[heads[_differ(seen.observer, heads)]]


def _judge(cluster: str, seen: Seen, taken: Taken) -> Iterator[Found]:
    heads = _heads(seen)
    ends = np.append(heads[1:], len(seen.offset))
    wrong = np.flatnonzero(_differ(seen.uid, heads))
    by = _losses(seen, heads)[wrong]
    for start, end in runs(seen.offset[heads[wrong]], joined(by)):
        first = wrong[start]
        rows = range(int(heads[first]), int(ends[first]))
        yield Found.at(
            KIND,
            cluster,
            seen.offset[heads[first]],
            records=end - start,
            seen=_who(seen, rows),
            **taken.evidence(int(by[start])),
        )


def _losses(seen: Seen, heads: Ints) -> Ints:
    """Per offset, the loss without whose records all observers saw the same there, or -1."""
    if not (seen.loss >= 0).any():
        return np.full(len(heads), -1, np.int64)
    kept, lost = seen.loss < 0, np.maximum.reduceat(seen.loss, heads)
    low = np.minimum.reduceat(np.where(kept, seen.uid, np.iinfo(np.int64).max), heads)
    high = np.maximum.reduceat(np.where(kept, seen.uid, np.iinfo(np.int64).min), heads)
    return np.asarray(np.where(low >= high, lost, -1))


def _who(seen: Seen, rows: range) -> Sequence[dict[str, object]]:
    """Every payload that was seen at one offset, and by whom."""
    by_uid: dict[int, dict[str, None]] = {}
    for row in rows:
        by_uid.setdefault(int(seen.uid[row]), {})[seen.names[int(seen.observer[row])]] = None
    return [{"uid": uid, "by": list(names)[:SHOWN]} for uid, names in sorted(by_uid.items())]


CHECK = Check(
    name="inconsistent-offset",
    guarantee="""At one offset of a log the bytes, every acknowledgement and every reader have the
        same record.""",
    source="Jepsen kafka workload, inconsistent-offsets",
    wire="""Acknowledgements are compared by the identity of their batch, fetched records by the CRC
        of theirs.""",
    inputs={"records", "sends", "reads", "promotions"},
    anomalies=(
        AnomalyKind(
            name=KIND,
            meaning="""Two observers, or one at two times, saw different payloads at one offset of
                one generation of a log.""",
            sentence="observers saw different records at {at} of {cluster}: {observers}",
            counted="""offset was seen with two different records|offsets were seen with two
                different records""",
            smallest="two readers of A got 1 and 2 at offset 0: at offset 0.",
            despite_torn=True,
        ),
    ),
    follows={
        "ghost-ack",
        "order-equality",
        "truncation-accounting",
        "replica-agreement",
        "send-order",
    },
    kernel=kernel,
    unit="offsets",
    judges_readers=True,
)
