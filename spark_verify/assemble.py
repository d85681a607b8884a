"""From rows to views: one `PartitionView` from the rows of one (run, topic, partition), in whatever order they come.

The same function serves Spark's workers and `views`, which reads a run directory without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from harness.model.history import GroupOffset
from harness.rundir import Damage
from spark_verify.checks.producer_ids import MAPPED
from spark_verify.disputes import Pair, with_parts
from spark_verify.eras import KEEP_OFFSETS, history
from spark_verify.plan import RunPlan, plan
from spark_verify.rows import BATCHES, HEADER_FIELDS, HISTORY, PARTS, RECORD_FIELDS, batch_rows, history_rows
from spark_verify.view import Batches, PartitionView, Read, Records, Replica, Send, Watermarks

_WATERMARK_FIELDS: Final = ("time", "returned", "leader", "log_start", "last_stable", "high_watermark", "leader_epoch")
_FLAGS: Final = ("crc_ok", "transactional")


def view(run: RunPlan, topic: str, partition: int, batches: pa.Table, history: pa.Table) -> PartitionView:
    """One partition as the kernels see it. The tables hold its rows only, of the schemas of `spark_verify.rows`."""
    captured = [c for c in run.replicas if (c.bounds.topic, c.bounds.partition) == (topic, partition)]
    replicas = _replicas(batches)
    story = run.story(topic, partition)
    return replace(
        story,
        replicas=with_parts([r for last, r in replicas if last], captured, _same_bytes(story)),
        earlier=tuple(sorted((r for last, r in replicas if not last), key=lambda r: r.captured)),
        sends=_sends(_of(history, "send")),
        reads=_reads(_of(history, "read")),
        watermarks=_watermarks(_of(history, "watermark")),
        groups=_groups(_of(history, "group"), topic, partition),
    )


def _same_bytes(story: PartitionView) -> Iterator[Pair]:
    """What crossed which link, where the mirror keeps every byte."""
    if story.mirror.kind in KEEP_OFFSETS and story.mirror.options.get("producer_ids") not in MAPPED:
        for crossing in history(story).crossings:
            yield crossing.source, crossing.destination, crossing.start, crossing.end


def views(root: Path, planned: RunPlan | None = None) -> Iterator[PartitionView]:
    """Every partition of a run directory (planned already, or not), without Spark. Raises InputError when it is not one."""
    run = planned or plan(root)
    batches = pa.Table.from_batches(batch_rows([*run.replicas, *run.earlier]), BATCHES)
    history = pa.Table.from_batches((b for part in PARTS for b in history_rows(root, part)), HISTORY)
    keys = {
        key for table in (batches, history) for key in zip(*(table[n].to_pylist() for n in ("topic", "partition")), strict=True)
    }
    for topic, partition in sorted(keys):
        if run.judges(topic):
            yield view(run, topic, partition, _at(batches, topic, partition), _at(history, topic, partition))


def damage_in(history: pa.Table) -> list[Damage]:
    """What the rows say of parts of a history that could not be read."""
    return [Damage(**row) for row in _of(history, "damage").to_pylist()]


def damage_of(seen: PartitionView) -> list[Damage]:
    """What is wrong with the captured logs of a partition: a cluster that has none, bytes of a replica that cannot be read."""
    place = f"{seen.topic}-{seen.partition}"
    there = {replica.cluster for replica in seen.replicas}
    due = dict.fromkeys((seen.home, *(destination for _, destination in seen.hops())))
    absent = [Damage(path="captures", reason=f"no log of {place} on {name} was captured") for name in due if name not in there]
    torn = [
        Damage(path=f"captures/*/{replica.cluster}/{replica.broker}/{place}", reason=reason)
        for replica in (*seen.replicas, *seen.earlier)
        for reason in replica.damage
    ]
    return [*absent, *torn]


def _at(table: pa.Table, topic: str, partition: int) -> pa.Table:
    return table.filter((pc.field("topic") == topic) & (pc.field("partition") == partition))


def _of(history: pa.Table, kind: str) -> pa.Table:
    """The rows of one kind as a table of its fields."""
    column = history[kind].combine_chunks().drop_null()
    return pa.Table.from_arrays(column.flatten(), names=[field.name for field in column.type])


def _replicas(table: pa.Table) -> Sequence[tuple[bool, Replica]]:
    """Every replica, and whether it is of its cluster's last capture."""
    order = [(name, "ascending") for name in ("cluster", "broker", "moment", "ordinal")]
    table = table.sort_by(order).combine_chunks()
    heads = np.flatnonzero(_numbers(table["ordinal"]) < 0).tolist()
    # None at all where only clients know of the partition: the run ended before its logs were captured.
    ends = [*heads[1:], len(table)][: len(heads)]
    return tuple(_replica(table.slice(head, end - head)) for head, end in zip(heads, ends, strict=True))


def _replica(rows: pa.Table) -> tuple[bool, Replica]:
    """One replica from its own row and, after it, those of the stretches of its log."""
    head = rows.slice(0, 1).select(["cluster", "broker", "moment", "replica"]).to_pylist()[0]
    told = head["replica"]
    body = rows.slice(1).combine_chunks()
    headers = _table(body["headers"], HEADER_FIELDS)
    headers |= {name: headers[name] != 0 for name in _FLAGS}
    return told["last"], Replica(
        cluster=head["cluster"],
        broker=head["broker"],
        leader=told["leader"],
        canonical=told["canonical"],
        log_start=told["log_start"],
        high_watermark=told["high_watermark"],
        high_watermark_from=told["high_watermark_from"],
        batches=Batches(**headers),
        records=Records(**_table(body["records"], RECORD_FIELDS)),
        damage=tuple(told["damage"]),
        moment=head["moment"],
        captured=told["captured"],
    )


def _numbers(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """A column without nulls as a numpy array of its own, so that no view of Spark's buffers outlives them."""
    return np.array(column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy())


def _sends(table: pa.Table) -> Sequence[Send]:
    """Sends by time of invocation, then by number and first uid."""
    table = table.sort_by([("invoked", "ascending"), ("number", "ascending"), ("first_uid", "ascending")])
    kinds = {"offsets": "<i8", "refused": "?", "inputs": "<i8", "input_uids": "<i8"}
    packed = zip(*(_split(table[name], kind) for name, kind in kinds.items()), strict=True)
    plain = table.drop_columns(list(kinds)).to_pylist()
    return tuple(Send(**row, **dict(zip(kinds, arrays, strict=True))) for row, arrays in zip(plain, packed, strict=True))


def _reads(table: pa.Table) -> Sequence[Read]:
    """Reads by time of return, then by reader; within one poll as they were written."""
    table = table.sort_by([("returned", "ascending"), ("time", "ascending"), ("reader", "ascending")])
    uids, offsets = _split(table["uids"], "<i8"), _split(table["offsets"], "<i8")
    plain = table.drop_columns(["uids", "offsets"]).to_pylist()
    return tuple(Read(**row, uids=u, offsets=o) for row, u, o in zip(plain, uids, offsets, strict=True))


def _table(column: pa.ChunkedArray, names: Sequence[str]) -> dict[str, Any]:
    """The named columns that were packed row by row."""
    numbers, _ = _unpacked(column, np.dtype("<i8"))
    return dict(zip(names, np.ascontiguousarray(numbers.reshape(-1, len(names)).T), strict=True))


def _unpacked(column: pa.ChunkedArray, kind: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """All numbers of a packed column, and where those of each row end."""
    packed = column.combine_chunks()
    if not len(packed):
        return np.zeros(0, kind), np.zeros(0, np.int64)
    _, offsets, data = packed.buffers()
    ends = np.frombuffer(offsets, np.int32)[packed.offset : packed.offset + len(packed) + 1].astype(np.int64)
    # Copied: the buffer may be unaligned, and must not outlive Spark's.
    numbers = np.frombuffer(bytes(data)[ends[0] : ends[-1]] if data else b"", kind)
    return numbers, (ends[1:] - ends[0]) // kind.itemsize


def _split(column: pa.ChunkedArray, kind: str) -> list[NDArray[Any]]:
    """One array per row of a packed column."""
    numbers, ends = _unpacked(column, np.dtype(kind))
    stops = ends.tolist()
    return [numbers[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def _groups(table: pa.Table, topic: str, partition: int) -> Sequence[GroupOffset]:
    table = table.sort_by([("time", "ascending"), ("cluster", "ascending"), ("group", "ascending")])
    return tuple(GroupOffset(topic=topic, partition=partition, **row) for row in table.to_pylist())


def _watermarks(table: pa.Table) -> Mapping[str, Watermarks]:
    found: dict[str, Watermarks] = {}
    for cluster in sorted(set(table["cluster"].to_pylist())):
        own = table.filter(pc.field("cluster") == cluster).sort_by([("time", "ascending"), ("returned", "ascending")])
        found[cluster] = Watermarks(**{name: _numbers(own[name]) for name in _WATERMARK_FIELDS})
    return found
