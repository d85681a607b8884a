"""Writes the skeletons of something new: `python -m tests.new KIND NAME`. CONTRIBUTING.md gives the
order in which to fill them in.

Each kind has its files (texts in `tests/skeletons`, where `new-name`, `new_name` and `NewName`
stand for the name) and its lines in a registry. The tests of the registry, and the skeletons' own,
fail until the skeletons are filled in.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SKELETONS: Final = Path(__file__).parent / "skeletons"
KEBAB: Final = re.compile(r"[a-z]+(-[a-z]+)*")
ISSUE: Final = re.compile(r"[A-Za-z]+(-[A-Za-z0-9]+)*")
_WIDTH: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """A mapping or tuple called `table` in `file`. `write` adds `line` to it, and imports `imports`
    from `module`."""

    file: str
    module: str
    imports: str
    table: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skeleton:
    """One kind. `files` maps a path to its text in `tests/skeletons`; `then` is what to run
    next."""

    files: Mapping[str, str]
    registries: tuple[Registry, ...] = ()
    name: re.Pattern[str] = KEBAB
    example: str
    then: str


def _of_modules(file: str, table: str, line: str, *, imports: str = "new_name") -> Registry:
    """A registry that imports modules of its own package by their names."""
    module = f"linkflap.{file.removesuffix('/__init__.py').replace('/', '.')}"
    return Registry(file=file, module=module, imports=imports, table=table, line=line)


KINDS: Final[Mapping[str, Skeleton]] = {
    "check": Skeleton(
        files={
            "spark_verify/checks/new_name.py": "check_kernel.txt",
            "tests/unit/checks/test_check_new_name.py": "check_histories.txt",
            "tests/faithful/mutations/new_name.py": "check_mutation.txt",
        },
        registries=(_of_modules("spark_verify/checks/__init__.py", "REGISTRY", "new_name.CHECK,"),),
        example="lost-write",
        then="""\
pytest tests/unit/checks -k new-name              the histories, then the kernel until they pass
pytest tests/integration/test_mutation_matrix.py  the mutation""",
    ),
    "fault": Skeleton(
        files={"chaos/faults/new_name.py": "fault.txt",
            "tests/unit/test_new_name.py": "fault_test.txt"},
        registries=(
            Registry(
                file="chaos/faults/__init__.py", module="linkflap.chaos.faults.new_name",
                imports="NewName",
                table="FAULTS", line='"new-name": NewName,',
            ),
        ),
        example="broker-pause",
        then="pytest tests/unit/test_new_name.py tests/contract/test_faults.py   "
        "(or move the class to the module of its target first)",
    ),
    "mirror": Skeleton(
        files={
            "harness/mirrors/new_name.py": "mirror.txt",
            "harness/mirrors/new_name_options.py": "mirror_options.txt",
            "harness/guarantees/new_name.py": "mirror_guarantee.txt",
            "tests/unit/test_new_name.py": "mirror_test.txt",
        },
        registries=(
            _of_modules("harness/guarantees/__init__.py", "DECLARATIONS",
                '"new-name": new_name.guarantee,'),
            _of_modules(
                "harness/mirrors/__init__.py", "MIRRORS",
                '"new-name": MirrorKind(\n'
                '        factory="new_name:NewNameMirror",\n'
                "        options=new_name_options.options,\n"
                "        about=new_name_options.ABOUT,\n"
                "    ),",
                imports="new_name_options",
            ),
        ),
        example="mm2",
        then="pytest tests/unit/test_new_name.py tests/unit/test_events.py",
    ),
    "workload": Skeleton(
        files={"harness/workloads/new_name.py": "workload.txt",
            "tests/unit/test_new_name.py": "workload_test.txt"},
        registries=(
            _of_modules(
                "harness/workloads/__init__.py", "KINDS",
                '"new-name": WorkloadKind(\n'
                "        client=new_name.NewNameClient,\n"
                "        reads=False,\n"
                "        options=new_name.OPTIONS,\n"
                '        about="what they do",\n'
                "    ),",
            ),
        ),
        example="idempotent",
        then="pytest tests/unit/test_new_name.py tests/unit/test_workloads.py",
    ),
    "scenario": Skeleton(
        files={"chaos/scenarios/new-name.toml": "scenario.txt"},
        example="link-flap",
        then="pytest tests/unit/test_topologies.py -k new-name   and docs/scenarios.md",
    ),
    "case": Skeleton(
        files={"chaos/cases/claims/new-name.toml": "case_claim.txt",
            "chaos/cases/kafka/new_name.py": "case.txt"},
        name=ISSUE,
        example="KAFKA-15591",
        then="pytest tests/unit/test_cases.py -k new-name   "
        "(or move the function to the module of its subject first)",
    ),
}  # fmt: skip


def write(kind: str, name: str, root: Path = ROOT) -> list[Path]:
    """Writes the skeletons and the registries' lines. Raises ValueError for an illegal name, and
    for one that exists."""
    skeleton = KINDS[kind]
    if not skeleton.name.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be the name of a {kind}; give one such as {skeleton.example}"
        )
    paths = {root / named(path, name): SKELETONS / text for path, text in skeleton.files.items()}
    if taken := [path for path in paths if path.exists()]:
        raise ValueError(
            f"{taken[0].relative_to(root)} exists already; give another name, or remove it"
        )
    for path, skeleton_text in paths.items():
        path.write_text(named(skeleton_text.read_text(), name))
    for registry in skeleton.registries:
        path = root / registry.file
        text = imported(
            path.read_text(), named(registry.module, name), named(registry.imports, name)
        )
        path.write_text(listed(text, registry.table, named(registry.line, name)))
    return [*paths, *(root / registry.file for registry in skeleton.registries)]


def named(text: str, name: str) -> str:
    """A text with the name filled in: as words, as a module and as a class."""
    module = name.lower().replace("-", "_")
    named_class = "".join(word.capitalize() for word in module.split("_"))
    return (
        text.replace("new-name", name).replace("new_name", module).replace("NewName", named_class)
    )


def imported(text: str, module: str, name: str) -> str:
    """The text of a module, with one more import in its sorted place."""
    lines, imports = (
        text.splitlines(),
        [n for n in ast.parse(text).body if isinstance(n, ast.ImportFrom)],
    )
    old = next((node for node in imports if node.module == module), None)
    names = sorted({name, *(alias.name for alias in old.names)} if old else {name})
    new = f"from {module} import {', '.join(names)}"
    if old and (old.lineno != old.end_lineno or len(new) > _WIDTH):
        new = "\n".join([f"from {module} import (", *(f"    {each}," for each in names), ")"])
    first = old or next(
        (n for n in imports if (n.module or "").startswith("linkflap") and str(n.module) > module),
        None,
    )
    at = first.lineno - 1 if first else max(node.end_lineno or 0 for node in imports)
    lines[at : old.end_lineno if old else at] = [new]
    return "\n".join(lines) + "\n"


def listed(text: str, table: str, line: str) -> str:
    """The text of a registry, with one more line at the end of its table."""
    lines = text.splitlines()
    made = next(
        n
        for n in ast.parse(text).body
        if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == table
    )
    found = next(
        n
        for n in ast.walk(made)
        if isinstance(n, ast.Dict) or (isinstance(n, ast.Tuple) and len(n.elts) > 2)
    )
    last = found.values[-1] if isinstance(found, ast.Dict) else found.elts[-1]
    first = next(filter(None, found.keys)) if isinstance(found, ast.Dict) else found.elts[0]
    lines.insert(last.end_lineno or 0, " " * first.col_offset + line)
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.new", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument(
        "name", help="a noun: " + ", ".join(f"{s.example} ({kind})" for kind, s in KINDS.items())
    )
    given = parser.parse_args()
    try:
        for path in write(given.kind, given.name):
            print(path.relative_to(ROOT))  # noqa: T201
    except ValueError as error:
        parser.error(str(error))
    then = named(KINDS[given.kind].then, given.name)
    last = "python docs/make.py"
    print(f"\nFill them in (CONTRIBUTING.md), and then:\n{then}\n{last}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
