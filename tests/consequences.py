"""Runs that show the consequences of each generation of KIP-1279 on stock brokers, and what remains
after them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from pyspark.sql import SparkSession

from linkflap.chaos.scenarios.base import default_workloads
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.log.batches import scan
from linkflap.harness.model.history import Watermark
from linkflap.harness.model.scenario import FaultSpec, Minimums, MirrorSpec, Scenario, WorkloadSpec
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.verdict import CheckResult, Verdict
from linkflap.harness.rundir import RunReader
from linkflap.recording import run as recording
from linkflap.report.progress import Progress
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import verify
from linkflap.topologies import parse

TOPIC = "A.orders"
PAIR = parse("A->B")
PLANNED = FaultSpec(id="failover", fault="failover-planned", target="A->B", at=5.0, duration=0.0)
READERS = tuple(w for w in default_workloads(PAIR, "A") if w.kind == "readers")
SELDOM = WorkloadSpec(
    kind="idempotent", home="A", clients=4, options={"rate": 0.5, "records": 2, "partitions": 2}
)
"""One record in each partition at a time: until the failover, a producer writes at most the five
batches whose metadata a broker keeps."""
FEW = Minimums(committed=0, aborted=0, reads=1, afterwards=20)
BEYOND = replace(FEW, afterwards=60)
"""Enough records that a client of `SELDOM` has more batches on B than it had on A, although the
first ones are not appended."""


def run_of(
    name: str,
    *workloads: WorkloadSpec,
    topology: Topology = PAIR,
    schedule: tuple[FaultSpec, ...] = (),
    duration: float = 8.0,
    minimums: Minimums = FEW,
    **options: str,
) -> Scenario:
    return Scenario(
        name=name,
        about="a consequence",
        seed=7,
        topology=topology,
        mirror=MirrorSpec(kind="shadow", options=options),
        workloads=workloads,
        schedule=schedule,
        minimums=minimums,
        duration=duration,
    )


def judged(
    scenarios: tuple[Scenario, ...], folder: Path, spark: SparkSession
) -> dict[str, Judgement]:
    with Progress() as progress:
        folders = [
            recording.record(
                one,
                runtime="process",
                folder=folder / one.name,
                command="pytest",
                progress=progress,
            )
            for one in scenarios
        ]
    return {judgement.folder.name: judgement for judgement in verify(folders, spark=spark)}


class Seen:
    """A recorded run: its logs as they are on disk, operations, polls and samples."""

    def __init__(self, judgement: Judgement) -> None:
        self.judgement = judgement
        self._reader = RunReader(judgement.folder)

    def log(self, cluster: str, partition: int) -> Headers:
        """The batches of a cluster's first broker at the end, or at the failover that killed it."""
        for moment in reversed(self._reader.moments()):
            for bounds in self._reader.bounds(moment)[0]:
                if (bounds.cluster, bounds.topic, bounds.partition) == (cluster, TOPIC, partition):
                    return scan(self._reader.segments(moment, bounds)).headers
        raise AssertionError(f"no log of {cluster}")

    def batch(self, cluster: str, partition: int, offset: int) -> dict[str, int]:
        """The batch that contains an offset."""
        log = self.log(cluster, partition)
        (row,) = np.flatnonzero((log.base_offset <= offset) & (log.last_offset >= offset))
        return {name: getattr(log, name)[row].item() for name in log.__slots__}

    def promoted(self) -> dict[int, int]:
        return {
            e.partition: e.offset
            for e in cast(list[Any], self._reader.events()[0])
            if e.kind == "promotion"
        }

    def journal(self) -> list[dict[str, Any]]:
        """The shadow's report about each partition after the failover."""
        (rows,) = [
            e.row.data["partitions"] for e in self._reader.events()[0] if e.kind == "mirror-stopped"
        ]
        return [row for row in cast(list[dict[str, Any]], rows) if row["topic"] == TOPIC]

    def returned(self, cluster: str) -> dict[int, list[Any]]:
        """Operations that returned there, except init, by process."""
        found = defaultdict(list)
        for operation in sorted(self._reader.operations()[0], key=lambda o: o.time):
            if (
                operation.cluster == cluster
                and operation.phase == "return"
                and operation.kind != "init"
            ):
                found[operation.process].append(operation)
        return found

    def got(self, cluster: str, isolation: str, partition: int) -> set[int]:
        """Offsets that readers got."""
        return {
            offset
            for poll in self._reader.polls()[0]
            if (poll.cluster, poll.isolation, poll.kind) == (cluster, isolation, "poll")
            for fetched in poll.fetched
            if (fetched.topic, fetched.partition) == (TOPIC, partition)
            for _, first, count in fetched.runs
            for offset in range(first, first + count)
        }

    def last_sample(self, cluster: str, partition: int) -> Watermark:
        rows = [
            w
            for w in self._reader.watermarks()[0]
            if (w.cluster, w.topic, w.partition) == (cluster, TOPIC, partition)
        ]
        return max((w for w in rows if w.last_stable >= 0), key=lambda w: w.time)

    def of_kind(self, kind: str, cluster: str | None = None) -> list[Any]:
        return [
            a
            for a in self.judgement.anomalies
            if a.kind == kind and not a.allowed and cluster in (None, a.cluster)
        ]

    def kinds(self) -> set[str]:
        return {a.kind for a in self.judgement.anomalies if not a.allowed}

    def check(self, name: str) -> CheckResult:
        return next(c for c in self.judgement.checks if c.name == name)


def assert_lost_in_silence(seen: Seen) -> None:
    assert seen.judgement.verdict is Verdict.INVALID
    promoted = seen.promoted()
    ghosts: dict[int, set[int]] = defaultdict(set)
    for operations in seen.returned("B").values():
        for operation in operations:
            for send in operation.sends:
                ghosts[send.partition] |= {
                    at for _, count, first in send.acks for at in range(first, first + count)
                }
    ghosts = {
        number: {at for at in offsets if at < promoted[number]}
        for number, offsets in ghosts.items()
    }
    assert all(ghosts.values()), "B acknowledged in both partitions with offsets of A's records"
    for kind in ("ghost-ack", "lost-write"):
        found: dict[int, set[int]] = defaultdict(set)
        for anomaly in seen.of_kind(kind):
            assert anomaly.cluster == "B"
            found[anomaly.partition] |= set(
                range(anomaly.offset, anomaly.offset + anomaly.evidence["records"])
            )
        assert found == ghosts, kind
    for number, offsets in ghosts.items():
        for offset in offsets:
            assert seen.batch("B", number, offset)["crc"] == seen.batch("A", number, offset)["crc"]
