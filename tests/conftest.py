"""Fixtures for several folders."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from linkflap.spark_verify.spark import session
from tests.on_runtimes import NOT_TESTED

INTEGRATION = Path(__file__).parent / "integration"

pytest.register_assert_rewrite(
    "tests.shadow_sides",
    "tests.shadows",
    "tests.unit.checks.verdicts",
    "tests.workload_rig",
)
"""Modules with assertions that pytest rewrites, so that failures show the compared values."""


def pytest_configure() -> None:
    """Restores SIGINT, which is ignored if a shell starts pytest in the background; child processes
    would inherit that. Tests use the process runtime unless they name another, even on a machine
    where the command line has docker. No property is timed: on a busy machine Hypothesis's deadline
    of 200 ms for an example fails tests that are right. Properties have the same examples in every
    run, and new ones at night: what CI refuses is wrong in the change, and not found by luck."""
    untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("new-examples", untimed)
    settings.register_profile("same-examples", untimed, derandomize=True)
    settings.load_profile("same-examples")
    os.environ["LINKFLAP_RUNTIME"] = "process"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of tests/integration. Tests that share a Spark run in one xdist worker."""
    for item in items:
        if INTEGRATION in item.path.parents:
            item.add_marker("integration")
        if item.get_closest_marker("spark") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Reports what was not tested at the end of the output, after all other lines."""
    yield
    reasons = [
        str(report.longrepr)
        for report in terminalreporter.stats.get("skipped", ())
        if NOT_TESTED in str(report.longrepr)
    ]
    if reasons:
        why = reasons[0].partition(f"{NOT_TESTED}: ")[2].removesuffix("')")
        terminalreporter.section("DOCKER NOT TESTED", sep="#", red=True, bold=True)
        terminalreporter.line(
            f"{len(reasons)} tests on containers were skipped: {why}", red=True, bold=True
        )


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark per test process. Its tests are marked `spark`, so that one worker has them all."""
    yield session.session()
    session.close()
