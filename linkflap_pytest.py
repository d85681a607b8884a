"""The pytest plugin's entry point: of unique name, so that it loads even where a project's own folder is called `harness`.

linkflap's packages have plain names (harness, chaos, topologies, spark_verify). A project with a folder of one of these names
at the front of sys.path shadows them; this says so in one sentence instead of an ImportError from the depths.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import distribution
from pathlib import Path

import pytest

_PACKAGES = ("harness", "chaos", "topologies", "spark_verify")


def _shadowed() -> str | None:
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec else []
        if not any((Path(place) / "__init__.py").is_file() and _is_ours(name, Path(place)) for place in places):
            where = places[0] if places else "nowhere"
            return (
                f"linkflap's package {name!r} is shadowed by {where}; rename that folder, or keep it off sys.path and PYTHONPATH"
            )
    return None


def _is_ours(name: str, place: Path) -> bool:
    """Ours has the marker that no other package of that name has."""
    marker = {"harness": "rundir.py", "chaos": "schedule.py", "topologies": "__init__.py", "spark_verify": "view.py"}[name]
    return (place / marker).is_file()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the fixtures, or ends with the one sentence."""
    reason = _shadowed()
    if reason:
        raise pytest.UsageError(f"{reason} (linkflap {distribution('linkflap').version})")
    config.addinivalue_line(
        "markers", "linkflap(scenario='link-flap', topology=None, mirror=None, seed=None, **options): a linkflap run"
    )
    from harness import pytest_plugin

    config.pluginmanager.register(pytest_plugin, "linkflap-fixtures")
