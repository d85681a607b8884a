"""docs/matrix.md, from the catalogue of mutations."""

from __future__ import annotations

from collections.abc import Iterator

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import RUN_CHECKS
from tests.faithful.mutations import CATALOGUE, Mutation
from tests.faithful.mutations.base import BESIDE

HEAD = """# Which check finds which mutation

Made by `python docs/make.py` from the declarations in `tests/faithful/mutations`.
`tests/integration/test_mutation_matrix.py` makes each mutation in an otherwise faithful run and
judges it: every check marked **X** finds it, the checks marked o may, and no other check does. In
faithful runs no check finds anything.

**X**: must find the mutation. o: may find it, because the finding follows from the mutation in some
runs. ?: is unknown then. If the mirror's own guarantee allows the anomaly, the mutation is found
and the run stays valid.

Some rules are about more, or less, than a run directory, and have no row here: two folders of one
node id, one cluster given twice, a promotion beyond its log, and folders numbered alike are refused
before there is one (`tests/unit/test_capture.py`, `tests/integration/test_verify_live.py`);
so is a pair of MirrorMaker 2 that linkflap did not start, without `--mirror`
(`tests/unit/test_verify_logs.py`). That a partial promotion comes before what follows from it
is a matter of the first sentence, not of what is found (`tests/unit/test_causes.py`). What a broker
without a producer's state accepts (KAFKA-15591) needs a producer that is in no other log
(`tests/unit/checks/test_check_sequence_continuity.py`), and foreign transactions whose markers an
unclean election took away need programs that record nothing
(`tests/unit/checks/test_lost_records.py`).
"""


def render() -> str:
    """The complete page."""
    return "\n".join([HEAD, *_legend(), *_table(), *_why(), *_what()])


def _columns() -> list[str]:
    return [*REGISTRY, *RUN_CHECKS]


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
    """The reason of every check that is marked o somewhere."""
    yield "## Why other checks may find it too\n"
    yield "| check | reason, in some runs |"
    yield "|---|---|"
    for name in _columns():
        if any(mutation.checks.get(name) is False for mutation in CATALOGUE.values()):
            yield f"| {name} | {BESIDE[name]} |"
    yield ""


def _what() -> Iterator[str]:
    yield "## What each mutation does\n"
    yield "| mutation | what it does | must be found as |"
    yield "|---|---|---|"
    for mutation in CATALOGUE.values():
        yield f"| {mutation.name} | {mutation.what} | {', '.join(sorted(mutation.must))} |"
    yield ""
