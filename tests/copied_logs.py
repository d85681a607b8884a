"""Logs without a history, judged without Spark, by the same plan, kernels and judge; and damages of
a log's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from linkflap.harness.capture.folders import record
from linkflap.harness.capture.logs_request import LogsRequest
from linkflap.harness.log import batches
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.rundir import RunReader
from linkflap.spark_verify.checks import REGISTRY, finding_rows
from linkflap.spark_verify.checks.finding_rows import FindingRow, damaged
from linkflap.spark_verify.read.rows import damage_of
from linkflap.spark_verify.verdict.judge import Judgement, judge
from tests.kafka_log import (
    ABORT,
    COMMIT,
    batch,
    batches_in,
    changed,
    marker,
    ours,
    rewrite,
    segment,
)
from tests.kafka_log import record as plain
from tests.run_copy import views

KIP_1279 = Path(__file__).parent / "data" / "logs" / "kip-1279"


def kip_1279_log(moment: str, cluster: str, partition: int) -> batches.ReplicaLog:
    """A log that a build of KIP-1279 wrote, as it was at one moment of a failover and failback."""
    return batches.scan(sorted((KIP_1279 / moment / cluster / f"tx-{partition}").glob("*.log")))


def asked(
    logs: Mapping[str, Path],
    *links: str,
    promotions: Mapping[tuple[str, str, int], Sequence[int]] | None = None,
) -> LogsRequest:
    """Links as `A->B`."""
    pairs = [link.split("->") for link in links]
    return LogsRequest(
        logs=logs,
        links=[LinkSpec(source=s, destination=d) for s, d in pairs],
        promotions=promotions or {},
    )


def judged(folder: Path, wanted: LogsRequest) -> Judgement:
    """Creates the run directory and judges it."""
    record(folder, wanted, "linkflap verify --logs")
    return judged_again(folder)


def judged_again(folder: Path) -> Judgement:
    """Judges a run directory (also of a recorded run), except for findings across several
    partitions."""
    run = RunReader(folder).run
    rows: list[FindingRow] = []
    for view in views(folder):
        rows += [damaged(view.run, d.path, d.reason) for d in damage_of(view)]
        rows += [
            row
            for check in REGISTRY.values()
            if check.runs_on(run.scenario.mirror.guarantee, recorded=run.recorded)
            for row in finding_rows.examine(check, view)
        ]
    return judge(folder, rows, list(REGISTRY.values()))


def sound(folder: Path, *, base: int = 0) -> Path:
    """A small log with plain and idempotent records, a committed and an aborted transaction: ten
    offsets in six batches."""
    return segment(
        folder,
        [
            batch(base, [plain(b"one"), plain(b"two")]),
            batch(base + 2, [plain(b"three"), plain(b"four")], pid=7, epoch=0, seq=0),
            batch(base + 4, [ours(1), ours(2)], pid=8, epoch=0, seq=0, transactional=True),
            marker(base + 6, COMMIT, pid=8, epoch=0),
            batch(
                base + 7,
                [ours(3), ours(4)],
                pid=8,
                epoch=0,
                seq=2,
                transactional=True,
                codec="gzip",
            ),
            marker(base + 9, ABORT, pid=8, epoch=0),
        ],
        base_offset=base,
    )


def torn_tail(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def corrupt_batch(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    position = batches_in(path)[1][0]
    whole[position + 70] ^= 0xFF
    path.write_bytes(bytes(whole))


def unknown_magic(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[batches_in(path)[2][0] + 16] = 9
    path.write_bytes(bytes(whole))


def unknown_compression(path: Path) -> None:
    whole = [data for _, data in batches_in(path)]
    rewrite(path, [whole[0], changed(whole[1], attributes=6), *whole[2:]])


def segment_of_another_topic(path: Path) -> None:
    other = batch(2000, [plain(b"stranger")])
    segment(path.parent, [other, batch(2001, [plain(b"more")])], base_offset=3000)


def overlapping_segments(path: Path) -> None:
    segment(path.parent, [data for _, data in batches_in(path)][4:], base_offset=7)


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no log, and nobody said it was. " * 20)


def no_segment(path: Path) -> None:
    path.unlink()


def unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


BAD: Mapping[str, tuple[Callable[[Path], None], str]] = {
    "torn-tail": (torn_tail, "torn-tail"),
    "corrupt-batch": (corrupt_batch, "corrupt-batch"),
    "unknown-magic": (unknown_magic, "unknown-magic"),
    "unknown-compression": (unknown_compression, "compression codec 6 is unknown"),
    "another-topic": (segment_of_another_topic, "misplaced-segment"),
    "overlapping": (overlapping_segments, "overlap"),
    "garbage": (garbage, "at byte 0"),
    "no-segment": (no_segment, "no segment file"),
    "unreadable": (unreadable, "unreadable-file"),
}
"""The damages of files: a function that makes each, and what the verdict says."""
