"""No failover loses more acknowledged records, or takes longer to the first write, than the
scenario's budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.checks.lost_write import shown
from tests.oracles.mirrored_ranges import Compared, mirrored_ranges
from tests.oracles.plain import NEVER, Anomaly, Plain
from tests.oracles.promises import promises
from tests.oracles.story import Story

EACH: frozenset[str] = frozenset()
KNOWS_TORN = True
FAITHFUL_TOO = True


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    every: dict[tuple[int, str, str], list[tuple[Plain, Any, int, list[int]]]] = {}
    for plain in sorted(views, key=lambda p: (p.topic, p.partition)):
        story = Story(plain)
        for compared in mirrored_ranges(plain, story):
            promotion = compared.mirrored_range.promotion
            if promotion is not None:
                torn = compared.source.torn or compared.destination.torn
                lost = (
                    _lost(plain, story, compared) if promotion.kind == "forced" and not torn else 0
                )
                key = (promotion.fault_time, promotion.link, promotion.kind)
                every.setdefault(key, []).append(
                    (plain, promotion, lost, _writes(plain, story, promotion))
                )
    found: list[Anomaly] = []
    for (fault_time, _, _), parts in every.items():
        plain, promotion = min(
            ((p, q) for p, q, _, _ in parts),
            key=lambda x: (x[0].topic, x[0].partition, x[1].offset),
        )
        budgets = plain.view.budgets
        writes = [w for *_, mine in parts for w in mine]
        if (
            budgets.rpo_records is not None
            and sum(lost for _, _, lost, _ in parts) > budgets.rpo_records
        ):
            found.append(plain.anomaly("rpo-over-budget", promotion.cluster, promotion.offset))
        if (
            budgets.rto_seconds is not None
            and writes
            and round((min(writes) - fault_time) / 1e9, 3) > budgets.rto_seconds
        ):
            found.append(plain.anomaly("rto-over-budget", promotion.cluster, promotion.offset))
    return [*found, *_refused(views)]


def _refused(views: Sequence[Plain]) -> list[Anomaly]:
    """Failovers that were requested and never happened: reported for the first partition on their
    links."""
    found: dict[int, Anomaly] = {}
    for plain in sorted(views, key=lambda p: (p.topic, p.partition)):
        links = {link.name: link for link in plain.view.topology.links}
        for nth, refusal in enumerate(plain.view.refusals):
            a, b = refusal.link.split("->")
            link = links.get(f"{a}->{b}") or links.get(f"{b}->{a}")
            if (
                nth not in found
                and link is not None
                and plain.view.home in plain.view.topology.homes_over(link)
            ):
                found[nth] = plain.anomaly("failover-refused", b, -1)
    return list(found.values())


def _lost(plain: Plain, story: Story, compared: Compared) -> int:
    """Acknowledged records of the source that did not arrive, except those that lost-write
    reports."""
    mirrored_range = compared.mirrored_range
    known = {r.uid for r in [*compared.holes, *shown(plain, story, compared), *compared.gone]} | {
        r.uid for r in compared.came
    }
    count = 0
    for generation in story.every():
        mine = (generation.cluster, generation.number) == (
            mirrored_range.source,
            mirrored_range.source_generation,
        )
        upstream = generation.cluster not in (mirrored_range.source, mirrored_range.destination)
        since = (
            compared.since
            if mine and compared.since > mirrored_range.start
            else mirrored_range.start
        )
        for promise in (
            promises(plain, story, generation, earlier=False) if mine or upstream else ()
        ):
            there = compared.source.of(promise.uid) is not None
            due = (
                promise.must
                and promise.acked >= since
                and (there or (mine and promise.acked >= compared.gaps))
            )
            count += due and promise.uid not in known
    return count


def _writes(plain: Plain, story: Story, promotion: Any) -> list[int]:
    """When the destination acknowledged writes of its own."""
    era = (promotion.cluster, promotion.time)
    known = any(era in generation.owners for generation in story.generations[promotion.cluster])
    ended = story.ended.get(era, NEVER) if known else NEVER
    return [
        s.returned
        for s in plain.sends
        if s.cluster == promotion.cluster
        and promotion.fault_time < s.returned
        and s.invoked < ended
        and any(offset >= promotion.offset for offset in s.offsets)
        and (s.kind == "send" or (s.ending == "commit" and s.outcome == "ok"))
    ]
