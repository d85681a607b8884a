"""verify: run directories in, verdicts out, in one Spark job; what the verdict of a round trip
tells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.rundir import RunReader, write_whole
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import RUN_CHECKS
from linkflap.spark_verify.verify import VERDICT_FILE, checks_of, verify
from tests.copied_logs import judged_again
from tests.faithful.clusters import states
from tests.faithful.made import Made
from tests.faithful.mutations.base import ROUND_TRIP, promotion
from tests.faithful.spec import TOPIC, spec
from tests.faithful.stories import story
from tests.synthetic import Shape, write_run


def asking_for(folder: Path, *checks: str) -> Path:
    """Makes a run request these checks only."""
    run = msgspec.json.decode((folder / "run.json").read_bytes())
    run["scenario"]["checks"] = list(checks)
    write_whole(folder / "run.json", msgspec.json.encode(run))
    return folder


def test_a_run_that_names_no_checks_gets_all(tmp_path: Path) -> None:
    assert checks_of(write_run(tmp_path / "run")) == list(REGISTRY.values())


def test_a_run_gets_the_checks_that_it_names(tmp_path: Path) -> None:
    folder = asking_for(write_run(tmp_path / "run"), "duplicate", "recording")
    assert [check.name for check in checks_of(folder)] == ["duplicate"]


def test_a_check_that_there_is_not_is_named(tmp_path: Path) -> None:
    folder = asking_for(write_run(tmp_path / "run"), "dublicate")
    with pytest.raises(
        InputError, match="asks for an unknown check 'dublicate'; known: order-equality"
    ):
        verify([folder])


def test_a_folder_that_is_no_run_directory_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run directory"):
        verify([tmp_path])


@pytest.mark.spark
def test_two_runs_in_one_job_get_a_verdict_each(spark: SparkSession, tmp_path: Path) -> None:
    large = write_run(tmp_path / "large", Shape(partitions=3, transactions=20))
    small = asking_for(write_run(tmp_path / "small", Shape(partitions=1)), "duplicate")
    first, second = verify([large, small], spark=spark)
    assert [c.name for c in first.checks] == [*REGISTRY, *RUN_CHECKS]
    assert [c.name for c in second.checks] == ["duplicate", *RUN_CHECKS]
    # The made-up runs have the same log on both sides, markers included: 3 records per transaction,
    # and every fifth transaction aborted.
    examined = {
        j.folder.name: next(c for c in j.checks if c.name == "duplicate").examined
        for j in (first, second)
    }
    assert examined == {
        "large": {"A/native": 3 * 48, "B/mirrored": 3 * 24, "B/native": 3 * 24},
        "small": {"A/native": 24, "B/mirrored": 12, "B/native": 12},
    }
    for judgement in (first, second):
        assert judgement.verdict is not Verdict.VALID
        assert (
            msgspec.json.decode((judgement.folder / VERDICT_FILE).read_bytes())
            == judgement.document
        )
        assert RunReader(judgement.folder).damage() == []


@pytest.fixture(scope="module")
def round_trip(tmp_path_factory: pytest.TempPathFactory) -> tuple[Made, Mapping[str, Any]]:
    """A forced failover from A to B, and a planned one back."""
    made = story(spec(1, **ROUND_TRIP))
    judgement = judged_again(made.write(tmp_path_factory.mktemp("trip") / "run"))
    assert judgement.verdict is Verdict.VALID, judgement.document["reason"]
    return made, judgement.document


def test_the_records_that_only_the_lost_cluster_had_are_the_recovery_point_exactly(
    round_trip: tuple[Made, Mapping[str, Any]],
) -> None:
    made, document = round_trip
    lost = 0
    for partition in (0, 1):
        log = made.log("A", partition, moment="1-away")
        state, kept = states(log).state, {u for e in made.log("B", partition) for u in e.uids}
        sent = [e for e in log if e.ends is None and state[e.offset] in ("plain", "committed")]
        lost += sum(uid not in kept for entry in sent for uid in entry.uids)
    assert lost > 0
    failovers = document["failovers"]
    costs = [(f["link"], f["kind"], f["rpo_records"]) for f in failovers]
    assert costs == [("A->B", "forced", lost), ("B->A", "planned", 0)]
    for failover in failovers:
        began = failover["fault_time"]
        first = min(
            row.time
            for row in made.operations
            if row.cluster == failover["link"][-1]
            and row.time > began
            and any(group.acks for group in row.sends)
        )
        assert failover["rto_seconds"] == pytest.approx((first - began) / 1e9, abs=0.001)


def test_the_document_tells_every_era_and_the_tail_that_was_truncated(
    round_trip: tuple[Made, Mapping[str, Any]],
) -> None:
    made, document = round_trip
    away, home = promotion(made, "B"), promotion(made, "A")
    eras = [e for e in document["eras"] if (e["topic"], e["partition"]) == (TOPIC, 0)]
    names = ("cluster", "origin", "source", "start", "end", "truncated")
    assert [tuple(era[name] for name in names) for era in eras] == [
        ("A", "native", "", away, None, True),
        ("A", "native", "", 0, away, False),
        ("A", "mirrored", "B", away, home, False),
        ("A", "native", "", home, None, False),
        ("B", "mirrored", "A", 0, away, False),
        ("B", "native", "", away, None, False),
    ]
    copied = [e for e in made.log("B") if e.offset >= away]
    assert eras[2]["compared"]["batches"] == len(copied)
    assert eras[2]["compared"]["records"] == sum(len(e.records) for e in copied)
