"""docs/map.md and the layers in docs/design.md are true."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = runpy.run_path(str(ROOT / "docs" / "make_layers.py"))
MAKE = runpy.run_path(str(ROOT / "docs" / "make_map.py"))


def test_the_map_is_current() -> None:
    assert (ROOT / "docs" / "map.md").read_text() == MAKE["render"](), (
        "run: python docs/make_map.py > docs/map.md"
    )


def test_every_package_is_on_the_map() -> None:
    packages = {
        str(init.parent.relative_to(ROOT))
        for top in ("harness", "chaos", "topologies", "spark_verify")
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
        for top in ("harness", "chaos", "topologies", "spark_verify", "benchmarks")
        for path in (ROOT / top).rglob("*.py")
        if not MAKE["promise"](path) and path.read_text().strip()
    ]
    assert silent == []


def test_the_layers_of_the_design_are_those_that_are_checked() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    assert page == LAYERS["render"](page), "run: python docs/make_layers.py"
