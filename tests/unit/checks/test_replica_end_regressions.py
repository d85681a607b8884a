"""Replicas that lost committed records: the histories that are only rejected."""

from __future__ import annotations

import pytest

from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.replica_histories import fault, replica
from tests.unit.checks.verdicts import anomalies

NAME = "last-stable-offset"


def test_the_leaders_own_replica_needs_no_earlier_sample() -> None:
    assert anomalies(NAME, replica(2, 1, broker=1)) == [("replica-end-regression", "A", 1)]


@pytest.mark.parametrize(
    "history",
    [
        replica(1, 2, 1, epochs=(0, 0, 1, 1)),
        replica(1, 2, 1, epochs=(0, 0, 1, 1), leaders=(1, 1, 3, 3)),
        replica(1, 2, 1, windows=[fault("broker-pause", "A/3", 0)]),
        replica(1, 2, 2, 1, windows=[fault("broker-kill", "A/2", 2)]),
        replica(1, 2, 1, leaders=(-1, 1, 1, 1)),
    ],
    ids=[
        "a new epoch",
        "another leader",
        "another broker was paused",
        "killed after it had them",
        "the first sample of an epoch has no name",
    ],
)
def test_no_election_or_restart_takes_committed_records(history: PartitionView) -> None:
    assert anomalies(NAME, history) == [("replica-end-regression", "A", 1)]
