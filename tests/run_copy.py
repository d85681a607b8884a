"""Copies of recorded runs: damaged, changed, sealed again, and their views."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from linkflap.harness.log import reference
from linkflap.harness.model.topology import INTERNAL_TOPICS
from linkflap.harness.rundir.manifest import Content, inventory, write
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read.assemble import view
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.pieces import PARTS, history_rows
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.read.rows import BATCHES, HISTORY
from tests.kafka_log import batches_in, field_of, recrc, rewrite

Row = dict[str, Any]
"""A line of a run directory's JSON, which mutations may change."""
TOPIC = "A.orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a mutation is: the offset on `cluster` at which the anomaly must be named, and the
    payload ids (uids) that it affects. `promised` maps the uids that a client knows, or must
    conclude, to be committed to their offsets on A."""

    cluster: str
    partition: int
    offset: int
    uids: frozenset[int] = frozenset()
    promised: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a run directory, to be damaged."""

    root: Path

    def replicas(self, cluster: str, partition: int) -> list[Path]:
        """The single segment file of every captured replica, the leader's first."""
        found = sorted(self.root.glob(f"captures/*/{cluster}/*/{TOPIC}-{partition}/*.log"))
        leader = next(
            b["broker"]
            for b in self.bounds()
            if (b["cluster"], b["partition"], b["leader"]) == (cluster, partition, True)
        )
        return sorted(found, key=lambda path: path.parts[-3] != str(leader))

    def bounds(self) -> list[Row]:
        rows = [
            row
            for path in self.root.glob("captures/*/bounds.json")
            for row in json.loads(path.read_bytes())
        ]
        return [row for row in rows if row["topic"] == TOPIC]

    def promotion(self, partition: int) -> int:
        promotions = [e["data"] for e in self.rows("events.jsonl") if e["kind"] == "promotion"]
        return next(int(data["offset"]) for data in promotions if data["partition"] == partition)

    def rows(self, path: str | Path) -> list[Row]:
        return [json.loads(line) for line in (self.root / path).read_bytes().splitlines()]

    def write(self, path: str | Path, rows: Iterable[Row]) -> None:
        (self.root / path).write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    def seal(self) -> None:
        """Writes the manifest again for the present files."""
        seal(self.root)

    def change(
        self, cluster: str, partition: int, how: Callable[[list[bytes]], list[bytes]]
    ) -> None:
        """Rewrites every replica of a partition."""
        for path in self.replicas(cluster, partition):
            rewrite(path, how([data for _, data in batches_in(path)]))


def copy(recorded: Path, folder: Path, *, digests: bool = False) -> Copy:
    """A copy of a recorded run. Its manifest has no digests unless asked for: a change is then what
    happened in the run, and not damage."""
    shutil.copytree(
        recorded, folder, ignore=shutil.ignore_patterns("logs", "verdict.json", "report.html")
    )
    (folder / "logs").mkdir()
    if not digests:
        seal(folder)
    return Copy(folder)


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


def is_control(data: bytes) -> bool:
    return bool(field_of(data, "attributes") & 0x20)


def uids(data: bytes) -> frozenset[int]:
    """The payload ids of a data batch that is not compressed, read with the slow decoder."""
    (batch,) = reference.batches(data)
    return frozenset(reference.identity(record)[0] for record in reference.records(batch))


def promised(run: Copy, partition: int, among: frozenset[int]) -> Mapping[int, int]:
    """Of these uids, those that were acknowledged on A and must be committed -> their offsets in
    A's log, by the slow decoder."""
    operations = [row for path in run.root.glob("operations/*.jsonl") for row in run.rows(path)]
    shown = {
        uid
        for path in run.root.glob("polls/*.jsonl")
        for poll in run.rows(path)
        for uid in _got(poll, "A", partition)
    }
    must: set[int] = set()
    for row in operations:
        if row["phase"] != "return" or row["cluster"] != "A":
            continue
        for group in row["sends"]:
            if (group["topic"], group["partition"]) != (TOPIC, partition):
                continue
            own = set(range(group["first_uid"], group["first_uid"] + group["count"]))
            acked = {
                group["first_uid"] + i
                for first, count, _ in group.get("acks", ())
                for i in range(first, first + count)
            }
            outcome = row.get("outcome", "info")
            ended = row.get("ending") == "commit" and (
                outcome == "ok" or (outcome == "info" and own & shown)
            )
            must |= acked if ended or row["kind"] == "send" else set()
    data = b"".join(data for _, data in batches_in(run.replicas("A", partition)[0]))
    found = [
        record
        for batch in reference.batches(data)
        if not batch.attributes & 0x20
        for record in reference.records(batch)
    ]
    where = {reference.identity(record)[0]: record.offset for record in found}
    return {uid: where[uid] for uid in sorted(among & must, key=where.__getitem__)}


def _got(poll: Row, cluster: str, partition: int) -> Iterable[int]:
    """The records of a partition that a read_committed poll on a cluster returned."""
    if (poll["cluster"], poll["kind"], poll["isolation"]) == (cluster, "poll", "read_committed"):
        for fetched in poll["fetched"]:
            if (fetched["topic"], fetched["partition"]) == (TOPIC, partition):
                for uid, _, count in fetched.get("runs", ()):
                    yield from range(uid, uid + count)


def mirrored(run: Copy, partition: int) -> list[bytes]:
    """Data batches of B below the promotion offset."""
    below = run.promotion(partition)
    batches = [data for _, data in batches_in(run.replicas("B", partition)[0])]
    return [
        data for data in batches if field_of(data, "base_offset") < below and not is_control(data)
    ]


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


# Small, deliberate damage to a copy of a recorded run, with correct CRCs: what a verifier must
# find, and where.
#
# Each mutation changes one thing in a copy of the run and returns where it is. None of them
# uses the verifier's own readers of logs. The manifest is written again, so that only the
# mutation can be noticed.


def one_byte(run: Copy) -> Site:
    """Changes one byte of a record's value in the middle of its batch, in a follower's replica."""
    target, record = next(
        (data, record)
        for data in mirrored(run, 0)
        for batch in reference.batches(data)
        for record in reference.records(batch)[1:-1]
        if record.value is not None
        # values are drawn from a pool, so two in one batch may be equal
        and data.count(record.value) == 1
    )
    assert record.value is not None
    flipped = bytearray(target)
    flipped[target.index(record.value) + len(record.value) // 2] ^= 1
    path = run.replicas("B", 0)[1]
    rewrite(
        path, [recrc(bytes(flipped)) if data == target else data for _, data in batches_in(path)]
    )
    return Site(
        cluster="B",
        partition=0,
        offset=record.offset,
        uids=frozenset({reference.identity(record)[0]}),
    )


def interior_batch(run: Copy) -> Site:
    """Removes a mirrored data batch in the middle of B from every replica."""
    batches = mirrored(run, 0)
    target = batches[len(batches) // 2]
    offset = field_of(target, "base_offset")
    run.change(
        "B", 0, lambda all_: [data for data in all_ if field_of(data, "base_offset") != offset]
    )
    return Site(
        cluster="B",
        partition=0,
        offset=offset,
        uids=uids(target),
        promised=promised(run, 0, uids(target)),
    )


def emptied_history(run: Copy) -> Site:
    """Empties every file of operations and polls."""
    for path in (*run.root.glob("operations/*.jsonl"), *run.root.glob("polls/*.jsonl")):
        path.write_bytes(b"")
    return Site(cluster="", partition=-1, offset=-1)
