"""Writes the pages of docs/ that are made from the code: `python docs/make.py`.

They describe this checkout, also where another linkflap is installed.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import checks_page
import track_record_page
from scenario_schema import json_schema

from linkflap.chaos.cases import registry, results
from tests.faithful import matrix

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BEGIN, END = "<!-- layers: python docs/make.py -->\n", "<!-- end of layers -->\n"
SECTIONS = {
    "One name to import": ("linkflap",),
    "What everything rests on": (
        "harness",
        "harness/model",
        "harness/guarantees",
        "harness/log",
        "harness/rundir",
        "harness/machine",
    ),
    "Clusters, links and mirrors": (
        "harness/runtimes",
        "harness/wire",
        "harness/mirrors",
    ),
    "One run, recorded": ("harness/workloads", "harness/capture", "linkflap/recording"),
    "What is broken, and when": ("chaos", "topologies"),
    "Runs, judged": ("spark_verify", "linkflap/judging", "linkflap/report"),
    "What a user starts": ("linkflap/cli", "linkflap/suite", "linkflap/api"),
    "Ratios against a named baseline": ("benchmarks",),
}
"""Packages in the order in which a newcomer reads them; each brings the packages inside it."""
TITLES = {
    "benchmarks": "Programs that print a ratio against a named baseline in the same run.",
}
"""What packages without a docstring are for."""
LISTED = {
    "topologies": "`linkflap list`",
    "chaos/faults": "`linkflap list`",
    "chaos/scenarios": "`linkflap list`",
    "chaos/cases/kafka": "docs/track-record.md",
    "chaos/cases/cluster_mirroring": "docs/track-record.md",
    "spark_verify/checks": "docs/checks.md",
}
"""Folders of things that have a name each, and where those are listed."""


def promise(path: Path) -> str:
    """The first paragraph of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())


def sentence(path: Path) -> str:
    """The first sentence of it."""
    first, dot, _ = promise(path).partition(". ")
    return f"{first}." if dot else first


def packages() -> list[str]:
    """Every package that the map has, each before those inside it."""
    return [name for tops in SECTIONS.values() for top in tops for name in _inside(top)]


def speaks_for_itself(path: Path) -> bool:
    """Whether a module's name has a word of what the module says of itself, so that the name is
    enough."""
    said = promise(path).lower()
    return any(word[: max(4, len(word) - 2)] in said for word in path.stem.split("_"))


def _inside(top: str) -> list[str]:
    """A package and those inside it that no section names more closely."""
    found = sorted(str(init.parent.relative_to(ROOT)) for init in (ROOT / top).rglob("__init__.py"))
    return [top, *(name for name in found if name != top and _section(name) == top)]


def _section(name: str) -> str:
    """The longest of the names in the sections that a package is inside."""
    return max(
        (top for tops in SECTIONS.values() for top in tops if f"{name}/".startswith(f"{top}/")),
        key=len,
    )


def _lines(folder: str) -> list[str]:
    """The lines of one package."""
    init = ROOT / folder / "__init__.py"
    title = TITLES.get(folder) or sentence(init)
    lines = [
        f"- **`{folder}/`**: {title}"
        + (f" All of them: {LISTED[folder]}." if folder in LISTED else "")
    ]
    modules = [] if folder in LISTED else sorted((ROOT / folder).glob("*.py"))
    shown = [
        path for path in modules if not path.stem.startswith("__") and not speaks_for_itself(path)
    ]
    return lines + [f"  - `{path.name}`: {sentence(path)}" for path in shown]


def map_of_packages() -> str:
    """Every package with what it is for, and those modules whose name does not say what they
    hold."""
    lines = ["# Where everything is", ""]
    lines += [
        "Every package, and of its modules those whose name does not say what they hold. A module's"
        " first line says the rest."
    ]
    lines += [
        "Made by `python docs/make.py`. [walkthrough.md](walkthrough.md): the way of one record."
    ]
    for title, tops in SECTIONS.items():
        lines += ["", f"## {title}", ""]
        lines += [line for top in tops for folder in _inside(top) for line in _lines(folder)]
    return "\n".join(lines) + "\n"


def _layers() -> str:
    """The layers contracts, each as a block: the first is of the whole, the others of one
    package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = [c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    blocks = []
    for contract in contracts:
        inside = [f"# inside {name}" for name in contract.get("containers", ())]
        blocks.append("\n".join(["```", *inside, *contract["layers"], "```\n"]))
    return "".join(blocks)


def design() -> str:
    """The page of the design, with the layers as they are now."""
    page = (DOCS / "design.md").read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + _layers() + END + after


PAGES: Mapping[str, Callable[[], str]] = {
    "checks.md": checks_page.render,
    "design.md": design,
    "map.md": map_of_packages,
    "matrix.md": matrix.render,
    "scenario.schema.json": json_schema,
    "track-record.md": lambda: track_record_page.render(results.load(results.STORED), registry()),
}
"""What each page has to be."""

if __name__ == "__main__":
    for page, text in PAGES.items():
        (DOCS / page).write_text(text())
