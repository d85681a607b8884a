"""A relay writes exactly one committed output for each input that its group has passed. Failovers
are counted separately."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from tests.oracles.plain import Anomaly, Plain, PlainLog
from tests.oracles.story import PlainGeneration, Story

EACH = frozenset({"input-lost", "output-repeated-by-failover", "output-lost-by-failover"})
KNOWS_TORN = True
Key = tuple[str, str, int, str]
"""Group, input topic, input partition, cluster."""


@dataclass(slots=True)
class Inputs:
    """The part of a log for a group: (offset, payload) of all visible records, where it begins,
    below what offset it may lack what its cleaner took, and where the group began there."""

    start: int
    floor: int
    cleaned: int
    visible: list[tuple[int, int]]
    samples: list[tuple[int, int]]
    promotion: Any
    disturbed: Callable[[int], bool]


@dataclass(slots=True)
class Outputs:
    """(input offset, input payload, made here) of committed outputs; (position, process, number,
    returned) of transactions."""

    made: list[tuple[int, int, bool]] = field(default_factory=list)
    claims: list[tuple[int, int, int, int]] = field(default_factory=list)
    torn: bool = False


def disturbed(plain: Plain, cluster: str, time: int) -> bool:
    """Whether brokers of a cluster were under a fault at that time, or had been."""
    began = [w for w in plain.windows if w.start <= time]
    return any(
        w.target.split("/")[0] == cluster
        or (w.fault, w.target.split("->")[0]) == ("failover-forced", cluster)
        for w in began
    )


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    inputs: dict[Key, Inputs] = {}
    outputs: dict[Key, Outputs] = {}
    for plain in views:
        story = Story(plain)
        for generation in [generation for generation in story.every() if generation.last]:
            _look(plain, story, generation, inputs, outputs)
    found: list[Anomaly] = []
    for key, input_log in inputs.items():
        mine = outputs.get(key, Outputs())
        if mine.torn:
            continue
        before = (*key[:3], input_log.promotion.source if input_log.promotion else "")
        suspects = list(_here(input_log, mine))
        if before in inputs and not outputs.get(before, Outputs()).torn:
            suspects += _over(input_log, mine, inputs[before], outputs.get(before, Outputs()))
        found += [(kind, key[3], key[1], key[2], offset) for kind, offset in suspects]
    return found


def _look(
    plain: Plain,
    story: Story,
    generation: PlainGeneration,
    inputs: dict[Key, Inputs],
    outputs: dict[Key, Outputs],
) -> None:
    log = story.log(generation)
    if log is None or log.torn:
        for send in (s for s in plain.sends if s.group and s.input_topic):
            key = (send.group, send.input_topic, send.input_partition, generation.cluster)
            outputs.setdefault(key, Outputs()).torn = True
        return
    for group in {
        r.group for r in plain.reads if r.group and r.reader.rpartition("-")[0] == "relay"
    }:
        began = [
            r
            for r in story.reads(generation)
            if r.group == group and r.kind == "assign" and r.position >= 0
        ]
        if began:
            since = min(r.time for r in began)
            samples = [
                (g.time, g.offset)
                for g in plain.groups
                if (g.group, g.cluster) == (group, generation.cluster) and g.time >= since
            ]
            here = [
                p
                for p in plain.view.promotions
                if p.cluster == generation.cluster
                and generation.began <= p.time <= generation.ended
            ]
            promotion = max(here, key=lambda p: p.time, default=None)
            visible = [(r.offset, r.uid) for r in log.records if r.visible]
            key = (group, plain.topic, plain.partition, generation.cluster)
            inputs[key] = Inputs(
                min(r.position for r in began),
                log.log_start,
                plain.compacted.get(generation.cluster, 0),
                visible,
                samples,
                promotion,
                partial(disturbed, plain, generation.cluster),
            )
    numbers = {s.number for s in story.sends(generation)}
    for send in (s for s in plain.sends if s.group and s.input_topic):
        mine = outputs.setdefault(
            (send.group, send.input_topic, send.input_partition, generation.cluster), Outputs()
        )
        committed = send.ending == "commit" and send.outcome == "ok"
        records = [log.of(send.first_uid + i) for i in range(len(send.inputs))]
        own = send.number in numbers
        there = [
            (committed and _deleted(plain, log, send, i, own=own))
            if r is None
            else r.visible or (committed and r.state == "open")
            for i, r in enumerate(records)
        ]
        pairs = zip(send.inputs, send.input_uids, there, strict=True)
        mine.made += [(offset, uid, own) for offset, uid, is_there in pairs if is_there]
        if own and (committed or any(there)):
            mine.claims.append(
                (send.position, send.process, send.number, send.returned if committed else -1)
            )


def _deleted(plain: Plain, log: PlainLog, send: Any, index: int, *, own: bool) -> bool:
    """Whether a log that lost its beginning, or was compacted, had an output. If offsets differ,
    any mirrored output counts."""
    start = max(log.log_start, plain.compacted.get(log.cluster, 0))
    if own or plain.keeps:
        acked = send.offsets[index] if index < len(send.offsets) else -1
        return bool(0 <= acked < start)
    return start > 0


def _here(input_log: Inputs, mine: Outputs) -> Iterator[tuple[str, int]]:
    used = [(offset, uid) for offset, uid, own in mine.made if own]
    for index, (offset, uid) in enumerate(used):
        if any(offset == other for other, _ in used[:index]):
            yield "output-duplicated", offset
        there = any(offset == other for other, _ in input_log.visible)
        if (
            (offset, uid) not in input_log.visible
            and offset >= input_log.floor
            and (there or offset >= input_log.cleaned)
        ):
            yield "output-without-input", offset
    passed = max(
        [-1, *(claim[0] for claim in mine.claims), *(offset for _, offset in input_log.samples)]
    )
    for offset, _ in input_log.visible:
        if input_log.start <= offset < passed and all(offset != other for other, _ in used):
            yield "input-lost", offset
    over = []
    for process in {claim[1] for claim in mine.claims}:
        settled = sorted(
            (c for c in mine.claims if c[1] == process and c[3] >= 0), key=lambda c: c[2]
        )
        over += [(following[3], claim[0]) for claim, following in pairwise(settled)]
    left = {input_log.start, *(claim[0] for claim in mine.claims)}
    left |= {offset for time, offset in input_log.samples if not input_log.disturbed(time)}
    for time, offset in input_log.samples:
        again = input_log.disturbed(time) and offset in left
        if any(returned < time and offset < position for returned, position in over) and not again:
            yield "offset-behind", offset


def _over(
    input_log: Inputs, mine: Outputs, before: Inputs, theirs: Outputs
) -> Iterator[tuple[str, int]]:
    came, ours = (
        {uid for _, uid, own in mine.made if not own},
        {uid for _, uid, own in mine.made if own},
    )
    here, done = (
        {offset for offset, _, own in mine.made if own},
        {uid for _, uid, own in theirs.made if own},
    )
    first: dict[int, int] = {}
    for offset, uid in before.visible:
        first.setdefault(uid, offset)
    # The first copy counts: the group may have used the input before, and a second came later.
    asked = {uid for uid, offset in first.items() if offset >= before.start}
    for offset, uid in input_log.visible:
        if offset >= input_log.promotion.offset:
            continue
        # By offset, because a mirror may have written an input twice.
        if uid in came and offset in here:
            yield "output-repeated-by-failover", offset
        elif offset < input_log.start and uid not in came | ours:
            if uid in done:
                yield "output-lost-by-failover", offset
            elif uid in asked:
                yield "input-lost", offset
