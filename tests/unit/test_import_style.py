"""One style of imports in the tests: by the full name, `from tests.unit.checks.logs import Log`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def imported(path: Path) -> Iterator[str]:
    """The top-level package of every import of a module; a dot for relative ones."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0] if node.level == 0 else "."
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)


def test_tests_import_one_another_by_their_full_name() -> None:
    paths = sorted((ROOT / "tests").rglob("*.py"))
    own = (
        {path.stem for path in paths} | {path.parent.name for path in paths} | {"."}
    ) - sys.stdlib_module_names
    own -= {"tests", "docker", "linkflap"}
    assert {"histories", "round_trip", "integration"} <= own
    assert {
        str(path.relative_to(ROOT)): bare for path in paths if (bare := own & set(imported(path)))
    } == {}
