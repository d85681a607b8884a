"""Run directories that a test has changed: sealed again, and their views."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from linkflap.harness.model.topology import INTERNAL_TOPICS
from linkflap.harness.rundir.manifest import Content, inventory, write
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read.assemble import view
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.pieces import PARTS, history_rows
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.read.rows import BATCHES, HISTORY

Row = dict[str, Any]
"""A line of a run directory's JSON, which mutations may change."""


def seal(root: Path, *, digests: bool = False) -> None:
    """Writes the manifest of a run directory again for its present files, as if they were recorded
    like this: as old versions did, or with digests. A test that changes a run directory calls this
    after each change; without digests it may change segments afterwards."""
    _says(root, digests=digests)
    found = inventory(root)
    if not digests:
        found = {name: _size(name, was) for name, was in found.items() if name != "run.json"}
    write(root, found)


def _says(root: Path, *, digests: bool) -> None:
    """Makes run.json say whether the manifest has digests, whatever else is in it."""
    path = root / "run.json"
    if not path.is_file():
        return
    says = b'"digests": ' + (b"true" if digests else b"false")
    path.write_bytes(re.sub(rb'"digests":\s*(true|false)', says, path.read_bytes()))


def _size(name: str, was: int | Content) -> int:
    return -1 if isinstance(was, int) or name.endswith(".log") else was.bytes


# The views of a run directory, computed in this process: the same as those of Spark's workers,
# without Spark.


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
