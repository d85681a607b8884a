"""Once all faults have ended, a client that has work goes on in time; and no producer that nobody
fences ends with a fatal error."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from tests.faithful.observers import SECOND
from tests.oracles.plain import Anomaly, Plain

KNOWS_TORN = True
FATAL = ("_FENCED", "_FATAL", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for client in views[0].view.partition_facts.facts.awaited if views else ():
        if client.kind == "producer":
            theirs = [plain for plain in views if plain.home == client.home]
            found += _producer(client, theirs)
            found += _fatal(client, theirs)
        elif client.kind == "program":
            found += _program(client, views)
        else:
            for plain in views:
                found += [
                    plain.anomaly("stalled", client.cluster, at)
                    for began, over, at in _consumer(client, plain)
                    if not any(
                        _works(client, other, began, over) for other in views if other is not plain
                    )
                ]
    return found


def _works(client: Any, plain: Plain, began: int, over: int) -> bool:
    """Whether it moved in another partition, and has still to read what was there at the begin."""
    if not _judged(client, plain):
        return False
    steps = _steps(client, plain) or []
    before = [position for time, position in steps if time <= began][-1:]
    after = [position for time, position in steps if time <= over][-1:]
    moved = any(began < time <= over for time, _ in steps) and before != after
    marks = _ends(plain.marks[client.cluster], client.isolation == "read_uncommitted")
    end = max((end for time, end in marks if time <= began), default=None)
    return moved and end is not None and after[0] < end


def _judged(client: Any, plain: Plain) -> bool:
    """Whether it reads this partition, and what it could read there is known."""
    asked = plain.topic in client.topics if client.topics else plain.home == client.home
    log, marks = plain.final(client.cluster), plain.marks.get(client.cluster, [])
    if client.since >= client.until or not asked or _steps(client, plain) is None:
        return False
    return log is not None and not log.torn and bool(marks)


# Consumers: where they stand, and what lies there to be read.


def _consumer(client: Any, plain: Plain) -> Iterator[tuple[int, int, int]]:
    """From when to when it stood still, and where."""
    log, marks = plain.final(client.cluster), plain.marks.get(client.cluster, [])
    steps = _steps(client, plain) or []
    if not _judged(client, plain) or log is None:
        return
    uncommitted = client.isolation == "read_uncommitted"
    readable = [r.offset for r in log.records if uncommitted or r.visible]
    first = [end for time, end in _ends(marks, uncommitted) if time <= client.since]
    at = first[-1] if first else 0
    stood = client.since
    at = [at, *(before for time, before in steps if time <= client.since)][-1]
    moves: list[tuple[int, int | None]] = [
        step for step in steps if client.since < step[0] <= client.until
    ]
    for time, position in [*moves, (client.until, None)]:
        if position == at:
            continue
        waiting = [offset for offset in readable if offset >= at]
        known = [
            seen
            for seen, end in _highest(_ends(marks, uncommitted))
            if waiting and end > waiting[0]
        ]
        if known:
            began = max(stood, known[0])
            ended_itself = any(began <= exit_ <= time for exit_ in client.exits)
            if time - began >= client.within and not ended_itself and _led(marks, began, time):
                yield began, time, at
        stood, at = time, position if position is not None else at


def _ends(marks: Sequence[Any], uncommitted: bool) -> list[tuple[int, int]]:
    return [(m.time, m.high_watermark if uncommitted else m.last_stable) for m in marks]


def _highest(ends: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    most = -1
    for time, end in ends:
        most = max(most, end)
        yield time, most


def _led(marks: Sequence[Any], began: int, over: int) -> bool:
    """Whether the leader was never without an answer for more than five seconds."""
    before = began
    for time in [*(m.time for m in marks if began <= m.time <= over), over]:
        if time - before > 5 * SECOND:
            return False
        before = time
    return True


def _steps(client: Any, plain: Plain) -> list[tuple[int, int]] | None:
    if client.kind == "group":
        members = [r for r in plain.reads if (r.group, r.cluster) == (client.group, client.cluster)]
        if not client.topics and not members:
            return None
        mine = [g for g in plain.groups if (g.group, g.cluster) == (client.group, client.cluster)]
        return sorted((g.time, g.offset) for g in mine)
    if client.kind == "share":
        found: list[tuple[int, int]] = []
        for read in sorted(plain.shares, key=lambda r: (r.returned, max(r.offsets, default=-1))):
            here = (read.group, read.cluster) == (client.group, client.cluster)
            if here and read.kind == "acquire" and read.offsets:
                most = max([end for _, end in found] + [max(read.offsets) + 1])
                found.append((read.returned, most))
        return found
    steps = []
    for read in plain.reads:
        here = (read.reader, read.cluster) == (client.client, client.cluster)
        if here and read.kind in ("poll", "assign", "drained"):
            last = read.offsets[-1] + 1 if read.offsets else read.position
            steps.append((read.returned, max(last, read.position)))
    return sorted(steps) if steps else None


# Producers and programs: whether they do anything.


def _silent(client: Any, done: Sequence[int]) -> tuple[int, int]:
    """The first of the longest times without anything."""
    times = [client.since, *sorted(t for t in done if client.since < t <= client.until)]
    times.append(client.until)
    longest = (times[0], times[1])
    for before, after in itertools.pairwise(times):
        if after - before > longest[1] - longest[0]:
            longest = before, after
    return longest


def _stalls(client: Any, done: Sequence[int], plains: Sequence[Plain]) -> bool:
    began, over = _silent(client, done)
    if client.since >= client.until or over - began < client.within:
        return False
    if any(began <= exit_ <= over for exit_ in client.exits):
        return False
    return all(
        _led(plain.marks.get(client.cluster, []), client.since, client.until) for plain in plains
    )


def _producer(client: Any, plains: Sequence[Plain]) -> Iterator[Anomaly]:
    done = [
        send.returned
        for plain in plains
        for send in plain.sends
        if (send.client, send.cluster) == (client.client, client.cluster)
        and send.returned >= 0
        and (send.outcome == "ok" or (send.kind == "send" and max(send.offsets) >= 0))
    ]
    if plains and _stalls(client, done, plains):
        first = min(plains, key=lambda plain: (plain.topic, plain.partition))
        yield first.anomaly("stalled", client.cluster, -1)


def _program(client: Any, views: Sequence[Plain]) -> Iterator[Anomaly]:
    outputs = [plain for plain in views if plain.topic in client.outputs]
    inputs = [plain for plain in views if plain.topic in client.topics]
    written, read = _grown(client, outputs), _grown(client, inputs)
    start = client.broken or client.since
    if inputs:
        came = [t for t in read if client.since < t <= client.until - client.within]
        had_work = bool(written and came)
    else:
        had_work = any(start - client.within <= t <= start for t in written)
    if had_work and _stalls(client, written, [*outputs, *inputs]):
        first = min([*outputs, *inputs], key=lambda plain: (plain.topic, plain.partition))
        yield first.anomaly("stalled", client.cluster, -1)


def _grown(client: Any, plains: Sequence[Plain]) -> list[int]:
    times = []
    for plain in plains:
        marks = plain.marks.get(client.cluster, [])
        for before, after in itertools.pairwise(marks):
            if after.high_watermark > before.high_watermark:
                times.append(after.time)
    return times


def _fatal(client: Any, plains: Sequence[Plain]) -> Iterator[Anomaly]:
    """The last operation of an incarnation ended with a fatal error in time."""
    mine = [
        (plain, send) for plain in plains for send in plain.sends if send.client == client.client
    ]
    reported: set[int] = set()
    ordered = sorted(mine, key=lambda each: (each[0].topic, each[0].partition))
    for plain, send in ordered if client.produces else ():
        last = all(
            other.invoked <= send.invoked for _, other in mine if other.process == send.process
        )
        aged = send.kind != "send" and send.returned - send.invoked >= client.timeout
        unclean = any(
            w.fault == "unclean-election" and w.start <= send.returned for w in plain.view.windows
        )
        fatal = send.error in FATAL and send.returned >= 0 and send.number not in reported
        if fatal and last and not aged and not unclean:
            reported.add(send.number)
            yield plain.anomaly("client-unusable", send.cluster, -1)
