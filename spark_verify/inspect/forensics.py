"""Finds damage and anomalies in the logs of one cluster from their bytes alone: no history, no
Spark, one partition at a time.

The kernels of the checks that need no history look at every partition (`Check.from_bytes`). This
module adds findings that those checks leave to the history: transactions that are open at the end,
and producer ids that two producers must have had. A producer id belongs to one producer at a time,
which is either transactional or not (KIP-98). So an id and epoch that are both, or whose sequence
begins again with other bytes, belong to two producers, or to one whose partition state was lost
(Redpanda PR 31659).

Missing offsets, and sequence gaps at these, prove nothing, because compaction removes batches. Such
gaps are notes, not findings.

It also shows the bytes at an offset as plain values for people: batch headers with their file and
position, and records. The slow decoder reads these few records, because it reads control records
too.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from linkflap.harness.guarantees import declared
from linkflap.harness.log import batches, codecs, layout, reference
from linkflap.harness.model.payload import FOREIGN
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import ClusterSpec, TopicPartition, Topology
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import grouped
from linkflap.spark_verify.checks.finding_rows import FindingRow, combined, examine
from linkflap.spark_verify.checks.log_model.generations import compacted
from linkflap.spark_verify.checks.log_model.logs import NOWHERE, read
from linkflap.spark_verify.checks.log_model.replicas import missing
from linkflap.spark_verify.checks.marker_pairing import LEFT_OPEN, NOT_TRANSACTIONAL
from linkflap.spark_verify.facts.partition_facts import PartitionFacts, RunFacts
from linkflap.spark_verify.facts.view import PartitionView, Replica
from linkflap.spark_verify.read.assemble import view
from linkflap.spark_verify.read.captures import CapturedReplica, notes_of
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.plan import RunPlan

Shown = Mapping[str, object]
"""One header or record: plain JSON values."""
NO_RECORDS: Final = -1
_CONTROL: Final = {0: "ABORT", 1: "COMMIT", 7: "MIRROR_PID_RESET"}


def log_of(captured: CapturedReplica) -> batches.ReplicaLog:
    """The headers of one captured replica."""
    return batches.scan([Path(path) for path in captured.paths])


def header(log: batches.ReplicaLog, row: int, of: str = "") -> Shown:
    """One batch header as stored; `kind` is in words, `of` names the log."""
    h = log.headers
    file, position = log.where(row)
    return {
        "log": of,
        "file": file,
        "position": position,
        "base_offset": int(h.base_offset[row]),
        "last_offset": int(h.last_offset[row]),
        "records": int(h.count[row]),
        "kind": _kind(log, row),
        "producer_id": int(h.producer_id[row]),
        "producer_epoch": int(h.producer_epoch[row]),
        "base_sequence": int(h.base_sequence[row]),
        "leader_epoch": int(h.leader_epoch[row]),
        "length": int(h.length[row]),
        "crc": f"{int(h.crc[row]):08x}",
        "crc_ok": bool(h.crc_ok[row]),
        "codec": codecs.NAMES.get(int(h.codec[row]), str(int(h.codec[row]))),
        "timestamp": int(h.max_timestamp[row]),
    }


def _kind(log: batches.ReplicaLog, row: int) -> str:
    if int(log.headers.control[row]) == layout.DATA:
        return "transactional" if log.headers.transactional[row] else "data"
    key = next((r.key for r in log.records_of(row)), None)
    if not log.headers.crc_ok[row] or key is None or len(key) < 4:
        return "control"
    number: int = struct.unpack_from(">h", key, 2)[0]
    return _CONTROL.get(number, f"control {number}")


def nearby(log: batches.ReplicaLog, offset: int, *, each_way: int = 2) -> list[int]:
    """Rows of every batch that holds an offset, or of the one that would come next, and of their
    neighbours."""
    reach = log.headers.last_offset >= offset
    # Where base offsets are in disorder, several batches hold one offset: each is shown.
    indexes = [
        *np.flatnonzero(reach & (log.headers.base_offset <= offset)),
        np.argmax(reach) if reach.any() else len(reach),
    ]
    return once(row for index in indexes for row in _around(int(index), each_way, len(reach)))


def _around(index: int, each_way: int, end: int) -> range:
    return range(max(0, index - each_way), min(end, index + each_way + 1))


def of_producer(log: batches.ReplicaLog, offset: int) -> list[int]:
    """Rows of the batch with an offset, and of the two before it and the one after it that have its
    producer id."""
    at = np.flatnonzero((log.headers.base_offset <= offset) & (log.headers.last_offset >= offset))
    if not len(at) or log.headers.producer_id[at[0]] == -1:
        return []
    same = np.flatnonzero(log.headers.producer_id == log.headers.producer_id[at[0]])
    index = int(np.searchsorted(same, at[0]))
    return [int(row) for row in same[max(0, index - 2) : index + 2]]


def holding(log: batches.ReplicaLog, offset: int) -> int | None:
    """The row of the batch that holds an offset."""
    h = log.headers
    at = np.flatnonzero((h.base_offset <= offset) & (h.last_offset >= offset))
    return int(at[0]) if len(at) else None


def records(log: batches.ReplicaLog, row: int, *, near: int) -> Sequence[Shown]:
    """Ten records of one batch, those next to offset `near`; none where they cannot be read."""
    found = sorted(log.records_of(row), key=lambda r: abs(r.offset - near))[:10]
    return [_record(r) for r in sorted(found, key=lambda r: r.offset)]


def _record(record: reference.Record) -> Shown:
    uid, operation = reference.identity(record)
    return {
        "offset": record.offset,
        "uid": uid,
        "operation": operation,
        "timestamp": record.timestamp,
        "key_bytes": NO_RECORDS if record.key is None else len(record.key),
        "value_bytes": NO_RECORDS if record.value is None else len(record.value),
        "headers": len(record.headers),
        "digest": f"{reference.digest(record) & (2**64 - 1):016x}",
    }


def once(rows: Iterable[int]) -> list[int]:
    """Rows in the order of the log, each once."""
    return sorted(set(rows))


_KINDS: Final = [kind for check in REGISTRY.values() for kind in check.anomalies]
_REPEATS: Final = {kind.name for kind in _KINDS if kind.repeats_sequence}
MEANINGS: Final = {kind.name: kind.meaning for kind in _KINDS} | {
    "open-transaction": (
        "A transaction has no marker, so the last stable offset stays at its first offset; open "
        "until the newest record of these logs. Where the log is still mirrored or written to, the "
        "marker may be to come."
    ),
    "producer-id-shared": (
        "A producer id was used by two producers in one epoch, or its state was lost in between."
    ),
}


def shared_sequences(log: batches.ReplicaLog, row: FindingRow) -> ForensicCase | None:
    """A sequence that begins again at 0 with other bytes: another producer, or one whose state the
    broker had lost."""
    if row.kind not in _REPEATS or row.data.get("sequence") != 0:
        return None
    h = log.headers
    same = (h.producer_id == row.data.get("producer_id")) & (
        h.producer_epoch == row.data.get("producer_epoch")
    )
    zeros = np.flatnonzero(same & (h.base_sequence == 0) & (h.control == layout.DATA) & h.crc_ok)
    first, at = zeros[0], zeros[h.base_offset[zeros] == row.offset][-1]
    if h.crc[first] == h.crc[at] and h.length[first] == h.length[at]:
        return None
    shown = {**row.data, "also_at": int(h.base_offset[first])}
    return ForensicCase(
        kind="producer-id-shared", cluster=row.cluster, topic=row.topic, partition=row.partition,
        offset=row.offset,
        meaning=MEANINGS["producer-id-shared"], evidence=shown,
        batches=batches_shown(log, row.offset, [int(first)]),
    )  # fmt: skip


def open_transactions(
    seen: PartitionView, replica: Replica, log: batches.ReplicaLog
) -> Iterator[tuple[ForensicCase, int]]:
    """Transactions without a marker, and when each began."""
    every = read(replica, untracked=True).transactions
    for i in np.flatnonzero(every.marker == NOWHERE).tolist() if not replica.damage else ():
        offset = int(every.first[i])
        at = holding(log, offset)
        began = int(log.headers.base_timestamp[at]) if at is not None else 0
        shown = {
            "producer_id": int(every.producer_id[i]),
            "last_offset": int(every.last[i]),
            "log_end": replica.end,
        }
        yield (
            ForensicCase(
                kind="open-transaction", cluster=seen.home, topic=seen.topic,
                partition=seen.partition, offset=offset,
                meaning=MEANINGS["open-transaction"], evidence=shown,
                batches=batches_shown(log, offset),
            ),
            began,
        )  # fmt: skip


def note_uses(seen: PartitionView, log: batches.ReplicaLog, uses: IdUses) -> None:
    """The first batch of each producer id and epoch that is transactional, and the first that is
    not."""
    h = log.headers
    data = np.flatnonzero((h.producer_id >= 0) & (h.control == layout.DATA) & h.crc_ok)
    # After a reset of the partition's producer state (KIP-1279) ids are another cluster's.
    if (h.control == layout.OTHER_CONTROL).any():
        return
    table = np.stack(
        (h.producer_id[data], h.producer_epoch[data], h.transactional[data].astype(np.int64)),
        axis=1,
    )
    keys, first = np.unique(table, axis=0, return_index=True)
    for (pid, epoch, transactional), row in zip(keys.tolist(), data[first].tolist(), strict=True):
        offset = int(h.base_offset[row])
        case = ForensicCase(
            kind="producer-id-shared", cluster=seen.home, topic=seen.topic,
            partition=seen.partition, offset=offset,
            meaning=MEANINGS["producer-id-shared"],
            evidence={"producer_id": pid, "producer_epoch": epoch},
            batches=(header(log, row),),
        )  # fmt: skip
        uses[pid, epoch].setdefault(bool(transactional), case)


def both_kinds(uses: IdUses) -> Iterator[ForensicCase]:
    for both in uses.values():
        if len(both) == 2:
            plain, other = both[False], both[True]
            where = f"{other.topic}-{other.partition}@{other.offset}"
            case = with_evidence(plain, {"transactional": False, "transactional_at": where})
            yield replace(case, batches=(*plain.batches, *other.batches))


def with_evidence(case: ForensicCase, more: Mapping[str, object]) -> ForensicCase:
    return replace(case, evidence={**case.evidence, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class ForensicCase:
    """One thing that is wrong, and the batches that show it."""

    kind: str
    cluster: str
    topic: str
    partition: int
    offset: int
    meaning: str
    evidence: Mapping[str, object]
    batches: Sequence[Shown] = ()


IdUses = defaultdict[tuple[int, int], dict[bool, ForensicCase]]
"""Uses of producer ids in the partitions read so far: (id, epoch) -> whether transactional -> one
batch with it."""


def batches_shown(
    log: batches.ReplicaLog, offset: int, more: Iterable[int] = (), of: str = ""
) -> Sequence[Shown]:
    rows = once([*nearby(log, offset, each_way=1), *of_producer(log, offset), *more])
    return [header(log, row, of) for row in rows]


CHECKS: Final = tuple(check for check in REGISTRY.values() if check.of_one_cluster)


Logs = Mapping[tuple[str, int], batches.ReplicaLog]
"""By cluster and broker."""


@dataclass(slots=True, kw_only=True)
class ForensicReport:
    """The findings. `unreadable` are files and bytes. `unknown` is what would be a finding if the
    logs were copied from a broker that was stopped. `notes` may be damage or compaction, and count
    as neither. `files` are the files that were read, a line per partition and broker;
    `left_out` the partitions that were not.
    """

    cases: list[ForensicCase] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    looked: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("partitions", "replicas", "batches", "bytes"), 0)
    )
    notes: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 nothing was found, 1 something was, 2 nothing was but parts could not be read, or what
        they show cannot be known."""
        return 1 if self.cases else 2 if self.unreadable or self.unknown else 0


def look(cluster: str, replicas: Sequence[CapturedReplica], report: ForensicReport) -> None:
    """Adds what is wrong in the logs of one cluster."""
    by_partition = grouped(replicas, lambda captured: captured.key)
    uses, partial = IdUses(dict), list[FindingRow]()
    open_ones: list[tuple[ForensicCase, int]] = []
    newest = 0
    for note in notes_of(replicas):
        broker = note.damage.path.rpartition("/")[2]
        (report.unreadable if note.matters else report.notes).append(
            f"{cluster}/{broker}: {note.damage.reason}"
        )
    for key, same in sorted(by_partition.items()):
        newest = max(newest, _partition(cluster, key, same, report, uses, open_ones, partial))
    for check in CHECKS:
        mine = [row for row in partial if row.check == check.name]
        report.cases += [
            _case(row, {}) for row in combined(check, "", mine) if row.finding == "found"
        ]
    known = {(case.kind, case.topic, case.partition, case.offset) for case in report.cases}
    for case, began in open_ones:
        if (LEFT_OPEN, case.topic, case.partition, case.offset) in known:
            continue
        age = {"open_seconds": round((newest - began) / 1000, 1)}
        report.cases.append(with_evidence(case, age))
    # A batch that lacks the transactional bit is no other producer's.
    report.cases += [
        c
        for c in both_kinds(uses)
        if (NOT_TRANSACTIONAL, c.topic, c.partition, c.offset) not in known
    ]


def _count(
    report: ForensicReport,
    cluster: str,
    key: TopicPartition,
    same: Sequence[CapturedReplica],
    seen: PartitionView,
) -> None:
    """Adds to the report the examined amounts of a partition, and its unreadable parts."""
    report.looked["partitions"] += 1
    for replica in seen.replicas:
        report.looked["replicas"] += 1
        report.looked["batches"] += len(replica.batches)
        # Readable but wrong bytes are cases; unreadable bytes are listed separately.
        report.unreadable += [
            f"{cluster}/{replica.broker} {d}"
            for d in replica.damage
            if ": corrupt-batch: " not in d
        ]
    report.files += [
        f"{cluster}/{c.bounds.broker} {key[0]}-{key[1]}: {len(c.paths)} files, {c.size:,} bytes"
        for c in same
    ]
    report.looked["bytes"] += sum(c.size for c in same)
    report.notes += dict.fromkeys(
        note for replica in seen.replicas for note in _cleaned(seen, replica)
    )


def _partition(
    cluster: str,
    key: TopicPartition,
    same: Sequence[CapturedReplica],
    report: ForensicReport,
    uses: IdUses,
    open_ones: list[tuple[ForensicCase, int]],
    partial: list[FindingRow],
) -> int:
    """One partition; returns its newest timestamp, milliseconds."""
    facts = RunFacts(
        run="", topology=Topology(clusters=(ClusterSpec(name=cluster),), links=()),
        mirror=declared(MirrorSpec(kind="none")),
        homes={key[0]: cluster}, recorded=False,
    )  # fmt: skip
    compacted = {cluster: max(c.bounds.compacted for c in same)}
    partition_facts = PartitionFacts(
        facts=facts, topic=key[0], partition=key[1], compacted=compacted
    )
    planned = RunPlan(facts=facts, replicas=same, partition_facts={key: partition_facts})
    seen = view(planned, *key, batch_rows(same))
    seen = replace(seen, replicas=[_anonymous(replica) for replica in seen.replicas])
    logs = {(c.bounds.cluster, c.bounds.broker): log_of(c) for c in same}
    _count(report, cluster, key, same, seen)
    for canonical in (r for r in seen.replicas if r.canonical):
        log = logs[canonical.cluster, canonical.broker]
        report.cases += _judged(seen, canonical, logs, report, partial)
        if not seen.internal:
            open_ones += list(open_transactions(seen, canonical, log))
            note_uses(seen, log, uses)
        return int(log.headers.max_timestamp[log.headers.crc_ok].max(initial=0))
    return 0


def _anonymous(replica: Replica) -> Replica:
    """Without linkflap's own payload ids: a program that relays records (MirrorMaker 2) writes
    several clients' records with one producer id."""
    nobody = np.full(len(replica.records), FOREIGN, np.int64)
    return replace(replica, records=replace(replica.records, uid=nobody, operation=nobody))


def _judged(
    seen: PartitionView,
    replica: Replica,
    logs: Logs,
    report: ForensicReport,
    partial: list[FindingRow],
) -> Iterator[ForensicCase]:
    """The kernels' findings in a partition; adds partial findings to `partial`."""
    log = logs[replica.cluster, replica.broker]
    for check in CHECKS:
        for row in examine(check, seen):
            if row.finding == "partial":
                partial.append(row)
            elif row.finding == "crashed":
                report.unreadable.append(
                    f"{seen.topic}-{seen.partition}: {check.name} failed: {row.data.get('reason')}"
                )
            elif row.finding == "unjudged" and not any(each.damage for each in seen.replicas):
                reason = str(row.data["reason"])
                sure = reason.partition(":")[0] not in {kind.name for kind in check.anomalies}
                (report.notes if sure else report.unknown).append(_note(seen, reason))
            elif row.finding == "found":
                yield shared_sequences(log, row) or _case(row, _sides(row, replica, logs))


def _sides(row: FindingRow, replica: Replica, logs: Logs) -> Logs:
    """The logs that a finding speaks of."""
    one, several = row.data.get("broker", replica.broker), row.data.get("brokers")
    brokers = several if isinstance(several, list) else [one]
    return {(cluster, broker): log for (cluster, broker), log in logs.items() if broker in brokers}


def _note(seen: PartitionView, reason: str) -> str:
    where = f"{seen.topic}-{seen.partition}"
    return reason if where in reason else f"{where}: {reason}"


def _cleaned(seen: PartitionView, replica: Replica) -> Iterator[str]:
    """Offsets that are missing below the cleaner's checkpoint. Missing offsets elsewhere are judged
    by replica-agreement."""
    (every, first), (above, _) = missing(replica), missing(replica, compacted(seen, replica))
    if every > above:
        where = f"{replica.cluster}'s {seen.topic}-{seen.partition}"
        yield f"{every - above} offsets of {where} are missing, first {first}: compaction"


def _case(row: FindingRow, logs: Logs) -> ForensicCase:
    shown = [
        s
        for (cluster, broker), log in sorted(logs.items())
        for s in batches_shown(log, row.offset, of=f"{cluster}/{broker}")
    ]
    return ForensicCase(
        kind=row.kind, cluster=row.cluster, topic=row.topic, partition=row.partition,
        offset=row.offset,
        meaning=MEANINGS.get(row.kind, ""), evidence=row.data, batches=shown,
    )  # fmt: skip
