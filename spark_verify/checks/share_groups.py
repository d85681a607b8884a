"""share-groups: the promise of a share group (KIP-932): each committed record is delivered until it
is acknowledged, and not after that.

A broker confirms an acknowledgement only to the member that has acquired the record, while its
acquisition lock lasts, and confirms only one that ends a record (accept, reject). It counts the
deliveries of a record, and archives it after the last of `group.share.delivery.count.limit`. Every
record below the group's start offset is finished; this offset lags behind the last
acknowledgements, does not go back, and does not pass the end of the log. What the records are is
judged by the checks of all readers: `inconsistent-offset`, `read-committed-visibility`,
`aborted-read`, `uncommitted-read`.

KIP-932 promises no order. It promises no start offset on another cluster after a failover either: a
mirror may have copied the group's start offset (KIP-1279), which lags behind what the group had
finished on the source. So neither is judged.

A poll returns records that its member fetched earlier, even if the lock has expired since and
another member has acquired and accepted the record. The broker then refuses the first member's
acknowledgement. So a record that a poll returned after its end counts as delivered again in two
cases. Either the broker confirmed an acknowledgement of the later delivery too. Or the member
cannot have fetched the record before its end: the delivery count is higher than that of the
delivery that ended the record, or this member had ended the record itself, or this member had
meanwhile got a record of the partition that was sent later (a member fetches only once it has
handed over everything). Around a fault of the cluster a higher count proves nothing, because a new
leader counts anew. The other two prove nothing while a living broker may answer late: a fault
paused it or closed its connections, or it handed the partition over. A killed broker answers no
more. An unproven redelivery is reported with its time, and allowed (`unproven-redelivery`). One
member at a time holds a record. The broker delivers it to nobody, not even to its holder, until the
lock expires (share.record.lock.duration.ms of the group, which linkflap sets), or the holder
releases it, leaves, or is fenced. When a member renews its lock, its client hands the record over
once more (KIP-1222). Two deliveries violate this rule in three cases: the record was sent too
recently for a lock to have expired before the second delivery; one member got both with the same
delivery count, although each acquisition raises the count; or two members got them, the second with
the higher count, and the broker afterwards confirmed an acknowledgement of the first. A member that
has left acknowledges nothing and acquires nothing. Around a fault of the cluster a broker may have
taken the record back from a member that had lost its connection. A new leader epoch without a fault
counts as a fault.

KIP-932 does not promise exact delivery counts: a new leader forgets deliveries that were not
acknowledged, and a broker does not count a delivery that did not reach its member. So only two
counts are wrong: one above the limit, and one that did not rise after a confirmed release. A broker
confirms a release once its count is durable, and every later delivery counts on from there, on a
new leader too. Where an answer may be late, the delivery may precede the release, which leaves the
anomaly unproven. A killed member may have been given a record without recording it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain, combinations, groupby
from operator import attrgetter
from typing import Final

import numpy as np

from linkflap.harness.model.faults import KILL as MIRROR_KILL
from linkflap.harness.model.history import SHARE_LOCK_MS, SHARE_SAMPLER
from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.delivered_records import Delivered, columns_of, found
from linkflap.spark_verify.checks.log_model.generations import (
    every,
    examined,
    generations,
    log_of,
    marks_in,
    number_at,
    own,
)
from linkflap.spark_verify.checks.log_model.logs import Log, among, changes, distinct, locate, runs
from linkflap.spark_verify.checks.log_model.lost_records import Taken
from linkflap.spark_verify.checks.log_model.outcomes import planner
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.partition_facts import LogPromotion, Window
from linkflap.spark_verify.facts.sends_and_reads import Read, Sends
from linkflap.spark_verify.facts.view import Bools, Ints, Origin, PartitionView

AGAIN: Final = "delivered-again"
NEVER: Final = "never-delivered"
DROPPED: Final = "never-acknowledged"
UNACQUIRED: Final = "unacquired-acknowledgement"
COUNT: Final = "wrong-delivery-count"
START: Final = "wrong-start-offset"
UNPROVEN: Final = "unproven-redelivery"
ENDS: Final = ("accepted", "rejected")
CONFIRMED: Final = (*ENDS, "released", "renewed")
RELEASES: Final = ("release", "released")
RENEWS: Final = ("renew", "renewed")
OFTEN: Final = 3
"""A record with this many recorded deliveries may have been archived by its broker."""
LIMIT: Final = ("group.share.delivery.count.limit", "5")
"""The broker config of the maximum delivery count, and its default."""
LATE: Final = 5 * 10**9
"""Nanoseconds by which a loaded broker may notice an expired lock late."""
KILL: Final = "broker-kill"
KILLS: Final = (KILL, "broker-restart", "rolling-restart")
"""Faults after which no broker sends a late answer, because the broker has ended. A broker that
stops in an orderly way hands its partitions over while it still answers, and so does one that led
them until the preferred leader came back."""


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Follows every record that members of a group acquired on a cluster, and looks for records
    that no member acquired."""
    for generation in every(view):
        log = log_of(view, generation)
        for group, rows in _groups(view, generation).items():
            got = _of(rows, "acquire")
            yield from examined(generation, distinct(got.offset), whole=True)
            taken = Taken(view, generation.cluster)
            wrong = [
                *_again(view, generation, log, rows, got),
                *_unacquired(generation, rows, got),
                *_miscounted(view, generation, rows, got),
                *_starts(view, generation, log, group, rows),
            ]
            wrong = [_explained(taken, rows, each) for each in wrong]
            yield from own(view, generation, wrong, of_readers=True)
            if generation.last and not _earlier(view, generation, group):
                done = _done_with(view, generation, log, group, rows)
                yield from [_explained(taken, rows, each) for each in done]
    yield from _given_nothing(view)


def _given_nothing(view: PartitionView) -> Iterator[Unjudged]:
    """Share groups that were to read this partition, and have no row of it on any cluster."""
    seen = {(row.cluster, row.group) for row in view.shares}
    for client in view.partition_facts.facts.awaited:
        reads = client.kind == "share" and client.uses(view.topic, view.home)
        known = generations(view).get(client.cluster)
        if (
            reads
            and known
            and known[-1].lost is None
            and (client.cluster, client.group) not in seen
        ):
            log = log_of(view, known[-1])
            waiting = [] if log is None else log.records.offset[_of_clients(log)].tolist()
            yield from [_not_in_time(view, client.group, client.cluster, n) for n in waiting[:1]]


def _of_clients(log: Log) -> Bools:
    """Per record, whether a client sent it, and readers see it."""
    return np.asarray(log.visible & (log.records.uid >= 0))


def _not_in_time(view: PartitionView, group: str, cluster: str, first: int) -> Unjudged:
    where = f"{view.tp} of {cluster}"
    return Unjudged(f"share group {group} was not given all of {where} in time: first {first}")


def _explained(taken: Taken, rows: Sequence[Read], found: Finding) -> Finding:
    """The finding with the loss that explains it: the group had already read to the end of these
    offsets, then an election lost their records, and other records took the offsets."""
    if not taken or not isinstance(found, Found) or found.kind not in (AGAIN, NEVER, START):
        return found
    count = found.evidence.get("records", 1)
    last = found.offset + (count if isinstance(count, int) else 1) - 1
    edge = last - 1 if found.kind == START else last
    ends = np.array([found.offset - (found.kind == START), edge], np.int64)
    when = found.evidence.get("returned", FOREVER)
    by = taken.passed(ends, rows, at=when if isinstance(when, int) else FOREVER)
    return replace(found, evidence={**found.evidence, **taken.evidence(int(by.min()))})


def _groups(view: PartitionView, generation: LogGeneration) -> Mapping[str, Sequence[Read]]:
    """The rows of share-group members in a log generation, by group."""
    known = generations(view)[generation.cluster]

    def of_it(row: Read) -> bool:
        times = {number_at(known, row.time), number_at(known, row.returned)}
        return row.cluster == generation.cluster and times == {generation.number}

    theirs = sorted(filter(of_it, view.shares), key=attrgetter("group"))
    return {group: list(rows) for group, rows in groupby(theirs, attrgetter("group"))}


def _earlier(view: PartitionView, generation: LogGeneration, group: str) -> bool:
    """Whether a group read this log before its truncation: then its start offset may count records
    that the truncation removed."""
    return any(
        (r.cluster, r.group) == (generation.cluster, group) and r.time < generation.began
        for r in view.shares
    )


def _before_truncation(view: PartitionView, generation: LogGeneration, group: str) -> int:
    """Up to where a group may have read this log before its truncation; 0: it did not."""
    mine = [
        r
        for r in view.shares
        if (r.cluster, r.group) == (generation.cluster, group) and r.time < generation.began
    ]
    got = columns_of([r for r in mine if r.kind != "settled"]).offset
    return max(int(got.max(initial=-1)) + 1, *(r.position for r in mine if r.kind == "settled"), 0)


def _of(rows: Sequence[Read], *kinds: str) -> Delivered:
    return columns_of([row for row in rows if row.kind in kinds])


def _first(offsets: Ints, column: Delivered, times: Ints) -> Ints:
    """Per offset, the first row of `column` that has it, by `times`; -1 where none has."""
    order = np.lexsort((times, column.offset))
    at = locate(column.offset[order], offsets)
    return np.where(at >= 0, order[at], -1) if len(order) else at


def _passed(offsets: Ints, rows: Sequence[Read]) -> Ints:
    """Per offset, when a member first reported a start offset above it; FOREVER where none did."""
    starts = sorted((r for r in rows if r.kind == "settled"), key=attrgetter("returned"))
    reached = np.maximum.accumulate(np.array([r.position for r in starts], np.int64))
    at = np.searchsorted(reached, offsets, side="right")
    return np.array([*(r.returned for r in starts), FOREVER], np.int64)[at]


def _again(
    view: PartitionView,
    generation: LogGeneration,
    log: Log | None,
    rows: Sequence[Read],
    got: Delivered,
) -> Sequence[Finding]:
    """Records that were delivered, or whose acknowledgement was confirmed, after their end."""
    ends, answers = _of(rows, *ENDS), _of(rows, *CONFIRMED)
    if not len(got) and not len(answers):
        return []
    first = _first(answers.offset, ends, ends.returned)
    over = _second(answers)
    if len(ends):
        member = _members([*ends.reads, *answers.reads])
        same = member[ends.read[first]] == member[len(ends.reads) + answers.read]
        # A member that asked to end a record holds it no more, whatever the member asks afterwards.
        own = same & ~_ending(answers)
        since = np.where(own, ends.asked[first] - 1, ends.returned[first])
        over |= (first >= 0) & (answers.asked > since)
    finished, finisher = _finished(log, rows, ends, got)
    late = (got.asked > finished) & ~among(got.offset, answers.offset[over])
    own = np.zeros(len(got), np.bool_)
    if len(ends):
        member = _members([*ends.reads, *got.reads])
        own = finisher >= 0
        own &= member[ends.read[finisher]] == member[len(ends.reads) + got.read]
    fresh, unproven = _fresh(view, generation.cluster, got, late, finished, own)
    bad = _held(got, late, answers) | fresh

    named = np.concatenate((answers.offset[over], got.offset[bad]))
    twice = _twice(got) & ~among(got.offset, named)
    named = np.concatenate((named, got.offset[twice]))
    holder = _holders(view, generation.cluster, rows, got)
    held = (holder >= 0) & ~among(got.offset, named)
    unproven &= ~among(got.offset, np.concatenate((named, got.offset[held])))

    def ender(end: int) -> str:
        by = ends.reads[int(ends.read[end])].reader if end >= 0 else "the start offset"
        return f"{by} had ended them"

    return [
        *found(generation.cluster, answers, over, AGAIN, lambda row: ender(int(first[row]))),
        *found(generation.cluster, got, bad, AGAIN, lambda row: ender(int(finisher[row]))),
        *found(generation.cluster, got, twice, AGAIN, lambda _: "the same poll had them before"),
        *found(
            generation.cluster,
            got,
            held,
            AGAIN,
            lambda row: f"{got.reads[int(got.read[int(holder[row])])].reader} still held them",
        ),
        *found(
            generation.cluster,
            got,
            unproven,
            UNPROVEN,
            lambda row: f"{ender(int(finisher[row]))}; {_disturbed(view, generation, got, row)}",
        ),
    ]


def _holders(view: PartitionView, cluster: str, rows: Sequence[Read], got: Delivered) -> Ints:
    """Per delivery, an earlier one of the same record to a member that still held it; -1 where
    there is none."""
    holder = np.full(len(got), -1, np.int64)
    order = np.lexsort((got.returned, got.offset))
    same_record = np.split(order, np.flatnonzero(changes(got.offset[order]))[1:])
    suspects = {int(got.offset[n[0]]): n for n in same_record if len(n) > 1}
    if not suspects:
        return holder
    sender, invoked = planner(got.uid, view.sends), Sends.of(view.sends).column("invoked")
    # If the sender of a record is unknown, any lock may have expired.
    sent = np.where(sender >= 0, np.append(invoked, 0)[sender], -FOREVER)
    seen, theirs = _by_member_and_offset(suspects.keys(), rows)
    pairs = (combinations(deliveries.tolist(), 2) for deliveries in suspects.values())
    for first, later in chain.from_iterable(pairs):
        one, other = got.reads[int(got.read[first])], got.reads[int(got.read[later])]
        one_poll = got.read[first] == got.read[later]
        if one_poll or not _calm(view, cluster, min(one.time, other.time), other.returned):
            continue
        mine = _since(theirs[int(got.offset[first])], one)
        lasts = min(sent[first], sent[later]) + _lock(one) > other.returned
        alive = seen[one.reader, one.process] >= other.returned
        same = _same(one, other)
        lasts |= same and one.position == other.position > 0
        held = lasts and alive
        held &= not _asked(mine, (*RELEASES, *RENEWS) if same else RELEASES, other.returned)
        if held or (not same and _confirmed_later(one, other, mine)):
            holder[later] = first
    return holder


def _lock(*deliveries: Read) -> int:
    """The longest lock of some deliveries, in nanoseconds: where none is on record, that of
    linkflap's own groups."""
    return 10**6 * max((row.lock_ms or SHARE_LOCK_MS for row in deliveries), default=SHARE_LOCK_MS)


def _by_member_and_offset(
    offsets: AbstractSet[int], rows: Sequence[Read]
) -> tuple[Mapping[tuple[str, int], int], Mapping[int, Sequence[Read]]]:
    """When each member was last seen, and the rows that have each offset."""
    seen: dict[tuple[str, int], int] = {}
    theirs: dict[int, list[Read]] = defaultdict(list)
    for row in rows:
        seen[row.reader, row.process] = max(row.time, seen.get((row.reader, row.process), 0))
        for offset in offsets & set(row.offsets.tolist()):
            theirs[offset].append(row)
    return seen, theirs


def _same(one: Read, other: Read) -> bool:
    """Whether two rows are of one member: one incarnation of one client."""
    return (one.reader, one.process) == (other.reader, other.process)


def _since(rows: Sequence[Read], one: Read) -> Sequence[Read]:
    """The rows of a member since one of its deliveries."""
    return [row for row in rows if _same(row, one) and row.time >= one.returned]


def _asked(mine: Sequence[Read], kinds: Collection[str], until: int) -> bool:
    """Whether a member had asked for one of these by then."""
    return any(row.kind in kinds and row.time <= until for row in mine)


def _confirmed_later(one: Read, other: Read, mine: Sequence[Read]) -> bool:
    """Whether a member still held a record after another, later delivery of it, because a broker
    confirmed the member's acknowledgement afterwards. `mine` are the member's rows for the record
    since its own delivery.

    Only a higher delivery count proves that the other delivery was later: a broker lowers the count
    of a record that it takes back, so with a lower count the other member may have had the record
    first.
    """
    if other.time < one.returned or other.position <= one.position:
        return False
    until = min(
        (r.time for r in mine if r.kind in CONFIRMED and r.time >= other.returned), default=-1
    )
    again = any(r.kind == "acquire" and r.returned <= until for r in mine)
    return until >= 0 and not again and not _asked(mine, RELEASES, until - 1)


def _twice(got: Delivered) -> Bools:
    """Deliveries of records that the same poll had delivered already."""
    order = np.lexsort((got.offset, got.read))
    twice = np.zeros(len(got), np.bool_)
    twice[order[1:]] = (np.diff(got.offset[order]) == 0) & (np.diff(got.read[order]) == 0)
    return twice


def _second(answers: Delivered) -> Bools:
    """Per confirmed acknowledgement, whether it ended a record that another one had ended."""
    rows = np.flatnonzero(_ending(answers))
    order = rows[np.lexsort((answers.returned[rows], answers.offset[rows]))]
    again = np.zeros(len(answers), np.bool_)
    again[order[1:]] = answers.offset[order[1:]] == answers.offset[order[:-1]]
    return again


def _ending(answers: Delivered) -> Bools:
    """Per confirmed acknowledgement, whether it ends the record."""
    return np.array([read.kind in ENDS for read in answers.reads], np.bool_)[answers.read]


def _finished(
    log: Log | None, rows: Sequence[Read], ends: Delivered, got: Delivered
) -> tuple[Ints, Ints]:
    """Per delivered record, when it was finished (FOREVER: never), and the row of `ends` that
    finished it (-1: the group's start offset had passed it).

    When the log start rises, the group's start offset follows it. That finishes the deleted
    records, but proves nothing about them.
    """
    first = _first(got.offset, ends, ends.returned)
    same = first >= 0
    same[same] = ends.uid[first[same]] == got.uid[same]
    ended = np.full(len(got), FOREVER, np.int64)
    ended[same] = ends.returned[first[same]]
    kept = got.offset >= (FOREVER if log is None else log.replica.log_start)
    passed = np.where(kept, _passed(got.offset, rows), FOREVER)
    return np.minimum(ended, passed), np.where(same & (ended <= passed), first, -1)


def _held(got: Delivered, late: Bools, answered: Delivered) -> Bools:
    """The late deliveries whose acknowledgement the broker confirmed."""
    wanted = np.flatnonzero(among(answered.offset, distinct(got.offset[late])))
    held = np.zeros(len(got), np.bool_)
    confirmed: dict[tuple[int, str, int], int] = {}
    for row in wanted.tolist():
        read = answered.reads[int(answered.read[row])]
        key = int(answered.offset[row]), read.reader, read.process
        confirmed[key] = max(confirmed.get(key, 0), read.time)
    for row in np.flatnonzero(late).tolist():
        read = got.reads[int(got.read[row])]
        held[row] = (
            confirmed.get((int(got.offset[row]), read.reader, read.process), -1) >= read.returned
        )
    return held


def _fresh(
    view: PartitionView, cluster: str, got: Delivered, late: Bools, finished: Ints, own: Bools
) -> tuple[Bools, Bools]:
    """Two columns about the late deliveries: those that the member cannot have fetched before the
    record was finished, and those that it can have fetched by then only because of a fault. `own`:
    the member had ended the record itself."""
    fresh, unproven = np.zeros(len(got), np.bool_), np.zeros(len(got), np.bool_)
    if not late.any():
        return fresh, unproven
    sends = Sends.of(view.sends)
    sender = planner(got.uid, view.sends)
    sent = np.where(sender >= 0, sends.column("invoked")[sender], 0) if len(sends) else sender
    began = got.asked
    member = _members(got.reads)[got.read]
    counts = got.each(lambda read: read.position)
    for row in np.flatnonzero(late).tolist():
        before = (got.offset == got.offset[row]) & (got.returned <= finished[row])
        if not before.any():
            continue
        since, until = int(got.returned[before].max()), int(got.returned[row])
        newer = (member == member[row]) & (got.returned <= began[row]) & (sent > since)
        in_order = own[row] or newer.any()
        higher = counts[row] > counts[before].max()
        fresh[row] = (in_order and _prompt(view, cluster, since, until)) or (
            higher and _calm(view, cluster, since, until)
        )
        unproven[row] = (in_order or higher) and not fresh[row]
    return fresh, unproven


def _disturbed(view: PartitionView, generation: LogGeneration, got: Delivered, row: int) -> str:
    """The faults, or else the new leader, that may have delayed a delivery since the record was
    first delivered."""
    first, end = got.returned[got.offset == got.offset[row]].min(), got.returned[row]
    faults = _faults(view, generation.cluster, int(first), int(end))
    return ", ".join(f"{w.fault} ({w.id})" for w in faults) or "the partition got a new leader"


def _members(reads: Sequence[Read]) -> Ints:
    """Per row a number of its member: one incarnation of one client."""
    numbers: dict[tuple[str, int], int] = {}
    return np.array(
        [numbers.setdefault((r.reader, r.process), len(numbers)) for r in reads], np.int64
    )


def _faults(view: PartitionView, cluster: str, start: int, end: int) -> Sequence[Window]:
    """The faults that touched the cluster between two times, or shortly before. Left out are faults
    that do not touch the members' connections: of a link to another cluster, of topics only, and
    the end of a mirror that reads the cluster."""
    return [
        w
        for w in view.windows
        if not (w.name.of_link and w.on.link)
        and not (w.name.of_topics or (w.fault == MIRROR_KILL and w.on.source == cluster))
        and cluster in (w.on.source, w.on.destination)
        and w.start <= end
        and w.end >= start - SHARE_LOCK_MS * 10**6
    ]


def _calm(view: PartitionView, cluster: str, start: int, end: int) -> bool:
    """Whether no fault touched the cluster between two times or shortly before, and the partition
    kept its leader as far as the samples show."""
    since = start - SHARE_LOCK_MS * 10**6
    return not _faults(view, cluster, start, end) and not _led_anew(view, cluster, since, end)


def _prompt(view: PartitionView, cluster: str, start: int, end: int) -> bool:
    """Whether no broker's answer was late: nothing happened to the cluster, or the affected brokers
    were killed and answer no more. A member asks the next leader only once it has handed over the
    previous leader's records. The answer of a previous leader that still lives may arrive after
    that of the next leader, so at most one new leader, the one after a kill, is accepted."""
    faults = {each.fault for each in _faults(view, cluster, start, end)}
    if not faults or not faults <= {*KILLS}:
        return _calm(view, cluster, start, end)
    return _led_anew(view, cluster, start - SHARE_LOCK_MS * 10**6, end) <= (faults == {KILL})


def _led_anew(view: PartitionView, cluster: str, start: int, end: int) -> int:
    """How many leader epochs may have begun between two times, by the samples around it."""
    marks = view.watermarks.get(cluster)
    if marks is None:
        return 0
    known = np.flatnonzero(marks.leader_epoch >= 0)
    before, after = known[:-1], known[1:]
    begun = np.abs(marks.leader_epoch[after] - marks.leader_epoch[before])
    meanwhile = (marks.time[before] <= end) & (marks.returned[after] >= start)
    return int(begun[meanwhile].sum())


def _unacquired(
    generation: LogGeneration, rows: Sequence[Read], got: Delivered
) -> Sequence[Finding]:
    """Confirmed acknowledgements by a member that had not acquired the record, or no longer held
    it."""
    answers = _of(rows, *CONFIRMED)
    if not len(answers):
        return []
    had = _acquired_at(got, _of(rows, "renewed"), answers)
    expired = answers.asked > had + _lock(*got.reads) + LATE
    return found(
        generation.cluster,
        answers,
        (had < 0) | expired,
        UNACQUIRED,
        lambda row: "its lock had expired" if had[row] >= 0 else "it had not acquired them",
    )


def _acquired_at(got: Delivered, renewed: Delivered, answers: Delivered) -> Ints:
    """Per confirmed acknowledgement, the last time before the request at which its member acquired
    the record or renewed its lock; -1 if the member never did, or released the record
    afterwards."""
    member = _members([*got.reads, *renewed.reads, *answers.reads])
    edges = np.cumsum([0, len(got.reads), len(renewed.reads)])
    of_answers = member[answers.read + edges[2]]
    gave_back = np.array([read.kind != "renewed" for read in answers.reads], np.bool_)
    back = np.flatnonzero(gave_back[answers.read])
    # At equal times the order is: acquired, acknowledges, released.
    given, asks, returns = range(3)
    step = np.repeat(
        [given, given, asks, returns], [len(got), len(renewed), len(answers), len(back)]
    )
    asked = answers.asked
    times = np.concatenate([got.returned, renewed.returned, asked, asked[back]])
    offset = np.concatenate([got.offset, renewed.offset, answers.offset, answers.offset[back]])
    members = np.concatenate(
        [member[got.read], member[renewed.read + edges[1]], of_answers, of_answers[back]]
    )
    order = np.lexsort((step, times, members, offset))
    index = np.arange(len(order))
    new = np.concatenate(([True], (np.diff(offset[order]) != 0) | (np.diff(members[order]) != 0)))
    last = np.maximum.accumulate(np.where(new | (step[order] != asks), index, -1))
    found_at = np.empty(len(order), np.int64)
    found_at[order] = np.where(step[order[last]] == given, times[order[last]], -1)
    return np.asarray(found_at[step == asks])


def _miscounted(
    view: PartitionView, generation: LogGeneration, rows: Sequence[Read], got: Delivered
) -> Sequence[Finding]:
    """Deliveries that their broker counted wrongly."""
    config = view.topology.cluster(generation.cluster).config
    limit = int(config.get(*LIMIT))
    counts = got.each(lambda read: read.position)
    beyond = (counts == 0) | (counts < -1) | (counts > limit)
    same, unproven = _not_risen(view, generation.cluster, rows, got, counts)
    return [
        *found(
            generation.cluster,
            got,
            beyond | same,
            COUNT,
            lambda row: (
                f"{counts[row]} times, and {limit} is the limit"
                if beyond[row]
                else f"{counts[row]} times, as before it was released"
            ),
        ),
        *found(
            generation.cluster,
            got,
            unproven & ~beyond,
            UNPROVEN,
            lambda row: (
                f"their delivery count is {counts[row]}, as before a release; "
                f"{_disturbed(view, generation, got, row)}"
            ),
        ),
    ]


def _not_risen(
    view: PartitionView, cluster: str, rows: Sequence[Read], got: Delivered, counts: Ints
) -> tuple[Bools, Bools]:
    """Deliveries after a confirmed release whose delivery count did not rise above the count before
    it, in two columns: the proven ones, and those that a fault may have delayed from before the
    release."""
    released = _of(rows, "released")
    member, began = _members(got.reads)[got.read], got.asked
    order = np.lexsort((got.returned, member, got.offset))
    before, after = order[:-1], order[1:]
    suspects = np.flatnonzero(
        (got.offset[before] == got.offset[after])
        & (member[before] == member[after])
        & (counts[after] <= counts[before])
    )
    bad, unproven = np.zeros(len(got), np.bool_), np.zeros(len(got), np.bool_)
    for earlier, later in zip(before[suspects].tolist(), after[suspects].tolist(), strict=True):
        mine = got.reads[int(got.read[later])]
        between = (
            (released.offset == got.offset[later])
            & (released.asked >= got.returned[earlier])
            & (released.returned <= began[later])
        )
        if any(_same(released.reads[n], mine) for n in released.read[between].tolist()):
            prompt = _prompt(view, cluster, int(got.returned[earlier]), int(got.returned[later]))
            (bad if prompt else unproven)[later] = True
    return bad, unproven


def _starts(
    view: PartitionView,
    generation: LogGeneration,
    log: Log | None,
    group: str,
    rows: Sequence[Read],
) -> Iterator[Finding]:
    """Start offsets that are above the end of the log, that are above a later sampled high
    watermark, or that went back. A truncation of the log does not take back the start offset from
    before it."""
    reported = sorted((r for r in rows if r.kind == "settled"), key=attrgetter("returned"))
    whole = FOREVER if log is None or not log.whole else log.replica.end
    before = _before_truncation(view, generation, group)
    for number, row in enumerate(reported):
        end = max(before, min(whole, _high_watermark(view, generation, row)))
        earlier = [r for r in reported[:number] if r.returned < row.time]
        highest = max(earlier, key=attrgetter("position"), default=row)
        why = (
            f"the log ended at {end}"
            if row.position > end
            else f"it had been {highest.position}"
            if row.position < highest.position and _stays(view, row, highest, reported[number:])
            else ""
        )
        if why:
            yield Found.at(
                START, generation.cluster, row.position, group=group, reader=row.reader, witness=why
            )


def _high_watermark(view: PartitionView, generation: LogGeneration, row: Read) -> int:
    """An upper bound of the high watermark at the time when a start offset was answered: the next
    sample, if no fault came between them; else FOREVER."""
    marks = marks_in(view, generation)
    if marks is None:
        return FOREVER
    later = np.flatnonzero((marks.time >= row.returned) & (marks.high_watermark >= 0))[:1].tolist()
    calm = later and _calm(view, row.cluster, row.time, int(marks.returned[later[0]]))
    return int(marks.high_watermark[later[0]]) if calm else FOREVER


def _stays(view: PartitionView, row: Read, highest: Read, later: Sequence[Read]) -> bool:
    """Whether a start offset that went back is a real anomaly. A coordinator that was disconnected
    or paused may still answer with its old state."""
    return _calm(view, row.cluster, highest.time, row.returned) or all(
        r.position < highest.position for r in later
    )


def _done_with(
    view: PartitionView,
    generation: LogGeneration,
    log: Log | None,
    group: str,
    rows: Sequence[Read],
) -> Sequence[Finding]:
    """Records below the group's start offset that no member ever acquired, or that no member asked
    to accept or reject."""
    if _last_cluster(view, group) != generation.cluster:
        return []
    ends = [row.position for row in rows if row.kind == "settled"]
    of_programs = any(row.lock_ms or row.reader == SHARE_SAMPLER for row in rows)
    if log is None or not ends:
        said = f"no member of share group {group} reported how far it is done with {view.tp}"
        return [] if of_programs else [Unjudged(said)]
    visible = np.flatnonzero(log.visible)
    offsets, uids = log.replica.records.offset[visible], log.replica.records.uid[visible]
    done = offsets < max(ends)
    given = _of(rows, "acquire").offset
    if of_programs:
        done &= offsets >= _noted_from(rows)
        return _passed_over(_missed_by(generation, rows, offsets[done], uids[done]))
    before = _done_before(view, generation, rows, offsets, uids)
    missed = _missed_by(generation, rows, offsets[done & ~before], uids[done & ~before])
    # On a cluster that was given up, no run waits until the group has read the rest.
    later = offsets[~done] if generation.lost is None else offsets[:0]
    waiting = later[~among(later, distinct(given))].tolist()
    return [*missed, *(_not_in_time(view, group, generation.cluster, n) for n in waiting[:1])]


def _passed_over(missed: Sequence[Found]) -> Sequence[Found]:
    """What a group of programs missed: it chooses where it begins and after how many deliveries a
    record is dropped, and nobody asks it to read to the end."""
    return [found for found in missed if found.kind == NEVER]


def _noted_from(rows: Sequence[Read]) -> int:
    """The first offset that a group of programs was surely to get: none below the first given one,
    and none below the first sampled start offset. Until a coordinator has noted one, each new
    leader chooses anew where the group begins (share.auto.offset.reset)."""
    starts = sorted((r for r in rows if r.kind == "settled"), key=attrgetter("returned"))
    given = int(_of(rows, "acquire").offset.min(initial=FOREVER))
    return max(given, *(r.position for r in starts[:1]))


def _last_cluster(view: PartitionView, group: str) -> str:
    """Where a group's members last were; linkflap samples its start offset everywhere."""
    rows = [row for row in view.shares if row.group == group]
    of_members = [row for row in rows if row.reader != SHARE_SAMPLER]
    return max(of_members or rows, key=attrgetter("returned")).cluster


def _done_before(
    view: PartitionView,
    generation: LogGeneration,
    rows: Sequence[Read],
    offsets: Ints,
    uids: Ints,
) -> Bools:
    """Per record, whether the group had finished it on another cluster, and began here above it
    after a failover, as far as the rows show."""
    first = int(_of(rows, "acquire").offset.min(initial=FOREVER))
    elsewhere = [
        row
        for row in view.shares
        if row.cluster != generation.cluster
        and row.group == rows[0].group
        and (row.kind in (*ENDS, "accept", "reject") or _given_often(row))
    ]
    return np.asarray((offsets < first) & (uids >= 0) & among(uids, columns_of(elsewhere).uid))


def _given_often(row: Read) -> bool:
    return row.kind == "acquire" and row.position >= OFTEN


def _missed_by(
    generation: LogGeneration, rows: Sequence[Read], offsets: Ints, uids: Ints
) -> list[Found]:
    """Two columns about finished records: those that no member had acquired when the group's start
    offset was first seen above them, and those that no member had asked to end by then."""
    passed = _passed(offsets, rows)
    got = _begun(offsets, _of(rows, "acquire")) <= passed
    asked = _begun(offsets, _of(rows, "accept", "reject", *ENDS)) <= passed
    many = columns_of(list(filter(_given_often, rows)))
    often = among(offsets, distinct(many.offset))
    kinds = ((NEVER, ~got), (DROPPED, got & ~asked & ~often))
    return [
        Found.at(
            kind, generation.cluster, offsets[bad][start], records=end - start, uid=uids[bad][start]
        )
        for kind, bad in kinds
        for start, end in runs(offsets[bad], uids[bad])
    ]


def _begun(offsets: Ints, column: Delivered) -> Ints:
    """Per offset, when the first row that has it began; FOREVER where none has."""
    times = column.asked
    first = _first(offsets, column, times)
    return np.array([*times, FOREVER], np.int64)[first]  # the last one where there is none


def _due_at(
    scenario: Scenario, promotions: Sequence[LogPromotion]
) -> Collection[tuple[str, Origin]]:
    """Where share groups begin."""
    del promotions
    due: set[tuple[str, Origin]] = set()
    for workload in scenario.workloads:
        if workload.record and workload.options.get("share_group"):
            due.add((workload.home, "native"))
        if workload.kind == "share-group":
            cluster = str(workload.options.get("cluster", workload.home))
            due.add((cluster, "native" if cluster == workload.home else "mirrored"))
    return due


CHECK = Check(
    name="share-groups",
    guarantee="""A share group is given each committed record until a member accepts or rejects it,
        and not after that was confirmed, which only the member that has acquired it can have. Its
        start offset does not go back, and delivery counts stay within their limit.""",
    source="""KIP-932 (share groups: acquisition, acknowledgement, delivery count, share-partition
        start offset); KIP-1222 (renewal)""",
    wire="""What brokers gave the members of the program's `share_group`, and which
        acknowledgements they confirmed, and the start offsets that linkflap samples: they do not
        go back, and pass no record behind the first given one and the first sampled start offset
        that was not given too. Where the group begins is its own choice, nobody asks it to read
        to the end, and after how many deliveries a record is dropped is not known; nor is that
        aborted records were filtered.""",
    inputs={"batches", "records", "sends", "reads", "watermarks", "promotions"},
    anomalies=(
        AnomalyKind(
            name=AGAIN,
            meaning="""A record was delivered to a share group by a poll that began after the broker
                had confirmed that it was accepted or rejected, or after the group's start offset
                had passed it, and the member cannot have fetched it before; or while a member held
                it; or a second acknowledgement was confirmed; or one poll returned it
                twice.""",
            sentence="""{reader} got {who} of {cluster} at {at} again, or acknowledged them again,
                although {witness}""",
            counted="""acknowledged record was delivered again|acknowledged records were delivered
                again""",
            smallest="""1 is accepted and confirmed; then a member acquires 1, and that is confirmed
                too: at the offset of 1.""",
        ),
        AnomalyKind(
            name=NEVER,
            meaning="""A committed record lies below the start offset of a share group, and no
                member had been given it when a member first reported that.""",
            sentence="""a share group on {cluster} is done with {who} at {at}, and no member was
                given them""",
            counted="""committed record was never given to a share group|committed records were
                never given to a share group""",
            smallest="""1 is committed at 0, the group's start offset is 1, nobody acquired 1: at
                the offset of 1.""",
        ),
        AnomalyKind(
            name=DROPPED,
            meaning="""A committed record lies below the start offset of a share group. It was given
                to members fewer than three times, and none of them had asked to accept or reject it
                when a member first reported that.""",
            sentence="""a share group on {cluster} is done with {who} at {at}, which no member
                accepted or rejected""",
            counted="""record was dropped by a share group unacknowledged|records were dropped by a
                share group unacknowledged""",
            smallest="""1 was acquired once and only released, and the group's start offset is 1: at
                the offset of 1.""",
        ),
        AnomalyKind(
            name=UNACQUIRED,
            meaning="""The broker confirmed an acknowledgement of a record to a member that had not
                been given it, had given it back, or whose acquisition lock had expired.""",
            sentence="""{reader} had an acknowledgement of {who} of {cluster} at {at} confirmed,
                although {witness}""",
            counted="""acknowledgement of a record that was not acquired was
                confirmed|acknowledgements of records that were not acquired were confirmed""",
            smallest="""1 is delivered to one member, and the acceptance by another one is
                confirmed: at the offset of 1.""",
        ),
        AnomalyKind(
            name=COUNT,
            meaning="""A delivery of a record has a delivery count above the limit of its brokers
                (group.share.delivery.count.limit), or one that did not rise after the member's
                release was confirmed.""",
            sentence="{cluster} answered {reader} that {who} at {at} had been delivered {witness}",
            counted="""delivery of a share group was counted wrongly|deliveries of a share group
                were counted wrongly""",
            smallest="1 is delivered with the delivery count 6: at the offset of 1.",
        ),
        AnomalyKind(
            name=START,
            meaning="""The start offset of a share group is above the end of the log, or above the
                high watermark of the next sample, or went back.""",
            sentence="""share group {group} on {cluster} has the start offset {offset} in {tp}, but
                {witness}""",
            counted="""start offset of a share group is wrong|start offsets of share groups are
                wrong""",
            smallest="The log ends at 2, and the group's start offset is 3: at offset 3.",
        ),
        AnomalyKind(
            name=UNPROVEN,
            meaning="""A record was delivered again after its end, or with a count that had not
                risen after a confirmed release, within 15 s of a fault that delays answers, or that
                makes a new leader count anew: a broker may have delivered it before. That is always
                allowed.""",
            sentence="""{reader} got {who} of {cluster} at {at} again around a fault, and it is not
                proven that a broker delivered them again: {witness}""",
            counted="""delivery of a share group around a fault may have been late|deliveries of
                share groups around a fault may have been late""",
            smallest="""Around broker-pause, 1 is accepted and confirmed; then a member acquires 1
                with a higher delivery count: at the offset of 1.""",
            noted=True,
        ),
    ),
    complete={"promotions", "reads"},
    follows={
        "order-equality",
        "marker-pairing",
        "commit-aborted",
        "provenance",
        "inconsistent-offset",
        "read-committed-visibility",
    },
    kernel=kernel,
    due_at=_due_at,
    when="those where a workload's share group begins",
)
