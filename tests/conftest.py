"""Fixtures that several folders share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_verify import session


def pytest_configure() -> None:
    """Whoever starts pytest in the background of a shell has SIGINT ignored, and so would all that it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark per test process. Mark users with `spark` and `xdist_group("spark")`, so that there is one in all."""
    yield session.session()
    session.close()
