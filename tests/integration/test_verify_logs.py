"""Logs without a history, through Spark to the verdict: it is what the kernels say without Spark,
which the unit tests look at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from linkflap.cli.commands import linkflap
from linkflap.harness.capture.folders import record
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import verify
from tests.copied_logs import BAD, KIP_1279, asked, judged_again, sound

MOMENTS = ("1-before-stop", "2-after-stop", "3-diverged", "4-after-failback", "5-a-stopped")


@pytest.fixture(scope="module")
def judgements(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Judgement]:
    """By name: every moment in the direction of the mirror, one in the other direction, and a run
    for each kind of damaged file."""
    root = tmp_path_factory.mktemp("logs")
    wanted = {m: asked({n: KIP_1279 / m / n for n in "AB"}, "A->B", "B->A") for m in MOMENTS}
    wanted["against"] = asked({n: KIP_1279 / "3-diverged" / n for n in "AB"}, "B->A")
    for what, (spoil, _) in BAD.items():
        folder = root / f"{what}-logs"
        for cluster in "AB":
            sound(folder / cluster / "fine-0")
            path = sound(folder / cluster / "orders-0")
        spoil(path)
        wanted[what] = asked({n: folder / n for n in "AB"}, "A->B")
    for name, each in wanted.items():
        record(root / name, each, "linkflap verify --logs")
    found = verify([root / name for name in wanted], spark=spark)
    return dict(zip(wanted, found, strict=True))


@pytest.mark.spark
def test_spark_says_what_the_kernels_say(judgements: dict[str, Judgement]) -> None:
    for name, judgement in judgements.items():
        assert judged_again(judgement.folder).document == judgement.document, name


@pytest.mark.spark
def test_the_command_makes_a_folder_with_verdict_and_report(
    tmp_path: Path, spark: SparkSession
) -> None:
    out = tmp_path / "judged"
    logs = [
        text for name in "AB" for text in ("--logs", f"{name}={KIP_1279 / '3-diverged' / name}")
    ]
    arguments = ["verify", *logs, "--link", "B->A", "--out", str(out), "--json"]
    result = CliRunner().invoke(linkflap, arguments, standalone_mode=False)
    assert result.exception is None, result.output
    assert result.return_value == 1
    document = json.loads(result.stdout)
    assert (document["verdict"], document["runtime"], document["mirror"]) == (
        "invalid",
        "files",
        "exact",
    )
    assert "byte-divergence" in (out / "report.html").read_text()
    assert json.loads((out / "verdict.json").read_bytes()) == document
    again = CliRunner().invoke(linkflap, ["verify", str(out)], standalone_mode=False)
    assert again.return_value == 1
    assert f"linkflap explain {out} 1" in again.stdout
