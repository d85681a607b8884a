"""Assembles one `PartitionView` from the rows of one (run, topic, partition), in any order.

The same function serves Spark's workers and `linkflap forensics`, which needs no Spark.

Batches that differ between replicas of one cluster, or between both ends of a mirror, are decoded
again, part by part. Headers (length, count, CRC) show which batches differ. A healthy run has none,
and then nothing is read here. The content of a batch with a wrong CRC is shown as far as it can be
read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from linkflap.harness.log import batches, reference
from linkflap.harness.log.coordinators import (
    CoordinatorEntry,
    GroupCommit,
    GroupMembers,
    TransactionState,
)
from linkflap.harness.model.guarantee import ProducerIds
from linkflap.harness.model.history import SHARE_KINDS, GroupOffset
from linkflap.harness.model.payload import FOREIGN
from linkflap.spark_verify.checks.log_model.batch_differences import bytes_differ
from linkflap.spark_verify.checks.log_model.generations import compacted
from linkflap.spark_verify.checks.log_model.logs import locate
from linkflap.spark_verify.facts.eras import history
from linkflap.spark_verify.facts.partition_facts import PartitionFacts
from linkflap.spark_verify.facts.sends_and_reads import (
    ARRAYS,
    NUMBERS,
    WORDS,
    Read,
    Send,
    SendsBuilder,
)
from linkflap.spark_verify.facts.view import (
    DATA,
    WHOLE,
    Batches,
    Bools,
    Ints,
    PartitionView,
    Parts,
    Records,
    Replica,
    Watermarks,
    digested,
    digested_parts,
)
from linkflap.spark_verify.read.captures import CapturedReplica
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.payload_ids import (
    fetched_on_the_wire,
    named_by_content,
    named_by_offset,
    named_on_the_wire,
)
from linkflap.spark_verify.read.plan import RunPlan
from linkflap.spark_verify.read.rows import HEADER_FIELDS, HISTORY, RECORD_FIELDS, of_kind

_BATCH: Final = RECORD_FIELDS.index("batch")
_FLAGS: Final = ("crc_ok", "transactional", "log_append_time")
ReplicaKey = tuple[str, str, int]
"""Moment, cluster and broker of one captured replica."""
Chunk = tuple[int, int, NDArray[np.int64], NDArray[np.int64]]
"""Piece of the log, position of the first batch in it, headers and records, a line each."""


def overlap_or_damaged(pieces: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the pieces do not form one log. Either a piece begins before the end of its
    predecessors, which is damage that no single piece shows. Or only some pieces have decoded
    records, although a log is decoded as a whole or not at all.
    """
    filled = [piece for piece in pieces if piece["lowest"] is not None]
    reached = accumulate((piece["highest"] for piece in filled), max)
    early = any(
        after["lowest"] <= highest for highest, after in zip(reached, filled[1:], strict=False)
    )
    return early or {piece["decoded"] for piece in pieces} >= {True, False}


def replica_of(
    captured: CapturedReplica, heads: Mapping[int, Mapping[str, Any]], chunks: list[Chunk]
) -> Replica:
    """One replica, from the rows of its pieces and the chunks of its log; consumes both."""
    bounds, pieces = captured.bounds, [heads[piece] for piece in sorted(heads)]
    chunks.sort(key=lambda chunk: chunk[:2], reverse=True)
    headers = np.empty((len(HEADER_FIELDS), sum(len(h) for *_, h, _ in chunks)), np.int64)
    records = np.empty((len(RECORD_FIELDS), sum(len(r) for *_, r in chunks)), np.int64)
    at, begins = [0, 0], dict[int, int]()
    while chunks:
        piece, _, *parts = chunks.pop()
        begin, start = begins.setdefault(piece, at[0]), at[1]
        for number, (whole, part) in enumerate(zip((headers, records), parts, strict=True)):
            whole[:, at[number] : at[number] + len(part)] = part.T
            at[number] += len(part)
        records[_BATCH, start : at[1]] += begin
    fields: dict[str, Any] = dict(zip(HEADER_FIELDS, headers, strict=True))
    fields |= {name: fields[name] != 0 for name in _FLAGS}
    return Replica(
        cluster=bounds.cluster,
        broker=bounds.broker,
        leader=bounds.leader,
        canonical=captured.canonical,
        log_start=bounds.log_start,
        since=bounds.since,
        high_watermark=bounds.high_watermark,
        high_watermark_from=bounds.high_watermark_from,
        last_stable=bounds.last_stable,
        stable_above=bounds.stable_above,
        batches=Batches(**fields),
        records=Records(**dict(zip(RECORD_FIELDS, records, strict=True))),
        damage=tuple(d for what in ("damage", "unreadable") for p in pieces for d in p[what]),
        moment=captured.moment,
        captured=captured.time,
        torn_from=_torn_from(pieces),
        unread=_united(_unread(pieces)),
        entries=tuple(entry for p in pieces for entry in _entries(p["entries"])),
    )


def _entries(encoded: bytes | None) -> list[CoordinatorEntry]:
    """The coordinators' records in one piece of a log, in log order (`spark_verify.read.rows`)."""
    written = msgspec.json.decode(encoded, type=dict[str, list[dict[str, Any]]]) if encoded else {}
    found: list[CoordinatorEntry] = []
    for kind in (TransactionState, GroupCommit, GroupMembers):
        found += msgspec.convert(written.get(kind.__name__, []), type=list[kind])  # type: ignore[valid-type]
    return sorted(found, key=lambda entry: entry.offset)


def _unread(pieces: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """The ranges of offsets that no piece could read. A gap at the edge of a piece extends to the
    neighbouring piece."""
    reached = -1
    for n, piece in enumerate(pieces):
        behind = (p["lowest"] for p in pieces[n + 1 :] if p["lowest"] is not None)
        ends = next(behind, WHOLE)
        for start, end in piece["unread"]:
            yield max(start, reached + 1), ends if end == -1 else end
        reached = max(reached, -1 if piece["highest"] is None else piece["highest"])


def _united(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The union of ranges of offsets [start, end), in order, without ranges that touch or
    overlap."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(each for each in ranges if each[0] < each[1]):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return tuple(found)


def _torn_from(pieces: Sequence[Mapping[str, Any]]) -> int:
    """The offset at which the log is torn: in the first damaged piece, or at the end of the
    previous piece if the damage is at its beginning."""
    reached = -1
    for piece in pieces:
        if piece["torn_from"] is not None:
            return max(int(piece["torn_from"]), reached + 1)
        reached = max(reached, -1 if piece["highest"] is None else piece["highest"])
    return WHOLE


MOST: Final = 32
"""The most batches per pair of logs that are decoded record by record: the slow decoder takes some
ten milliseconds for a large batch."""
MOST_RECORDS: Final = 200_000
"""The most records of a compacted log, or of differing batches, that are decoded one by one: the
slow decoder takes some ten microseconds for a small record."""
Pair = tuple[str, str, int, int, ProducerIds]
"""Two clusters that should have the same bytes but for mapped producer ids, at offsets [start,
end)."""


def with_parts(
    replicas: Sequence[Replica],
    captured: Iterable[CapturedReplica],
    pairs: Iterable[Pair] = (),
    cleaned: Mapping[str, int] | None = None,
) -> Sequence[Replica]:
    """The replicas, with the parts of records that must be compared: in replicas that differ from
    their cluster's canonical replica, and in the canonical replicas of a pair of clusters.

    `cleaned` is how far a cluster's cleaners came. If replicas differ below that offset, all of
    them get the parts of every record that could explain the difference: of one log up to its end,
    of the others below that offset. The canonical replica of a cluster with cleaners always gets
    the parts of all its records, because any of them may have replaced a missing one.
    """
    files = {(c.bounds.cluster, c.bounds.broker): c.paths for c in captured}
    looked: dict[tuple[str, int], set[int]] = defaultdict(set)
    for replica, rows in chain(
        _of_replicas(replicas, cleaned or {}), _of_pairs(replicas, pairs, cleaned or {})
    ):
        looked[replica.cluster, replica.broker].update(rows.tolist())
    return [
        _decoded(
            r, files.get((r.cluster, r.broker), ()), sorted(looked.get((r.cluster, r.broker), ()))
        )
        for r in replicas
    ]


def with_keys(
    replicas: Sequence[Replica], captured: Iterable[CapturedReplica], clusters: Collection[str]
) -> Sequence[Replica]:
    """The replicas, with the parts of all records in the canonical replicas of these clusters; a
    log with too many records gets none."""
    files = {(c.moment, c.bounds.cluster, c.bounds.broker): c.paths for c in captured}
    return [
        _decoded(r, files.get((r.moment, r.cluster, r.broker), ()), _every_row(r))
        if r.canonical and r.cluster in clusters
        else r
        for r in replicas
    ]


def _every_row(replica: Replica) -> Sequence[int]:
    rows = np.flatnonzero((replica.batches.control == DATA) & replica.batches.crc_ok)
    few = int(replica.batches.count[rows].sum()) <= MOST_RECORDS
    return rows.tolist() if few else []


def _of_replicas(
    replicas: Sequence[Replica], cleaned: Mapping[str, int]
) -> Iterator[tuple[Replica, Ints]]:
    """Per replica of one cluster, the rows of batches to decode: those that differ, and those that
    may explain what its cleaners removed."""
    for model in (r for r in replicas if r.canonical):
        for other in replicas:
            if other.cluster == model.cluster and other is not model:
                yield from zip(
                    (model, other),
                    differing(model, other, since=cleaned.get(model.cluster, 0)),
                    strict=True,
                )
    for cluster, below in cleaned.items():
        mine = [r for r in replicas if r.cluster == cluster]
        yield from _compacted(mine, below)
        for model in (r for r in mine if r.canonical):
            yield from _looked_into(model, (model.batches.control == DATA) & model.batches.crc_ok)


def _of_pairs(
    replicas: Sequence[Replica], pairs: Iterable[Pair], cleaned: Mapping[str, int]
) -> Iterator[tuple[Replica, Ints]]:
    """Per canonical replica of a pair of clusters, the rows of batches to decode: those that
    differ, and those that may explain what a cleaner of either cluster removed."""
    speaks = {r.cluster: r for r in replicas if r.canonical}
    for source, destination, start, end, how in pairs:
        if source in speaks and destination in speaks:
            both = speaks[source], speaks[destination]
            yield from zip(both, _between(*both, start, end, how), strict=True)
            below = min(end, max(cleaned.get(source, 0), cleaned.get(destination, 0)))
            yield from _compacted(
                [both[0], *(r for r in replicas if r.cluster in (source, destination))], below
            )


def _compacted(replicas: Sequence[Replica], below: int) -> Iterator[tuple[Replica, Ints]]:
    """The rows of batches to decode where replicas differ below an offset; none where these have
    too many records."""
    model = next((r for r in replicas if r.canonical), None)
    mirrored = len({r.cluster for r in replicas}) > 1
    since = [
        at
        for r in replicas
        if model is not None and r is not model and 0 <= (at := _parted(model, r, below)) < below
    ]
    for replica in replicas if since else ():
        batches = replica.batches
        inside = (batches.control == DATA) & batches.crc_ok & (batches.last_offset >= min(since))
        inside &= (batches.base_offset < below) | replica.canonical | mirrored
        yield from _looked_into(replica, inside)


def _looked_into(replica: Replica, which: Bools) -> Iterator[tuple[Replica, Ints]]:
    """The rows of the chosen batches, unless they have too many records."""
    rows = np.flatnonzero(which)
    if int(replica.batches.count[rows].sum()) <= MOST_RECORDS:
        yield replica, rows


def _parted(model: Replica, other: Replica, below: int) -> int:
    """The base offset of the first batch below an offset that only one of two replicas has, or that
    differs; else -1."""
    names = ("base_offset", "last_offset", "count", "length", "crc")
    start = max(model.log_start, other.log_start)
    sides = [
        {
            tuple(row)
            for row in zip(*(getattr(r.batches, name).tolist() for name in names), strict=True)
            if start <= row[0] < below and row[1] < min(model.high_watermark, other.high_watermark)
        }
        for r in (model, other)
    ]
    return min((row[0] for row in sides[0] ^ sides[1]), default=-1)


def differing(model: Replica, other: Replica, *, since: int = 0) -> tuple[Ints, Ints]:
    """Rows of batches with one base offset and other bytes, in both replicas, below both high
    watermarks; the first few."""
    return _between(model, other, since, min(model.high_watermark, other.high_watermark))


def _between(
    model: Replica, other: Replica, start: int, end: int, how: ProducerIds = "kept"
) -> tuple[Ints, Ints]:
    ours, theirs = model.batches, other.batches
    at = locate(ours.base_offset, theirs.base_offset)
    start = max(start, model.log_start, other.log_start)
    rows = np.flatnonzero((at >= 0) & (theirs.last_offset < end) & (theirs.base_offset >= start))
    changed = bytes_differ(ours, theirs, at[rows], rows, how)
    for name in ("crc_ok", "count"):
        changed |= getattr(ours, name)[at[rows]] != getattr(theirs, name)[rows]
    rows = rows[changed][:MOST]
    return at[rows], rows


def _decoded(replica: Replica, paths: Sequence[str], rows: Sequence[int]) -> Replica:
    if not rows or not paths:
        return replica
    bases = replica.batches.base_offset[np.array(rows)]
    log = batches.scan(_holding([Path(path) for path in paths], bases))
    at = locate(log.headers.base_offset, bases)
    at = at[at >= 0]
    headers = log.headers
    able = np.where(headers.crc_ok, headers.count, np.minimum(headers.count, headers.length))
    few = at[np.cumsum(np.maximum(able[at], 0)) <= MOST_RECORDS].tolist()
    data = (row for row in few if headers.control[row] == DATA)
    return replace(replica, parts=parts_of([each for row in data for each in log.records_of(row)]))


def _holding(paths: Sequence[Path], offsets: Ints) -> Sequence[Path]:
    """The segments with these offsets, by their file names; all segments if the names are no
    offsets."""
    if not all(path.stem.isascii() and path.stem.isdigit() for path in paths):
        return paths
    indexes = (
        np.searchsorted(np.array([int(path.stem) for path in paths]), offsets, side="right") - 1
    )
    return [paths[index] for index in np.unique(np.maximum(indexes, 0)).tolist()]


def parts_of(records: Sequence[reference.Record]) -> Parts:
    """Records as columns of digests."""
    columns: Mapping[str, list[int]] = {
        "offset": [r.offset for r in records],
        "uid": [reference.identity(r)[0] for r in records],
        "timestamp": [r.timestamp for r in records],
        "key": [digested(r.key) for r in records],
        "value": [digested(r.value) for r in records],
        "headers": [
            digested_parts([part for header in r.headers for part in header]) for r in records
        ],
    }
    return Parts(**{name: np.array(values, np.int64) for name, values in columns.items()})


def lines_of(packed: pa.BinaryScalar, fields: Sequence[str]) -> NDArray[np.int64]:
    """The numbers of one packed row, as lines of `fields`. A copy, because Spark's buffer may be
    unaligned and must not be held."""
    return np.frombuffer(packed.as_py(), "<i8").reshape(-1, len(fields))


def numbers_of(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """A column without nulls as a numpy array of its own, so that no view of Spark's buffers
    outlives them."""
    return np.array(
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    )


def unpacked(column: pa.BinaryArray, kind: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """All numbers of a packed column, and the index at which each row begins, with the end."""
    if not len(column):
        return np.zeros(0, kind), np.zeros(1, np.int64)
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, np.int32)[
        column.offset : column.offset + len(column) + 1
    ].astype(np.int64)
    # Copied: the buffer may be unaligned, and must not outlive Spark's.
    numbers = np.frombuffer(
        bytes(data.slice(int(edges[0]), int(edges[-1] - edges[0]))) if data else b"", kind
    )
    return numbers, (edges - edges[0]) // kind.itemsize


def rows_of(column: pa.BinaryArray, kind: str) -> list[NDArray[Any]]:
    """One array per row of a packed column."""
    numbers, edges = unpacked(column, np.dtype(kind))
    return [numbers[start:stop] for start, stop in pairwise(edges.tolist())]


_WATERMARKS: Final = pa.schema(list(HISTORY.field("watermark").type))
_GOT: Final = {"uids": "<i8", "offsets": "<i8", "crcs": "<i8"}


def view(run: RunPlan, topic: str, partition: int, rows: Iterable[pa.RecordBatch]) -> PartitionView:
    """The kernels' view of one partition. The rows are only its own, of the schemas of
    `spark_verify.read.rows`, in any order. Every batch of them is consumed before the next is read,
    and not kept.
    """
    captured, before = (
        [c for c in some if c.key == (topic, partition)] for some in (run.replicas, run.earlier)
    )
    gathered = PartitionRows()
    for batch in rows:
        gathered.add(batch)
    reads, shares = gathered.reads()
    replicas = gathered.replicas([*captured, *before])
    partition_facts = run.facts_of(topic, partition)
    seen = PartitionView(
        partition_facts=partition_facts,
        replicas=[r for last, r in replicas if last],
        earlier=tuple(sorted((r for last, r in replicas if not last), key=lambda r: r.captured)),
        sends=gathered.sends(),
        reads=reads,
        shares=shares,
        watermarks=_watermarks(gathered.watermarks_and_groups["watermark"]),
        groups=_groups(gathered.watermarks_and_groups["group"], topic, partition),
    )
    seen = _without_doubted(seen)
    if topic in run.facts.programs:
        seen = _of_a_program(seen)
    seen = fetched_on_the_wire(seen)
    if not (run.facts.recorded or run.facts.mirror.guarantee.offsets_kept):
        seen = named_by_content(seen)
    cleaned = _cleaned(seen)
    parted = with_parts(seen.replicas, captured, _same_bytes(partition_facts), cleaned)
    by_key = _compared_by_key(partition_facts, cleaned)
    return replace(
        seen,
        replicas=with_keys(parted, captured, by_key),
        earlier=with_keys(seen.earlier, before, by_key),
    )


def _without_doubted(seen: PartitionView) -> PartitionView:
    """Leaves out samples that no captured bytes can confirm: those between the last capture of a
    log and its truncation, with a log start or high watermark beyond the end of every captured
    log."""
    logs = (*seen.replicas, *seen.earlier)
    reached = max([0, *(r.end for r in logs), *(t.end for t in seen.truncations)])
    watermarks, doubted = dict(seen.watermarks), list[str]()
    for truncation in seen.truncations:
        if (marks := watermarks.get(truncation.cluster)) is None:
            continue
        times = [r.captured for r in logs if r.cluster == truncation.cluster]
        since = max((t for t in times if t < truncation.time), default=0)
        beyond = np.maximum(marks.log_start, marks.high_watermark)
        wrong = (marks.returned > since) & (marks.time < truncation.time) & (beyond > reached)
        for row in np.flatnonzero(wrong).tolist():
            doubted.append(
                f"{truncation.cluster} reported the offset {beyond[row]} for {seen.tp} before it "
                f"was truncated, and every log of it ends at {reached} or before; no capture shows "
                "that log"
            )
        watermarks[truncation.cluster] = marks.take(~wrong)
    return replace(seen, watermarks=watermarks, doubted=doubted)


def _of_a_program(seen: PartitionView) -> PartitionView:
    """Drops the payload ids in records that a program of the user's wrote, because the program may
    have copied the header of a record that it read. Recordings of the wire identify these
    records."""

    def replica(of: Replica) -> Replica:
        unknown = np.full(len(of.records), FOREIGN, np.int64)
        return replace(
            of,
            records=replace(of.records, uid=unknown, operation=unknown),
            made_from=of.records.uid,
        )

    def read(of: Read) -> Read:
        return replace(of, uids=np.full(len(of.uids), FOREIGN, np.int64))

    nameless = replace(
        seen,
        replicas=tuple(map(replica, seen.replicas)),
        earlier=tuple(map(replica, seen.earlier)),
        reads=tuple(map(read, seen.reads)),
        shares=tuple(map(read, seen.shares)),
    )
    wired = seen.partition_facts.facts.wired
    return (named_on_the_wire if seen.topic in wired else named_by_offset)(nameless)


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
    """Collects the rows of one partition, and keeps only what goes into the view."""

    def __init__(self) -> None:
        self.watermarks_and_groups: dict[str, list[pa.StructArray]] = {"watermark": [], "group": []}
        self._heads: dict[ReplicaKey, dict[int, Mapping[str, Any]]] = defaultdict(dict)
        self._chunks: dict[ReplicaKey, list[Chunk]] = defaultdict(list)
        self._sends = SendsBuilder()
        self._reads: list[Read] = []
        self._words: dict[object, object] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds a batch of rows of any kinds."""
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
                headers = lines_of(batch["headers"][row], HEADER_FIELDS)
                records = lines_of(batch["records"][row], RECORD_FIELDS)
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
        """The values of a column, with one object for equal strings."""
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
        return tuple(
            (whole[key].last, replica_of(whole[key], self._heads[key], self._chunks.pop(key, [])))
            for key in order
        )

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
        found[cluster] = Watermarks(
            **{name: numbers_of(own[name]) for name in own.column_names if name != "cluster"}
        )
    return found
