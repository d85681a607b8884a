"""The locations of anomalies, as intervals of logs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from linkflap.harness.model.verdict import Anomaly

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
    """What an anomaly is about, as intervals: what is nearest in its log first."""
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
