"""The pytest plugin: its marker and fixtures. Nothing else of linkflap is imported before a test
uses a fixture."""

from __future__ import annotations

import importlib
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from linkflap.api.fixtures import FixtureRun
    from linkflap.api.shared import Pool, Shared
    from linkflap.api.world import World
    from linkflap.harness.model.protocols import Deployment

_REPLACED: Final = "linkflap-replaced"
"""The property of a test after which clusters were replaced; its value is the reason."""
_USED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "linkflap(scenario='link-flap', topology=None, mirror=None, seed=1, duration=None, "
        "runtime=None, record=None, judge=True, **options): a linkflap run; options are the "
        "mirror's",
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends Spark, which serves all tests of a process once it has started."""
    if config.stash.get(_USED, False):
        from linkflap.api import fixtures

        fixtures.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Lets fixtures know that the test itself has passed."""
    report = yield
    if call.when == "call" and item.config.stash.get(_USED, False):
        item.stash[_plugin(item.config).PASSED] = report.passed
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists the tests that left shared clusters changed, after which the next tests got new
    ones."""
    reports = [
        report
        for some in terminalreporter.stats.values()
        for report in some
        if isinstance(report, pytest.TestReport)
    ]
    for text in dict.fromkeys(
        str(text)
        for report in reports
        for name, text in report.user_properties
        if name == _REPLACED
    ):
        terminalreporter.write_line(f"linkflap: {text}")


@pytest.fixture
def linkflap_deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Clusters and links, started and proven: the marker's `topology` (default `A->B`) on its
    `runtime`.

    A marker without `runtime` leaves it to $LINKFLAP_RUNTIME, else it is process.
    """
    plugin = _plugin(request.config)
    with plugin.one_sentence(), plugin.deployment(request, tmp_path) as up:
        yield up


@pytest.fixture(scope="session")
def _linkflap_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pool]:
    yield from _pool(request.config, tmp_path_factory)


@pytest.fixture(scope="module")
def _linkflap_module(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pool]:
    yield from _pool(request.config, tmp_path_factory)


def _pool(config: pytest.Config, folders: pytest.TempPathFactory) -> Iterator[Pool]:
    pool: Pool = _plugin(config).new_pool(folders.mktemp("linkflap"))
    yield pool
    pool.close()


@pytest.fixture
def linkflap_shared(request: pytest.FixtureRequest) -> Iterator[Shared]:
    """Clusters and links that tests of the session share (`reuse="module"`: of the module); each
    test has topic names of its own.

    A deployment that a test leaves changed is replaced, and reported.
    """
    plugin = _plugin(request.config)
    pools = {
        scope: partial(request.getfixturevalue, f"_linkflap_{scope}")
        for scope in ("session", "module")
    }
    with plugin.one_sentence(), plugin.shared(request, pools) as (up, changes):
        yield up
    request.node.user_properties += [(_REPLACED, text) for text in changes]


@pytest.fixture
def linkflap_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """What `linkflap.deploy` gives, with the marker's arguments (topology, topics, mirror, …); its
    `verify` judges."""
    plugin = _plugin(request.config)
    with plugin.one_sentence(), plugin.world(request, tmp_path) as up:
        yield up


@pytest.fixture
def linkflap_run(request: pytest.FixtureRequest, tmp_path: Path) -> FixtureRun:
    """The marker's `scenario` (default link-flap), run and judged; further arguments are options of
    the mirror."""
    plugin = _plugin(request.config)
    with plugin.one_sentence():
        judged: FixtureRun = plugin.run(request, tmp_path)
    return judged


def _plugin(config: pytest.Config) -> ModuleType:
    """The module with the work of the fixtures, imported at the first use of a fixture, so that
    other projects' tests do not pay for it."""
    config.stash[_USED] = True
    return importlib.import_module("linkflap.api.fixtures")
