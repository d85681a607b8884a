"""If any part of a transaction is visible, it is visible in every partition of the transaction.
This holds after a failover too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracles.mirrored_ranges import mirrored_ranges
from tests.oracles.plain import Anomaly, Plain
from tests.oracles.promises import Promise, deleted, promises, read_uids
from tests.oracles.story import PlainGeneration, Story

KNOWS_TORN = True


@dataclass(slots=True)
class Seen:
    """The state of one record of a transaction on a cluster: its partition and offset, and whether
    it is or was visible."""

    plain: Plain
    offset: int
    visible: bool
    read: bool


Key = tuple[str, str, str, int]
"""Cluster, link and time of the failover (empty on the cluster that got the writes), its kind,
operation."""


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    every: dict[Key, list[Seen]] = {}
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            what = [
                p
                for p in promises(plain, story, generation, earlier=False)
                if p.send.kind == "transaction"
            ]
            for key, seen in [
                *_native(plain, story, generation, what),
                *_mirrored(plain, story, generation, what),
            ]:
                every.setdefault(key, []).append(seen)
    found: list[Anomaly] = []
    for (cluster, _, kind, _), mine in every.items():
        hidden = [s for s in mine if not s.visible]
        if hidden and any(s.visible or s.read for s in mine):
            partial = {id(s.plain) for s in mine if s.visible}
            worst = min(
                hidden, key=lambda s: (id(s.plain) in partial, s.plain.topic, s.plain.partition)
            )
            name = "torn-by-failover" if kind == "forced" else "torn-transaction"
            found.append(worst.plain.anomaly(name, cluster, worst.offset))
    return found


def _native(
    plain: Plain, story: Story, generation: PlainGeneration, what: list[Promise]
) -> Iterator[tuple[Key, Seen]]:
    log = story.log(generation)
    read = read_uids(story, generation, "read_committed")
    for promise in what if log and not log.torn else ():
        assert log is not None
        gone = deleted(plain, story, generation, log, promise, earlier=False)
        if promise.refused or gone is not False:
            continue
        record = log.of(promise.uid)
        if record is not None and record.state == "open" and generation.lost is not None:
            continue
        offset = promise.acked if record is None else record.offset
        visible = record is not None and record.state not in ("aborted", "open")
        yield (
            (generation.cluster, "", "", promise.send.number),
            Seen(plain, offset, visible, promise.uid in read),
        )


def _mirrored(
    plain: Plain, story: Story, generation: PlainGeneration, what: list[Promise]
) -> Iterator[tuple[Key, Seen]]:
    for compared in mirrored_ranges(plain, story):
        mirrored_range, promotion = compared.mirrored_range, compared.mirrored_range.promotion
        torn = compared.source.torn or compared.destination.torn
        if promotion is None or mirrored_range.destination == generation.cluster or torn:
            continue
        era = [
            r
            for r in compared.destination.records
            if r.visible and mirrored_range.start <= r.offset < mirrored_range.end
        ]
        for promise in what:
            record = compared.source.of(promise.uid)
            if (
                record is None
                or not (record.visible or record.state == "open")
                or record.offset < compared.since
            ):
                continue
            if any(promise.uid == r.uid for r in compared.gone):
                continue
            below: Any = compared.destination.of(promise.uid)
            arrived = any(r.uid == promise.uid for r in era)
            key = (
                promotion.cluster,
                f"{promotion.link} {promotion.fault_time}",
                promotion.kind,
                promise.send.number,
            )
            yield key, Seen(plain, -1 if below is None else below.offset, arrived, False)
