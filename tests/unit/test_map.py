"""docs/map.md says where everything is, and is true."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAKE = runpy.run_path(str(ROOT / "docs" / "make_map.py"))


def test_the_map_is_current():
    assert (ROOT / "docs" / "map.md").read_text() == MAKE["render"](), "run: python docs/make_map.py > docs/map.md"


def test_every_package_is_on_the_map():
    packages = {
        str(init.parent.relative_to(ROOT))
        for top in ("harness", "chaos", "topologies", "spark_verify")
        for init in (ROOT / top).rglob("__init__.py")
    }
    assert packages <= set(MAKE["PLACES"])


def test_every_module_says_what_it_promises():
    silent = [
        str(path.relative_to(ROOT))
        for top in ("harness", "chaos", "topologies", "spark_verify", "benchmarks")
        for path in (ROOT / top).rglob("*.py")
        if not MAKE["promise"](path) and path.read_text().strip()
    ]
    assert silent == []
