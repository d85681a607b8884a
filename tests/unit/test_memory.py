"""Memory of verifying a recorded run: bytes per additional record, of Python's and numpy's
allocations."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from linkflap.spark_verify.checks import REGISTRY, inconsistent_offset
from linkflap.spark_verify.checks.base import Check
from linkflap.spark_verify.checks.parts import logs
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read import log_rows, pieces
from linkflap.spark_verify.read.assemble import view
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.spark.job import examine
from tests.synthetic import TOPIC, Shape, write_run
from tests.traced import peak

FEW, MANY, RECORDS = 200, 800, 10
MORE = (MANY - FEW) * RECORDS
"""Additional records in each log. Every cluster has one log that is decoded."""
HELD, WHILE_JUDGED = 350, 250
"""Bytes per record, of both clusters together: 219 and at most 146 were measured, of twice as many
readers and of larger polls."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("memory")
    few, many = (Shape(partitions=1, transactions=n, records=RECORDS) for n in (FEW, MANY))
    return write_run(root / "few", few), write_run(root / "many", many)


def read(root: Path) -> tuple[RunPlan, list[pa.RecordBatch]]:
    planned = plan(root)
    history = [batch for part in pieces.PARTS for batch in pieces.history_rows(root, part)]
    return planned, [*log_rows.batch_rows(planned.replicas), *history]


def assembled(root: Path) -> PartitionView:
    planned, batches = read(root)
    return view(planned, TOPIC, 0, batches)


def test_a_view_holds_columns(runs: tuple[Path, Path]) -> None:
    few, many = (read(run) for run in runs)
    grew = peak(lambda: view(many[0], TOPIC, 0, many[1])) - peak(
        lambda: view(few[0], TOPIC, 0, few[1])
    )
    assert grew / MORE < HELD


@pytest.mark.parametrize("check", REGISTRY.values(), ids=REGISTRY)
def test_no_kernel_needs_more_than_it_looks_at(
    runs: tuple[Path, Path], check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inconsistent_offset, "AT_ONCE", 1000)
    monkeypatch.setattr(logs, "_AT_ONCE", 1000)
    few, many = map(assembled, runs)
    assert (
        peak(lambda: examine(check, many)) - peak(lambda: examine(check, few))
    ) / MORE < WHILE_JUDGED


@pytest.mark.parametrize("part", pieces.PARTS)
def test_a_history_is_read_row_by_row(
    runs: tuple[Path, Path], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_ROWS_AT_ONCE", 64)

    def read(run: Path) -> list[int]:
        return [len(batch) for batch in pieces.history_rows(run, part)]

    few, many = (peak(partial(read, run)) for run in runs)
    assert many < 1.5 * few + 64 * (MANY - FEW)
