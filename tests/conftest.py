"""Fixtures that several folders share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from linkflap.spark_verify.spark import session
from tests.on_runtimes import NOT_TESTED

pytest.register_assert_rewrite(
    "tests.consequences",
    "tests.failback",
    "tests.mirrored_topics",
    "tests.shadow_pair",
    "tests.shadow_watch",
    "tests.truthful",
    "tests.unit.checks.verdicts",
    "tests.workload_rig",
)
"""Modules whose assertions say what they compared, as those of tests do."""


def pytest_configure() -> None:
    """Whoever starts pytest in the background of a shell has SIGINT ignored, and so would all that
    it starts.

    And a test means the process runtime unless it names another: also on a machine where the
    command line has docker.
    """
    os.environ["LINKFLAP_RUNTIME"] = "process"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """What was not tested is said in the closing lines, behind all others, where it is seen."""
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
    """One Spark per test process. Mark users with `spark` and `xdist_group("spark")`, so that there
    is one in all."""
    yield session.session()
    session.close()
