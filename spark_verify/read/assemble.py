"""Assembles one `PartitionView` from the rows of one (run, topic, partition), in any order.

The same function serves Spark's workers and `linkflap forensics`, which needs no Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from linkflap.harness.model.history import SHARE_KINDS, GroupOffset
from linkflap.harness.model.payload import FOREIGN
from linkflap.spark_verify.checks.parts.generations import compacted
from linkflap.spark_verify.checks.parts.logs import read
from linkflap.spark_verify.facts.lineages import history
from linkflap.spark_verify.facts.partition_facts import PartitionFacts
from linkflap.spark_verify.facts.send_columns import ARRAYS, NUMBERS, WORDS, SendsBuilder
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView, Replica, Watermarks
from linkflap.spark_verify.read.captures import CapturedReplica
from linkflap.spark_verify.read.damage import of_kind
from linkflap.spark_verify.read.differing_batches import Pair, with_keys, with_parts
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.packed_columns import lines_of, numbers_of, rows_of, unpacked
from linkflap.spark_verify.read.plan import RunPlan
from linkflap.spark_verify.read.replica_pieces import (
    Chunk,
    ReplicaKey,
    overlap_or_damaged,
    replica_of,
)
from linkflap.spark_verify.read.rows import HEADER_FIELDS, HISTORY, RECORD_FIELDS

_WATERMARK_FIELDS: Final = (
    "time",
    "returned",
    "leader",
    "log_start",
    "last_stable",
    "high_watermark",
    "leader_epoch",
)
_WATERMARKS: Final = pa.schema(list(HISTORY.field("watermark").type))
_ABOVE_ALL: Final = 1 << 62
"""Names of records that are only on a destination begin here."""
_GOT: Final = {"uids": "<i8", "offsets": "<i8"}


def view(run: RunPlan, topic: str, partition: int, rows: Iterable[pa.RecordBatch]) -> PartitionView:
    """The kernels' view of one partition. The rows are only its own, of the schemas of
    `spark_verify.read.rows`, in any order. Every batch of them is consumed before the next is read,
    and not kept.
    """
    captured, before = (
        [c for c in some if (c.bounds.topic, c.bounds.partition) == (topic, partition)]
        for some in (run.replicas, run.earlier)
    )
    gathered = PartitionRows()
    for batch in rows:
        gathered.add(batch)
    reads, shares = gathered.reads()
    replicas = gathered.replicas([*captured, *before])
    partition_facts = run.facts_of(topic, partition)
    seen = PartitionView(
        partition_facts=partition_facts,
        replicas=[
            _settled(r) if partition_facts.internal and run.facts.recorded else r
            for last, r in replicas
            if last
        ],
        earlier=tuple(sorted((r for last, r in replicas if not last), key=lambda r: r.captured)),
        sends=gathered.sends(),
        reads=reads,
        shares=shares,
        watermarks=_watermarks(gathered.watermarks_and_groups["watermark"]),
        groups=_groups(gathered.watermarks_and_groups["group"], topic, partition),
    )
    if topic in run.facts.programs:
        seen = _nameless(seen)
    if not (run.facts.recorded or run.facts.mirror.guarantee.offsets_kept):
        seen = _named_by_content(seen)
    cleaned = _cleaned(seen)
    parted = with_parts(seen.replicas, captured, _same_bytes(partition_facts), cleaned)
    by_key = _compared_by_key(partition_facts, cleaned)
    return replace(
        seen,
        replicas=with_keys(parted, captured, by_key),
        earlier=with_keys(seen.earlier, before, by_key),
    )


def _nameless(seen: PartitionView) -> PartitionView:
    """Drops the payload ids of what a program of the user's wrote: it may have copied the header of
    a record that it read."""

    def replica(of: Replica) -> Replica:
        unknown = np.full(len(of.records), FOREIGN, np.int64)
        return replace(
            of,
            records=replace(of.records, uid=unknown, operation=unknown),
            made_from=of.records.uid,
        )

    def read(of: Read) -> Read:
        return replace(of, uids=np.full(len(of.uids), FOREIGN, np.int64))

    return replace(
        seen,
        replicas=tuple(map(replica, seen.replicas)),
        earlier=tuple(map(replica, seen.earlier)),
        reads=tuple(map(read, seen.reads)),
        shares=tuple(map(read, seen.shares)),
    )


def _named_by_content(seen: PartitionView) -> PartitionView:
    """Names the records of logs that linkflap did not record, where a mirror moves offsets: by the
    offset at the source of the record with the same content.

    Of several with one content the first visible copy is the source's first, and so on; whatever
    there is more of repeats the last. Where either log has lost its beginning, it is unknown which
    copies it had: those get no name. A record that the source has not is named by its own offset,
    above all others.
    """
    source = seen.canonical().get(seen.home)
    if source is None or len(seen.canonical()) < 2:
        return seen
    ours = source.records
    visible = read(source).visible
    rows = np.concatenate((np.flatnonzero(visible), np.flatnonzero(~visible)))
    order = np.argsort(ours.digest[rows], kind="stable")
    digests, names = ours.digest[rows][order], ours.offset[rows][order]
    shown = np.sort(ours.digest[visible])

    def named(replica: Replica) -> Replica:
        theirs = replica.records
        first = np.searchsorted(digests, theirs.digest)
        count = np.searchsorted(digests, theirs.digest, side="right") - first
        seen_there = np.searchsorted(shown, theirs.digest, side="right") - np.searchsorted(
            shown, theirs.digest
        )
        known = np.where(seen_there > 0, seen_there, count)
        nth = _occurrence(theirs.digest, read(replica).visible)
        uid = np.where(
            count > 0,
            names[np.minimum(first + np.minimum(nth, known - 1), len(names) - 1)]
            if len(names)
            else 0,
            _ABOVE_ALL + theirs.offset,
        )
        if source.log_start > 0 or replica.log_start > 0:
            uid = np.where((known > 1) | (_copies(theirs.digest) > 1), FOREIGN, uid)
        nobody = np.full(len(theirs), FOREIGN, np.int64)
        return replace(replica, records=replace(theirs, uid=uid, operation=nobody))

    own = np.where((source.log_start > 0) & (_copies(ours.digest) > 1), FOREIGN, ours.offset)
    nobody = np.full(len(ours), FOREIGN, np.int64)
    return replace(
        seen,
        replicas=tuple(
            named(replica)
            if replica.cluster != source.cluster
            else replace(replica, records=replace(ours, uid=own, operation=nobody))
            if replica is source
            else replica
            for replica in seen.replicas
        ),
    )


def _occurrence(digests: Ints, visible: Bools) -> Ints:
    """Per record, how many with the same content come before it; those that no reader gets come
    last."""
    order = np.lexsort((np.arange(len(digests)), ~visible, digests))
    ordered = digests[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)])
    nth = np.empty(len(digests), np.int64)
    lengths = np.diff(np.append(begins, len(ordered)))
    nth[order] = np.arange(len(ordered)) - np.repeat(begins, lengths)
    return nth


def _copies(digests: Ints) -> Ints:
    """Per record, how many have the same content."""
    _, which, counts = np.unique(digests, return_inverse=True, return_counts=True)
    return np.asarray(counts[which.ravel()], np.int64)


def _cleaned(seen: PartitionView) -> Mapping[str, int]:
    """Per cluster, the offset below which its cleaners may have taken records."""
    if seen.internal:
        return {}
    found: dict[str, int] = {}
    for replica in seen.replicas:
        below = max(compacted(seen, replica), found.get(replica.cluster, 0))
        if below:
            found[replica.cluster] = below
    return found


def _settled(replica: Replica) -> Replica:
    """A replica of one of Kafka's own topics. Brokers write to those while they are captured: what
    is torn above the high watermark was being written just then.
    """
    return (
        replace(replica, damage=())
        if replica.torn_from >= max(replica.high_watermark, 0)
        else replica
    )


def _same_bytes(partition_facts: PartitionFacts) -> Iterator[Pair]:
    """The mirrored ranges whose bytes must be the source's, but for mapped producer ids."""
    if partition_facts.facts.mirror.guarantee.offsets_kept:
        for mirrored_range in history(partition_facts).mirrored_ranges:
            yield (
                mirrored_range.source,
                mirrored_range.destination,
                mirrored_range.start,
                mirrored_range.end,
                partition_facts.facts.mirror.guarantee.producer_ids,
            )


def _compared_by_key(partition_facts: PartitionFacts, cleaned: Mapping[str, int]) -> frozenset[str]:
    """The clusters at both ends of a link whose mirror moves offsets, where one of them has
    compacted its log: only keys tell what a cleaner took."""
    if partition_facts.facts.mirror.guarantee.offsets_kept:
        return frozenset()
    return frozenset(
        end for hop in partition_facts.hops() if not cleaned.keys().isdisjoint(hop) for end in hop
    )


class PartitionRows:
    """What the rows of one partition tell, of which nothing is held that is not in the view."""

    def __init__(self) -> None:
        self.watermarks_and_groups: dict[str, list[pa.StructArray]] = {"watermark": [], "group": []}
        self._heads: dict[ReplicaKey, dict[int, Mapping[str, Any]]] = defaultdict(dict)
        self._chunks: dict[ReplicaKey, list[Chunk]] = defaultdict(list)
        self._sends = SendsBuilder()
        self._reads: list[Read] = []
        self._words: dict[object, object] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes a batch of rows apart."""
        if "replica" in batch.schema.names:
            self._replicas(batch)
        for kind, parts in self.watermarks_and_groups.items():
            if len(mine := of_kind(batch, kind)):
                parts.append(mine.take(pa.array(np.arange(len(mine)))))  # a copy of these alone
        self._sent(of_kind(batch, "send"))
        for row, packed in self._split(of_kind(batch, "read"), _GOT):
            self._reads.append(Read(**row, **packed))

    def _replicas(self, batch: pa.RecordBatch) -> None:
        for row in np.flatnonzero(
            batch["ordinal"].is_valid().to_numpy(zero_copy_only=False)
        ).tolist():
            *key, piece, ordinal = (
                batch[n][row].as_py() for n in ("moment", "cluster", "broker", "piece", "ordinal")
            )
            moment, cluster, broker = key
            if ordinal < 0:
                head = {**batch["replica"][row].as_py(), "entries": batch["entries"][row].as_py()}
                self._heads[moment, cluster, broker][piece] = head
            else:
                headers, records = (
                    lines_of(batch["headers"][row], HEADER_FIELDS),
                    lines_of(batch["records"][row], RECORD_FIELDS),
                )
                self._chunks[moment, cluster, broker].append((piece, ordinal, headers, records))

    def _sent(self, rows: pa.StructArray) -> None:
        columns = dict(zip([field.name for field in rows.type], rows.flatten(), strict=True))
        for name in NUMBERS:
            self._sends.numbers(name, numbers_of(columns[name]))
        for name in WORDS:
            encoded = columns[name].dictionary_encode()
            self._sends.words(name, encoded.dictionary.to_pylist(), numbers_of(encoded.indices))
        for name, kind in ARRAYS.items():
            values, edges = unpacked(columns[name], np.dtype(kind))
            self._sends.arrays(name, values, np.diff(edges))

    def _split(
        self, rows: pa.StructArray, kinds: Mapping[str, str]
    ) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Per row of a history its plain fields, and one array per packed one."""
        columns = dict(zip([field.name for field in rows.type], rows.flatten(), strict=True))
        packed = zip(
            *(rows_of(columns.pop(name), kind) for name, kind in kinds.items()), strict=True
        )
        plain = zip(*map(self._shared, columns.values()), strict=True)
        for row, arrays in zip(plain, packed, strict=True):
            yield dict(zip(columns, row, strict=True)), dict(zip(kinds, arrays, strict=True))

    def _shared(self, column: pa.Array) -> list[object]:
        """The values of a column, of equal words one object."""
        if not pa.types.is_string(column.type):
            return list(column.to_pylist())
        encoded = column.dictionary_encode()
        words = [self._words.setdefault(word, word) for word in encoded.dictionary.to_pylist()]
        return [words[index] for index in encoded.indices.to_pylist()]

    def replicas(self, captured: Iterable[CapturedReplica]) -> Sequence[tuple[bool, Replica]]:
        """Every replica, and whether it is of its cluster's last capture. Consumes the gathered
        rows.

        If the pieces of a replica do not determine it, it is read again, as `captured`: the view is
        the same either way.
        """
        whole = {(c.moment, c.bounds.cluster, c.bounds.broker): c for c in captured}
        for key in [
            key
            for key, heads in self._heads.items()
            if overlap_or_damaged([heads[n] for n in sorted(heads)])
        ]:
            del self._heads[key]
            self._chunks.pop(key, None)
            for batch in batch_rows([whole[key]]):
                self.add(batch)
        order = sorted(self._heads, key=lambda key: (key[1], key[2], key[0]))
        return tuple(replica_of(key, self._heads[key], self._chunks.pop(key, [])) for key in order)

    def sends(self) -> Sequence[Send]:
        """Sends by time of invocation, then by number and first uid. Consumes the gathered rows."""
        return self._sends.sends()

    def reads(self) -> tuple[Sequence[Read], Sequence[Read]]:
        """Reads by time of return, then by reader; within one poll as they were written. Those of
        share groups by themselves."""
        ordered = sorted(self._reads, key=attrgetter("returned", "time", "reader"))
        shared = tuple(read for read in ordered if read.kind in SHARE_KINDS)
        return tuple(read for read in ordered if read.kind not in SHARE_KINDS), shared


def _groups(parts: Sequence[pa.StructArray], topic: str, partition: int) -> Sequence[GroupOffset]:
    rows = sorted(
        (row for part in parts for row in part.to_pylist()),
        key=itemgetter("time", "cluster", "group"),
    )
    return tuple(GroupOffset(topic=topic, partition=partition, **row) for row in rows)


def _watermarks(parts: Sequence[pa.StructArray]) -> Mapping[str, Watermarks]:
    table = pa.Table.from_batches(
        [pa.RecordBatch.from_struct_array(part) for part in parts], _WATERMARKS
    )
    found: dict[str, Watermarks] = {}
    for cluster in sorted(set(table["cluster"].to_pylist())):
        own = table.filter(pc.field("cluster") == cluster).sort_by(
            [("time", "ascending"), ("returned", "ascending")]
        )
        found[cluster] = Watermarks(**{name: numbers_of(own[name]) for name in _WATERMARK_FIELDS})
    return found
