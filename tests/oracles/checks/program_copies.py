"""Each input that a program's group has passed has one committed output on the program's last
cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.oracles.generations import PlainGeneration
from tests.oracles.plain import Anomaly, Plain, PlainLog
from tests.oracles.story import Story

EACH = frozenset({"input-not-copied", "copy-repeated-by-failover", "copy-lost-by-failover"})
KNOWS_TORN = True
FAITHFUL_TOO = True
BESIDE = "a program's copy is missing or repeated, because its input or output is"


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for program in views[0].view.partition_facts.facts.copying if views else ():
        inputs = [plain for plain in views if plain.topic in program.reads - program.writes]
        outputs = [plain for plain in views if plain.topic in program.writes]
        found += _judge(program, inputs, outputs)
    return found


def _judge(program: Any, inputs: Sequence[Plain], outputs: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    ends = {_end(program, plain) for plain in (*inputs, *outputs)}
    for at, came in ends if len(ends) == 1 else ():
        shown = [(plain, *_log(plain, at)) for plain in (*inputs, *outputs)]
        others = [(plain, *_log(plain, came)) for plain in outputs if came]
        if any(
            (log is not None and log.torn) or (generation is not None and log is None)
            for _, generation, log in (*shown, *others)
        ):
            return []
        ins = [
            (p, g, log) for p, g, log in shown if p in inputs and g is not None and log is not None
        ]
        outs = [
            (p, g, log) for p, g, log in shown if p in outputs and g is not None and log is not None
        ]
        made = [(p, g, r, uid) for p, g, log in outs for r, uid in _made(p, log) if r.visible]
        logs = [(p, log) for p, g, log in others if g is not None and log is not None]
        left = [
            uid for p, log in logs for r, uid in _made(p, log) if r.visible or r.state == "open"
        ]
        found += _missing(program, at, ins, outs, [uid for *_, uid in made], left)
        found += _repeated(at, made)
        there = [r.uid for _, _, log in ins for r in log.records if r.visible]
        if not any(_short(p, log) for p, _, log in ins):
            found += [
                p.anomaly("copy-without-input", at, r.offset)
                for p, g, r, uid in made
                if uid >= 0 and uid not in there and g.native(r.offset)
            ]
    return found


def _end(program: Any, plain: Plain) -> tuple[str, str]:
    """The program's last cluster, and its cluster before."""
    at, came = program.home, ""
    for promotion in sorted(plain.view.promotions, key=lambda p: p.time):
        if promotion.source == at:
            at, came = promotion.cluster, promotion.source
    return at, came


def _log(plain: Plain, cluster: str) -> tuple[PlainGeneration | None, PlainLog | None]:
    story = Story(plain)
    generation = next((g for g in story.every() if g.cluster == cluster and g.last), None)
    return generation, (story.log(generation) if generation is not None else None)


def _made(plain: Plain, log: PlainLog) -> Iterator[tuple[Any, int]]:
    replica = next(
        r
        for r in (*plain.view.replicas, *plain.view.earlier)
        if (r.cluster, r.moment, r.broker) == (log.cluster, log.moment, log.broker)
    )
    if len(replica.made_from):
        yield from zip(log.records, replica.made_from.tolist(), strict=True)


def _short(plain: Plain, log: PlainLog) -> bool:
    return log.log_start > 0 or plain.compacted.get(log.cluster, 0) > 0


def _missing(
    program: Any, at: str, ins: Any, outs: Any, made: Sequence[int], left: Sequence[int]
) -> Iterator[Anomaly]:
    if any(_short(p, log) for p, _, log in outs) or any(uid < 0 for uid in made):
        return
    for plain, _, log in ins:
        passed = max(
            (g.offset for g in plain.groups if (g.group, g.cluster) == (program.group, at)),
            default=0,
        )
        came = _end(program, plain)[1]
        promotions = [p for p in plain.view.promotions if (p.source, p.cluster) == (came, at)]
        mirrored = max(promotions, key=lambda p: p.time).offset if promotions else 0
        for record in log.records:
            if (
                record.visible
                and record.uid >= 0
                and record.offset < passed
                and record.uid not in made
            ):
                lost = record.offset < mirrored and record.uid in left
                yield plain.anomaly(
                    "copy-lost-by-failover" if lost else "input-not-copied", at, record.offset
                )


def _repeated(at: str, made: Any) -> Iterator[Anomaly]:
    for uid in {uid for *_, uid in made if uid >= 0}:
        mine = [(p, r.offset, g.native(r.offset)) for p, g, r, other in made if other == uid]
        mirrored = [(p, offset) for p, offset, own in mine if not own]
        own = [(p, offset) for p, offset, own in mine if own]
        if mine[0][0].view.mirror.guarantee.delivery == "exactly-once":
            yield from (p.anomaly("input-copied-twice", at, offset) for p, offset in mirrored[1:])
        if mirrored and own:
            yield own[0][0].anomaly("copy-repeated-by-failover", at, own[0][1])
        yield from (p.anomaly("input-copied-twice", at, offset) for p, offset in own[1:])
