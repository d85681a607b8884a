"""The example projects, as somebody else has them: outside of the checkout, with linkflap installed
from its wheel.

Beside them is a project whose folders have the names of ours (`tests.foreign_project`). Its tests
run in the same process, so that every test of the examples runs where `import harness`, `import
chaos` and `import docker` give that project's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import foreign_project
from tests.command_line import ledger_of_its_own

# Their Spark is one of their own: they need not wait for the worker that has ours.
pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("examples")]
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PROJECTS = sorted(folder.parent.name for folder in EXAMPLES.glob("*/tests"))


def passes(elsewhere: Path, folder: Path, chosen: str) -> str:
    """Runs the tests of all projects in one process, so that they share one Spark; what pytest
    printed of each."""
    foreign_project.make(
        folder / "foreign",
        *(block for block in foreign_project.BLOCKS if "linkflap_world" in block),
    )
    for name in PROJECTS:
        shutil.copytree(
            EXAMPLES / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTEST_ADDOPTS")
    }
    kept |= ledger_of_its_own(folder / "ledger")
    python = elsewhere / "python" / "bin" / "python"
    words = [
        str(python),
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-v",
        "--durations=0",
        "-m",
        chosen,
        "foreign",
        *PROJECTS,
    ]
    done = subprocess.run(
        words, cwd=folder, env=kept, capture_output=True, text=True, timeout=3000, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_finds_its_planted_bug_and_nothing_without_it(
    elsewhere: Path, tmp_path: Path
) -> None:
    printed = passes(elsewhere, tmp_path, "not long")
    assert all(path.name in printed for path in EXAMPLES.glob("*/tests/test_*.py")), printed
    assert "test_orders_survive_a_cut PASSED" in printed, printed


@pytest.mark.nightly
def test_the_long_tests_of_every_example(elsewhere: Path, tmp_path: Path) -> None:
    passes(elsewhere, tmp_path, "long")
