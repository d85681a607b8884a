"""While a partition is mirrored to a cluster no client writes to it there, no mirror writes to its
owner, and a failover that promotes nothing changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linkflap.spark_verify.facts.partition_facts import Promotion, Truncation
from tests.oracles.generations import kept
from tests.oracles.plain import NEVER, Anomaly, Plain, PlainLog, of_send
from tests.oracles.story import Story

EACH = frozenset({"circular-mirror"})
SOME = frozenset({"standby-write"})


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log = story.log(generation)
            planned = {
                uid
                for s in plain.sends
                if s.cluster == generation.cluster
                for uid, _, _ in of_send(s)
            }
            # With a mirror that does not keep offsets, records that were sent here before the log
            # was emptied come back from elsewhere.
            lately = (
                planned
                if plain.keeps
                else {uid for s in story.sends(generation) for uid, _, _ in of_send(s)}
            )
            everybodys = {uid for s in plain.sends for uid, _, _ in of_send(s)}
            for record in log.records if log else ():
                if record.uid < 0 or not kept(generation, record.offset):
                    continue
                if (
                    not generation.native(record.offset)
                    and record.uid in lately
                    and not _unrecorded(plain, generation.cluster)
                ):
                    found.append(plain.anomaly("standby-write", generation.cluster, record.offset))
                if (
                    generation.native(record.offset)
                    and record.uid not in planned
                    and record.uid in everybodys
                ):
                    found.append(
                        plain.anomaly("circular-mirror", generation.cluster, record.offset)
                    )
        for send in plain.sends:
            acked = [offset for offset in send.offsets if offset >= 0]
            if acked and _mirrored_then(story, send) and not _unrecorded(plain, send.cluster):
                found.append(plain.anomaly("standby-write", send.cluster, acked[0]))
        found += [
            plain.anomaly("circular-mirror", truncation.cluster, truncation.offset)
            for truncation in _circles(plain)
        ]
    return [*found, *_promoted_all_the_same(views)]


def _promoted_all_the_same(views: Sequence[Plain]) -> list[Anomaly]:
    """Partitions that are reported as promoted, or have a mirror's end, over a link whose last
    failover promoted nothing by any record."""
    found: list[Anomaly] = []
    tried = {
        w.target
        for plain in views
        for w in plain.view.windows
        if w.fault.startswith("failover-") and not w.took_effect
    } | {r.link for plain in views for r in plain.view.refusals}
    for link in sorted(tried):
        source, destination = link.split("->")
        mine = []
        promoted = False
        for plain in views:
            if not {(source, destination), (destination, source)} & set(plain.hops):
                continue
            start = max((w.start for w in plain.view.windows if w.target == link
                and w.fault.startswith("failover-")), default=0)  # fmt: skip
            promoted |= any(p.link == link and p.time >= start for p in plain.view.promotions)
            log = plain.final(destination)
            at = _end_of_a_mirror(plain, source, log) if log else None
            said = any(
                d.link == link and d.promoted and d.asked >= start for d in plain.view.descriptions
            )
            if at is not None or said:
                end = log.end if log else -1
                where = end if at is None else at
                mine.append(plain.anomaly("partial-promotion", destination, where))
        found += [] if promoted else mine
    return found


def _end_of_a_mirror(plain: Plain, source: str, log: PlainLog) -> int | None:
    """The first ABORT or reset in a mirrored era that the source does not have there."""
    theirs = plain.final(source)
    if theirs is None or theirs.torn or log.torn or not plain.keeps:
        return None
    generation = Story(plain).generations[log.cluster][-1]
    controls = {b.base_offset: b.control for b in theirs.batches}
    gone = max(theirs.begins, plain.view.compacted.get(source, 0))
    own = [
        b.base_offset
        for b in log.batches
        if b.crc_ok
        and b.control in (0, 2)
        and (b.base_offset >= gone or b.base_offset in controls)
        and not generation.native(b.base_offset)
        and controls.get(b.base_offset) != b.control
    ]
    return own[0] if own else None


def _circles(plain: Plain) -> list[Any]:
    """Truncations of a cluster that began to follow a cluster which, directly or over other links,
    followed it."""
    follows = {destination: source for source, destination in plain.hops}
    found = []
    steps: list[Promotion | Truncation] = [*plain.view.promotions, *plain.view.truncations]
    for step in sorted(steps, key=lambda s: s.time):
        if isinstance(step, Promotion):
            follows.pop(step.cluster, None)
            continue
        source, _ = step.link.split("->")
        upstream = {source}
        for _ in follows:
            upstream |= {follows[c] for c in upstream if c in follows}
        if step.cluster in upstream:
            found.append(step)
        follows[step.cluster] = source
    return found


def _unrecorded(plain: Plain, cluster: str) -> bool:
    """Whether a failover led there without a recorded promotion."""
    promoted = any(p.cluster == cluster for p in plain.view.promotions)
    return not promoted and any(
        w.fault.startswith("failover") and w.target.endswith(f">{cluster}")
        for w in plain.view.windows
    )


def _mirrored_then(story: Story, send: Any) -> bool:
    """Whether the cluster followed another one from the request of the operation to its
    acknowledgement."""
    generation = story.generations[send.cluster][story.number_at(send.cluster, send.invoked)]
    if generation.number == 0 and generation.native(0):
        return False
    own = [
        owner[1]
        for _, _, owner, source in generation.eras()
        if not source and owner[1] >= generation.began
    ]
    return bool(generation.began <= send.invoked and 0 <= send.returned < min(own, default=NEVER))


DESPITE_TORN = frozenset({"standby-write", "circular-mirror", "partial-promotion"})
BESIDE = "another promotion offset is reported, so an acknowledged write is in the mirrored range"
