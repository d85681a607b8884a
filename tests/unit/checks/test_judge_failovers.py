"""The judge's findings about failovers, and about a cluster whose mirror was reversed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from linkflap.harness.model.clock import now
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.spark.finding_rows import FindingRow
from tests.unit.checks.judged_runs import (
    LINK,
    Recorded,
    document_of,
    result,
    row,
    verdict_of,
)
from tests.unit.checks.logs import SECOND


def failed_over(
    folder: Path, *, partition_writes: Sequence[int | None], fault_time: int = 100 * SECOND
) -> list[FindingRow]:
    return [
        row(
            folder, "failover", "partial", cluster="B", offset=3,
            data={"link": LINK, "kind": "forced", "fault_time": fault_time, "rpo_records": 2,
                "first_write": write},
        )
        for write in partition_writes
    ]  # fmt: skip


def test_failovers_are_added_up_over_partitions(recorded: Recorded) -> None:
    folder = recorded.close()
    judgement = verdict_of(
        folder, failed_over(folder, partition_writes=[None, 104 * SECOND, 103 * SECOND]), "failover"
    )
    (row,) = document_of(judgement)["failovers"]
    assert [row[name] for name in ("link", "kind", "promoted", "rpo_records", "rto_seconds")] == [
        LINK,
        "forced",
        3,
        6,
        3.0,
    ]
    assert [each["rto_seconds"] for each in row["partitions"]] == [None, 4.0, 3.0]
    assert result(judgement, "failover").verdict is Verdict.NOT_DUE, (
        "no promotion was recorded in this run"
    )


def test_a_failover_after_which_nothing_was_written_is_unknown(recorded: Recorded) -> None:
    folder = recorded.close()
    judgement = verdict_of(folder, failed_over(folder, partition_writes=[None]), "failover")
    assert judgement.failovers[0].rto_seconds is None
    assert result(judgement, "failover").verdict is Verdict.UNKNOWN


def test_a_failover_that_promoted_nothing_is_unknown(recorded: Recorded) -> None:
    recorded.event("failover", LINK, kind="forced", fault_time=1)
    folder = recorded.close()
    assert "promoted no partition" in result(verdict_of(folder, [], "failover"), "failover").reason


def followed(tmp_path: Path) -> Path:
    """A run in which A became a mirror of B."""
    reverse = FaultSpec(id="r", fault="mirror-reverse", target=LINK, at=1.0, duration=0.0)
    run = Recorded(tmp_path / "run", mirror=MirrorSpec(kind="shadow"), schedule=(reverse,))
    run.event("promotion", LINK, cluster="B", topic="A.t", partition=0, offset=3)
    run.event("failover", LINK, kind="forced", fault_time=now())
    run.fault("r", fault="mirror-reverse")
    run.event("mirror-started", "B->A", mirror="shadow", options={}, seconds=1.0)
    return run.close()


def everywhere(folder: Path, check: str, *, mirrored_to_a: bool) -> list[FindingRow]:
    where = [
        ("A", "native"),
        ("B", "mirrored"),
        ("B", "native"),
        *([("A", "mirrored")] if mirrored_to_a else []),
    ]
    return [
        row(folder, check, "examined", cluster=cluster, origin=origin, count=3)
        for cluster, origin in where
    ]


def test_records_mirrored_back_must_have_been_compared(tmp_path: Path) -> None:
    folder = followed(tmp_path)
    checked = result(
        verdict_of(folder, everywhere(folder, "byte-equality", mirrored_to_a=False), "duplicate"),
        "duplicate",
    )
    assert checked.verdict is Verdict.UNKNOWN
    rows = everywhere(folder, "duplicate", mirrored_to_a=False)
    checked = result(verdict_of(folder, rows, "duplicate"), "duplicate")
    assert (checked.verdict, checked.reason) == (
        Verdict.UNKNOWN,
        "no mirrored records of A were there to examine",
    )
    rows = everywhere(folder, "duplicate", mirrored_to_a=True)
    assert result(verdict_of(folder, rows, "duplicate"), "duplicate").verdict is Verdict.VALID


def test_no_reader_is_needed_on_a_cluster_that_follows_and_the_verdict_tells(
    tmp_path: Path,
) -> None:
    folder = followed(tmp_path)
    rows = everywhere(folder, "aborted-read", mirrored_to_a=False)
    checked = result(verdict_of(folder, rows, "aborted-read"), "aborted-read")
    assert (checked.verdict, checked.reason) == (
        Verdict.VALID,
        "no reader read the records mirrored to A after the failback",
    )
