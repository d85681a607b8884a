"""Every check agrees with its slow reference on small random histories, faithful and changed
ones."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from linkflap.spark_verify.checks import REGISTRY
from tests.oracles.additions import seen_by
from tests.oracles.agreement import REFERENCES, disagreement, findings
from tests.oracles.changes import change
from tests.oracles.happenings import world
from tests.oracles.views import views, with_own

RANDOM = st.randoms(use_true_random=False, note_method_calls=False)
SEEDS, MOST_SEEDS = 2000, 10_000
"""Random histories that are compared: at least so many, and at most, until every kind occurred."""
COSTS = {
    "exactly-once",
    "failover",
    "group-offsets",
    "last-stable-offset",
    "mirror-states",
    "progress",
    "torn-transaction",
}
"""Checks that find something in faithful histories too: the cost of a failover, or a transaction
that nobody ended in time."""
COMMON = settings(
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)


def test_a_disagreement_is_reported() -> None:
    """On a history without the first records that were acknowledged: a check that finds none, or
    finds them elsewhere, or fewer, is noticed."""
    made = world(Random(4))
    first = made.logs["A", 0][0]
    first["records"] = [r | {"uid": 77 << 40 | i} for i, r in enumerate(first["records"])]
    seen = views(made)[:1]
    rows = [row for row in findings(REGISTRY["lost-write"], seen) if row.finding == "found"]
    assert [(row.offset, row.data["records"]) for row in rows] == [(0, 2)]
    assert not disagreement("lost-write", rows, seen)
    assert disagreement("lost-write", [], seen)
    assert disagreement("lost-write", [replace(rows[0], offset=1)], seen) == ""
    assert disagreement("lost-write", [replace(rows[0], offset=5)], seen)
    assert disagreement("lost-write", [replace(rows[0], data={"records": 1})], seen)
    crashed = replace(rows[0], finding="crashed", data={"traceback": "it crashed"})
    assert disagreement("lost-write", [crashed], seen) == "it crashed"


def agrees(name: str, random: Random, changes: int) -> None:
    made = world(random)
    done = change(made, changes)
    seen = seen_by(name, made, random)
    assert not disagreement(name, findings(REGISTRY[name], seen), seen), done


@pytest.mark.parametrize("name", REFERENCES)
@settings(COMMON, derandomize=True, max_examples=40)
@given(random=RANDOM, changes=st.integers(1, 4))
def test_a_check_and_its_reference_agree(name: str, random: Random, changes: int) -> None:
    agrees(name, random, changes)


@pytest.mark.nightly
@pytest.mark.parametrize("name", REFERENCES)
@settings(COMMON, derandomize=False, max_examples=500)
@given(random=RANDOM, changes=st.integers(0, 6))
def test_a_check_and_its_reference_agree_on_very_many(
    name: str, random: Random, changes: int
) -> None:
    agrees(name, random, changes)


@pytest.mark.nightly
def test_every_kind_occurs_in_random_histories_and_everybody_agrees() -> None:
    """A kind that never occurs fails here, and in no other test."""
    missing = {(name, kind.name) for name in REFERENCES for kind in REGISTRY[name].anomalies}
    wrong: list[str] = []
    for seed in range(MOST_SEEDS):
        if seed >= SEEDS and not missing:
            break
        random = Random(seed)
        made = world(random)
        done = change(made, random.randint(0, 6))
        for name in REFERENCES:
            seen = seen_by(name, made, random)
            rows = findings(REGISTRY[name], seen)
            missing -= {(name, row.kind) for row in rows if row.finding == "found"}
            said = disagreement(name, rows, seen)
            wrong += [f"seed {seed}, {name}, after {done}: {said}"] if said else []
    assert wrong == []
    assert missing == set()


@settings(COMMON, derandomize=True, max_examples=40)
@given(random=RANDOM)
def test_nothing_is_found_in_a_faithful_history(random: Random) -> None:
    made = world(random)
    seen = with_own(made)
    # Records that a mirror wrote again are anomalies that its guarantee allows.
    again = {"mirrored-duplicate"} if made.repeated else set()
    # Readers do not learn of a truncation; that is allowed too.
    again |= {"skipped-by-truncation"} if made.truncations else set()
    # The source may commit after a forced failover, or after the mirror's end, what the destination
    # has aborted.
    planned = {(p["link"], p["partition"]) for p in made.promotions if p["kind"] == "planned"}
    again |= (
        {"outcome-split"}
        if any((s["link"], s["partition"]) not in planned for s in made.stops)
        else set()
    )
    # A mirror that truncates at its end removes records that readers have got.
    again |= (
        {"skipped-by-truncation", "lost-write", "phantom-read"} if made.truncated_at_end else set()
    )
    for name, check in REGISTRY.items():
        rows = findings(check, seen)
        assert name not in REFERENCES or not disagreement(name, rows, seen)
        assert name in COSTS or {row.kind for row in rows if row.finding == "found"} <= again


def test_a_finding_proven_in_a_torn_log_by_one_check_may_be_unproven_by_another() -> None:
    """A marker that the coordinator recorded as written is missing if it is not there; a marker
    that only records imply may be in the torn part."""
    made = world(Random(3))
    first, second = (
        {
            "records": [{"uid": n << 40, "operation": n << 40, "digest": n, "timestamp": 1}],
            "base": n - 1,
            "size": 1,
        }
        | {"pid": 7, "pepoch": 0, "txn": True, "seq": n - 1}
        for n in (1, 2)
    )
    log = made.logs["A", 0]
    log[:] = [log[0] | {"control": -1} | first, log[0] | {"control": -1} | second]
    check = REGISTRY["marker-pairing"]
    seen = views(made)[:1]
    assert ("marker-missing", 0) in {(row.kind, row.offset) for row in findings(check, seen)}
    made.torn.add(("A", 0, 1))
    seen = views(made)[:1]
    rows = findings(check, seen)
    assert "marker-missing" not in {row.kind for row in rows}
    assert not disagreement("marker-pairing", rows, seen)
