"""Spark that never starts, and Spark that runs out of memory: exit code 255 before there was a
verdict, then unknown."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from linkflap.harness.machine.leases import Lease
from linkflap.harness.model import errors
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify import verify
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Check, Finding
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.verify import VERDICT_FILE
from tests.command_line import environment, linkflap
from tests.synthetic import write_run

HEAVY = """
from linkflap.cli import commands
from linkflap.spark_verify import verify
from linkflap.spark_verify.checks.base import Check, Found

def kernel(view):
    weight = {"weight": "x" * 300_000_000}
    return [Found(kind="heavy", cluster="A", offset=n, evidence=weight) for n in range(3)]

nothing = {"guarantee": "", "source": "", "inputs": frozenset(), "anomalies": ()}
heavy = Check(name="duplicate", kernel=kernel, **nothing)
verify.REGISTRY = {**verify.REGISTRY, "duplicate": heavy}
commands.main()
"""


@pytest.fixture
def closed() -> Iterator[int]:
    """A port without a listener, reserved."""
    lease = Lease()
    yield lease.ports(1)[0]
    lease.release()


def error_of(tmp_path: Path, master: str) -> str:
    run = write_run(tmp_path / "run")
    done = linkflap(
        "verify", str(run), "--master", master, env=environment(tmp_path / "ledger"), cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (errors.FAILED, ""), done.stderr
    assert not (run / VERDICT_FILE).exists()
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_a_master_that_is_not_there_is_one_sentence_and_there_was_no_verdict(
    tmp_path: Path, closed: int
) -> None:
    said = error_of(tmp_path, f"spark://127.0.0.1:{closed}")
    assert said.startswith(f"linkflap: no Spark master answers at spark://127.0.0.1:{closed} (")
    assert said.endswith("omit --master to use local[2]")


def test_what_is_no_master_is_one_sentence_and_there_was_no_verdict(tmp_path: Path) -> None:
    assert error_of(tmp_path, "7077").startswith(
        "linkflap: '7077' is no Spark master; give spark://HOST:7077"
    )


def greedy(view: PartitionView) -> list[Finding]:
    return [] if view.partition else [bytearray(1 << 60)]  # type: ignore[list-item]


@pytest.mark.spark
def test_a_check_that_runs_out_of_memory_is_unknown_and_hides_no_other(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run")
    check = Check(
        name="duplicate", guarantee="", source="", inputs=frozenset(), anomalies=(), kernel=greedy
    )
    monkeypatch.setattr(verify, "REGISTRY", {**REGISTRY, "duplicate": check})
    seen = []
    (judgement,) = verify.verify([run], spark=spark, tell=lambda *done: seen.append(done))
    assert judgement.verdict in (Verdict.UNKNOWN, Verdict.INVALID)
    results = {c.name: c for c in judgement.checks}
    assert results["duplicate"].verdict is Verdict.UNKNOWN
    assert "crashed on A.t-0: MemoryError" in results["duplicate"].reason
    assert results["replica-agreement"].verdict is Verdict.VALID
    assert all(0 <= count <= total for _, count, total in seen)


@pytest.mark.nightly
@pytest.mark.spark
def test_when_spark_runs_out_of_memory_during_the_checks_the_verdict_is_unknown(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "run")
    done = subprocess.run(
        [sys.executable, "-c", HEAVY, "verify", run, "--json", "--spark",
            "spark.driver.memory=600m"],
        capture_output=True, text=True, timeout=900, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == errors.UNKNOWN, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"] == "unknown"
    assert "Spark failed during the checks" in document["reason"]
    assert json.loads((run / VERDICT_FILE).read_bytes()) == document
