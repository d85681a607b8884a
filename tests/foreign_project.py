"""A user's project with folders of the same names as linkflap's, and with tests from
docs/pytest.md."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "pytest.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
FOLDERS = ("harness", "chaos", "docker", "tests")
_THEIRS = """
import importlib


def test_folders_of_our_names_are_its_own():
    for name in ("harness", "chaos", "docker", "tests"):
        assert importlib.import_module(name).THEIRS
"""


def make(folder: Path, *blocks: str) -> None:
    """Creates the project, with one file of tests for each block."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("THEIRS = True\n")
    (folder / "tests" / "test_theirs.py").write_text(_THEIRS.lstrip())
    for number, block in enumerate(blocks, start=1):
        (folder / "tests" / f"test_page_{number}.py").write_text(block)
