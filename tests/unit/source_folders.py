"""The folders of the repository that have Python files, for tests that read all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = (
    "linkflap",
    "harness",
    "chaos",
    "topologies",
    "spark_verify",
    "benchmarks",
    "docs",
    "tests",
)
