"""The records that a lossy fault removed from a cluster and from the clusters that mirror it.

An unclean election loses the part of the deposed leader's log that the elected replica lacks
(KIP-101). The fault's bite lists that part exactly (`facts.partition_facts.Loss`), so its
consequences are known:

- records of the list, sent before the election, are absent;
- a transaction whose marker is on the list has earlier records without a marker, or with a later
  one: aborted records, which readers passed, may so become visible;
- readers that had passed the elected replica's end before the election do not get what the new
  leader writes below their position.

The cluster shows the lost records until the election. A mirror that had copied them shows them
until a reader there gets the records that replaced them.

A run of an older version has no list. There the records are those that the deposed leader
acknowledged, or that its readers got, before the fault was measured: one at each offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

import numpy as np

from linkflap.harness.model.payload import FOREIGN
from linkflap.spark_verify.checks.log_model.generations import (
    before_truncation,
    generations,
    log_of,
    number_at,
    replica_of,
    sends_to,
)
from linkflap.spark_verify.checks.log_model.logs import (
    Log,
    among,
    copies,
    each_at,
    locate,
    read,
    together,
)
from linkflap.spark_verify.checks.log_model.outcomes import uids_of
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration, history
from linkflap.spark_verify.facts.partition_facts import Loss
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView

Truncations = Sequence[tuple[int, int]]
"""(time, offset) of each truncation inside a log generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Offsets [start, end) that one consumer passed. `first` is the row with its start, `last` the
    row with its end. `got` are the offsets of all records that it got meanwhile, in any order, and
    of those that it may have got before."""

    start: int
    end: int
    first: Read
    last: Read
    got: Ints


@dataclass(slots=True, kw_only=True)
class _Going:
    """A consumer that nothing has moved so far. `reached` is its reported position, `end` that
    position without the truncated part."""

    first: Read
    start: int
    limit: int
    reached: int = -1
    end: int = -1
    last: Read | None = None
    got: list[Ints] = field(default_factory=list)

    def reach(self, row: Read, position: int) -> None:
        if position > self.reached:
            self.reached, self.end, self.last = position, min(position, self.limit), row

    def passed(self) -> Iterator[Passed]:
        if self.last is not None and 0 <= self.start < self.end:
            got = together(self.got)
            yield Passed(start=self.start, end=self.end, first=self.first, last=self.last, got=got)


def passed(
    rows: Sequence[Read], truncations: Truncations, before: Sequence[Read] = ()
) -> Iterator[Passed]:
    """The records that one consumer passed; its rows are of one log generation, in the order of
    their return.

    `before`: the consumer's rows in earlier generations since it was last moved, below the
    truncation.
    """
    going = _stood(before, kept_until(rows[0], truncations) if rows else FOREVER)
    moved = -1
    for row in rows:
        limit = kept_until(row, truncations)
        if going is not None and limit != going.limit:
            if going.reached > going.limit:
                # The consumer stood beyond where the log was truncated since then.
                yield from going.passed()
                going = None
            else:
                going.limit = limit
        if row.kind in ("assign", "revoke"):
            if going is not None:
                if row.kind == "revoke":
                    going.reach(row, row.position)
                yield from going.passed()
            going = (
                _Going(first=row, start=row.position, limit=limit) if row.kind == "assign" else None
            )
            moved = row.returned
        else:
            going = _went_on(going, row, limit, served=row.time <= moved)
    if going is not None:
        yield from going.passed()


def _stood(before: Sequence[Read], limit: int) -> _Going | None:
    """A consumer that was not moved keeps its position, also across generations."""
    at = max((position_of(row) for row in before), default=-1)
    if at < 0:
        return None
    return _Going(first=before[-1], start=at, limit=limit)


def _earlier(view: PartitionView, cluster: str, first: Read) -> Sequence[Read]:
    """The earlier rows of the same consumer on the cluster, in order, including the first part of a
    split poll."""
    mine = [
        r
        for r in view.reads
        if (r.reader, r.process, r.cluster) == (first.reader, first.process, cluster)
    ]
    parts = [
        part
        for r in mine
        if r.kind == "poll" and r.returned == first.returned
        for part in _before(r, first)
    ]
    return [
        *sorted((r for r in mine if r.returned < first.returned), key=attrgetter("returned")),
        *parts,
    ]


def rows_before(
    view: PartitionView, generation: LogGeneration, rows: Sequence[Read]
) -> Sequence[Read]:
    """The rows of one consumer on its cluster since it was last moved, before its first row of this
    generation.

    A poll that is split between two generations contributes its first part. Empty if the consumer
    had passed the truncation: its polls then show what it skipped (`skipped-by-truncation`).
    """
    if not generation.earlier or not rows:
        return ()
    mine = _earlier(view, generation.cluster, rows[0])
    since = max((at for at, row in enumerate(mine) if row.kind in ("assign", "revoke")), default=0)
    stood = [row for row in mine[since:] if row.kind in ("assign", "poll", "drained")]
    revoked = bool(mine) and mine[since].kind == "revoke"
    return (
        () if revoked or any(position_of(row) > min(generation.earlier) for row in stood) else stood
    )


def _before(poll: Read, part: Read) -> Iterator[Read]:
    """The part of a split poll in the previous generation; `part` is its part in this one."""
    count = len(poll.offsets) - len(part.offsets)
    if part.kind == "poll" and count > 0:
        offsets = poll.offsets[:count]
        yield replace(poll, offsets=offsets, uids=poll.uids[:count], position=int(offsets[-1]) + 1)


def _went_on(going: _Going | None, row: Read, limit: int, *, served: bool) -> _Going | None:
    """After a poll, or a consumer's word that it is drained; `served`: a rebalance came inside of
    this poll."""
    if row.kind == "poll" and not served and (going is None or going.start < 0):
        if len(row.offsets):
            going = _Going(first=row, start=int(row.offsets[0]), limit=limit)
        elif going is not None:  # the consumer was moved, and continues at its fetch position
            going = _Going(first=row, start=row.position, limit=limit)
    if going is None or row.kind not in ("poll", "drained"):
        return going
    if len(row.offsets):
        going.got.append(row.offsets)
    if not served or row.kind == "drained":
        going.reach(row, position_of(row))
    return going


def kept_until(row: Read, truncations: Truncations) -> int:
    """The offset below which the records of a row are still in the generation's last log."""
    return min((at for time, at in truncations if row.time <= time), default=FOREVER)


def position_of(row: Read) -> int:
    return max(row.position, int(row.offsets.max()) + 1 if len(row.offsets) else -1)


def restarted_log(view: PartitionView, generation: LogGeneration) -> Log | None:
    """The log of a restarted cluster right before its truncation by a failback. Its leader may lack
    records that only the leader before the forced failover had, and its coordinator appends markers
    at their offsets. None if unknown, or if that log is the judged one."""
    last = (
        None if generation.last or generation.lost is None else before_truncation(view, generation)
    )
    return None if last is None or last is replica_of(view, generation) else read(last)


def passed_in(
    restarted: Log, log: Log, offsets: Ints, rows: Sequence[Read], generation: LogGeneration
) -> Bools:
    """Per offset of an unread record, whether its reader passed it: before the cluster died, or in
    the restarted log, which has it too."""
    stood = max((position_of(r) for r in rows if r.returned <= (generation.lost or 0)), default=-1)
    uids = each_at(log.records.uid, locate(log.records.offset, offsets), -1)
    return np.asarray((offsets < stood) | (restarted.holds(offsets, uids) >= 0))


EVIDENCE: Final = "lost_by"
"""The name, in the evidence of an anomaly, of the fault that explains all of it."""


MOST_RAISED: Final = 2
"""The largest difference between the epochs of a marker and its transaction (Kafka 4.0.0 raises the
epoch twice)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unended:
    """Kept records whose marker was lost; with `offset` if the cluster has them at the same
    offsets. Records of foreign programs have no payload id, so their offsets identify them."""

    uid: Ints
    offset: Ints

    def has(self, offsets: Ints, uids: Ints) -> Bools:
        """Per record, whether it is one of them."""
        return np.asarray(np.where(uids >= 0, among(uids, self.uid), among(offsets, self.offset)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """One loss as one cluster shows it: `until` is when the cluster lost the records. `offset`,
    `uid` and `producer` are of the lost records, by offset; `uncommitted` and `unaborted` are the
    earlier records whose COMMIT or ABORT was lost."""

    fault: str
    loss: Loss
    until: int
    offset: Ints
    uid: Ints
    producer: Ints
    uncommitted: _Unended
    unaborted: _Unended

    def has(self, offsets: Ints, uids: Ints) -> Bools:
        """Per record, whether it is a lost one, at its offset."""
        at = locate(self.offset, offsets)
        return np.asarray((at >= 0) & (self.uid[at] == uids)) if len(self.offset) else at >= 0

    def seen_by(self, read: Read) -> Bools:
        """Per lost record, whether a reader could see it: all but those that a lost marker
        aborts."""
        if read.isolation != "read_committed":
            return np.ones(len(self.offset), np.bool_)
        aborted = np.zeros(len(self.offset), np.bool_)
        for offset, producer, _, commit in sorted(self.loss.markers, reverse=True):
            aborted[(self.producer == producer) & (self.offset < offset)] = not commit
        return ~aborted

    def aborted_at(self, offsets: Ints) -> Bools:
        """Per offset, whether its record was kept, and its ABORT was taken away."""
        return among(offsets, self.unaborted.offset)

    def stood(self, reads: Sequence[Read]) -> int:
        """The highest offset that readers had reached in the lost part."""
        reached = [position_of(r) for r in reads if r.time < self.until and r.kind != "error"]
        return min(max(reached, default=-1), self.loss.end)


class Taken:
    """All losses of one cluster in one partition. Each method returns, per element, the number of
    the loss that explains it, or -1."""

    def __init__(self, view: PartitionView, cluster: str) -> None:
        self._every = list(_every(view, cluster))

    def __bool__(self) -> bool:
        return bool(self._every)

    def sent(self, offsets: Ints, uids: Ints, invoked: Ints) -> Ints:
        """Records that a client sent before the election."""
        return self._first(
            len(offsets), lambda one: one.has(offsets, uids) & (invoked < one.loss.elected)
        )

    def read(self, offsets: Ints, uids: Ints, times: Ints) -> Ints:
        """Records that a reader asked for before the cluster had lost them, or their marker."""
        return self._first(
            len(offsets),
            lambda one: (
                (one.has(offsets, uids) | one.uncommitted.has(offsets, uids)) & (times < one.until)
            ),
        )

    def unended(self, offsets: Ints, uids: Ints, *, commit: bool = True) -> Ints:
        """Records that were kept, of a transaction whose COMMIT, or ABORT, was taken away."""
        return self._first(
            len(uids),
            lambda one: (one.uncommitted if commit else one.unaborted).has(offsets, uids),
        )

    def shown(self, offsets: Ints, uids: Ints, times: Ints) -> Ints:
        """Records whose ABORT was lost, and that a reader got afterwards: a later COMMIT of their
        producer may have committed them."""
        return self._first(
            len(offsets),
            lambda one: one.unaborted.has(offsets, uids) & (times >= one.loss.elected),
        )

    def passed(self, offsets: Ints, reads: Sequence[Read], *, at: int = FOREVER) -> Ints:
        """Offsets that one of these readers had passed before the cluster lost the record there, or
        the ABORT of the record there, if that loss happened by `at`."""
        committed = all(read.isolation == "read_committed" for read in reads)
        return self._first(
            len(offsets),
            lambda one: (
                ((offsets >= one.loss.start) | (one.aborted_at(offsets) & committed))
                & (offsets < one.stood(reads))
                & (one.loss.elected <= at)
            ),
        )

    def skipped(self, offsets: Ints, read: Read) -> int:
        """Offsets, in order, of records that this poll could skip: the lost part had no visible
        record at the offset, or had the record's ABORT."""
        committed = read.isolation == "read_committed"

        def explains(one: _Taken) -> Bools:
            there = one.offset[one.seen_by(read)]
            lost = (offsets >= one.loss.start) & (offsets < one.loss.end)
            free = lost | (one.aborted_at(offsets) & committed)
            due = (there >= offsets[0]) & (there <= offsets[-1])
            return np.array([read.time < one.until and bool(free.all()) and not due.any()])

        return int(self._first(1, explains)[0])

    def sampled(self, time: int, high_watermark: int, leader_epoch: int) -> int:
        """A sample from before the cluster lost what the sampled high watermark covers."""

        def explains(one: _Taken) -> Bools:
            newer = one.until == one.loss.elected and 0 <= one.loss.elected_epoch <= leader_epoch
            inside = one.loss.start < high_watermark <= one.loss.end
            return np.array([time < one.until and inside and not newer])

        return int(self._first(1, explains)[0])

    def markers(self) -> Sequence[tuple[int, int, int, int, str]]:
        """The markers that were taken away, by offset: producer id, producer epoch, whether it is a
        COMMIT, where the loss begins, and the fault."""
        return [
            (producer, epoch, int(commit), one.loss.start, one.fault)
            for one in self._every
            for _, producer, epoch, commit in sorted(one.loss.markers)
        ]

    def evidence(self, number: int) -> Mapping[str, object]:
        """The evidence of an anomaly that a loss explains."""
        return {} if number < 0 else {EVIDENCE: self._every[number].fault}

    def _first(self, count: int, explains: Callable[[_Taken], Bools]) -> Ints:
        found = np.full(count, -1, np.int64)
        for number, one in enumerate(self._every):
            if count:
                found[(found < 0) & explains(one)] = number
        return found


def _every(view: PartitionView, cluster: str) -> Iterator[_Taken]:
    for window in view.windows:
        for loss in window.lost:
            if (loss.topic, loss.partition) != (view.topic, view.partition):
                continue
            if cluster != loss.cluster and not _mirrored(view, loss.cluster, cluster, loss.elected):
                continue
            loss = replace(loss, elected=_elected_by(view, loss))
            known = generations(view)[loss.cluster]
            log = log_of(view, known[number_at(known, loss.elected)])
            records = (
                _listed(view, loss) if loss.records is not None else _observed(view, loss, log)
            )
            own = cluster == loss.cluster
            same = own or view.guarantee.offsets_kept
            yield _Taken(
                fault=window.id,
                loss=loss,
                until=loss.elected if own else _replaced(view, cluster, loss, records),
                offset=records[0],
                uid=records[1],
                producer=records[2],
                uncommitted=_without(log, loss, commit=True, same_offsets=same),
                unaborted=_without(log, loss, commit=False, same_offsets=same),
            )


def _elected_by(view: PartitionView, loss: Loss) -> int:
    """The time of the new leader's election: that of the fault's bite, but not after the first
    sample of its epoch."""
    marks = view.watermarks.get(loss.cluster)
    if marks is None or loss.elected_epoch < 0:
        return loss.elected
    led = marks.leader_epoch >= loss.elected_epoch
    return int(marks.returned[led].min(initial=loss.elected))


def _mirrored(view: PartitionView, source: str, destination: str, time: int) -> bool:
    """Whether mirrors copied one cluster to another at that time, over one link or several."""
    then = [c for c in history(view.partition_facts).mirrored_ranges if c.began <= time <= c.ended]
    reached = {source}
    for _ in then:
        reached |= {c.destination for c in then if c.source in reached}
    return destination in reached


def _listed(view: PartitionView, loss: Loss) -> tuple[Ints, Ints, Ints]:
    """Offset, payload id and producer id of each lost record, by offset. What a program wrote has
    the payload id of the record that was acknowledged there to the same producer."""
    listed = sorted(loss.records or (), key=lambda run: run[1])
    uid, offset, count, producer = np.array(listed, np.int64).reshape(-1, 4).T
    run = np.repeat(np.arange(len(count)), count)
    step = np.arange(len(run)) - (np.cumsum(count) - count)[run]
    offsets, producers = offset[run] + step, producer[run]
    if view.topic in view.partition_facts.facts.programs:
        sends = sends_to(view, loss.cluster)
        names, send = uids_of(sends)
        at = locate(sends.each("offsets"), offsets)
        theirs = each_at(sends.column("producer_id")[send], at, FOREIGN) == producers
        return offsets, np.where(theirs, each_at(names, at, FOREIGN), FOREIGN), producers
    return offsets, np.where(uid[run] >= 0, uid[run] + step, uid[run]), producers


def _observed(view: PartitionView, loss: Loss, log: Log | None) -> tuple[Ints, Ints, Ints]:
    """As `_listed`, from the clients' rows before the election: per offset the first record that
    was acknowledged there, else read there, and that the log lacks."""
    sends = sends_to(view, loss.cluster)
    uids, send = uids_of(sends)
    early = sends.column("invoked")[send] < loss.elected
    polls = [
        r
        for r in view.reads
        if r.cluster == loss.cluster and r.kind == "poll" and r.time < loss.elected
    ]
    offset = together([sends.each("offsets")[early], *(r.offsets for r in polls)])
    uid = together([uids[early], *(r.uids for r in polls)])
    producer = np.full(len(uid), -1, np.int64)
    producer[: int(early.sum())] = sends.column("producer_id")[send[early]]
    kept = (offset >= loss.start) & (offset < loss.end)
    if log is not None:
        kept &= ~among(uid, log.records.uid)
    offset, uid, producer = offset[kept], uid[kept], producer[kept]
    once = copies(offset)[1] == 0
    offset, uid, producer = offset[once], uid[once], producer[once]
    order = np.argsort(offset, kind="stable")
    return offset[order], uid[order], producer[order]


def _replaced(
    view: PartitionView, cluster: str, loss: Loss, records: tuple[Ints, Ints, Ints]
) -> int:
    """The first time at which a reader of a mirror's destination got a record that replaced a lost
    one or follows the loss."""
    polls = [
        r
        for r in view.reads
        if r.cluster == cluster and r.kind == "poll" and r.returned >= loss.elected
    ]
    offsets = together(r.offsets for r in polls)
    uids = together(r.uids for r in polls)
    returned = np.repeat(
        np.array([r.returned for r in polls], np.int64), [len(r.uids) for r in polls]
    )
    return int(returned[(offsets >= loss.start) & ~among(uids, records[1])].min(initial=FOREVER))


def _without(log: Log | None, loss: Loss, *, commit: bool, same_offsets: bool) -> _Unended:
    """The kept records whose marker was lost: the first lost marker of their producer id, in their
    epoch or a later one that fences them."""
    if log is None or not len(log.records):
        return _Unended(uid=np.empty(0, np.int64), offset=np.empty(0, np.int64))
    records, batches = log.records, log.batches
    mine = np.zeros(len(batches), np.bool_)
    first = {pid: (epoch, ends) for _, pid, epoch, ends in sorted(loss.markers, reverse=True)}
    for pid, (epoch, ends) in first.items():
        raised = epoch - batches.producer_epoch
        of_it = (batches.producer_id == pid) & (raised >= 0) & (raised <= MOST_RAISED)
        mine |= of_it & (ends == commit)
    mine &= batches.transactional & (log.marker >= loss.start)
    kept = mine[records.batch] & (records.offset < loss.start)
    uid, offset = records.uid[kept], records.offset[kept]
    return _Unended(uid=uid[uid >= 0], offset=offset if same_offsets else offset[:0])
