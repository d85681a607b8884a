"""docs/matrix.md, written from the catalogue of mutations: `python -m tests.faithful.matrix >
docs/matrix.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.run_guarantees import NAMES
from tests.faithful.mutations import CATALOGUE, Mutation
from tests.oracles.checks import beside

HEAD = """# What finds what

Written by `python -m tests.faithful.matrix` from the declarations in `tests/faithful/mutations`;
tests hold it to them, and the verifier to it (`tests/integration/test_mutation_matrix.py`): each
mutation is made in a run that is faithful otherwise; what must find it does, and nothing but that
and what may. In faithful runs nothing is found.

**X** must find it, o may: it follows from the mutation, but not in every run. ? cannot say anything
then, and says so. A mutation that the mirror's own guarantee allows is found as well, and leaves
the run valid.
"""


def render() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_legend(), *_table(), *_why(), *_what()])


def _columns() -> list[str]:
    return [*REGISTRY, *NAMES]


def _legend() -> Iterator[str]:
    yield (
        "Columns: "
        + ", ".join(f"{number} {name}" for number, name in enumerate(_columns(), start=1))
        + ".\n"
    )


def _table() -> Iterator[str]:
    columns = _columns()
    yield (
        "| mutation | verdict | "
        + " | ".join(str(number) for number in range(1, len(columns) + 1))
        + " |"
    )
    yield "|---" * (len(columns) + 2) + "|"
    for mutation in CATALOGUE.values():
        cells = " | ".join(_cell(mutation, name) for name in columns)
        yield f"| {mutation.name} | {mutation.verdict} | {cells} |"
    yield ""


def _cell(mutation: Mutation, check: str) -> str:
    if check in mutation.checks:
        return "**X**" if mutation.checks[check] else "o"
    return "?" if check in mutation.unknown else ""


def _why() -> Iterator[str]:
    """Of every check that may find something beside what must be found."""
    yield "## Why others may find something too\n"
    yield "| check | because, in some stories |"
    yield "|---|---|"
    why = beside()
    for name in _columns():
        if any(mutation.checks.get(name) is False for mutation in CATALOGUE.values()):
            yield f"| {name} | {why[name]} |"
    yield ""


def _what() -> Iterator[str]:
    yield "## What each does\n"
    yield "| mutation | what it does | must be found as |"
    yield "|---|---|---|"
    for mutation in CATALOGUE.values():
        yield f"| {mutation.name} | {mutation.what} | {', '.join(sorted(mutation.must))} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(render())
