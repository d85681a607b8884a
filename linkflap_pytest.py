"""The pytest plugin's entry point: of unique name, so that it loads even where a project's own folder is called `harness`.

linkflap's packages have plain names (harness, chaos, topologies, spark_verify). A project with a folder of one of these names at
the front of sys.path shadows them. Nothing of linkflap is imported before a fixture is used, so such a project is not disturbed
by linkflap being installed; where it does use a fixture, one sentence says what is wrong.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness import pytest_plugin
    from harness.model.protocols import Deployment

# A file that ours has, and no other package of that name.
_PACKAGES = {"harness": "rundir.py", "chaos": "schedule.py", "topologies": "arrows.py", "spark_verify": "view.py"}
_USED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "linkflap(scenario='link-flap', topology=None, mirror=None, seed=None, runtime=None, **options): a linkflap run",
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Spark, once started, serves all tests of a process, and ends with them."""
    if config.stash.get(_USED, False):
        from harness import pytest_plugin

        pytest_plugin.close()


@pytest.fixture
def linkflap_deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Clusters and links, started and proven: the marker's `topology` (default `A->B`) on its `runtime`.

    A marker without `runtime` leaves it to $LINKFLAP_RUNTIME, else it is process.
    """
    plugin = _plugin(request.config)
    with plugin.one_sentence(), plugin.deployment(request, tmp_path) as up:
        yield up


@pytest.fixture
def linkflap_run(request: pytest.FixtureRequest, tmp_path: Path) -> pytest_plugin.Judged:
    """The marker's `scenario` (default link-flap), run and judged; further arguments are options of the mirror."""
    plugin = _plugin(request.config)
    with plugin.one_sentence():
        judged: pytest_plugin.Judged = plugin.run(request, tmp_path)
    return judged


def _plugin(config: pytest.Config) -> ModuleType:
    """linkflap itself; an error of the test's setup when it is shadowed."""
    reason = _shadowed()
    if reason:
        pytest.fail(f"{reason} (linkflap {version('linkflap')})", pytrace=False)
    config.stash[_USED] = True
    return importlib.import_module("harness.pytest_plugin")


def _shadowed() -> str | None:
    for name, file in _PACKAGES.items():
        spec = importlib.util.find_spec(name)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        if not any((Path(folder) / file).is_file() for folder in folders):
            where = folders[0] if folders else spec.origin if spec else "nothing: it cannot be found"
            return (
                f"linkflap's package {name!r} is shadowed by {where}; rename that, or keep its folder off sys.path and PYTHONPATH"
            )
    return None
