"""Fixtures of the judge's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.checks.judged_runs import Recorded


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "run")
