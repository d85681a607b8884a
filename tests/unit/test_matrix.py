"""The catalogue of mutations covers the registry of checks; the generator is independent and
deterministic. No Spark."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.run_guarantees import NAMES
from tests.faithful.matrix import render
from tests.faithful.mutations import CATALOGUE
from tests.faithful.mutations.base import Mutation
from tests.faithful.spec import SHAPES, spec
from tests.faithful.stories import story
from tests.oracles.checks import beside

ROOT = Path(__file__).parents[2]
KINDS = {f"{check.name}/{kind.name}" for check in REGISTRY.values() for kind in check.anomalies}


def test_every_kind_of_anomaly_is_produced_by_a_mutation() -> None:
    produced = set().union(*(mutation.must for mutation in CATALOGUE.values()))
    assert KINDS - produced == set(), "give each a mutation in tests/faithful/mutations"


@pytest.mark.parametrize("mutation", CATALOGUE.values(), ids=lambda mutation: mutation.name)
def test_a_mutation_names_existing_checks_and_kinds(mutation: Mutation) -> None:
    assert mutation.must <= KINDS
    assert mutation.may <= KINDS | set(REGISTRY)
    assert mutation.unknown <= {*REGISTRY, *NAMES}
    assert mutation.what, "its docstring is what it does"
    assert mutation.verdict != "invalid" or mutation.must, "what must make the run invalid?"


def test_every_additional_finding_has_a_reason() -> None:
    assert {
        each.partition("/")[0] for mutation in CATALOGUE.values() for each in mutation.may
    } <= beside().keys(), "say it as BESIDE in the check's reference"


def test_the_page_equals_the_catalogue() -> None:
    stale = "write it anew: python -m tests.faithful.matrix > docs/matrix.md"
    assert (ROOT / "docs" / "matrix.md").read_text() == render(), stale


def test_the_generator_shares_no_code_with_what_it_tests() -> None:
    sources = [
        path for path in (ROOT / "tests" / "faithful").rglob("*.py") if path.name != "matrix.py"
    ]
    for path in (*sources, ROOT / "tests" / "kafka_log.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
        names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        tested = ("linkflap.harness.log", "linkflap.harness.wire", "linkflap.spark_verify")
        shared = {name for name in names if name.startswith(tested)}
        assert not shared, f"{path} imports {shared}"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_seed_is_a_run_byte_for_byte(tmp_path: Path, shape: str) -> None:
    one, two = (story(spec(7, shape=shape)).write(tmp_path / name) for name in ("one", "two"))
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    assert all((one / path).read_bytes() == (two / path).read_bytes() for path in files)
