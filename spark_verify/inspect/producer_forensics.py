"""Findings about producers in batches: a shared id, an open transaction, an id of both kinds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from linkflap.harness.log import batches, layout
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.parts.logs import NOWHERE, read
from linkflap.spark_verify.facts.view import PartitionView, Replica
from linkflap.spark_verify.inspect import evidence
from linkflap.spark_verify.inspect.evidence import Shown
from linkflap.spark_verify.spark.finding_rows import FindingRow

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
        at = evidence.holding(log, offset)
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
            batches=(evidence.header(log, row),),
        )  # fmt: skip
        uses.seen[pid, epoch].setdefault(bool(transactional), case)


def both_kinds(uses: IdUses) -> Iterator[ForensicCase]:
    for both in uses.seen.values():
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


@dataclass(slots=True, kw_only=True)
class IdUses:
    """Uses of producer ids in the partitions read so far: (id, epoch) -> whether transactional ->
    one batch with it."""

    seen: dict[tuple[int, int], dict[bool, ForensicCase]] = field(
        default_factory=lambda: defaultdict(dict)
    )


def batches_shown(
    log: batches.ReplicaLog, offset: int, more: Iterable[int] = (), of: str = ""
) -> Sequence[Shown]:
    rows = evidence.once(
        [*evidence.nearby(log, offset, each_way=1), *evidence.of_producer(log, offset), *more]
    )
    return [evidence.header(log, row, of) for row in rows]
