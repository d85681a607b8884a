"""Cases on real brokers: the finding on the release that has it, and every other stored case."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from linkflap.chaos.cases import case_named, registry
from linkflap.chaos.cases.bench import Variant
from linkflap.chaos.cases.case import Outcome
from linkflap.chaos.cases.results import STORED, load, tallies
from linkflap.chaos.cases.runner import Benches, run_case
from linkflap.harness.model.wait import until


def test_a_commit_that_loses_its_marker_and_its_control(tmp_path: Path) -> None:
    with Benches(tmp_path / "runs") as benches:
        result = run_case(
            case_named("KAFKA-20734"), Variant(kafka="4.3.1"), count=1, benches=benches
        )
    assert result.outcome is Outcome.REPRODUCED, (result.words, result.failures)
    assert result.exit_code == 0
    assert result.controls == 1
    assert result.facts["markers_after_commit"] == []
    assert result.facts["read_committed_after_the_next_abort"] == 0
    assert result.control_facts["read_committed_after_the_next_abort"] == 10
    assert not (tmp_path / "runs").exists()


REPRODUCED = sorted(
    (name, version, client, transactions)
    for (name, version, client, transactions), tally in tallies(load(STORED)).items()
    if tally.runs and tally.shown == tally.runs and version == "4.3.1" and name in registry()
)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "version", "client", "transactions"), REPRODUCED)
def test_what_was_always_reproduced_is_reproduced(
    tmp_path: Path, name: str, version: str, client: str, transactions: str
) -> None:
    variant = Variant(kafka=version, client=cast(Any, client), transactions=cast(Any, transactions))
    with Benches(tmp_path / "runs") as benches:
        result = run_case(case_named(name), variant, count=1, benches=benches)
    assert result.outcome is Outcome.REPRODUCED, (result.words, result.failures)


@pytest.mark.nightly
def test_a_matrix_that_is_killed_goes_on_with_what_is_not_stored(tmp_path: Path) -> None:
    words = (
        "case",
        "matrix",
        "KAFKA-15591",
        "--kafka",
        "3.9.2",
        "--kafka",
        "4.3.1",
        "--count",
        "1",
        "--store",
        str(tmp_path),
    )
    command = (sys.executable, "-m", "linkflap", *words)
    with (
        (tmp_path / "first.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as first,
    ):
        try:
            until(
                lambda: first.poll() is not None or load(tmp_path),
                within=300,
                what="a first result",
                every=0.05,
            )
        finally:
            first.kill()  # SIGKILL: the process cannot clean up
    assert [row.version for row in load(tmp_path)] == ["3.9.2"], (
        tmp_path / "first.log"
    ).read_text()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "KAFKA-15591 on Kafka 3.9.2 wire: stored already" in done.stderr
    assert [row.version for row in load(tmp_path)] == ["3.9.2", "4.3.1"]
