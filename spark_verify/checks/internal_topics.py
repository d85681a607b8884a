"""internal-topics: Kafka's own topics are sound, and agree with the data and the clients about
transactions and groups (KIP-98).

It checks `__transaction_state`, `__consumer_offsets`, `__cluster_metadata` and, of a build of
KIP-1279, `__mirror_state`, below the high watermark: CRCs are right, replicas agree, and no offset
is missing where no cleaner has been. Above the high watermark, a capture of a running cluster may
stop in the middle of a batch.

Each record of a transactional id follows from the one before it (`log_model.transaction_states`). A
coordinator writes that a transaction is complete when every partition has its marker. So per
partition, producer id and epoch, the markers that a cluster's own coordinators wrote are the
outcomes that they decided, in that order. The last decisions of a killed cluster may not have
arrived: prepared, or still open, is legal. Every group offset that was sampled, and every commit
that a client was acknowledged, is in `__consumer_offsets`, in that order.

A coordinator that reloads a partition reads all of it, but answers only with the part below the
high watermark (Kafka 4.0 and later). A new leader knows only the high watermark that it had as a
follower, or, after a crash, the one of its checkpoint. Until its followers have fetched, it answers
with an earlier commit of the group. So samples may step back to an earlier commit of the log if
another leader wrote behind the later one, or if a fault had reached brokers of the cluster by then.

Coordinators' records, and others' observations of them, are partial findings. `combine` compares
them over all partitions of the cluster. A transaction is decided when it is prepared
(PrepareCommit, PrepareAbort), with its partitions. Then every one of them gets a marker of the
recorded producer id and epoch; then the transaction is complete. So per partition and producer id,
the markers are the decisions, in that order. The marker of an incomplete transaction may still be
missing. A coordinator that gets no answer writes its marker again, so a repeated marker may belong
to the same decision or to the next.

Where the beginning of one log is gone, the beginning of the other has no counterpart: any number of
first decisions may lack their markers, and any number of first markers their decisions. A log that
was captured before its truncation also has an unknown end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from linkflap.harness.log.coordinators import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    GROUPS,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTIONS,
    TransactionState,
)
from linkflap.harness.model.topology import TopicPartition
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Examined,
    Finding,
    Found,
    PartialFinding,
    grouped,
    nothing_due,
)
from linkflap.spark_verify.checks.log_model.generations import (
    compacted,
    generations,
    native,
    recorded_truncations,
    replica_of,
)
from linkflap.spark_verify.checks.log_model.lost_records import EVIDENCE, Taken
from linkflap.spark_verify.checks.log_model.replicas import (
    absent_offsets,
    below_high_watermark,
    between,
    falls,
    led,
    sound,
    within,
)
from linkflap.spark_verify.checks.log_model.samples import (
    disturbed_from,
    pending_commits,
    visible_commits,
)
from linkflap.spark_verify.checks.log_model.transaction_states import (
    IMPOSSIBLE,
    impossible_states,
    name_of,
)
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import (
    ABORT,
    COMMIT,
    OTHER_CONTROL,
    Batches,
    Bools,
    Ints,
    PartitionView,
    Replica,
)


def state_columns(states: Sequence[TransactionState], high_watermark: int) -> dict[str, object]:
    """States of transactions as columns, with the partitions that each touched."""
    names = {name: n for n, name in enumerate(dict.fromkeys(s.transactional_id for s in states))}
    topics = {
        name: n
        for n, name in enumerate(dict.fromkeys(topic for s in states for topic, _ in s.partitions))
    }
    rows = [
        (
            names[s.transactional_id],
            s.producer_id,
            s.producer_epoch,
            s.state,
            s.offset,
            int(s.offset < high_watermark),
        )
        for s in states
    ]
    numbered = [
        (n, topics[topic], number) for n, s in enumerate(states) for topic, number in s.partitions
    ]
    return {
        "what": "states", "ids": list(names), "topics": list(topics),
        "states": np.array(rows, np.int64).reshape(-1),
        "partitions_of_states": np.array(numbered, np.int64).reshape(-1),
    }  # fmt: skip


def commit_rows(replica: Replica) -> dict[str, object]:
    """Committed offsets of groups, whether a coordinator has reloaded the partition after each, and
    the offsets that open transactions have not committed yet."""
    # A leader that wrote in a later epoch had reloaded the entire partition.
    reloaded = replica.batches.leader_epoch < replica.batches.leader_epoch.max(initial=-1)
    written = [
        [c.group, c.topic, c.partition, c.committed, bool(reloaded[row])]
        for c, row in visible_commits(replica)
    ]
    pending = [[c.group, c.topic, c.partition, c.committed] for c in pending_commits(replica)]
    return {"what": "commits", "commits": written, "pending": pending}


def marker_partials(view: PartitionView) -> Iterator[PartialFinding]:
    """The markers that each cluster's own coordinators wrote to this partition: in its last log,
    and in each log before a truncation."""
    for cluster, mine in generations(view).items():
        for generation in mine:
            replica = replica_of(view, generation)
            if replica is None or replica.damage:
                continue
            floor = _truncated_to(view, generation)
            own = _of_its_coordinators(view, generation, replica)
            own &= replica.batches.base_offset >= (floor or 0)
            whole = floor is None and not (replica.log_start or view.compacted.get(cluster))
            # Behind a reset (KIP-1279) producer ids belong to another cluster; without a history it
            # is unknown to which.
            reset = not view.recorded and bool((replica.batches.control == OTHER_CONTROL).any())
            partial = marked_partial(
                replica,
                own,
                from_start=whole and view.recorded,
                to_end=generation.last,
                known=not reset,
                recorded=view.recorded,
            )
            lost = Taken(view, cluster).markers()
            yield replace(partial, data={**partial.data, "lost": lost}) if lost else partial


def _truncated_to(view: PartitionView, generation: LogGeneration) -> int | None:
    """The highest offset to which mirrors recorded a truncation of this log by the end of a
    generation. Markers that were above it then may be in no log, so only those from it on are
    compared. None if the log was never truncated."""
    recorded = recorded_truncations(view, generation.cluster)
    until_then = [offset for time, offset in recorded if time <= generation.ended]
    return max([*until_then, *generation.earlier], default=None)


def _of_its_coordinators(view: PartitionView, generation: LogGeneration, replica: Replica) -> Bools:
    """Per batch, whether it is native here. Markers that a mirror appended when it ended are
    not."""
    offsets = replica.batches.base_offset
    own = (
        native(generation, offsets)
        if view.guarantee.offsets_kept
        else np.ones(len(offsets), np.bool_)
    )
    appended = [
        offset
        for stop in view.stops
        if stop.cluster == replica.cluster
        for offset, _ in stop.appended
    ]
    # A cleaner may remove any marker below its checkpoint. Above the checkpoint the markers are
    # complete.
    return own & (offsets >= view.compacted.get(replica.cluster, 0)) & ~np.isin(offsets, appended)


def marked_partial(
    replica: Replica, own: Bools, *, from_start: bool, to_end: bool, known: bool, recorded: bool
) -> PartialFinding:
    """The markers as a partial finding. `from_start`: no marker is missing at the beginning;
    `to_end`: none is missing at the end. `known`: all of them are of this cluster's
    coordinators."""
    batches = replica.batches
    rows = np.flatnonzero(
        own & batches.crc_ok & ((batches.control == COMMIT) | (batches.control == ABORT))
    )
    columns = (
        batches.producer_id,
        batches.producer_epoch,
        batches.control,
        batches.base_offset,
        _written_again(batches),
    )
    data = {
        "what": "markers", "from_start": from_start, "to_end": to_end, "known": known,
        "recorded": recorded,
        "markers": np.stack([c[rows] for c in columns], axis=1).reshape(-1),
    }  # fmt: skip
    return PartialFinding(
        cluster=replica.cluster, offset=replica.log_start, data=data, together=replica.cluster
    )


def _written_again(batches: Batches) -> Ints:
    """Per batch 1 where it may be a marker that its coordinator wrote twice: it equals its
    producer's previous marker, without data in between. A coordinator writes a marker again when
    leadership moves or an answer is lost meanwhile.
    """
    of_producers = np.flatnonzero(batches.transactional & batches.crc_ok)
    order = of_producers[np.argsort(batches.producer_id[of_producers], kind="stable")]
    marker = (batches.control == COMMIT) | (batches.control == ABORT)
    columns = (batches.producer_id, batches.producer_epoch, batches.control)
    again = np.zeros(len(batches), np.int64)
    if len(order):
        same = marker[order[1:]] & np.logical_and.reduce(
            [c[order[1:]] == c[order[:-1]] for c in columns]
        )
        again[order[1:]] = same
    return again


def seen_of_groups(view: PartitionView) -> Iterator[PartialFinding]:
    """Committed offsets that the sampler saw on a cluster, in time order, and the commits that
    brokers acknowledged to clients."""
    commits = [r for r in view.reads if r.kind == "commit" and r.group and r.position >= 0]
    for cluster in sorted({g.cluster for g in view.groups} | {r.cluster for r in commits}):
        disturbed = disturbed_from(view.windows, cluster)
        data = {
            "what": "seen",
            "sampled": [
                [g.group, g.offset, g.time >= disturbed]
                for g in view.groups
                if g.cluster == cluster
            ],
            "acknowledged": [[r.group, r.position] for r in commits if r.cluster == cluster],
        }
        yield PartialFinding(cluster=cluster, offset=-1, data=data, together=cluster)


GroupKey = tuple[str, str, int]
"""Group, topic, partition."""
_Commits = list[tuple[int, bool]]
"""Committed offsets in the order of the log, and whether the coordinator reloaded it since."""


def _has_all(commits: Sequence[PartialFinding]) -> bool:
    """Whether every record that coordinators ever wrote about groups is in the logs."""
    return bool(commits) and all(
        partial.data["sound"] and partial.data["begins"] == 0 for partial in commits
    )


def groups_seen(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    """Compares the sampled and acknowledged commits with the logs of the group coordinators."""
    commits = of_cluster(partials, "commits")
    if not _has_all(commits):
        return
    written, pending = defaultdict[GroupKey, _Commits](list), defaultdict[GroupKey, set[int]](set)
    for partial in commits:
        for group, topic, number, committed, reloaded in partial.data["commits"]:
            written[group, topic, number].append((committed, reloaded))
        for group, topic, number, committed in partial.data["pending"]:
            pending[group, topic, number].add(committed)
    for partial in of_cluster(partials, "seen"):
        sampled = grouped(partial.data["sampled"], itemgetter(0))
        acknowledged = grouped(partial.data["acknowledged"], itemgetter(0))
        for group in dict.fromkeys([*sampled, *acknowledged]):
            key = group, partial.topic, partial.partition
            log = written[key]
            there = {committed for committed, _ in log} | pending[key]
            offset, how = _not_in(log, sampled.get(group, ())), "sampled"
            if offset is None:
                missing = (at for _, at in acknowledged.get(group, ()) if at not in there)
                offset, how = next(missing, None), "acknowledged"
            if offset is not None:
                found = Found.at(
                    "commit-missing",
                    partial.cluster,
                    offset,
                    group=group,
                    seen=how,
                    commits_in_the_log=len(log),
                )
                yield partial.combined(found)


def _not_in(log: _Commits, sampled: Iterable[tuple[str, int, bool]]) -> int | None:
    """The first sample that is not in the log behind the previous one.

    After a reload of the partition, a coordinator may answer with an earlier commit of the log.
    """
    commits, index = [committed for committed, _ in log], 0
    for _, same in groupby(sampled, itemgetter(1)):
        _, offset, disturbed = next(same)
        try:
            index = commits.index(offset, index)
        except ValueError:
            if not commits or not (disturbed or log[index][1]) or offset not in commits:
                return offset
            index = commits.index(offset)
    return None


def of_cluster(partials: Sequence[PartialFinding], what: str) -> list[PartialFinding]:
    return [partial for partial in partials if partial.data["what"] == what]


def rows_of(values: object, width: int) -> list[list[int]]:
    rows: list[list[int]] = np.asarray(values, np.int64).reshape(-1, width).tolist()
    return rows


_Lost = tuple[int, int, int, int, str]
"""Producer id, epoch, control type, where the loss begins, and the fault."""


@dataclass(slots=True, kw_only=True)
class _Decided:
    """One transaction, prepared at an offset of its coordinator's log. `complete`: a record below
    the high watermark says that it is complete."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    offset: int
    partitions: Sequence[TopicPartition]
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marker:
    """A marker of one producer in one partition; `again`: it may be a repetition of the previous
    marker."""

    epoch: int
    commit: bool
    offset: int
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decisions:
    """The decisions of a cluster's coordinators, in order, per partition and producer id. `every`:
    no decision is missing at the beginning. Otherwise `known` is, per producer id, the lowest epoch
    that still has a state; the decisions of all higher epochs are complete."""

    decided: Mapping[TopicPartition, Mapping[int, Sequence[_Decided]]]
    every: bool
    known: Mapping[int, int]


def combine(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    """Compares, per cluster, the coordinators' decisions with the markers, and their commits with
    the samples."""
    for _, mine in sorted(grouped(partials, lambda each: each.cluster).items()):
        yield from _outcomes(mine)
        yield from groups_seen(mine)


def _outcomes(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    states = of_cluster(partials, "states")
    # A log with missing offsets does not show how any transaction ended.
    if not states or not all(partial.data["sound"] for partial in states):
        return
    yield from _shared_ids(states)
    decisions = _decisions(states)
    for partial in of_cluster(partials, "markers"):
        if not partial.data["known"]:
            continue
        actual: dict[int, list[_Marker]] = defaultdict(list)
        for pid, epoch, control, offset, again in rows_of(partial.data["markers"], 5):
            actual[pid].append(
                _Marker(epoch=epoch, commit=control == 1, offset=offset, again=again == 1)
            )
        expected = decisions.decided.get((partial.topic, partial.partition), {})
        for pid in sorted(expected.keys() | actual.keys()):
            for epoch, group in _groups(
                expected.get(pid, ()), actual.get(pid, []), decisions, pid, partial.data
            ):
                if (one := group.mismatch()) is not None:
                    kind, offset, decided = one
                    evidence = {"producer_id": pid, "producer_epoch": epoch, **_shown(decided)}
                    lost = [
                        row
                        for row in partial.data.get("lost", ())
                        if (row[0], row[1]) == (pid, epoch)
                    ]
                    back = replace(group, markers=_with(group.markers, lost))
                    if lost and back.mismatch() is None:
                        evidence[EVIDENCE] = lost[0][4]
                    found = Found.at(kind, partial.cluster, offset, **evidence)
                    yield partial.combined(found)


def _shared_ids(states: Sequence[PartialFinding]) -> Iterator[Combined]:
    """Producer ids that two transactional ids share, although a coordinator allocates one for
    each."""
    owners: dict[int, str] = {}
    for partial in sorted(states, key=lambda each: each.partition):
        ids = partial.data["ids"]
        reported: set[int] = set()
        for name, pid, _, state, offset, _ in rows_of(partial.data["states"], 6):
            owner = owners.setdefault(pid, ids[name]) if pid >= 0 else ids[name]
            if owner != ids[name] and pid not in reported:
                reported.add(pid)
                found = Found.at(
                    IMPOSSIBLE,
                    partial.cluster,
                    offset,
                    transactional_id=ids[name],
                    state=name_of(state),
                    wrong=f"producer id {pid} is that of {owner}",
                )
                yield partial.combined(found)


def _with(markers: Sequence[_Marker], lost: Sequence[_Lost]) -> Sequence[_Marker]:
    """The markers together with those that an unclean election lost, which go before the markers
    that were written from the start of the loss on. A lost marker that equals the previous one may
    be its repetition."""
    rows = [
        (
            row[3],
            0,
            _Marker(epoch=row[1], commit=row[2] == 1, offset=row[3], again=row == before),
        )
        for before, row in pairwise((None, *lost))
        if row is not None
    ]
    rows += [(marker.offset, 1, marker) for marker in markers]
    return [marker for _, _, marker in sorted(rows, key=lambda row: row[:2])]


def _shown(decided: _Decided | None) -> dict[str, object]:
    if decided is None:
        return {}
    outcome = "COMMIT" if decided.commit else "ABORT"
    return {
        "transactional_id": decided.transactional_id,
        "decided": outcome,
        "decided_at": decided.offset,
    }


def _decisions(states: Sequence[PartialFinding]) -> _Decisions:
    found: dict[TopicPartition, dict[int, list[_Decided]]] = defaultdict(lambda: defaultdict(list))
    known: dict[int, int] = {}
    for partial in states:
        for _, pid, epoch, *_ in rows_of(partial.data["states"], 6):
            if epoch >= 0:
                known[pid] = min(epoch, known.get(pid, epoch))
        for decided in _transactions(partial.data):
            for tp in decided.partitions:
                found[tp][decided.producer_id].append(decided)
    every = all(partial.data["begins"] == 0 for partial in states)
    return _Decisions(decided=found, every=every, known=known)


def _transactions(data: Mapping[str, Any]) -> list[_Decided]:
    """The transactions of one partition of `__transaction_state`, in the order in which they were
    prepared."""
    ids, topics = data["ids"], data["topics"]
    partitions: dict[int, list[TopicPartition]] = defaultdict(list)
    for row, topic, partition in rows_of(data["partitions_of_states"], 3):
        partitions[row].append((topics[topic], partition))
    found: list[_Decided] = []
    prepared: dict[int, _Decided] = {}
    for row, (name, pid, epoch, state, offset, below) in enumerate(rows_of(data["states"], 6)):
        if state in (PREPARE_COMMIT, PREPARE_ABORT):
            prepared[name] = _Decided(
                transactional_id=ids[name], producer_id=pid, epoch=epoch,
                commit=state == PREPARE_COMMIT, offset=offset,
                partitions=partitions[row],
            )  # fmt: skip
            found.append(prepared[name])
        elif state in (COMPLETE_COMMIT, COMPLETE_ABORT) and name in prepared:
            done = prepared.pop(name)
            done.complete = bool(below) and done.commit == (state == COMPLETE_COMMIT)
    return found


One = tuple[str, int, _Decided | None]
"""Kind of the anomaly, offset of the marker, and the decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The decisions in one epoch of a producer id, and its markers in one partition.

    `every`: no decision is missing at the beginning; `from_start`: no marker is missing at the
    beginning.
    """

    wanted: Sequence[_Decided]
    markers: Sequence[_Marker]
    every: bool
    from_start: bool

    def mismatch(self) -> One | None:
        """The first difference between markers and decisions; None if they can agree."""
        if self._alike():
            return None
        if self.every and self.from_start:
            return _in_order(self.wanted, self.markers)
        owed = [decided for decided in self.wanted if decided.complete]
        if self.from_start and len(self.markers) < len(owed):
            return "marker-missing", -1, owed[0]
        if (one := self._one_wrong()) is not None:
            return one
        last = owed[-1] if owed else None
        extra = not self.wanted or (self.every and len(self.markers) > len(self.wanted))
        kind = "marker-unexplained" if extra else "outcome-disagreement"
        return (kind, self.markers[-1].offset, last) if self.markers else None

    def _one_wrong(self) -> One | None:
        """The one marker that contradicts its decision or is missing, if all others then agree.
        Both logs are known to their ends, so the match starts from there."""
        number, index = len(self.wanted) - 1, len(self.markers) - 1
        while number >= 0 and index >= 0:
            decided, marker = self.wanted[number], self.markers[index]
            if marker.commit == decided.commit:
                number, index = number - 1, index - 1
            elif not decided.complete:
                number -= 1
            elif marker.again:
                index -= 1
            elif self._alike_but_for(index):
                return "outcome-disagreement", marker.offset, decided
            else:
                others = [*self.wanted[:number], *self.wanted[number + 1 :]]
                missing = replace(self, wanted=others)._alike()
                return ("marker-missing", -1, decided) if missing else None
        if self.wanted and index >= 0 and self._alike_but_for(index):
            # The marker belongs to a skipped decision, one that need not have a marker.
            return "outcome-disagreement", self.markers[index].offset, self.wanted[0]
        return None

    def _alike_but_for(self, index: int) -> bool:
        """Whether all markers agree with the decisions once this one is inverted."""
        turned = [*self.markers]
        turned[index] = replace(turned[index], commit=not turned[index].commit)
        return replace(self, markers=turned)._alike()

    def _alike(self) -> bool:
        """Whether each marker matches the next decision or repeats the previous one, and every
        complete transaction has its marker."""
        wanted = self.wanted
        reached = _skipping(wanted, {0} if self.from_start else {*range(len(wanted) + 1)})
        for marker in self.markers:
            matched = {
                n + 1 for n in reached if n < len(wanted) and wanted[n].commit == marker.commit
            }
            before = set() if self.every else {0}
            reached = _skipping(wanted, matched | before | (reached if marker.again else set()))
        return len(wanted) in reached


def _groups(
    wanted: Sequence[_Decided],
    markers: Sequence[_Marker],
    decisions: _Decisions,
    pid: int,
    data: Mapping[str, Any],
) -> Iterator[tuple[int, _Group]]:
    """The epochs of a producer id, in order. Epochs rise along both logs, so a log that has an
    epoch is complete for every higher one. An epoch below 0 comes from a damaged header and proves
    nothing."""
    lowest = min((marker.epoch for marker in markers if marker.epoch >= 0), default=-1)
    known = decisions.known.get(pid, -1)
    epochs = sorted({*(each.epoch for each in wanted), *(each.epoch for each in markers)})
    shared = _last_shared_epoch(wanted, markers)
    for epoch in epochs:
        # Copied logs may have been copied at two moments, so an entry that only one of them has at
        # its end may be the later one.
        if not data["recorded"] and epoch > shared:
            continue
        yield (
            epoch,
            _Group(
                wanted=_decided_in(epoch, wanted, to_end=bool(data["to_end"])),
                markers=[marker for marker in markers if marker.epoch == epoch],
                every=decisions.every or -1 < known < epoch,
                from_start=bool(data["from_start"]) or -1 < lowest < epoch,
            ),
        )


def _last_shared_epoch(wanted: Sequence[_Decided], markers: Sequence[_Marker]) -> int:
    """The last epoch of a producer id that both logs reach; -1 if one log has none of it."""
    return min(
        max((decided.epoch for decided in wanted), default=-1),
        max((marker.epoch for marker in markers), default=-1),
    )


def _decided_in(epoch: int, wanted: Sequence[_Decided], *, to_end: bool) -> Sequence[_Decided]:
    """The decisions in an epoch. Unless the markers are known `to_end`, decisions after the last
    marker may have got their markers later."""
    decided = [each for each in wanted if each.epoch == epoch]
    return decided if to_end else [replace(each, complete=False) for each in decided]


def _in_order(wanted: Sequence[_Decided], markers: Sequence[_Marker]) -> One | None:
    """The first difference between markers and decisions, in order; an incomplete transaction may
    lack its marker."""
    complete = sum(decided.complete for decided in wanted)
    index = 0
    for decided in wanted:
        if index < len(markers) and markers[index].commit == decided.commit:
            index += 1
        elif decided.complete and (len(markers) < complete or index == len(markers)):
            return "marker-missing", -1, decided
        elif index < len(markers):
            kind = "marker-unexplained" if len(markers) > len(wanted) else "outcome-disagreement"
            return kind, markers[index].offset, decided
    return ("marker-unexplained", markers[index].offset, None) if index < len(markers) else None


def _skipping(wanted: Sequence[_Decided], reached: set[int]) -> set[int]:
    """The positions that are reached from these by skipping incomplete decisions."""
    found = set(reached)
    for number in sorted(reached):
        while number < len(wanted) and not wanted[number].complete and number + 1 not in found:
            number += 1
            found.add(number)
    return found


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Examines the logs of one of Kafka's own topics, or collects from a data partition what is
    compared with the coordinators' logs."""
    if not view.internal:
        yield from marker_partials(view)
        yield from seen_of_groups(view)
        return
    for cluster in sorted({r.cluster for r in view.replicas}):
        replicas = [below_high_watermark(r) for r in view.replicas if r.cluster == cluster]
        for replica in replicas:
            if count := len(replica.batches):
                yield Examined(cluster=cluster, origin="native", count=count)
            yield from within(replica)
            yield from falls(replica)
            yield from absent_offsets(view, replica)
        if len(replicas) > 1:
            cleaned = max(compacted(view, r) for r in replicas)
            yield from [f for f in between(led(view, replicas)) if f.offset >= cleaned]
    yield from _coordinators(view)


def _coordinators(view: PartitionView) -> Iterator[Finding]:
    """The states and commits that the coordinators of each cluster wrote to this partition."""
    for cluster, replica in view.canonical().items():
        begins = max(replica.log_start, view.compacted.get(cluster, 0))
        whole = sound(view, replica)
        data: dict[str, object] = {"sound": whole, "begins": begins}
        if view.topic == TRANSACTIONS:
            if whole:
                yield from impossible_states(view, replica, begins)
            data |= state_columns(
                [e for e in replica.entries if isinstance(e, TransactionState)],
                replica.high_watermark,
            )
        elif view.topic == GROUPS:
            yield marked_partial(
                replica,
                np.ones(len(replica.batches), np.bool_),
                from_start=whole and begins == 0,
                to_end=True,
                known=whole,
                recorded=view.recorded,
            )
            data |= commit_rows(replica)
        else:
            continue
        yield PartialFinding(cluster=cluster, offset=replica.log_start, data=data, together=cluster)


CHECK = Check(
    name="internal-topics",
    guarantee="""Kafka's own topics are sound on every replica, and agree with the markers in the
        data and with the clients' observations.""",
    source="""KIP-98 (transaction coordinator); KIP-360 and KIP-890 (epochs); KIP-447 (offsets in
        transactions); KIP-595 (metadata log)""",
    wire="Every commit of the program's `group` that a coordinator acknowledged is in its log.",
    inputs={"batches", "reads", "groups", "promotions"},
    anomalies=(
        AnomalyKind(
            name="corrupt-batch",
            meaning="A batch's CRC-32C is not that of its bytes.",
            sentence="broker {broker} of {cluster} has a corrupt batch at {at}",
            counted="batch is corrupt|batches are corrupt",
            alone="a coordinator that loads it fails there",
            smallest="""a batch at offset 0 of __transaction_state whose stored CRC is wrong: at
                offset 0.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="log-disorder",
            meaning="A batch's base offset is not above everything before it in the file.",
            sentence="""the log of broker {broker} of {cluster} is out of order at {at}: it follows
                offset {after}""",
            alone="a coordinator that loads it gets another state",
            smallest="a file with batches at offsets 0 and 0: at the second.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="replica-disagreement",
            meaning="Two replicas have different batches at one base offset.",
            sentence="brokers {brokers} of {cluster} have different batches at {at}",
            counted="batch differs between replicas|batches differ between replicas",
            alone="what a coordinator knows depends on which broker leads",
            smallest="brokers 1 and 2 have batches at offset 0 whose CRCs differ: at offset 0.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="replica-missing",
            meaning="""A batch below the common high watermark is on one replica and not, or more
                often, on another.""",
            sentence="broker {missing_on} of {cluster} lacks what another replica has at {at}",
            alone="should this broker lead, its coordinators lack it",
            smallest="broker 1 has batches at 0 and 1, broker 2 only at 0: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="leader-epoch-regression",
            meaning="A batch has a lower leader epoch than one before it in the same log.",
            sentence="""the leader epoch falls from {before} to {epoch} at {at} on broker {broker}
                of {cluster}""",
            alone="a follower that compares epochs can truncate in the wrong place",
            smallest="""a file with a batch of epoch 2 at offset 0 and one of epoch 1 at offset 1:
                at offset 1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="offsets-missing",
            meaning="Offsets are missing inside a log where no cleaner has been.",
            sentence="""the log of broker {broker} of {cluster} lacks offsets where no cleaner was:
                {offsets}, the first at {at}""",
            alone="a coordinator that loads it lacks what was there",
            smallest="a file with batches at offsets 0 and 2: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="ends-early",
            meaning="A log ends below its own high watermark.",
            sentence="""the log of broker {broker} of {cluster} ends at {at}, below its high
                watermark {high_watermark}""",
            alone="should this broker lead, its coordinators lack what was acknowledged",
            smallest="a leader reported high watermark 2, and its file ends at 1: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=IMPOSSIBLE,
            meaning="""A record of a transactional id does not follow from the one before it: by its
                state, producer id and epoch, partitions, timeout or times; or its producer id is
                another transactional id's. (A record whose append failed counts for nothing: its
                coordinator goes on from the one before. That takes a fault of the cluster's
                brokers; without a history it is unknown.)""",
            sentence="""the coordinator of {cluster} recorded {state} of {transactional_id} at {at}:
                {wrong}""",
            counted="impossible state of a transactional id|impossible states of transactional ids",
            alone="a coordinator that loads it goes on from there",
            smallest="""the states of an id are Empty, Ongoing, PrepareCommit, CompleteAbort: at
                offset 3.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="outcome-disagreement",
            meaning="A partition has the opposite marker of the coordinator's decision.",
            sentence="""the coordinator of {cluster} decided {decided} for {transactional_id}
                (producer id {producer_id}), and the marker at {at} says otherwise""",
            alone="its client was answered what the log does not have",
            smallest="""the coordinator's state is CompleteCommit, and the partition has ABORT at 1:
                at offset 1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="marker-missing",
            meaning="""The coordinator recorded a transaction as complete, and a partition of it has
                no marker. (Kafka itself does that if the partition has no leader when the marker is
                sent: KAFKA-20734. Its broker then logs `Couldn't find leader endpoint`.)""",
            sentence="""the coordinator of {cluster} completed {decided} of {transactional_id}
                (producer id {producer_id}), and {tp} has no marker""",
            alone="the transaction stays open, and readers of committed records wait for it",
            smallest="""the coordinator's state is CompleteCommit, the partition has 1 and no
                marker: nowhere.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="marker-unexplained",
            meaning="""One of the cluster's own markers ends a transaction that none of its
                coordinators decided.""",
            sentence="""{cluster} has a marker of producer id {producer_id} at {at} that no
                coordinator decided""",
            alone="a transaction may have been ended that its client had not ended",
            smallest="a partition has COMMIT at 1, and no coordinator prepared it: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="commit-missing",
            meaning="""A sampled or acknowledged commit of a group is not in __consumer_offsets, or
                not in that order. (Samples may step back to an earlier commit once a coordinator
                has reloaded the partition: it answers with the part below the high watermark, which
                is behind until its followers have fetched.)""",
            sentence="""{cluster} lost the commit of offset {offset} of the group {group} for {tp}
                that had been {seen}""",
            counted="commit of a group is missing|commits of groups are missing",
            smallest="""a sample says that g has committed 5, and __consumer_offsets has 3: at
                offset 5.""",
            despite_torn=True,
        ),
    ),
    follows={"replica-end-regression"},
    kernel=kernel,
    combine=combine,
    # Some runs did not capture these topics, and some clusters do not have all of them.
    due_at=nothing_due,
    when="what was captured of them",
    from_bytes=True,
    internal=True,
    unit="batches",
    of_one_cluster=True,
)
