"""Fixtures that several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_verify import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark per test process. Mark users with `spark` and `xdist_group("spark")`, so that there is one in all."""
    yield session.session()
    session.close()
