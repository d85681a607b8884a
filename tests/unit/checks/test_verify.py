"""verify: run directories in, verdicts out, in one Spark job."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.rundir import RunReader, write_whole
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.run_guarantees import NAMES
from linkflap.spark_verify.verify import VERDICT_FILE, checks_of, verify
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
    assert [c.name for c in first.checks] == [*REGISTRY, *NAMES]
    assert [c.name for c in second.checks] == ["duplicate", *NAMES]
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
