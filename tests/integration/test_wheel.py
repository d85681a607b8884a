"""linkflap from its wheel, in its own Python, outside of the checkout: a user's code has types and
works."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import foreign_project
from tests.command_line import ledger_of_its_own
from tests.unit.test_api import SNIPPET

pytestmark = pytest.mark.nightly
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


def test_what_a_user_writes_passes_mypy_strict_with_the_wheel(
    elsewhere: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(SNIPPET)
    (tmp_path / "wrong.py").write_text(SNIPPET + 'verdict = judged.checks["lost-write"].examined\n')
    python = str(elsewhere / "python" / "bin" / "python")
    mypy = [
        python,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        python,
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    kept = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")
    }
    for name, status in (("mine", 0), ("wrong", 1)):
        done = subprocess.run(
            [*mypy, f"{name}.py"],
            cwd=tmp_path,
            env=kept,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert ("incompatible type" in done.stdout.lower()) == bool(status), done.stdout


def test_every_test_on_the_page_passes_in_a_project_with_folders_of_our_names(
    elsewhere: Path, tmp_path: Path
) -> None:
    foreign_project.make(tmp_path / "foreign", *foreign_project.BLOCKS)
    shutil.copytree(
        EXAMPLES,
        tmp_path / "foreign" / "docs" / "examples",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTEST_ADDOPTS")
    }
    kept |= ledger_of_its_own(tmp_path / "ledger")
    words = [
        str(elsewhere / "python" / "bin" / "python"),
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-v",
        "tests",
    ]
    done = subprocess.run(
        words,
        cwd=tmp_path / "foreign",
        env=kept,
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") >= len(foreign_project.BLOCKS) + 1, done.stdout
