"""The records that were mirrored over one link: the source's committed records, and the position of
each on the destination."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from linkflap.spark_verify.facts.view import NULL
from tests.oracles.checks.replica_agreement import expired, may_go
from tests.oracles.cleaned import deleted_elsewhere, deleted_since
from tests.oracles.plain import NEVER, Plain, PlainLog
from tests.oracles.promises import marker_at
from tests.oracles.story import PlainGeneration, PlainMirroredRange, Story

FAILOVERS = ("failover-planned", "failover-forced")
"""The faults that end a mirror."""

_ADDED = "partitions-added"


@dataclass(slots=True, eq=False)
class Compared:
    """`sent` are the source's records in the expected order, `came` the destination's records of
    the mirrored range.

    `arrived[uid]` is the first copy. `holes` are missing before a record that arrived; `behind` are
    missing at the end, or their COMMIT is; `gone` are missing, but the destination may have deleted
    or compacted them; below `gaps` the source was compacted. `doubted` are payloads of which the
    source may have deleted copies.
    """

    mirrored_range: PlainMirroredRange
    generation: PlainGeneration
    source: PlainLog
    destination: PlainLog
    since: int
    sent: list[Any]
    came: list[Any]
    arrived: dict[int, Any]
    holes: list[Any]
    behind: list[Any]
    after_front: list[Any]
    tail: str
    doubted: set[int]
    gone: list[Any]
    gaps: int


def mirrored_ranges(plain: Plain, story: Story, *, far: bool = False) -> Iterator[Compared]:
    """Every mirrored range of which both logs were captured; `far`: also those over several links,
    as if over one."""
    for mirrored_range in [*story.mirrored_ranges, *(_far(plain, story) if far else ())]:
        destination, source = (
            plain.final(mirrored_range.destination),
            story.source_log(mirrored_range),
        )
        if destination is not None and source is not None:
            # it may be emptied before it follows: the log until then
            if not plain.keeps and not mirrored_range.far:
                generation = story.generations[mirrored_range.destination][
                    mirrored_range.generation
                ]
                destination = story.log(generation) or destination
            yield compare(plain, story, mirrored_range, source, destination)


def compare(
    plain: Plain,
    story: Story,
    mirrored_range: PlainMirroredRange,
    source: PlainLog,
    destination: PlainLog,
) -> Compared:
    sent: list[Any] = []
    for record in source.records:
        inside = record.offset >= mirrored_range.start and (
            not mirrored_range.far or record.offset < mirrored_range.end
        )
        if record.visible and record.uid >= 0 and inside and all(record.uid != s.uid for s in sent):
            sent.append(record)
    came = [
        r
        for r in destination.records
        if r.visible and r.uid >= 0 and mirrored_range.start <= r.offset < mirrored_range.end
    ]
    since = _since(plain, mirrored_range, source, destination, sent, came)
    doubted: set[int] = set()
    for record in came if may_repeat(plain, mirrored_range.source) else ():
        if len(doubted) < source.log_start:
            doubted.add(record.uid)
    everything = [r.uid for r in sent]
    if since > mirrored_range.start:
        earlier = {r.uid for r in source.records if r.visible and r.offset < since}
        came = [r for r in came if r.uid not in earlier]
    sent = [r for r in sent if r.offset >= since]
    arrived: dict[int, Any] = {}
    for record in came:
        arrived.setdefault(record.uid, record)
    missing = [(n, r) for n, r in enumerate(sent) if r.uid not in arrived]
    front = max((n for n, r in enumerate(sent) if r.uid in arrived), default=-1)
    sure = max(
        (n for n, r in enumerate(sent) if r.uid in arrived and r.uid not in doubted), default=-1
    )
    may_be = (
        everything[: destination.log_start] if may_repeat(plain, mirrored_range.destination) else []
    )
    gone = [r for n, r in missing if n > front and r.uid in may_be]
    cleaned = plain.compacted.get(destination.cluster, 0)
    below = [r for n, r in missing if n < front and _position(n, sent, arrived) < cleaned]
    below += _cleaned_tail(
        plain,
        [r for n, r in missing if n > front],
        _position(len(sent), sent, arrived),
        min(cleaned, mirrored_range.end),
    )
    kept = (
        []
        if plain.keeps
        else _kept_there(plain, mirrored_range, source, destination, sent, arrived, below)
    )
    gone += [r for r in below if r not in kept]
    erased = [r for n, r in missing if n > front and r in kept]
    crossed = min(mirrored_range.end, destination.end, appended(plain, mirrored_range, destination))
    late = [r for _, r in missing if plain.keeps and r.offset < crossed <= marker_at(r) < NEVER]
    return Compared(
        mirrored_range=mirrored_range,
        generation=story.generations[mirrored_range.destination][-1],
        source=source,
        destination=destination,
        since=since,
        sent=sent,
        came=came,
        arrived=arrived,
        holes=[r for n, r in missing if n < sure and r not in late and r not in gone] + erased,
        behind=[r for n, r in missing if (n > front or r in late) and r not in gone + erased],
        # A cleaner took nothing above its checkpoint, and the covered offsets lie above it.
        after_front=[r for n, r in missing if n > front and r not in gone + erased],
        tail=_tail(
            plain,
            mirrored_range,
            story.generations[mirrored_range.destination][mirrored_range.generation],
        ),
        doubted=doubted,
        gone=gone,
        gaps=plain.compacted.get(source.cluster, 0),
    )


def _kept_there(
    plain: Plain,
    mirrored_range: PlainMirroredRange,
    source: PlainLog,
    destination: PlainLog,
    sent: list[Any],
    arrived: dict[int, Any],
    below: list[Any],
) -> list[Any]:
    """Of records that are missing where the destination's cleaner has been, those that it does not
    remove. Behind the last record that is there nobody knows what had arrived, unless a planned
    failover waited for it, or the mirror wrote one record for each, once, alone. What came twice,
    may replace what came behind its first copy; then a tombstone that is gone does."""
    upstream = {s for s, d in plain.hops if d == mirrored_range.destination}
    one = plain.options.get("delivery") != "exactly-once" and upstream == {mirrored_range.source}
    once = not may_repeat(plain, mirrored_range.destination, but=FAILOVERS)
    front = max((n for n, r in enumerate(sent) if r.uid in arrived), default=-1)
    mine = reaching(plain, mirrored_range.source) | {mirrored_range.source}
    lost = not_cleaned(
        plain, source, destination, sent, {u: r.offset for u, r in arrived.items()}, below,
        since=mirrored_range.end, once=once, least=lambda n: n, came_again=mine,
        others=reaching(plain, mirrored_range.destination) - mine,
    )  # fmt: skip
    promotion = mirrored_range.promotion
    drained = promotion is not None and promotion.kind == "planned"
    return [r for r in lost if drained or (once and one) or sent.index(r) < front]


def not_cleaned(
    plain: Plain,
    holder: PlainLog,
    lacking: PlainLog,
    sent: list[Any],
    there: dict[int, int],
    below: list[Any],
    *,
    since: int | None,
    others: set[str],
    once: bool,
    least: Callable[[int], int] = lambda _: 0,
    came_again: Collection[str] = (),
) -> list[Any]:
    """Of what one end of a mirror has and the other lacks, below where its cleaner was, the records
    that no cleaner removes: no later one with the same key is there, none is a tombstone that has
    expired.

    `there` are the offsets of the others in the log that lacks these. A missing record was between
    its neighbours there; if nothing was written twice, only as many as there are offsets. Else it
    was at `least` of its number or behind, and tombstones of clients of the clusters `came_again`
    may have come once more.
    """
    if not below:
        return []
    upto, parts = plain.compacted[lacking.cluster], {p.offset: p for p in holder.parts}
    crossed = sent[
        : 1
        + max(
            [sent.index(r) for r in below] + [n for n, r in enumerate(sent) if r.uid in there],
            default=-1,
        )
    ]
    gaps = _gaps(crossed, there)
    placed = []
    for record in crossed:
        gap, low, high = gaps.get(record.uid, ([], -1, NEVER))
        if not gap:
            offset = there[record.uid]
        elif once:
            offset = low + 1 + min(gap.index(record), max(high - low - 2, 0))
        else:
            offset = min(low, high - len(gap) - 1) + 1 + gap.index(record)
        placed.append(SimpleNamespace(**{**vars(parts[record.offset]), "offset": offset}))
    plainly = SimpleNamespace(
        base_offset=-1,
        last_offset=NEVER,
        transactional=False,
        producer_id=-1,
        ends=False,
        crc_ok=True,
    )
    moved = replace(holder, batches=[plainly], parts=placed)
    wherever = replace(
        moved,
        parts=[
            SimpleNamespace(**{**vars(p), "offset": least(n) if r.uid in gaps else p.offset})
            for n, (r, p) in enumerate(zip(crossed, placed, strict=True))
        ],
    )
    lost, had = [], Counter[int]()
    room = max(lacking.end, upto) - sum(b.count for b in lacking.batches)
    for record, part in zip(crossed, placed, strict=True):
        if record not in below:
            continue
        gap, low, high = gaps[record.uid]
        goes = _goes(plain, lacking, moved, part, upto, since, others)
        if goes is False and not once:
            loose = wherever.parts[crossed.index(record)]
            again = _goes(plain, lacking, wherever, loose, upto, since, others)
            goes = (
                None
                if again is not False or _deleted(plain, holder, lacking, part.key, came_again)
                else False
            )
        if goes is not False and once:
            had[gap[0].uid] += 1
            goes = goes if had[gap[0].uid] < high - low else False
        room -= goes is not False
        if goes is False or room < 0:
            lost.append(record)
    return lost


def _goes(
    plain: Plain,
    lacking: PlainLog,
    moved: PlainLog,
    part: Any,
    upto: int,
    since: int | None,
    others: set[str],
) -> bool | None:
    goes = may_go(plain, lacking, moved, part, [], upto)
    if goes is not True:
        deleted = deleted_since(
            plain, lacking, part.key, part.offset + 1 if since is None else since, upto
        )
        unsure = deleted_elsewhere(plain, part.key, others)
        goes = True if deleted else None if unsure or None in (deleted, goes) else False
    return goes


def _deleted(
    plain: Plain, holder: PlainLog, lacking: PlainLog, key: int, clusters: Collection[str]
) -> bool:
    """Whether a key may have a tombstone that came from these clusters, twice, and has expired."""
    until = expired(plain, lacking)
    old = [p for p in holder.parts if p.key == key and p.value == NULL]
    return bool(clusters) and (
        any(until is None or p.timestamp <= until for p in old)
        or deleted_elsewhere(plain, key, clusters, until)
        or not (plain.view.recorded or not plain.compacted.get(holder.cluster))
    )


def reaching(plain: Plain, cluster: str) -> set[str]:
    """The clusters whose records reach a cluster."""
    found = {source for source, destination in plain.hops if destination == cluster}
    return found | {c for source in found for c in reaching(plain, source)}


def _gaps(crossed: list[Any], there: dict[int, int]) -> dict[int, tuple[list[Any], int, int]]:
    """Per missing record those that are missing beside it, and the offsets between which they
    were."""
    found = {}
    for n, record in enumerate(crossed):
        if record.uid not in there:
            first = next((m for m in range(n, -1, -1) if crossed[m].uid in there), -1) + 1
            after = next(
                (m for m in range(n, len(crossed)) if crossed[m].uid in there), len(crossed)
            )
            low = max((there[r.uid] for r in crossed[:first] if r.uid in there), default=-1)
            high = min((there[r.uid] for r in crossed[after:] if r.uid in there), default=NEVER)
            found[record.uid] = crossed[first:after], low, high
    return found


def _cleaned_tail(plain: Plain, tail: list[Any], index: int, end: int) -> list[Any]:
    """Records missing after the last one present that may have been compacted: those below `end`,
    at one offset each."""
    if plain.keeps:
        return [r for r in tail if r.offset < end]
    return tail[: max(0, end - index)]


def _position(n: int, sent: list[Any], arrived: dict[int, Any]) -> int:
    """The first offset of the destination at which a missing record can have been."""
    before = [arrived[r.uid].offset for r in sent[:n] if r.uid in arrived]
    return before[-1] + 1 if before else 0


def may_repeat(plain: Plain, cluster: str, *, but: tuple[str, ...] = ()) -> bool:
    """Whether a mirror on the way to a cluster may have written records again: it does not keep
    offsets, and a fault hit it, or new partitions made it start its tasks again; `but`: faults
    that do not count."""
    if plain.keeps or plain.options.get("delivery") == "exactly-once":
        return False
    for source, destination in plain.hops:
        where = (source, destination, f"{source}->{destination}")
        hit = any(
            w.target in where or w.target.split("/")[0] in where
            for w in [*plain.windows, *(w for w in plain.view.windows if w.fault == _ADDED)]
            if w.fault not in but
        )
        hit = hit or not plain.view.recorded  # nobody recorded faults
        if destination == cluster and (hit or may_repeat(plain, source, but=but)):
            return True
    return False


def _since(
    plain: Plain,
    mirrored_range: PlainMirroredRange,
    source: PlainLog,
    destination: PlainLog,
    sent: list[Any],
    came: list[Any],
) -> int:
    """The source's offset below which the destination's copies are deleted. Behind a mirror that
    repeats, the source may have the first record there several times, and its last copy may be the
    one that is left."""
    start = destination.log_start
    if start <= (mirrored_range.start if plain.keeps else 0):
        return mirrored_range.start
    if plain.keeps:
        return start
    first = next((r.uid for r in came if any(r.uid == s.uid for s in sent)), None)
    offsets = [r.offset for r in source.records if r.visible and r.uid == first and r.uid >= 0]
    offsets = [offset for offset in offsets if offset >= mirrored_range.start]
    if first is None:
        return NEVER
    return int(offsets[-1 if may_repeat(plain, mirrored_range.destination) else 0])


def _tail(plain: Plain, mirrored_range: PlainMirroredRange, generation: PlainGeneration) -> str:
    if mirrored_range.far:
        return "another-hop"
    if mirrored_range.promotion is not None:
        return "lost" if mirrored_range.promotion.kind == "forced" else "drained"
    if generation.lost is not None or mirrored_range.source in plain.view.deaths:
        return "lost"
    promotions = plain.view.promotions
    lost = any(
        p.kind == "forced" and p.source == mirrored_range.source and p.time >= mirrored_range.began
        for p in promotions
    )
    return "lost" if lost else "unknown"


def appended(plain: Plain, mirrored_range: PlainMirroredRange, destination: PlainLog) -> int:
    """The first offset that mirrors report as appended by themselves, if no data follows. Appends
    of failovers and on other clusters do not count."""
    if mirrored_range.promotion is not None:
        return NEVER
    first = NEVER
    for stop in plain.view.stops:
        failed_over = any(
            p.link == stop.link and p.time >= stop.time for p in plain.view.promotions
        )
        its = (
            stop.cluster != mirrored_range.source
            if mirrored_range.far
            else stop.cluster == mirrored_range.destination
        )
        begins = min((offset for offset, _ in stop.appended), default=NEVER)
        behind = any(b.data for b in destination.batches if b.base_offset >= begins)
        if its and stop.time >= mirrored_range.began and not failed_over and not behind:
            first = min(first, begins)
    return first


def _far(plain: Plain, story: Story) -> list[PlainMirroredRange]:
    """Eras that were mirrored over several links, as if over one."""
    found: list[PlainMirroredRange] = []
    for cluster, mine in story.generations.items() if plain.keeps else ():
        for start, end, owner, source in mine[-1].eras():
            theirs = story.generations.get(owner[0], [])
            wrote = [
                n
                for n, generation in enumerate(theirs)
                if (start, owner, "") in [(s, o, x) for s, _, o, x in generation.eras()]
            ]
            if source and source != owner[0] and wrote:
                links = _links(story, owner[0], start, source)
                found.append(
                    PlainMirroredRange(
                        owner[0],
                        cluster,
                        start,
                        end,
                        owner[1],
                        None,
                        wrote[0],
                        links,
                        mine[-1].number,
                    )
                )
    return found


def _links(story: Story, owner: str, start: int, source: str) -> int:
    links = 1
    while source != owner and links < len(story.generations):
        generation = story.generations[source][-1]
        source, links = (
            generation.sources[generation.at(start)] or generation.owner(start),
            links + 1,
        )
    return links
