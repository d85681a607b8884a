"""Replicas that lost committed records: the histories that are only rejected."""

from __future__ import annotations

import pytest

from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.replica_histories import fault, replica, stop
from tests.unit.checks.verdicts import anomalies

NAME = "last-stable-offset"
LONG = (2,) * 50


def test_a_leader_that_nobody_writes_to_is_judged_by_what_it_had() -> None:
    """The sampler records it every few seconds, also in the epoch in which it leads."""
    idle = replica(
        *(2, 2, 2, 0), broker=2, high=(1, 2, 2, 2), epochs=(0, 1, 1, 1), leaders=(1, 2, 2, 2)
    )
    assert anomalies(NAME, idle) == [("replica-end-regression", "A", 0)]


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
        replica(1, 2, 3, 1, windows=[fault("broker-pause", "A/2", 2)]),
        replica(1, 2, 1, every=15, high=LONG, windows=[fault("broker-pause", "A/2", 13)]),
        replica(1, 1, 2, 1, every=15, high=LONG, windows=[fault("partition", "A/2", 2)]),
        replica(1, 1, 2, 1, every=15, high=LONG, windows=[fault("unclean-election", "A", 2)]),
        replica(1, 2, 1, stops=[stop(2)]),
    ],
    ids=[
        "a new epoch",
        "another leader",
        "another broker was paused",
        "killed after it had them",
        "the first sample of an epoch has no name",
        "grew again after its broker was paused",
        "its broker was paused when it knew the leader",
        "long after a partition",
        "long after an unclean election",
        "a mirror stopped and truncated nothing",
    ],
)
def test_no_election_or_restart_takes_committed_records(history: PartitionView) -> None:
    assert anomalies(NAME, history) == [("replica-end-regression", "A", 1)]


@pytest.mark.parametrize(
    ("on", "found"), [("A", []), ("B", [("replica-end-regression", "B", 1)])], ids=["A", "B"]
)
def test_a_mirror_follows_an_unclean_election_of_its_source(on: str, found: list[object]) -> None:
    """On B itself it is over soon; B may follow the one of A at any time."""
    history = replica(
        1, 1, 2, 1, every=15, high=LONG, cluster="B", windows=[fault("unclean-election", on, 2)]
    )
    assert anomalies(NAME, history) == found
