"""The skeletons of a new check: `python -m tests.new_check NAME`. CONTRIBUTING.md says in which order they are filled in.

Four files and the registry's line. The check examines every visible record and finds nothing, so its histories, its reference
and its mutation fail until the kernel finds what they show.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
REGISTRY: Final = "spark_verify/checks/__init__.py"
CHECK: Final = '''"""check-name: what is guaranteed, in one sentence (the KIP or the page that guarantees it).

What the check rests on, and what a reader would wrongly assume: which races it must not mistake for a violation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found
from linkflap.spark_verify.checks.parts.generations import examined, judged
from linkflap.spark_verify.checks.parts.logs import Log
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import Ints, PartitionView

KIND = "check-name"


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Looks at every visible record of every log."""

    def judge(generation: LogGeneration, log: Log) -> Sequence[Finding]:
        records = log.replica.records
        rows = np.flatnonzero(log.visible)
        wrong = records.offset[_wrong(log, rows)]
        found = [Found(kind=KIND, cluster=generation.cluster, offset=int(offset)) for offset in wrong]
        return [*examined(generation, records.offset[rows]), *found]

    return list(judged(view, judge))


def _wrong(log: Log, rows: Ints) -> Ints:
    """Of these records, those that break the guarantee."""
    return rows[:0]


CHECK = Check(
    name=KIND,
    guarantee="What is guaranteed, as docs/checks.md is to say it.",
    source="the KIP, or the page of Kafka's documentation",
    inputs=frozenset({"batches", "records", "promotions"}),
    anomalies=(
        AnomalyKind(
            name=KIND,
            meaning="What is wrong.",
            smallest="A has 1 2, B has 2: at the offset of 2 on B.",
        ),
    ),
    complete=frozenset({"promotions"}),
    kernel=kernel,
)
'''
HISTORIES: Final = '''"""check-name: the smallest histories."""

import pytest

from tests.unit.checks.histories import Log, Rejected, assert_accepted, assert_rejected, view

NAME = "check-name"
ACCEPTED = {
    "the same on both": (view([Log("A").data(1, 2), Log("B").data(1, 2)]), {"A/native": 2, "B/mirrored": 2}),
}
REJECTS = {
    "check-name": Rejected(view=view([Log("A").data(1, 2), Log("B").data(2)]), cluster="B", offset=0),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind: str) -> None:
    assert_rejected(NAME, kind, REJECTS[kind])
'''
REFERENCE: Final = '''"""What is guaranteed, record by record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.plain import Anomaly, Plain
from tests.oracles.story import Story

EACH: frozenset[str] = frozenset()


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log = story.log(generation)
            wrong = [record.offset for record in log.records if _wrong(record)] if log else []
            found += [plain.anomaly("check-name", generation.cluster, offset) for offset in wrong]
    return found


def _wrong(record: Any) -> bool:
    """Whether a record breaks the guarantee."""
    return False
'''
MUTATION: Final = '''"""What breaks the guarantee of check-name."""

from __future__ import annotations

from random import Random

from tests.faithful.made import Made
from tests.faithful.mutations.base import PAIR, data, kept_out, mutation, promised


@mutation(PAIR, must="check-name/check-name")
def check_name_broken(made: Made, rng: Random) -> None:
    """What is changed in a faithful run, in one sentence."""
    batch = next(e for e in data(made, "B", native=False) if promised(made, e))
    made.change("B", 0, kept_out(batch))
'''
FILES: Final[Mapping[str, str]] = {
    "spark_verify/checks/check_name.py": CHECK,
    "tests/unit/checks/test_check_check_name.py": HISTORIES,
    "tests/oracles/checks/check_name.py": REFERENCE,
    "tests/faithful/mutations/check_name.py": MUTATION,
}
NEXT: Final = """
Fill them in, in this order; CONTRIBUTING.md follows an example through:
  1. the histories   pytest tests/unit/checks -k check-name
  2. the kernel and its declaration, until they pass
  3. the reference   pytest tests/unit/test_oracles.py -k check-name
  4. the mutation    pytest "tests/integration/test_mutation_matrix.py"
  5. the documents   python -m linkflap.spark_verify.checks.document > docs/checks.md
                     python -m tests.faithful.matrix > docs/matrix.md
                     python docs/make_map.py > docs/map.md
"""


def write(name: str, root: Path = ROOT) -> list[Path]:
    """Writes the skeletons and the registry's line. Raises ValueError for a name that cannot be, or that is taken."""
    if not re.fullmatch(r"[a-z]+(-[a-z]+)*", name):
        raise ValueError(f"{name!r} is no name of a check; give words in lower case joined by hyphens, such as lost-write")
    module = name.replace("-", "_")
    paths = {root / path.replace("check_name", module): text for path, text in FILES.items()}
    taken = [path for path in paths if path.exists()]
    if taken:
        raise ValueError(f"{taken[0].relative_to(root)} is there already; give another name, or remove it")
    for path, text in paths.items():
        path.write_text(
            text.replace("check-name", name, -1).replace(f"\n{name} =", "\ncheck-name =").replace("check_name", module)
        )
    registry = root / REGISTRY
    registry.write_text(_registered(registry.read_text(), module))
    return [*paths, registry]


def _registered(text: str, module: str) -> str:
    """The registry with one more check at its end, imports in order."""
    begin = "from linkflap.spark_verify.checks import (\n"
    head, _, rest = text.partition(begin)
    imports, _, tail = rest.partition(")\n")
    names = "".join(sorted([*imports.splitlines(keepends=True), f"    {module},\n"]))
    before, last, after = tail.rpartition(".CHECK,\n")
    return f"{head}{begin}{names})\n{before}{last}            {module}.CHECK,\n{after}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.new_check", description=__doc__)
    parser.add_argument("name", help="the noun of the check, in kebab-case: lost-write")
    name = parser.parse_args(arguments).name
    try:
        for path in write(name):
            print(path.relative_to(ROOT))  # noqa: T201
    except ValueError as error:
        parser.error(str(error))
    print(NEXT.replace("check-name", name))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
