"""The pairwise choice: every pair occurs, with fewer cells than all combinations."""

from __future__ import annotations

import itertools

import pytest

from linkflap.chaos.scenarios import SCENARIOS
from tests.cells import CLIENTS, SECURITIES, pairwise, topology


@pytest.mark.parametrize(
    ("factors", "most"),
    [
        ((tuple(SCENARIOS), CLIENTS, SECURITIES), len(SCENARIOS) * 2),
        ((("a", "b", "c"), ("d", "e", "f"), ("g", "h", "i"), ("j", "k", "l")), 12),
        ((("a", "b"), ("a", "b"), ("a", "b")), 4),
    ],
)
def test_all_pairs_occur_in_few_combinations(
    factors: tuple[tuple[str, ...], ...], most: int
) -> None:
    rows = pairwise(*factors)
    for (i, one), (j, other) in itertools.combinations(enumerate(factors), 2):
        assert {(row[i], row[j]) for row in rows} == set(itertools.product(one, other))
    assert len(rows) == len(set(rows)) <= most
    assert set(rows) <= set(itertools.product(*factors))


def test_it_is_the_same_each_time_and_empty_of_nothing() -> None:
    assert pairwise(tuple(SCENARIOS), CLIENTS, SECURITIES) == pairwise(
        tuple(SCENARIOS), CLIENTS, SECURITIES
    )
    assert pairwise((), ("a", "b")) == []


def test_a_cell_secures_every_cluster_of_its_scenario() -> None:
    assert topology("chain-flap", "tls+scram") == "A{tls+scram}->B{tls+scram}->C{tls+scram}"
    assert topology("broker-loss", "") == "A:3->B:3"
    assert topology("relay", "tls+scram") == "A@4.1.2{tls+scram}->B@4.1.2{tls+scram}"
