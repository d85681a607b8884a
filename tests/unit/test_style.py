"""The style of the code: decisions per function, and what an import loads."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.command_line import ran

ROOT = Path(__file__).resolve().parents[2]


FOLDERS = ("linkflap", "harness", "chaos", "topologies", "spark_verify")
MOST = 14
DECISIONS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def own(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function, without the functions inside it."""
    nodes: list[ast.AST] = list(ast.iter_child_nodes(function))
    while nodes:
        node = nodes.pop()
        yield node
        if not isinstance(node, Function):
            nodes += ast.iter_child_nodes(node)


def complexity(function: Function) -> int:
    count = 1
    for node in own(function):
        if isinstance(node, DECISIONS):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
    return count


def functions(text: str) -> Iterator[Function]:
    return (node for node in ast.walk(ast.parse(text)) if isinstance(node, Function))


@cache
def in_folder(folder: str) -> list[tuple[str, int]]:
    """The functions of a folder by file and name, each with its count."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [
        (f"{path.relative_to(ROOT)} {f.name}", complexity(f))
        for path in paths
        for f in functions(path.read_text())
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_function_has_more_decisions(folder: str) -> None:
    found = in_folder(folder)
    assert len(found) > 10
    too_many = [f"{name}: {count}" for name, count in found if count > MOST]
    assert not too_many, f"more than {MOST}; name a part of each: {', '.join(too_many)}"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("def f(): pass", 1),
        ("def f(a):\n if a: pass\n elif a > 1: pass\n else: pass", 3),
        ("def f(a):\n for _ in a: pass\n while a: pass", 3),
        ("async def f(a):\n async for _ in a: pass\n async with a: pass", 2),
        ("def f(a):\n try: a()\n except OSError: pass\n except ValueError: pass", 3),
        ("def f(a): return 1 if a else 2", 2),
        ("def f(a): return a or (a and a and a)", 4),
        ("def f(a): return [y for x in a if x for y in x if y if y > 1]", 6),
        ("def f(a):\n match a:\n  case 1: pass\n  case _: pass", 3),
        ("def f(a): return sorted(a, key=lambda x: x if a else 0)", 2),
    ],
)
def test_decisions_that_count(text: str, count: int) -> None:
    assert [complexity(function) for function in functions(text)] == [count]


def test_a_function_inside_another_is_counted_by_itself() -> None:
    text = "def f(a):\n def g():\n  if a: pass\n  if a: pass\n if a: pass"
    assert {function.name: complexity(function) for function in functions(text)} == {"f": 2, "g": 3}


_SLOW = {"hypothesis", "numba", "pandas", "pyarrow", "pyspark"}


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("linkflap.cli.commands", {*_SLOW, "numpy", "confluent_kafka", "linkflap.chaos"}),
        ("linkflap.recording.run", {*_SLOW, "linkflap.spark_verify"}),
        ("linkflap.harness.mirrors.shadow.__main__", {*_SLOW, "numpy", "confluent_kafka"}),
    ],
)
def test_a_process_imports_no_more_than_it_needs(module: str, unwanted: set[str]) -> None:
    program = f"import {module}, sys; print(*sys.modules)"
    loaded = ran([sys.executable, "-c", program], check=True).stdout.split()
    assert module in loaded
    assert not unwanted & set(loaded)
