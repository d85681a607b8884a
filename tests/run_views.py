"""The views of a run directory, computed in this process: the same as those of Spark's workers,
without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from linkflap.harness.model.topology import INTERNAL_TOPICS
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read.assemble import view
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.pieces import PARTS, history_rows
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.read.rows import BATCHES, HISTORY


def views(root: Path, planned: RunPlan | None = None) -> Iterator[PartitionView]:
    """Every partition of a run directory (planned already, or not). Raises InputError if it is not
    a run directory."""
    run = planned or plan(root)
    batches = pa.Table.from_batches(batch_rows([*run.replicas, *run.earlier]), BATCHES)
    history = pa.Table.from_batches(
        (b for part in PARTS for b in history_rows(root, part)), HISTORY
    )
    keys = {
        key
        for table in (batches, history)
        for key in zip(*(table[n].to_pylist() for n in ("topic", "partition")), strict=True)
    }
    for topic, partition in sorted(keys):
        if run.judges(topic) or topic in INTERNAL_TOPICS:
            own = (
                batch
                for table in (batches, history)
                for batch in _at(table, topic, partition).to_batches()
            )
            yield view(run, topic, partition, own)


def _at(table: pa.Table, topic: str, partition: int) -> pa.Table:
    return table.filter((pc.field("topic") == topic) & (pc.field("partition") == partition))
