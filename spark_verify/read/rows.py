"""The two tables that a run directory becomes: their Arrow schemas (`log_rows` and `history_rows`
fill them). No Spark in here.

    batches    one row per piece of a replica (its damage; `ordinal` -1) and one per
               chunk of its batches (`ordinal` = place of the first in the piece): their headers,
               and their data records, whose `batch` counts from where the piece begins, where the
               replica speaks for its cluster
    history    one row per send group, per poll of a partition, per sampled watermark or group
               offset; and one per part that cannot be trusted

Columns of numbers cross Spark as bytes, row after row of little-endian i64: a row per batch costs
the JVM several times the CPU of everything else together (measured at 120,000 batches: 6 s more).
Every row carries (run, topic, partition), so that many runs are one table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.rundir import Damage
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import Batches, PartitionView, Records, Watermarks

PACKED: Final = pa.binary()
HEADER_FIELDS: Final = tuple(f.name for f in fields(Batches))
RECORD_FIELDS: Final = tuple(f.name for f in fields(Records))
_KEY: Final = [("run", pa.string()), ("topic", pa.string()), ("partition", pa.int32())]

BATCHES: Final = pa.schema(
    [
        *_KEY,
        ("cluster", pa.string()),
        ("broker", pa.int32()),
        ("moment", pa.string()),
        ("piece", pa.int32()),
        ("ordinal", pa.int64()),
        (
            "replica",
            pa.struct(
                [
                    ("damage", pa.list_(pa.string())),
                    ("unreadable", pa.list_(pa.string())),
                    ("torn_from", pa.int64()),
                    ("unread", pa.list_(pa.list_(pa.int64()))),
                    ("decoded", pa.bool_()),
                    ("lowest", pa.int64()),
                    ("highest", pa.int64()),
                ]
            ),
        ),
        ("headers", PACKED),
        ("records", PACKED),
        ("entries", PACKED),
    ]
)
"""`entries`: what coordinators wrote into this piece of one of Kafka's own topics, JSON; null where
there is none."""

_TYPES: Final = {"int": pa.int64(), "str": pa.string(), "Ints": PACKED, "Bools": PACKED}


def _fields_of(row: type) -> list[tuple[str, pa.DataType]]:
    return [(each.name, _TYPES[str(each.type)]) for each in fields(row)]


SEND: Final = pa.struct(_fields_of(Send))
READ: Final = pa.struct(_fields_of(Read))
WATERMARK: Final = pa.struct(
    [("cluster", pa.string()), *((each.name, pa.int64()) for each in fields(Watermarks))]
)
GROUP: Final = pa.struct(
    [("time", pa.int64()), ("cluster", pa.string()), ("group", pa.string()), ("offset", pa.int64())]
)
DAMAGE: Final = pa.struct([("path", pa.string()), ("reason", pa.string())])
HISTORY: Final = pa.schema(
    [
        *_KEY,
        ("send", SEND),
        ("read", READ),
        ("watermark", WATERMARK),
        ("group", GROUP),
        ("damage", DAMAGE),
    ]
)

BYTES_AT_ONCE: Final = 4 << 20
Item = TypeVar("Item")


def gathered(
    items: Iterable[Item], size_of: Callable[[Item], int], size: int, *, most: int | None = None
) -> Iterator[list[Item]]:
    """The items in lists of about one size, or of so many at most."""
    waiting: list[Item] = []
    waits = 0
    for item in items:
        waiting.append(item)
        waits += size_of(item)
        if waits >= size or len(waiting) == most:
            yield waiting
            waiting, waits = [], 0
    if waiting:
        yield waiting


def keeps_ids(guarantee: Guarantee) -> bool:
    return guarantee.offsets_kept and not guarantee.producer_ids_mapped


def damage_in(rows: Iterable[pa.RecordBatch]) -> list[Damage]:
    """The rows' reports of unreadable parts of a history."""
    return [Damage(**row) for batch in rows for row in of_kind(batch, "damage").to_pylist()]


def damage_of(seen: PartitionView) -> list[Damage]:
    """The damage of a partition's captured logs (a cluster that has none, bytes of a replica that
    cannot be read) and of its samples."""
    where = f"{seen.topic}-{seen.partition}"
    there = {replica.cluster for replica in seen.replicas}
    due = dict.fromkeys(
        () if seen.internal else (seen.home, *(destination for _, destination in seen.hops()))
    )
    absent = [
        Damage(path="captures", reason=f"no log of {where} on {name} was captured")
        for name in due
        if name not in there
    ]
    torn = [
        Damage(path=f"captures/*/{replica.cluster}/{replica.broker}/{where}", reason=reason)
        for replica in (*seen.replicas, *seen.earlier)
        for reason in replica.damage
    ]
    doubted = [Damage(path="watermarks", reason=reason) for reason in seen.doubted]
    return [*absent, *torn, *doubted, *_strange_ids(seen)]


def _strange_ids(seen: PartitionView) -> Iterator[Damage]:
    """Producer ids that no broker assigns, where the mirror keeps ids and so cannot have made
    them."""
    if not keeps_ids(seen.guarantee):
        return
    for replica in (*seen.replicas, *seen.earlier):
        b = replica.batches
        strange = np.flatnonzero((b.producer_id < -1) & b.crc_ok)
        if len(strange):
            first = f"first {b.producer_id[strange[0]]} at offset {b.base_offset[strange[0]]}"
            where = f"captures/*/{replica.cluster}/{replica.broker}/{seen.topic}-{seen.partition}"
            yield Damage(
                path=where,
                reason=(
                    f"{len(strange)} batches have producer ids that no broker hands out, {first}"
                ),
            )


def of_kind(batch: pa.RecordBatch, kind: str) -> pa.StructArray:
    """The rows of one kind of history in a batch; none where it has no such column."""
    if kind not in batch.schema.names:
        return pa.array([], HISTORY.field(kind).type)
    return batch[kind].drop_null()
