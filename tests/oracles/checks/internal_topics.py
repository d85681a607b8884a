"""Kafka's own topics agree with the data about transactions.

States of transactional ids are checked one after the other. For the decisions of coordinators,
every way to leave out what need not be there is tried; one of them must agree with the markers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

from tests.oracles.checks.replica_agreement import _alone
from tests.oracles.decisions import (
    can_agree,
    decided_by,
    exactly,
    impossible,
    states_of,
    written_again,
)
from tests.oracles.plain import Anomaly, Plain, PlainLog

KNOWS_TORN = True
KINDS = frozenset(
    {"impossible-state", "marker-missing", "marker-unexplained", "outcome-disagreement"}
)


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    return [ways[0] for ways in alternatives(views)]


def alternatives(views: Sequence[Plain]) -> list[list[Anomaly]]:
    """The errors, each in all ways that explain the logs: of several markers of one producer,
    inverting any of them may make all agree with the decisions, or one more marker may."""
    found: list[list[Anomaly]] = []
    states = [plain for plain in views if plain.topic == "__transaction_state"]
    for cluster in sorted({r.cluster for plain in views for r in plain.replicas}):
        found += _outcomes(cluster, views, states)
    return found


def _sound(plain: Plain, cluster: str) -> PlainLog | None:
    """The log below its high watermark, if it is undamaged and has all that no cleaner took."""
    log = plain.final(cluster)
    if log is None or log.torn:
        return None
    while log.batches and log.batches[-1].last_offset >= log.high_watermark:
        log.batches.pop()
    cleaned = max(plain.compacted.get(log.cluster, 0), log.log_start)
    held = {offset for b in log.batches for offset in range(b.base_offset, b.last_offset + 1)}
    lacks = any(offset not in held for offset in range(cleaned, log.end))
    return None if _alone(log) or lacks or log.end < log.high_watermark else log


def _outcomes(
    cluster: str, views: Sequence[Plain], states: Sequence[Plain]
) -> Iterator[list[Anomaly]]:
    logs = [(plain, plain.final(cluster)) for plain in states]
    logs = [(plain, log) for plain, log in logs if log is not None]
    if not logs or any(_sound(plain, cluster) is None for plain, _ in logs):
        return
    every = all(
        log.log_start == 0 and not plain.compacted.get(cluster) for plain, log in logs if log
    )
    decided = [row for plain, log in logs for row in decided_by(plain, cluster)]
    lowest: dict[int, int] = {}
    for plain, log in logs:
        assert log is not None
        yield from (
            [plain.anomaly("impossible-state", cluster, at)]
            for at in impossible(plain, cluster, log)
        )
        for state in states_of(plain, cluster):
            pid = state.producer_id
            if state.producer_epoch >= 0:
                lowest[pid] = min(state.producer_epoch, lowest.get(pid, state.producer_epoch))
    yield from ([anomaly] for anomaly in _shared(cluster, states))
    for plain in views:
        if plain.topic in ("__transaction_state", "__cluster_metadata"):
            continue
        rows = [row for row in decided if (plain.topic, plain.partition) in row["partitions"]]
        for log, own, from_start, to_end in _markers(plain, cluster):
            given = [row if to_end else row | {"complete": False} for row in rows]
            yield from _compared(plain, log, own, given, lowest, every=every, start=from_start)


def _shared(cluster: str, states: Sequence[Plain]) -> Iterator[Anomaly]:
    """The first record in each partition of a producer id that is another transactional id's."""
    owners: dict[int, str] = {}
    for plain in states:
        reported = set()
        for state in states_of(plain, cluster) if plain.final(cluster) else ():
            pid = state.producer_id
            other = pid >= 0 and owners.setdefault(pid, state.transactional_id)
            if other not in (False, state.transactional_id) and pid not in reported:
                reported.add(pid)
                yield plain.anomaly("impossible-state", cluster, state.offset)


def _compared(
    plain: Plain, log: PlainLog, own: Sequence[Any], rows: Sequence[dict[str, Any]],
    lowest: dict[int, int], *, every: bool, start: bool,
) -> Iterator[list[Anomaly]]:  # fmt: skip
    """The markers of one log, by producer id and epoch, with what was decided."""
    first: dict[int, int] = {}
    # No producer has an epoch below 0, so such a marker says nothing of what was before another.
    for b in (marker for marker in own if marker.producer_epoch >= 0):
        first[b.producer_id] = min(b.producer_epoch, first.get(b.producer_id, 1 << 15))
    producers = {(b.producer_id, b.producer_epoch) for b in own}
    for producer in sorted(producers | {row["producer"] for row in rows}):
        pid, epoch = producer
        mine = [b for b in own if (b.producer_id, b.producer_epoch) == producer]
        wanted = [row for row in rows if row["producer"] == producer]
        if not plain.view.recorded and epoch > _last_shared(pid, own, rows):
            # Copied logs may be of two moments: what only one of them has may be later.
            continue
        has_all = every or (pid in lowest and lowest[pid] < epoch)
        whole = start or (pid in first and first[pid] < epoch)
        again = written_again(log, mine)
        if can_agree(wanted, mine, again, every=has_all, from_start=whole):
            continue
        ways = _difference(wanted, mine, again, has_all=has_all, whole=whole)
        if ways:
            yield [plain.anomaly(kind, log.cluster, at) for kind, at in ways]


def _last_shared(pid: int, own: Sequence[Any], rows: Sequence[dict[str, Any]]) -> int:
    """The highest epoch of a producer id that both logs have come to."""
    marked = [b.producer_epoch for b in own if b.producer_id == pid]
    decided = [row["producer"][1] for row in rows if row["producer"][0] == pid]
    return min(max(marked, default=-1), max(decided, default=-1))


def _difference(
    wanted: Sequence[dict[str, Any]],
    mine: Sequence[Any],
    again: Sequence[Any],
    *,
    has_all: bool,
    whole: bool,
) -> Sequence[tuple[str, int]]:
    if has_all and whole:
        return exactly(wanted, mine)
    if whole and len(mine) < sum(row["complete"] for row in wanted):
        return [("marker-missing", -1)]
    # One opposite or missing marker explains more than an alignment from the beginning, which may
    # be lost. The logs do not say which, if several would do.
    ways = []
    for n in reversed(range(len(mine))):
        turned = [*mine[:n], _turned(mine[n]), *mine[n + 1 :]]
        left = [m for m in again if m is not mine[n]]
        if can_agree(wanted, turned, left, every=has_all, from_start=whole):
            ways.append(("outcome-disagreement", mine[n].base_offset))
    for n in range(len(wanted)):
        others = [*wanted[:n], *wanted[n + 1 :]]
        if mine and can_agree(others, mine, again, every=has_all, from_start=whole):
            ways.append(("marker-missing", -1))
            break
    if ways:
        return ways
    extra = not wanted or (has_all and len(mine) > len(wanted))
    kind = "marker-unexplained" if extra else "outcome-disagreement"
    return [(kind, mine[-1].base_offset)] if mine else []


def _turned(marker: Any) -> Any:
    """The marker with the opposite outcome."""
    turned = copy(marker)
    turned.control = 0 if marker.control == 1 else 1
    return turned


def _markers(plain: Plain, cluster: str) -> Iterator[tuple[PlainLog, list[Any], bool, bool]]:
    """Each log of a cluster, what its own coordinators marked in it, whether that is all from the
    beginning on, and whether it is all to the end."""
    if plain.view.internal:
        log = plain.final(cluster)
        if log is not None and _sound(plain, cluster) is not None:
            whole = log.log_start == 0 and not plain.compacted.get(cluster)
            yield log, [b for b in log.batches if b.ends and b.crc_ok], whole, True
        return
    from tests.oracles.story import Story

    story = Story(plain)
    stops = [s for s in plain.view.stops if s.cluster == cluster]
    appended = {offset for s in stops for offset, _ in s.appended}
    cleaned = plain.compacted.get(cluster, 0)
    for generation in story.generations.get(cluster, ()):
        log = story.log(generation)
        if log is None or log.torn:
            continue
        if not plain.view.recorded and any(b.reset for b in log.batches):
            # Markers behind a reset may be of any cluster's producer ids.
            continue
        truncations = [
            t.offset
            for t in plain.view.truncations
            if t.cluster == cluster and t.time <= generation.ended
        ]
        truncations += [to for s in stops if s.time <= generation.ended for _, to in s.truncated]
        floor = max([*truncations, *generation.earlier], default=-1)
        markers = [
            b
            for b in log.batches
            if b.ends
            and b.crc_ok
            and b.base_offset not in appended
            and b.base_offset >= max(cleaned, floor)
            and (not plain.keeps or generation.native(b.base_offset))
        ]
        whole = floor < 0 and not (log.log_start or cleaned) and plain.view.recorded
        yield log, markers, whole, generation.last
