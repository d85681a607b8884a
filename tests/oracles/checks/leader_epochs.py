"""Leader epochs never decrease along a log, identify one batch at an offset, are at most the
leader's epoch, and rise at promotions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tests.oracles.checks.replica_agreement import KEPT
from tests.oracles.mirrored_ranges import Compared, appended, mirrored_ranges
from tests.oracles.plain import NEVER, Anomaly, Plain, PlainLog, starts
from tests.oracles.story import PlainGeneration, Story, kept

DESPITE_TORN = frozenset(
    {
        "leader-epoch-regression",
        "epoch-reuse",
        "epoch-behind",
        "sampled-epoch-regression",
        "epoch-not-kept",
    }
)


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for log in (*plain.replicas, *plain.earlier):
            found += [
                plain.anomaly("leader-epoch-regression", log.cluster, offset)
                for offset in _falls(log)
            ]
        for cluster in {r.cluster for r in plain.replicas}:
            logs = [r for r in (*plain.replicas, *plain.earlier) if r.cluster == cluster]
            cleaned = max(plain.cleaned(log) for log in logs)
            if cleaned and not plain.view.recorded and not plain.compacted.get(cluster):
                cleaned = NEVER  # its extent is unknown
            for same in _by_log(plain, story, cluster, logs):
                found += [
                    plain.anomaly("epoch-reuse", cluster, offset)
                    for offset in _reuse(same, cleaned)
                ]
        for generation in story.every():
            written = story.log(generation)
            if written is not None and plain.mirror == "shadow":
                found += [
                    plain.anomaly("epoch-not-raised", generation.cluster, o)
                    for o in _not_raised(generation, written)
                    if kept(generation, o)
                ]
            if written is not None and written.batches:
                behind = _behind(plain, story, generation, written)
                found += [plain.anomaly("epoch-behind", generation.cluster, o) for o in behind]
        found += [
            plain.anomaly("sampled-epoch-regression", cluster, o)
            for cluster in plain.marks
            for o in _sampled(plain, story, cluster)
        ]
        for compared in (
            mirrored_ranges(plain, story)
            if plain.keeps and plain.options.get("leader_epochs") == "keep"
            else ()
        ):
            found += [
                plain.anomaly("epoch-not-kept", compared.destination.cluster, o)
                for o in _not_kept(plain, compared)
            ]
    return found


def _by_log(plain: Plain, story: Story, cluster: str, logs: list[PlainLog]) -> list[list[PlainLog]]:
    """With a mirror that does not keep offsets, a cluster that follows again was emptied and has a
    new log since then."""
    if plain.keeps:
        return [logs]
    last = story.generations[cluster][-1].number
    by: dict[int, list[PlainLog]] = {}
    for log in logs:
        early = any(log is other for other in plain.earlier)
        by.setdefault(story.number_at(cluster, log.captured) if early else last, []).append(log)
    return list(by.values())


def _falls(log: PlainLog) -> list[int]:
    low = [
        n
        for n, b in enumerate(log.batches)
        if n and b.leader_epoch < max(a.leader_epoch for a in log.batches[:n])
    ]
    return [log.batches[n].base_offset for n in starts(low)]


def _reuse(logs: Sequence[PlainLog], cleaned: int) -> list[int]:
    """Below the end of cleaning, the fields that the cleaner keeps of a batch represent its
    bytes."""
    held: dict[tuple[int, int], set[Any]] = {}
    written: dict[tuple[int, int], set[Any]] = {}
    for batch in (b for log in logs for b in log.batches if b.crc_ok):
        key, bytes_ = (batch.leader_epoch, batch.base_offset), (batch.crc, batch.length)
        written.setdefault(key, set()).add(bytes_)
        held.setdefault(key, set()).add(
            bytes_ if key[1] >= cleaned else tuple(getattr(batch, name) for name in KEPT)
        )
    return [key[1] for key, each in held.items() if len(each) > 1 and len(written[key]) > 1]


def _not_kept(plain: Plain, compared: Compared) -> list[int]:
    """The first batch of each run of mirrored batches with another epoch."""
    own = appended(plain, compared.mirrored_range, compared.destination)
    unread = [*compared.source.unread, *compared.destination.unread]
    end = min(compared.mirrored_range.end, own)
    came = [
        b
        for b in compared.destination.batches
        if b.base_offset >= compared.mirrored_range.start
        and b.last_offset < end
        and not any(first <= b.last_offset and b.base_offset < last for first, last in unread)
    ]
    pairs = [
        (b, next((t for t in compared.source.batches if t.base_offset == b.base_offset), None))
        for b in came
    ]
    both = [(b, t) for b, t in pairs if t is not None]
    wrong = [
        n
        for n, (b, t) in enumerate(both)
        if b.last_offset == t.last_offset and b.leader_epoch != t.leader_epoch
    ]
    return [both[n][0].base_offset for n in starts(wrong)]


def _not_raised(generation: PlainGeneration, log: PlainLog) -> list[int]:
    found = []
    eras = generation.eras()
    for (_, _, _, before), (start, end, _, source) in pairwise(eras):
        mirrored = [b.leader_epoch for b in log.batches if b.base_offset < start]
        if source or not before or not mirrored:
            continue
        low = [
            b.base_offset
            for b in log.batches
            if start <= b.base_offset < end and b.leader_epoch <= max(mirrored)
        ]
        found += low[:1]
    return found


def _behind(plain: Plain, story: Story, generation: PlainGeneration, log: PlainLog) -> list[int]:
    """The first sample with a leader epoch below that of a batch under its high watermark; reported
    at the first batch above it."""
    said = [m for m in story.marks(generation) if m.leader_epoch >= 0 and m.high_watermark >= 0]
    every = plain.keeps and plain.options.get("leader_epochs") == "keep"
    for mark in said if every else said[-1:]:
        end = _untruncated(plain, generation, mark)
        served = [b.leader_epoch for b in log.batches if b.last_offset < end]
        if served and max(served) > mark.leader_epoch:
            return [next(b.base_offset for b in log.batches if b.leader_epoch > mark.leader_epoch)]
    return []


def _sampled(plain: Plain, story: Story, cluster: str) -> list[int]:
    """The first sample with an epoch that the last sample outside of broker faults has not
    reached."""
    mine = story.generations.get(cluster, [])
    marks = plain.marks[cluster] if plain.keeps or len(mine) < 2 else story.marks(mine[-1])
    said = [m for m in marks if m.leader_epoch >= 0]
    broken = [w for w in plain.windows if w.target.split("/")[0] == cluster]
    if not said or any(w.start <= said[-1].returned and said[-1].time <= w.end for w in broken):
        return []
    return [max(0, m.high_watermark) for m in said if m.leader_epoch > said[-1].leader_epoch][:1]


def _untruncated(plain: Plain, generation: PlainGeneration, mark: Any) -> int:
    ends = [mark.high_watermark]
    for stop in plain.view.stops:
        if stop.cluster == generation.cluster and mark.time <= stop.time:
            ends += [at for _, at in stop.truncated]
    return int(min(ends))
