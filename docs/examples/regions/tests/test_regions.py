"""What the loss of one of two active regions costs, and what it costs while the link is down."""

from pathlib import Path

import pytest

import linkflap

HERE = Path(__file__).resolve().parent.parent


def lost_east(folder, name):
    return linkflap.run(HERE / name, folder=folder / "run", seed=5)


def test_what_a_link_that_is_down_holds_back_is_lost_and_the_budget_says_so(tmp_path):
    judged = lost_east(tmp_path, "behind.toml")
    assert {found.kind for found in judged.anomalies if not found.allowed} == {"rpo-over-budget"}
    (failover,) = judged.document["failovers"]
    assert failover["rpo_records"] > 0, judged.why


@pytest.mark.long
def test_west_goes_on_and_has_all_of_east(tmp_path):
    judged = lost_east(tmp_path, "loss.toml")
    assert judged.valid, judged.why
    (failover,) = judged.document["failovers"]
    assert (failover["link"], failover["kind"]) == ("east->west", "forced")
    # west's own records were written throughout, and copied to east until it was lost
    assert judged.checks["lost-write"].examined["west/native"] > 0
    assert judged.checks["order-equality"].examined["east/mirrored"] > 0
    assert judged.checks["order-equality"].examined["west/mirrored"] > 0
