"""Invalid topics are refused before a request is sent."""

from __future__ import annotations

import pytest

from linkflap.harness.model.errors import InputError
from linkflap.harness.runtimes.kraft import cluster


@pytest.mark.parametrize("name", ["orders", "A.orders", "us-east.orders_1", "x" * 249])
def test_legal_names(name: str) -> None:
    cluster.check_topic(name, 1, 3)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250])
def test_illegal_names(name: str) -> None:
    with pytest.raises(InputError, match="is not a topic's name"):
        cluster.check_topic(name, 1, 1)


@pytest.mark.parametrize(("partitions", "replicas"), [(0, 1), (-1, 1), (1, 0), (10_001, 1)])
def test_illegal_sizes(partitions: int, replicas: int) -> None:
    with pytest.raises(InputError, match="give 1 to 10000 partitions and 1 replica or more"):
        cluster.check_topic("orders", partitions, replicas)
