"""Documents against the code: links, what they say of pytest, walkthrough, map and matrix."""

from __future__ import annotations

import ast
import json
import re
import runpy
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from linkflap.api import fixtures, runs
from linkflap.chaos.scenario_file import KEYS, is_file
from linkflap.cli.listing import page, pages
from linkflap.harness import workloads
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import COMMAND as COMMAND_KIND
from linkflap.recording.run import check
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import RUN_CHECKS
from linkflap.topologies import parse
from tests.faithful.mutations import CATALOGUE
from tests.faithful.mutations.base import BESIDE, Mutation
from tests.faithful.spec import SHAPES, spec
from tests.faithful.stories import story
from tests.foreign_project import BLOCKS

ROOT = Path(__file__).parents[2]
LINKED = ("harness", "chaos", "topologies", "spark_verify")
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def _anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub generates them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def _broken(page: Path) -> list[str]:
    found = []
    for link in _LINK.findall(page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in _anchors(target)
        ):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert _broken(page) == []


def test_every_page_that_linkflap_names_opens() -> None:
    product = [p for name in ("linkflap", *LINKED) for p in (ROOT / name).rglob("*.*")]
    texts = (p.read_text() for p in product if p.suffix in (".py", ".html") and p.is_file())
    named = {name for text in texts for name in re.findall(r"linkflap docs ([a-z-]+)", text)}
    named -= {"lists"}
    assert len(named) > 4
    assert named <= pages().keys()
    assert page("docs/checks.md#lost-write") == (ROOT / "docs" / "checks.md").read_text()
    with pytest.raises(InputError, match=r"no page 'cheks' \(did you mean 'checks'\?\)"):
        page("cheks")


def rows_of_scenario_files() -> Iterator[str]:
    """The sentences of the page of scenario files about each key, and each option of a workload."""
    for where, keys in KEYS.values():
        yield from (f"| {where} | `{key}` | {sentence} |" for key, sentence in keys.items())
    kinds = {name: kind.options for name, kind in workloads.KINDS.items()}
    kinds[COMMAND_KIND] = workloads.COMMAND_OPTIONS
    for name in sorted({name for options in kinds.values() for name in options}):
        of = {kind: options[name] for kind, options in kinds.items() if name in options}
        abouts = dict.fromkeys(option.about for option in of.values())
        yield f"| `{name}` | {', '.join(of)} | {'; or '.join(abouts)} |"


def test_every_key_of_a_scenario_file_has_its_sentence() -> None:
    page = (ROOT / "docs" / "scenario-files.md").read_text()
    assert [row for row in rows_of_scenario_files() if row not in page] == []
    schema = json.loads((ROOT / "docs" / "scenario.schema.json").read_text())
    assert not [
        (table, key)
        for table, about in schema["$defs"].items()
        for key, value in about["properties"].items()
        if "description" not in value and "$ref" not in str(value)
    ]


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading, `code`\n[a](#a-heading-code) [b](#other) [c](page.md#a-heading-code) "
        "[d](gone.md)\n"
    )
    assert _broken(page) == ["#other", "gone.md"]


def every_one() -> Iterator[ParameterSet]:
    """Each test of each block with all arguments of its markers, once per parameter."""
    for block in BLOCKS:
        names: dict[str, object] = {}
        exec(compile(block, "docs/pytest.md", "exec"), names)  # our own page
        for test in (
            made
            for name, made in names.items()
            if name.startswith("test_") and isinstance(made, FunctionType)
        ):
            every: list[pytest.Mark] = vars(test)["pytestmark"]
            marks = [mark for mark in every if mark.name == "linkflap"]
            given = [
                p.marks for mark in every if mark.name == "parametrize" for p in mark.args[1]
            ] or [()]
            for more in given:
                yield pytest.param(test, arguments([*marks, *more]), id=test.__name__)


def arguments(marks: Iterable[pytest.Mark]) -> dict[str, object]:
    wanted: dict[str, object] = {}
    for mark in marks:
        wanted |= {**({"scenario": mark.args[0]} if mark.args else {}), **mark.kwargs}
    return wanted


def test_five_kinds_of_user_and_shared_clusters_take_some_ten_lines_each() -> None:
    assert len(BLOCKS) == 5 + 1
    assert all(block.count("\n") <= 17 for block in BLOCKS)


@pytest.mark.parametrize(("test", "wanted"), [*every_one()])
def test_each_test_requests_only_what_exists(
    test: FunctionType, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    fixture = next(name for name in test.__code__.co_varnames if name.startswith("linkflap_"))
    if fixture == "linkflap_world":
        assert wanted.keys() <= {"topology", "topics", "mirror"}
        return
    if fixture == "linkflap_shared":
        assert wanted.keys() <= {"topology", "runtime", "reuse"}
        assert parse(wanted["topology"]).links
        return
    fixtures._check_names(wanted, fixtures._ARGUMENTS, with_options=True)
    asked = {
        name: wanted.pop(name, None)
        for name in ("scenario", "seed", "topology", "mirror", "duration", "clients")
    }
    chosen = runs._chosen(
        asked["scenario"],
        asked["seed"],
        asked["topology"],
        asked["mirror"],
        wanted,
        asked["duration"],
        asked["clients"],
    )
    assert is_file(asked["scenario"]) or chosen.name.startswith(asked["scenario"])
    check(chosen, "process")


FOLDERS = ("harness", "chaos", "topologies", "spark_verify", "linkflap")
IN_RUN_DIRECTORY = re.compile(
    r"(run|verdict)\.json|events\.jsonl|(operations|polls)/<\w+>\.jsonl|captures/(<\w+>/)+"
)
COMMAND = re.compile(r"linkflap [a-z].*")
FILE = re.compile(r"(?P<path>[a-z_0-9/]+\.py)(:(?P<name>\w+))?")
FOLDER = re.compile(r"[a-z_0-9]+(/[a-z_0-9]+)+/?")
CLASS = re.compile(r"(?P<name>[A-Z]\w+)(\.(?P<method>\w+))?")
FIELD = re.compile(r"combine")
"""A field of a check's declaration (`Check.combine`)."""
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


def test_every_name_in_the_walkthrough_exists() -> None:
    named = re.findall(r"`([^`\n]+)`", (ROOT / "docs" / "walkthrough.md").read_text())
    assert len(named) > 30
    assert [one for one in named if not exists(one)] == []


@pytest.mark.parametrize(
    "named",
    [
        "linkflap/cli/runs.py",
        "linkflap/cli/run.py:ran",
        "harness/clis/",
        "Incarnations",
        "Incarnation.invokes",
        "runs.json",
    ],
)
def test_missing_names_are_found(named: str) -> None:
    assert not exists(named)


def test_every_file_that_a_document_names_exists() -> None:
    docs, claims = (ROOT / "docs").rglob("*.md"), (ROOT / "chaos/cases/claims").glob("*.toml")
    pages = [*ROOT.glob("*.md"), *docs, *claims, ROOT / "tests" / "README.md"]
    named = {(page.name, path) for page in pages for path in NAMED.findall(page.read_text())}
    assert len(named) > 50
    assert sorted((page, path) for page, path in named if not (ROOT / path).is_file()) == []


def test_every_file_that_the_design_lists_is_in_its_folder() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    block = text.partition("## Where things live")[2].split("```")[1]
    folder, named = "", []
    for line in block.splitlines():
        folder = found[1] if (found := re.match(r"([\w/]+/) +", line)) else folder
        named += [(folder, name) for name in re.findall(r"[ (]([a-z_0-9]+\.py)\b", line)]
    assert len(named) > 30
    assert [each for each in named if not [*(ROOT / each[0]).rglob(each[1])]] == []


MODULE = re.compile(r"`((?:harness|chaos|topologies|spark_verify|tests|log_model)(?:\.[a-z]\w*)+)")
LOG_MODEL = Path("spark_verify/checks")
"""The folder of the package log_model, which checks name without its folder."""


def is_module(named: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    *parents, last = named.split(".")
    for folder in (top.joinpath(*parents) for top in (ROOT, ROOT / LOG_MODEL)):
        sources = [folder.with_suffix(".py"), folder / "__init__.py"]
        if (folder / f"{last}.py").is_file() or (folder / last).is_dir():
            return True
        if any(source.is_file() and last in source.read_text() for source in sources):
            return True
    return False


def test_every_module_that_a_docstring_names_exists() -> None:
    sources = [path for folder in (*FOLDERS, "tests") for path in (ROOT / folder).rglob("*.py")]
    named = {(path.name, one) for path in sources for one in MODULE.findall(path.read_text())}
    assert len(named) > 50
    assert sorted((path, one) for path, one in named if not is_module(one)) == []


@pytest.mark.parametrize("named", ["harness.rundirs", "tests.unit.checks.logs.Log"])
def test_a_module_that_is_missing_is_found(named: str) -> None:
    assert not is_module(named)


def test_the_index_has_every_page() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    listed = re.findall(r"\(([a-z-]+\.md)\)", (ROOT / "docs" / "index.md").read_text())
    assert sorted(listed) == sorted(pages)


MAKE = runpy.run_path(str(ROOT / "docs" / "make.py"))


@pytest.mark.parametrize("page", MAKE["PAGES"])
def test_a_page_that_is_made_from_the_code_is_current(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == MAKE["PAGES"][page](), "run: python docs/make.py"


def test_every_package_is_on_the_map() -> None:
    packages = {
        str(init.parent.relative_to(ROOT))
        for top in ("linkflap", "harness", "chaos", "topologies", "spark_verify")
        for init in (ROOT / top).rglob("__init__.py")
    }
    assert packages <= set(MAKE["packages"]())
    page = (ROOT / "docs" / "map.md").read_text()
    assert [name for name in packages if f"- **`{name}/`**: " not in page] == []


def test_the_map_is_read_in_five_minutes() -> None:
    assert len((ROOT / "docs" / "map.md").read_text().splitlines()) < 250


def test_every_module_says_what_it_promises() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for top in ("linkflap", "harness", "chaos", "topologies", "spark_verify", "benchmarks")
        for path in (ROOT / top).rglob("*.py")
        if not MAKE["promise"](path) and path.read_text().strip()
    ]
    assert silent == []


KINDS = {f"{check.name}/{kind.name}" for check in REGISTRY.values() for kind in check.anomalies}


def test_every_kind_of_anomaly_is_produced_by_a_mutation() -> None:
    produced = set().union(*(mutation.must for mutation in CATALOGUE.values()))
    assert KINDS - produced == set(), "give each a mutation in tests/faithful/mutations"


@pytest.mark.parametrize("mutation", CATALOGUE.values(), ids=lambda mutation: mutation.name)
def test_a_mutation_names_existing_checks_and_kinds(mutation: Mutation) -> None:
    assert mutation.must <= KINDS
    assert mutation.may <= KINDS | set(REGISTRY)
    assert mutation.unknown <= {*REGISTRY, *RUN_CHECKS}
    assert mutation.what, "its docstring is what it does"
    assert mutation.verdict != "invalid" or mutation.must, "what must make the run invalid?"


def test_every_additional_finding_has_a_reason() -> None:
    assert {
        each.partition("/")[0] for mutation in CATALOGUE.values() for each in mutation.may
    } <= BESIDE.keys(), "say it in BESIDE of tests/faithful/mutations/base.py"


def test_the_generator_shares_no_code_with_what_it_tests() -> None:
    """But for `wire`, which has the recorder write the history of a story."""
    sources = [
        path
        for path in (ROOT / "tests" / "faithful").rglob("*.py")
        if path.name not in ("matrix.py", "wire.py")
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
