"""The records that a log cleaner may have taken (Kafka documentation, Log Compaction: the last
value of each key is retained; a tombstone goes after delete.retention.ms; KIP-98: aborted records
go).

A record that is absent has a key only if another copy of it is left, or if its client makes keys
from the seed: then all that is left of that client's records has the keys that the seed says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from linkflap.spark_verify.facts.view import DATA, NULL, digested
from tests.oracles.checks.replica_agreement import ending, expired
from tests.oracles.plain import NEVER, Plain, PlainLog, of_send
from tests.oracles.story import PlainGeneration

Content = tuple[int, bool]
"""The key of a record, and whether it is a tombstone."""


@dataclass(slots=True)
class Written:
    """A record that clients wrote to a log, or may have, at an offset from `first` to `last`.
    `sure`: its commit was acknowledged, or a read_committed reader got it. `time` is when its
    client began to send it, in milliseconds."""

    uid: int
    first: int
    last: int
    time: int
    sure: bool


def content(plain: Plain, uid: int) -> Content | None:
    """The content of a record, from any copy or the seed; None where neither is known."""
    copies = [p for r in plain.replicas for p in r.parts]
    for p in copies:
        if p.uid == uid >= 0:
            return p.key, p.value == NULL
    client = _client(plain, uid)
    left = [p for p in copies if client and _client(plain, p.uid) == client]
    ways = [
        values
        for values in plain.view.partition_facts.facts.values.values()
        if left and all(_seeded(values, p.uid) == (p.key, p.value == NULL) for p in left)
    ]
    said = {_seeded(values, uid) for values in ways}
    return said.pop() if len(said) == 1 else None


def _client(plain: Plain, uid: int) -> str:
    mine = (s.client for s in plain.sends if s.first_uid <= uid < s.first_uid + len(s.offsets))
    return next(mine, "")


def _seeded(values: Any, uid: int) -> Content:
    return digested(values.key(uid)), values.value(uid) is None


def taken(
    plain: Plain,
    generation: PlainGeneration,
    log: PlainLog,
    lost: Written,
    absent: list[Written],
) -> bool | None:
    """Whether a cleaner may have taken a committed record. `absent` is what else the log lacks."""
    control = [b for b in log.batches if b.control != DATA and b.base_offset == lost.first]
    if lost.first == lost.last and (control or log.at(lost.first)):
        return False
    its = content(plain, lost.uid)
    if its is None:
        return None
    until = expired(plain, log)

    def old(time: int) -> bool:
        return until is None or time <= until

    if its[0] == NULL or (its[1] and old(lost.time)):
        return True
    left, unnamed = _left(plain, log)
    ended, unended = _later(plain, generation, log, left)
    for each in absent:
        known, exact = content(plain, each.uid), each.sure and each.first == each.last
        if known and exact:
            ended.append((known[0], each.last))
        elif old(each.time) and (known is None or known[1]):
            unended.append((known[0] if known else its[0], each.last))
    unended += [(its[0], offset) for offset in unnamed]
    judge = _judge(its[0], plain.compacted[generation.cluster], left, ended, unended)
    first, last = judge(lost.first), judge(lost.last)
    return True if last else first and None


Spots = list[tuple[int, int]]
"""(key, offset)."""


def _judge(
    key: int, upto: int, left: Spots, ended: Spots, unended: Spots
) -> Callable[[int], bool | None]:
    def first(key: int, after: int) -> int:
        return min((o for k, o in ended if k == key and o > after), default=NEVER)

    def judge(offset: int) -> bool | None:
        replaced = first(key, offset)
        if replaced < upto:
            return True
        # A cleaner that had come that far would have taken an earlier record too.
        passed = any(first(k, max(o, upto - 1)) <= replaced for k, o in left if o < offset)
        unsure = any(k == key and o > offset for k, o in unended)
        return None if unsure or (replaced < NEVER and not passed) else False

    return judge


def _left(plain: Plain, log: PlainLog) -> tuple[Spots, list[int]]:
    """The records that are left in a log, and the offsets of records whose keys are unknown."""
    named = {p.offset: p.key for p in log.parts}
    unnamed = []
    for record in log.records:
        if record.offset not in named:
            its = content(plain, record.uid)
            if its is None:
                unnamed.append(record.offset)
            else:
                named[record.offset] = its[0]
    return [(key, offset) for offset, key in named.items()], unnamed


def _later(
    plain: Plain, generation: PlainGeneration, log: PlainLog, left: Spots
) -> tuple[Spots, Spots]:
    """The remaining records that replace others, and those that may once their transaction has
    ended."""
    ended: Spots = []
    unended: Spots = []

    def add(there: PlainLog, spots: Spots) -> None:
        for key, offset in spots:
            part = next(r for r in (*there.parts, *there.records) if r.offset == offset)
            state = ending(there, part)
            if state != "aborted":
                (unended if state == "open" else ended).append((key, offset))

    add(log, left)
    for other in plain.replicas if generation.last else ():
        if other.cluster == log.cluster and other is not log:
            add(other, [(p.key, p.offset) for p in other.parts])
    return ended, unended


def deleted_since(plain: Plain, lacking: PlainLog, key: int, since: int, upto: int) -> bool | None:
    """Whether a tombstone of a key, of a client of this cluster, came behind an offset and is gone;
    None where that is not known."""
    held = sum(b.count for b in lacking.batches if since <= b.base_offset < upto)
    if held >= upto - since:
        return False
    ways = plain.view.partition_facts.facts.values.values()
    until = expired(plain, lacking)
    if not ways:
        return None
    found: bool | None = False
    for send in plain.sends:
        late = until is not None and send.invoked // 1_000_000 > until
        if send.cluster != lacking.cluster or send.ending == "abort" or late:
            continue
        for uid, offset, refused in of_send(send):
            inside = not refused and (offset < 0 or since <= offset < upto)
            if inside and any(_seeded(values, uid) == (key, True) for values in ways):
                if offset >= 0 and send.outcome == "ok":
                    return True
                found = None
    return found


def deleted_elsewhere(
    plain: Plain, key: int, clusters: Collection[str], until: int | None = None
) -> bool:
    """Whether clients of other clusters sent a tombstone of a key, up to a time in milliseconds."""
    return any(
        _seeded(values, uid) == (key, True)
        for send in plain.sends
        if send.cluster in clusters and (until is None or send.invoked // 1_000_000 <= until)
        for uid, _, _ in of_send(send)
        for values in plain.view.partition_facts.facts.values.values()
    )
