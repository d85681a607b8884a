"""docs/walkthrough.md names files and functions, other documents name files: all of them exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("harness", "chaos", "topologies", "spark_verify", "linkflap/api")
IN_RUN_DIRECTORY = re.compile(
    r"(run|verdict)\.json|events\.jsonl|(operations|polls)/<\w+>\.jsonl|captures/(<\w+>/)+"
)
COMMAND = re.compile(r"linkflap [a-z].*")
FILE = re.compile(r"(?P<path>[a-z_0-9/]+\.py)(:(?P<name>\w+))?")
FOLDER = re.compile(r"[a-z_0-9]+(/[a-z_0-9]+)+/?")
CLASS = re.compile(r"(?P<name>[A-Z]\w+)(\.(?P<method>\w+))?")
FIELD = re.compile(r"combine")
"""Of a check's declaration (`Check.combine`)."""
NAMED = re.compile(
    r"(?:harness|chaos|topologies|spark_verify|tests|benchmarks|docs|linkflap/api)/[\w/.-]+\.(?:py|md|jsonl|json|toml|txt)"
)


@cache
def defined(path: Path) -> dict[str, ast.stmt]:
    """The functions and classes of a module by name."""
    body = ast.parse(path.read_text()).body
    return {
        node.name: node
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    found: dict[str, list[ast.ClassDef]] = {}
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for name, node in defined(path).items():
            if isinstance(node, ast.ClassDef):
                found.setdefault(name, []).append(node)
    return found


def exists(named: str) -> bool:
    """Whether what a code span names exists."""
    if file := FILE.fullmatch(named):
        path = ROOT / file["path"]
        return path.is_file() and (file["name"] is None or file["name"] in defined(path))
    if FOLDER.fullmatch(named):
        return (ROOT / named).is_dir()
    if one := CLASS.fullmatch(named):
        methods = [
            {n.name for n in c.body if isinstance(n, ast.FunctionDef)}
            for c in classes().get(one["name"], [])
        ]
        return any(one["method"] is None or one["method"] in some for some in methods)
    return any(pattern.fullmatch(named) for pattern in (IN_RUN_DIRECTORY, COMMAND, FIELD))


def test_everything_that_the_walkthrough_names_exists() -> None:
    named = re.findall(r"`([^`\n]+)`", (ROOT / "docs" / "walkthrough.md").read_text())
    assert len(named) > 30
    assert [one for one in named if not exists(one)] == []


@pytest.mark.parametrize(
    "named",
    [
        "harness/cli/runs.py",
        "harness/cli/run.py:ran",
        "harness/clis/",
        "Incarnations",
        "Incarnation.invokes",
        "runs.json",
    ],
)
def test_missing_names_are_found(named: str) -> None:
    assert not exists(named)


def test_every_file_that_a_document_names_exists() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "tests" / "README.md"]
    named = {(page.name, path) for page in pages for path in NAMED.findall(page.read_text())}
    assert len(named) > 50
    assert sorted((page, path) for page, path in named if not (ROOT / path).is_file()) == []
