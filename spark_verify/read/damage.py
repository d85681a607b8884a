"""Damage to a run directory: unreadable parts of a history, logs that were not captured, and bytes
that are not batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.rundir import Damage
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read.rows import HISTORY


def keeps_ids(guarantee: Guarantee) -> bool:
    return guarantee.offsets_kept and not guarantee.producer_ids_mapped


def damage_in(rows: Iterable[pa.RecordBatch]) -> list[Damage]:
    """The rows' reports of unreadable parts of a history."""
    return [Damage(**row) for batch in rows for row in of_kind(batch, "damage").to_pylist()]


def damage_of(seen: PartitionView) -> list[Damage]:
    """What is wrong with the captured logs of a partition: a cluster that has none, bytes of a
    replica that cannot be read."""
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
    return [*absent, *torn, *_strange_ids(seen)]


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
