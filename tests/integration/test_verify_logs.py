"""Logs without a history, through Spark to the verdict; and the size of the report of a million
records."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from linkflap.cli.commands import linkflap
from linkflap.harness.capture.folders import record
from linkflap.harness.model.verdict import Verdict
from linkflap.judging.page import about
from linkflap.report import html
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import verify
from tests.copied_logs import BAD, KIP_1279, asked, judged_again, sound
from tests.run_copy import seal

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


SPLIT = {("outcome-split", 0, 21), ("outcome-split", 1, 8)}
"""Transactions that A committed after B had aborted them."""


@pytest.mark.spark
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_moment_of_a_sound_mirror_is_valid_but_where_one_transaction_has_two_outcomes(
    judgements: dict[str, Judgement], moment: str
) -> None:
    judgement = judgements[moment]
    found = {(a.kind, a.partition, a.offset) for a in judgement.anomalies}
    assert found == (SPLIT if moment == "3-diverged" else set())
    expected = Verdict.INVALID if found else Verdict.VALID
    assert judgement.verdict is expected, judgement.document["reason"]
    assert json.loads((judgement.folder / "verdict.json").read_bytes())["verdict"] == expected.value


@pytest.mark.spark
def test_diverged_logs_are_invalid_where_they_part(judgements: dict[str, Judgement]) -> None:
    found = {(a.kind, a.partition, a.offset) for a in judgements["against"].anomalies}
    assert found == {
        ("byte-divergence", 0, 21),
        ("byte-divergence", 0, 22),
        ("byte-divergence", 1, 8),
        *SPLIT,
    }


@pytest.mark.spark
@pytest.mark.parametrize("what", BAD)
def test_bad_files_are_named_and_never_valid(judgements: dict[str, Judgement], what: str) -> None:
    judgement = judgements[what]
    assert judgement.verdict in (Verdict.UNKNOWN, Verdict.INVALID)
    reason = next(c.reason for c in judgement.checks if c.name == "recording")
    assert BAD[what][1] in reason
    assert {a.topic for a in judgement.anomalies} <= {"orders"}
    assert (
        next(c for c in judgement.checks if c.name == "byte-equality").examined["B/mirrored"] >= 6
    )


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


# The report of a recorded run of a million records, valid and invalid, has 3 MB at most. Judged
# without Spark and brokers.


BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
RECORDS, GROUP = 1_000_000, 10
MOST_BYTES = 3_000_000
LOST_OF_A_MILLION = range(40_000, 40_003)
"""Transactions that B lacks in the invalid run."""


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(BENCHMARKS))
        made: Path = import_module("recorded").write(
            tmp_path_factory.mktemp("million") / "run", RECORDS, GROUP
        )
    return made


@pytest.mark.nightly
def test_the_report_of_a_million_records_has_three_megabytes_at_most(
    valid: Path, tmp_path: Path
) -> None:
    invalid = shutil.copytree(valid, tmp_path / "invalid")
    (log,) = invalid.glob("captures/*/B/1/A.orders-0/*.log")
    size, rest = divmod(log.stat().st_size, RECORDS // GROUP)
    assert rest == 0, "each transaction has the same number of bytes"
    data = log.read_bytes()
    log.write_bytes(data[: LOST_OF_A_MILLION.start * size] + data[LOST_OF_A_MILLION.stop * size :])
    del data
    seal(invalid, digests=True)
    for folder, verdict in ((valid, "valid"), (invalid, "invalid")):
        judgement = judged_again(folder)
        assert judgement.document["verdict"] == verdict, judgement.document["reason"]
        (folder / "verdict.json").write_bytes(msgspec.json.encode(judgement.document))
        left_out: list[str] = []
        page = html.write(folder, judgement.document, about(judgement, left_out))
        assert left_out == []
        assert page.stat().st_size <= MOST_BYTES
        if verdict == "invalid":
            assert f"A.orders-0 @ {LOST_OF_A_MILLION.start * (GROUP + 1)}" in str(
                judgement.document["cause"]
            )
