"""Which departures a mirror's own guarantee allows, when, and how many: one table.

What is allowed is still an anomaly: reported, counted, with the reason in its evidence. Outside its window or beyond its
bound it is a violation like any other. Nothing is allowed that the table does not name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.model.scenario import MirrorSpec, Option
from harness.model.verdict import Anomaly
from spark_verify.eras import touches
from spark_verify.view import Window

REPLAY_REACH: Final = 10_000_000_000
"""Nanoseconds before a fault whose records may be mirrored again: offset.flush.interval.ms (1 s here) and
offset.flush.timeout.ms (5 s) between two commits of source offsets, and the spacing of the samples that date a record."""
RESTART_REACH: Final = 30_000_000_000
"""Nanoseconds after a fault within which its repeats are written: restart of the worker, rebalance, catching up."""

DEFAULTS: Final[Mapping[str, Mapping[str, Option]]] = {"mm2": {"delivery": "at-least-once", "isolation": "read_committed"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """One line of the table. `permits` says why it allows an anomaly of this kind, given the link and all windows, or None."""

    mirror: str
    options: Mapping[str, Option]
    kind: str
    window: str
    bound: str
    citation: str
    permits: Callable[[Anomaly, str, Sequence[Window]], str | None]


def _replayed(anomaly: Anomaly, link: str, windows: Sequence[Window]) -> str | None:
    """A repeat is allowed once per fault that touched the link, its mirror, or a broker of either end."""
    first, again = _interval(anomaly, "first_written"), _interval(anomaly, "written")
    if first is None or again is None:
        return None
    causes = [
        w
        for w in windows
        if touches(w, link) and w.start <= again[1] and again[0] <= w.end + RESTART_REACH and w.start - REPLAY_REACH <= first[1]
    ]
    copy = anomaly.evidence.get("copy")
    if not causes or not isinstance(copy, int) or copy > len(causes):
        return None
    return f"at-least-once: mirrored again around {', '.join(f'{w.fault} ({w.id})' for w in causes)}"


def _stepped_back(anomaly: Anomaly, link: str, windows: Sequence[Window]) -> str | None:
    """A group's repeats are allowed up to the bound that the check worked out."""
    records, bound = anomaly.evidence.get("records"), anomaly.evidence.get("bound")
    if not isinstance(records, int) or not isinstance(bound, int) or records > bound:
        return None
    return f"the offset that was synced for the group was behind: {records} of at most {bound} records"


def _cut_apart(anomaly: Anomaly, _link: str, _windows: Sequence[Window]) -> str | None:
    """A transaction may arrive in part where a forced failover cut each partition on its own."""
    if anomaly.evidence.get("failover") != "forced":
        return None
    return f"partitions are mirrored independently: {anomaly.evidence.get('records')} of its records had not arrived"


def _made_again(anomaly: Anomaly, _link: str, _windows: Sequence[Window]) -> str | None:
    """Outputs may be made again from where the group began, and of nothing before."""
    records, bound = anomaly.evidence.get("records"), anomaly.evidence.get("bound")
    if not isinstance(records, int) or not isinstance(bound, int) or records > bound:
        return None
    return f"group offsets are synced apart from records: {records} of {bound} inputs from the group's offset on were made again"


def _left_behind(anomaly: Anomaly, _link: str, _windows: Sequence[Window]) -> str | None:
    """Outputs may be missing where a forced failover cut each partition, and the group's offset, on its own."""
    if anomaly.evidence.get("failover") != "forced":
        return None
    return f"partitions and group offsets are mirrored apart: {anomaly.evidence.get('records')} outputs had not arrived"


def _cut_beneath(anomaly: Anomaly, _link: str, _windows: Sequence[Window]) -> str | None:
    """A reader may skip what lies between the cut and where it stood, and nothing behind that."""
    cut, stood, last = (anomaly.evidence.get(name) for name in ("cut", "stood_at", "last_skipped"))
    if not (isinstance(cut, int) and isinstance(stood, int) and isinstance(last, int) and cut <= last < stood):
        return None
    return f"a reader that is not told of a truncation stays where it stands: the log was cut at {cut}, it stood at {stood}"


def _interval(anomaly: Anomaly, name: str) -> tuple[int, int] | None:
    value = anomaly.evidence.get(name)
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(v, int) for v in value):
        return value[0], value[1]
    return None


ALLOWANCES: Final = (
    Allowance(
        mirror="mm2",
        options={"delivery": "at-least-once"},
        kind="mirrored-duplicate",
        window="faults on the link, on the mirror, or on a broker of either end; until 30 s after the heal",
        bound="one copy per such fault, of records first mirrored no earlier than 10 s before it",
        citation="KIP-618, Motivation: source connectors other than exactly-once ones may write records again after a failure; "
        "Kafka documentation, Geo-Replication: at-least-once unless exactly.once.source.support is enabled",
        permits=_replayed,
    ),
    Allowance(
        mirror="mm2",
        options={},
        kind="group-replay",
        window="a failover",
        bound="what was committed in the last 5 s, offset.lag.max (100), and as much again as the group was behind; or, where "
        "syncs were late, what lies above the offset that the mirror had last committed for the group",
        citation="KIP-545; KAFKA-12468: translated offsets may be earlier than the committed one, never later",
        permits=_stepped_back,
    ),
    Allowance(
        mirror="shadow",
        options={},
        kind="group-replay",
        window="a failover",
        bound="what was committed in the last 5 s (offsets are synced every second), 100, and what the group was behind; or, "
        "where syncs were late, what lies above the offset that the mirror had last committed for the group",
        citation="KIP-1279, group offset sync: the destination may be behind by one interval, never ahead",
        permits=_stepped_back,
    ),
    Allowance(
        mirror="mm2",
        options={},
        kind="torn-by-failover",
        window="a forced failover",
        bound="transactions of which some partitions had arrived when the source was given up",
        citation="KIP-382: MirrorMaker 2 copies every partition on its own, and asynchronously",
        permits=_cut_apart,
    ),
    Allowance(
        mirror="shadow",
        options={},
        kind="torn-by-failover",
        window="a forced failover",
        bound="transactions of which some partitions had arrived when the source was given up",
        citation="KIP-382 and KIP-1279: every partition is fetched on its own, and asynchronously",
        permits=_cut_apart,
    ),
    Allowance(
        mirror="mm2",
        options={},
        kind="output-repeated-by-failover",
        window="a failover",
        bound="mirrored inputs from the offset on that the group had on the destination",
        citation="KIP-545: checkpoints translate a group's offset, in no transaction with what it wrote; KIP-382",
        permits=_made_again,
    ),
    Allowance(
        mirror="mm2",
        options={},
        kind="output-lost-by-failover",
        window="a forced failover",
        bound="outputs that had not arrived when the source was given up, of inputs that the group had passed there",
        citation="KIP-545: checkpoints translate a group's offset, in no transaction with what it wrote; KIP-382",
        permits=_left_behind,
    ),
    Allowance(
        mirror="shadow",
        options={},
        kind="output-repeated-by-failover",
        window="a failover",
        bound="mirrored inputs from the offset on that the group had on the destination",
        citation="KIP-1279, group offset sync: at an interval, in no transaction with the mirrored records",
        permits=_made_again,
    ),
    Allowance(
        mirror="shadow",
        options={},
        kind="output-lost-by-failover",
        window="a forced failover",
        bound="outputs that had not arrived when the source was given up, of inputs that the group had passed there",
        citation="KIP-1279, group offset sync: at an interval, in no transaction with the mirrored records",
        permits=_left_behind,
    ),
    Allowance(
        mirror="shadow",
        options={},
        kind="skipped-by-cut",
        window="a log that is cut under a reader: when its cluster follows the one that took over, or a promotion truncates",
        bound="from the cut up to where the reader stood; nobody else ever had what it got of the tail",
        citation="KIP-1279, failback: what the other side never mirrored is truncated; KIP-320: a client learns of that only by "
        "asking for the end of its epoch (OffsetForLeaderEpoch), which this mirror does not offer to clients",
        permits=_cut_beneath,
    ),
)


def why_allowed(anomaly: Anomaly, mirror: MirrorSpec, link: str, windows: Sequence[Window]) -> str | None:
    """Why the mirror's guarantee allows this anomaly, or None where it does not. `link` led into the anomaly's cluster."""
    options = {**DEFAULTS.get(mirror.kind, {}), **mirror.options}
    for line in ALLOWANCES:
        fits = line.mirror == mirror.kind and line.kind == anomaly.kind
        if fits and all(options.get(name) == value for name, value in line.options.items()):
            return line.permits(anomaly, link, windows)
    return None
