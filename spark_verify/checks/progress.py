"""progress: once all faults have ended, every client that has work goes on within the scenario's
`progress_within`; and no client becomes unusable although nobody fenced it.

A consumer has work while a record that it can read lies at or above its position: a committed one
below the sampled last stable offset, or for read_uncommitted any below the high watermark. A
group's position is its sampled committed offset, that of a reader with fixed partitions the end of
its last poll, that of a share group the end of the records that its members acquired. Every change
of the position is progress. A group without a committed offset in a partition has to read only
records that arrive after the faults. A producer always has work. A user's program without a group
writes no history. Growth of its output topics is its progress. Such a program has work while its
inputs grow, or, without inputs, if it was writing when the first fault began. A mirror has work
while its source has a committed record that its destination never gets, and makes progress while
the log there grows.

A client stalls if it has work and makes no progress for `progress_within`. A partition whose leader
did not answer meanwhile proves nothing and makes the check unknown. So does a run that ended before
that time had passed. After a program ends by itself, its time counts again from its next start. A
slow consumer reads its partitions one after the other: it has not stalled in one while it still
reads records in another that were there when it left the first. A producer stalls in a partition if
all its sends to that partition failed for `progress_within`.

A producer's error is fatal if it says that the producer was fenced or cannot continue, and the
producer did nothing afterwards. A producer may be fenced in two ways: by another InitProducerId of
its transactional id, which of linkflap's clients only a zombie sends, or by the coordinator, which
aborts a transaction after its timeout. An unclean election may also have lost the producer's state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from linkflap.harness.model.faults import UNCLEAN
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Examined,
    Finding,
    Found,
    PartialFinding,
    Unjudged,
    grouped,
    nothing_due,
)
from linkflap.spark_verify.checks.log_model.generations import generations, log_of
from linkflap.spark_verify.checks.log_model.logs import changes, column_of
from linkflap.spark_verify.checks.log_model.mirrored_ranges import compared_hops
from linkflap.spark_verify.facts.eras import on_cluster
from linkflap.spark_verify.facts.partition_facts import Awaited
from linkflap.spark_verify.facts.sends_and_reads import Sends
from linkflap.spark_verify.facts.view import Ints, Origin, PartitionView, Watermarks

STALLED: Final = "stalled"
UNUSABLE: Final = "client-unusable"
FATAL: Final = (
    "_FENCED",
    "_FATAL",
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_EPOCH",
)
"""Names of errors after which a producer is fenced for good. From other errors a producer recovers
with a new epoch (KIP-360). INVALID_TXN_STATE is not listed: librdkafka gets it when it aborts a
transaction to which no partition was added (its issue 4849), which is harmless."""
UNSAMPLED: Final = int(5e9)
"""Nanoseconds. A partition whose leader did not answer for so long may have had none."""
SOON: Final = int(5e9)
"""Nanoseconds that a client may still take for its last records when it is stopped."""


def kernel(view: PartitionView) -> Iterator[Finding]:
    """The activity of each client in this partition; `combine` judges a client over all its
    partitions."""
    for client in view.partition_facts.facts.awaited:
        if client.kind in ("producer", "program"):
            yield from _part_of(view, client)
        elif client.kind == "mirror":
            yield from _mirror(view, client)
        elif _reads_here(view, client):
            yield from _consumer(view, client)


def _reads_here(view: PartitionView, client: Awaited) -> bool:
    """Whether the client reads this partition: a program declares its topics, and members of a
    group have rows of the partition."""
    if client.since >= client.until or not client.uses(view.topic, view.home):
        return False
    if client.topics or client.kind != "group":
        return True
    return any((r.group, r.cluster) == (client.group, client.cluster) for r in view.reads)


# Consumers.


def _consumer(view: PartitionView, client: Awaited) -> Iterator[Finding]:
    marks, readable = view.watermarks.get(client.cluster), _readable(view, client)
    moves = _moves(view, client)
    if marks is None or readable is None or moves is None:
        return
    bound = "high_watermark" if client.isolation == "read_uncommitted" else "last_stable"
    marks = marks.take(getattr(marks, bound) >= 0)
    ends: Ints = getattr(marks, bound)
    if not len(ends):
        return
    began, at = _stands(client, moves, marks.time, ends)
    over = np.append(began[1:], max(_seen_until(client, marks), int(began[-1])))
    record = np.searchsorted(readable, at)
    there = record < len(readable)
    wanted = readable[np.minimum(record, len(readable) - 1)] if len(readable) else at
    sample = np.searchsorted(np.maximum.accumulate(ends), wanted, side="right")
    there &= sample < len(ends)
    began = np.maximum(began, marks.time[np.minimum(sample, len(ends) - 1)])
    waits = there & (over > began)
    still = [_longest(b, client.exits, o) for b, o in zip(began, over, strict=True)]
    began, over = np.array(still, np.int64).T
    if len(at) > 1 or not waits.any():
        yield Examined(cluster=client.cluster, origin=_origin(view, client), count=1)
    # the last interval may have been shortened
    asked = waits & (over - began >= client.within)
    asked[-1] |= waits[-1] and len(at) == 1 and over[-1] - began[-1] > SOON
    rows = np.flatnonzero(asked)
    last = np.searchsorted(marks.time, over[rows], side="right") - 1
    answered = [_answered(marks.time, int(began[row]), int(over[row])) for row in rows.tolist()]
    data: dict[str, object] = {
        "role": "consumer",
        "client": client.client,
        "within": client.within,
        "words": _words(client),
        "moved": moves[0],
        "positions": moves[1],
        "sampled": marks.time,
        "ends": np.maximum.accumulate(ends),
        "began": began[rows],
        "over": over[rows],
        "at": at[rows],
        "end": marks.last_stable[last],
        "leader": marks.leader[last],
        "answered": np.array(answered, np.int64),
    }
    yield _partial(client, data)


def _seen_until(client: Awaited, marks: Watermarks) -> int:
    """The time until which the client's position is known: the sampler stops soon after the
    client."""
    last = int(marks.returned[-1])
    return client.until if client.until - last > UNSAMPLED else min(client.until, last)


def _longest(began: int, between: Sequence[int], over: int) -> tuple[int, int]:
    """The longest gap [start, end] from `began` to `over` without any of the times `between`."""
    edges = [began, *sorted(time for time in between if began < time < over), over]
    return max(pairwise(edges), key=lambda pair: pair[1] - pair[0])


def _readable(view: PartitionView, client: Awaited) -> Ints | None:
    """The offsets of the records that the client can read; None if the log is not known to its
    end."""
    known = generations(view).get(client.cluster, ())
    log = log_of(view, known[-1]) if known else None
    if log is None or not log.whole:
        return None
    offsets = log.records.offset
    return offsets if client.isolation == "read_uncommitted" else offsets[log.visible]


def _moves(view: PartitionView, client: Awaited) -> tuple[Ints, Ints] | None:
    """The client's positions over time, in time order; None for readers that never had this
    partition."""
    if client.kind == "group":
        pairs = [
            (g.time, g.offset)
            for g in view.groups
            if (g.group, g.cluster) == (client.group, client.cluster)
        ]
        return _columns(pairs)
    if client.kind == "share":
        acquired = [
            (read.returned, int(read.offsets.max()) + 1)
            for read in view.shares
            if (read.group, read.cluster) == (client.group, client.cluster)
            and read.kind == "acquire"
            and len(read.offsets)
        ]
        times, ends = _columns(acquired)
        return times, np.maximum.accumulate(ends) if len(ends) else ends
    polled = [
        (read.returned, max([read.position, *(read.offsets[-1:] + 1).tolist()]))
        for read in view.reads
        if (read.reader, read.cluster) == (client.client, client.cluster)
        and read.kind in ("poll", "assign", "drained")
    ]
    return _columns(polled) if polled else None


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    rows = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def _stands(
    client: Awaited, moves: tuple[Ints, Ints], sampled: Ints, ends: Ints
) -> tuple[Ints, Ints]:
    """The client's position at `since` and after every later change, with the times."""
    times, positions = moves
    before = positions[times <= client.since]
    known = ends[sampled <= client.since]
    # Without a commit in this partition, the group need not read earlier records. A share group
    # begins at the start of the log on its first cluster, so it must.
    anywhere = client.kind != "share" or client.cluster != client.home
    first = before[-1] if len(before) else (known[-1] if anywhere and len(known) else 0)
    later = (times > client.since) & (times <= client.until)
    began = np.concatenate([[client.since], times[later]]).astype(np.int64)
    at = np.concatenate([[first], positions[later]]).astype(np.int64)
    moved = changes(at)
    return began[moved], at[moved]


def _words(client: Awaited) -> str:
    """The coordinator's answer about a stalled client, and the last lines of the client's log."""
    log = f"its log ends with {' | '.join(client.last_words)!r}" if client.last_words else ""
    return "; ".join(filter(None, (client.said, log)))


def _broker(leader: int) -> str:
    return f"broker {leader}" if leader >= 0 else "a new leader"


def _answered(sampled: Ints, began: int, over: int) -> bool:
    """Whether the partition's leader answered throughout [began, over]."""
    inside = sampled[(sampled >= began) & (sampled <= over)]
    return bool(np.diff(np.concatenate([[began], inside, [over]])).max() <= UNSAMPLED)


def _origin(view: PartitionView, client: Awaited) -> Origin:
    return "native" if view.home == client.home == client.cluster else "mirrored"


# Mirrors.


def _mirror(view: PartitionView, client: Awaited) -> Iterator[Finding]:
    """A mirror stalls in a partition if, for `progress_within`, its source had a committed record
    that never arrived, and the destination's log did not grow."""
    theirs, ours = (view.watermarks.get(cluster) for cluster in (client.home, client.cluster))
    if theirs is None or ours is None or not (len(theirs.time) and len(ours.time)):
        return
    for first in _never_mirrored(view, client):
        readable = theirs.time[np.maximum.accumulate(theirs.last_stable) > first]
        grown = _grown(ours)
        began = max([client.since, *readable[:1].tolist(), *grown[-1:].tolist()])
        over = min(_seen_until(client, ours), int(theirs.returned[-1]))
        answered = all(_answered(marks.time, began, over) for marks in (theirs, ours))
        if len(readable) and over - began >= client.within and answered:
            leader = _broker(int(ours.leader[-1]))
            yield Found.at(
                STALLED,
                client.cluster,
                -1,
                client=client.client,
                seconds=round((over - began) / 1e9, 1),
                waited_for=f"{view.tp} at {first} of {client.home}, to be written by {leader}",
            )


def _never_mirrored(view: PartitionView, client: Awaited) -> Iterator[int]:
    """The source's first record that a mirror, which ran to the end, did not copy."""
    for hop in compared_hops(view):
        ends = hop.mirrored_range.source, hop.mirrored_range.destination
        known = hop.source.whole and hop.destination.whole and hop.tail == "unknown"
        if ends == (client.home, client.cluster) and known and len(hop.behind):
            yield int(hop.source.records.offset[hop.sequence[hop.behind[0]]])


# Producers, and programs without a group.


def _part_of(view: PartitionView, client: Awaited) -> Iterator[Finding]:
    """A producer's activity in this partition: times of acknowledgements, or of growth of a
    program's topics; and a fatal error."""
    marks = view.watermarks.get(client.cluster)
    sampled = marks.time if marks is not None else np.empty(0, np.int64)
    data: dict[str, object] = {
        "client": client.client,
        "since": client.since,
        "until": client.until,
        "within": client.within,
        "broken": client.broken,
        "answered": _answered(sampled, client.since, client.until),
        "exits": list(client.exits),
        "origin": _origin(view, client),
        "leader": int(marks.leader[-1]) if marks is not None and len(marks.time) else -1,
        "words": _words(client),
    }
    grown = _grown(marks)
    if client.kind == "producer" and client.uses(view.topic, view.home):
        sends = Sends.of(view.sends)
        mine = sends.take(sends.says("client", client.client))
        # of each incarnation when it last began an operation here
        data |= {"processes": mine.column("process"), "acted": mine.column("invoked")}
        yield from _did(view, client, data, "producer", _acknowledged(mine, client))
        yield from _unusable(view, mine, client)
    if client.kind == "program" and view.topic in client.outputs:
        yield from _did(view, client, data, "writes", grown)
    if client.kind == "program" and view.topic in client.topics:
        yield _partial(client, {**data, "role": "reads", "done": grown})


def _did(
    view: PartitionView, client: Awaited, data: dict[str, object], role: str, done: Ints
) -> Iterator[Finding]:
    """The client's kind of work, and that the client went on after the last fault."""
    yield _partial(client, {**data, "role": role, "done": done})
    if ((done > client.since) & (done <= client.until)).any():
        yield Examined(cluster=client.cluster, origin=_origin(view, client), count=1)


def _partial(client: Awaited, data: dict[str, object]) -> PartialFinding:
    return PartialFinding(cluster=client.cluster, offset=-1, data=data, together=client.client)


def _acknowledged(mine: Sends, client: Awaited) -> Ints:
    """Return times of successful operations: the requested end of a transaction, or plain sends
    with an acknowledged record."""
    some = [
        send.returned
        for send in mine.take(mine.says("cluster", client.cluster))
        if send.outcome == "ok" or (send.kind == "send" and (np.asarray(send.offsets) >= 0).any())
    ]
    return np.array(sorted(time for time in some if time >= 0), np.int64)


def _grown(marks: Watermarks | None) -> Ints:
    """The times of the samples in which the high watermark had risen."""
    if marks is None:
        return np.empty(0, np.int64)
    marks = marks.with_high_watermark()
    return marks.time[1:][np.diff(marks.high_watermark) > 0]


def _unusable(view: PartitionView, mine: Sends, client: Awaited) -> Iterator[PartialFinding]:
    """Operations that ended with a fatal error although no other producer fences this one and its
    transaction cannot have timed out."""
    if not client.produces:
        return
    for send in mine.take(mine.says("error", *FATAL)):
        aged = send.kind != "send" and send.returned - send.invoked >= client.timeout
        elected = any(
            window.fault == UNCLEAN and window.start <= send.returned
            for window in on_cluster(view.windows, send.cluster)
        )
        if send.returned < 0 or aged or elected:
            continue
        data = {
            "role": "unusable",
            "client": client.client,
            "operation": send.number,
            "process": send.process,
            "invoked": send.invoked,
            "error": send.error,
            "ending": send.ending,
            "producer_id": send.producer_id,
            "producer_epoch": send.producer_epoch,
        }
        yield PartialFinding(cluster=send.cluster, offset=-1, data=data, together=client.client)


def combine(parts: Sequence[PartialFinding]) -> Iterator[Combined]:
    """Compares each client's activity in all its partitions with its promise."""
    for _, mine in sorted(grouped(parts, lambda part: part.data["client"]).items()):
        yield from _stuck([part for part in mine if part.data["role"] == "consumer"])
        did = [part for part in mine if part.data["role"] not in ("consumer", "unusable")]
        yield from _judge(did)
        yield from _fatal([part for part in mine if part.data["role"] == "unusable"], did)


def _stuck(mine: Sequence[PartialFinding]) -> Iterator[Combined]:
    """Partitions in which a consumer made no progress, although it had no older work in other
    partitions."""
    for part in mine:
        data = part.data
        columns = ("began", "over", "at", "end", "leader", "answered")
        for began, over, *rest in zip(*(column_of([part], name) for name in columns), strict=True):
            others = (o for o in mine if o is not part and o.cluster == part.cluster)
            if any(_works(other, began, over) for other in others):
                continue
            yield part.combined(_found_stuck(part, data, began, over, *rest))


def _works(other: PartialFinding, began: int, over: int) -> bool:
    """Whether a consumer is only slow: it meanwhile moved on in another partition, and has not yet
    read what was readable there at the beginning."""
    moved, positions, sampled, ends = (
        column_of([other], name) for name in ("moved", "positions", "sampled", "ends")
    )
    before = positions[moved <= began][-1:]
    after = positions[moved <= over][-1:]
    end = ends[sampled <= began][-1:]
    moves = ((moved > began) & (moved <= over)).any() and not np.array_equal(before, after)
    return bool(moves and len(end) and after[0] < end[0])


def _found_stuck(
    part: PartialFinding, data: Mapping[str, Any], began: int, over: int, at: int, end: int,
    leader: int, answered: int,
) -> Found | Unjudged:  # fmt: skip
    where, seconds = part.tp, (over - began) / 1e9
    stood = f"{data['client']} stood at {at} of {where} on {part.cluster} for {seconds:.1f} s"
    if over - began < data["within"]:
        return Unjudged(
            f"{stood} after the last fault, until it was stopped; whether it stalled is unknown"
            f" before {data['within'] / 1e9:g} s"
        )
    if not answered:
        return Unjudged(f"{stood}, and its leader did not answer all the time")
    waited_for = f"{where} at {at} of {end}, led by {_broker(leader)}"
    return Found.at(
        STALLED,
        part.cluster,
        int(at),
        client=data["client"],
        seconds=round(seconds, 1),
        waited_for="; ".join(filter(None, (waited_for, data["words"]))),
    )


def _judge(mine: Sequence[PartialFinding]) -> Iterator[Combined]:
    """The longest time without an acknowledgement, or without growth of a program's outputs."""
    if not mine:
        return
    data = mine[0].data
    since, until, within = data["since"], data["until"], data["within"]
    done = _times(mine, "producer", "writes")
    inputs = _times(mine, "reads")
    if since >= until or not _had_work(data, done, inputs, mine):
        return
    inside = done[(done > since) & (done <= until)]
    began, over = _longest(since, [*inside.tolist(), *data["exits"]], until)
    silent = over - began >= within
    if silent and all(part.data["answered"] for part in mine):
        yield _stalled(mine, began, over)
    elif not silent and len(inside):
        yield from _in_one_partition(mine)
    elif silent or over - began > SOON:
        reason = (
            f"{data['client']} did nothing on {mine[0].cluster} for {(over - began) / 1e9:.1f} s "
            f"after the last fault, and whether it stalled is unknown: "
        ) + (
            "not every leader of its partitions answered"
            if silent
            else f"it was stopped before {within / 1e9:.1f} s had passed, or ended by itself"
        )
        yield Combined(found=Unjudged(reason), topic=mine[0].topic, partition=-1)


def _in_one_partition(mine: Sequence[PartialFinding]) -> Iterator[Combined]:
    """Partitions to which a producer sent for `progress_within` without any acknowledgement."""
    for part in (part for part in mine if part.data["answered"]):
        since, until, within = (part.data[name] for name in ("since", "until", "within"))
        tried, done = (np.sort(column_of([part], name)) for name in ("acted", "done"))
        edges = [since, *done[(done > since) & (done < until)].tolist(), until]
        for began, over in pairwise(edges):
            some = tried[(tried > began) & (tried < over)]
            if len(some) and some[-1] - some[0] >= within:
                yield _stalled([part], int(some[0]), int(some[-1]))


def _had_work(
    data: Mapping[str, Any], done: Ints, inputs: Ints, mine: Sequence[PartialFinding]
) -> bool:
    """Whether the client had work: always for a producer; for a program that had written before,
    while its inputs grow, or if it was still writing when the first fault began."""
    if data["role"] == "producer":
        return True
    since, until, within = data["since"], data["until"], data["within"]
    before = done[done <= (data["broken"] or since)]
    if any(part.data["role"] == "reads" for part in mine):
        return bool(len(done)) and bool(((inputs > since) & (inputs <= until - within)).any())
    return bool(len(before)) and int(before[-1]) >= (data["broken"] or since) - within


def _times(parts: Sequence[PartialFinding], *roles: str) -> Ints:
    """The times of activity in these roles, sorted."""
    return np.sort(column_of([part for part in parts if part.data["role"] in roles], "done"))


def _stalled(mine: Sequence[PartialFinding], began: int, over: int) -> Combined:
    """The anomaly of a stalled client, at its first partition, with everything that it waited
    for."""
    first = mine[0]
    partitions = ", ".join(
        f"{part.tp}, led by {_broker(part.data['leader'])}"
        for part in mine
        if part.data["role"] != "reads"
    )
    found = Found.at(
        STALLED,
        first.cluster,
        -1,
        client=first.data["client"],
        seconds=round((over - began) / 1e9, 1),
        waited_for="; ".join(filter(None, (f"answers of {partitions}", first.data["words"]))),
    )
    return first.combined(found)


def _fatal(mine: Sequence[PartialFinding], did: Sequence[PartialFinding]) -> Iterator[Combined]:
    """One anomaly for each operation that was the last of its incarnation, at its first
    partition."""
    seen: set[object] = set()
    processes, acted = (column_of(did, name) for name in ("processes", "acted"))
    for part in sorted(mine, key=lambda part: (part.data["operation"], part.topic, part.partition)):
        data = part.data
        later = (processes == data["process"]) & (acted > data["invoked"])
        if data["operation"] in seen or later.any():
            continue
        seen.add(data["operation"])
        evidence = {
            name: data[name]
            for name in ("client", "operation", "error", "ending", "producer_id", "producer_epoch")
        }
        found = Found.at(UNUSABLE, part.cluster, -1, **evidence)
        yield part.combined(found)


CHECK = Check(
    name="progress",
    guarantee="""Once all faults have ended, every client and mirror that has work makes progress
        within the scenario's `progress_within`; and no client becomes unusable although nobody
        fenced it.""",
    source="""Kafka documentation (consumer and producer configurations: session.timeout.ms,
        delivery.timeout.ms, reconnect.backoff.max.ms: clients recover by themselves); KIP-360 and
        KIP-588 (a producer recovers from errors that no other producer caused)""",
    wire="Nothing: a program's progress is that of its group's sampled offsets, or of its topics.",
    inputs={"batches", "records", "sends", "reads", "groups", "watermarks", "promotions"},
    anomalies=(
        AnomalyKind(
            name=STALLED,
            meaning="""A client, a group, a program or a mirror had work and made no progress for
                `progress_within`, although all faults had ended and the leaders of its partitions
                answered.""",
            sentence="""{client} made no progress on {cluster} for {seconds} s after all faults had
                ended; it waited for {waited_for}""",
            counted="""partition is not read any more or written|partitions are not read any more or
                written""",
            smallest="""All faults have ended, A has 1 2 and its group is at 1 for 60 s: at the
                offset of 2.""",
        ),
        AnomalyKind(
            name=UNUSABLE,
            meaning="""An operation of a producer ended with a fatal error, such as that it was
                fenced, although no other producer took its transactional id and its transaction had
                not timed out.""",
            sentence=("{client} became unusable on {cluster}: {error}, although nobody fenced it"),
            counted="producer became unusable|producers became unusable",
            smallest="""A commit of 1 returned _FENCED after a second, and nobody else has its
                transactional id: nowhere on A.""",
            despite_torn=True,
        ),
    ),
    complete={"sends", "reads", "groups", "promotions"},
    kernel=kernel,
    combine=combine,
    unit="clients",
    # Clients of dead clusters, and those without work, need not go on.
    due_at=nothing_due,
    when="clients that have work after the last fault",
)
