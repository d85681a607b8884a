"""Every check agrees with its slow reference on small random runs, faithful and changed ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from linkflap.harness.log.coordinators import (
    COMPLETE_ABORT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.view import PartitionView
from tests.oracles import random_runs
from tests.oracles.agreement import REFERENCES, disagreement, findings
from tests.unit.checks.coordinator_logs import coordinator, data
from tests.unit.checks.histories import Log, but, send, uid, view

SEEDS, FAITHFUL = range(90), range(1000, 1020)
NIGHTLY, MOST = 2000, 10_000
"""Random runs that are compared every night: at least so many, and at most, until every kind
occurred."""
PERMITTED = {
    "mirrored-duplicate": "at-least-once delivery",
    "group-replay": "group offsets are synced at intervals",
    "output-repeated-by-failover": "the same, for the group of a relay",
    "copy-repeated-by-failover": "the same, for the group of a program",
    "output-lost-by-failover": "the same, for outputs of a relay",
    "copy-lost-by-failover": "the same, for outputs of a program",
    "skipped-by-truncation": "readers do not learn that a mirror truncated its log",
    "outcome-split": "a source that was given up may commit what its destination has aborted",
    "torn-by-failover": "a forced failover cuts each partition where its copy ends",
    "rpo-over-budget": "a small budget is drawn for each run",
    "rto-over-budget": "the same",
    "unproven-redelivery": "a fault may have delayed an answer",
}
"""The findings that a faithful run may have, and why."""

seen = cache(random_runs.seen)


def wrong(name: str, views: Sequence[PartitionView]) -> str:
    return disagreement(name, findings(REGISTRY[name], views), views)


def test_a_disagreement_is_reported() -> None:
    """On a history without two acknowledged records: a check that finds none, or finds them
    elsewhere, or fewer, is noticed."""
    lost = [view([Log("A").data(uid(9, 1), uid(9, 2))], sends=[send(1, 2, acked=0)])]
    rows = [row for row in findings(REGISTRY["lost-write"], lost) if row.finding == "found"]
    assert [(row.offset, row.data["records"]) for row in rows] == [(0, 2)]
    assert not disagreement("lost-write", rows, lost)
    assert disagreement("lost-write", [], lost)
    assert disagreement("lost-write", [replace(rows[0], offset=1)], lost) == ""
    assert disagreement("lost-write", [replace(rows[0], offset=5)], lost)
    assert disagreement("lost-write", [replace(rows[0], data={"records": 1})], lost)
    crashed = replace(rows[0], finding="crashed", data={"traceback": "it crashed"})
    assert disagreement("lost-write", [crashed], lost) == "it crashed"


def test_any_marker_whose_inversion_explains_the_decisions_may_be_named() -> None:
    """Decided are an abort, and a commit that need not have its marker; before them decisions are
    compacted. So either of two COMMIT markers may be the one that should be an ABORT."""
    undone = (ONGOING, PREPARE_ABORT, COMPLETE_ABORT)
    decided = but(coordinator(*undone, ONGOING, PREPARE_COMMIT), compacted={"A": 1})
    views = [decided, data("commit", "commit")]
    rows = [r for r in findings(REGISTRY["internal-topics"], views) if r.finding == "found"]
    assert [(row.kind, row.offset) for row in rows] == [("outcome-disagreement", 1)]
    for offset, accepted in ((1, True), (3, True), (2, False)):
        moved = [replace(rows[0], offset=offset)]
        assert (disagreement("internal-topics", moved, views) == "") == accepted
    assert disagreement("internal-topics", [], views)
    assert disagreement("internal-topics", [*rows, replace(rows[0], offset=3)], views)


@pytest.mark.parametrize("name", REFERENCES)
def test_a_check_and_its_reference_agree(name: str) -> None:
    runs = {seed: seen(seed) for seed in SEEDS}
    assert {
        f"seed {seed}, {what}": said
        for seed, (views, what) in runs.items()
        if (said := wrong(name, views))
    } == {}


@pytest.mark.nightly
def test_every_kind_occurs_in_random_runs_and_every_check_agrees() -> None:
    """A kind that never occurs fails here, and in no other test."""
    missing = {(name, kind.name) for name in REFERENCES for kind in REGISTRY[name].anomalies}
    first = Random().randrange(10**9)
    disagreements: list[str] = []
    for seed in range(first, first + MOST):
        if seed >= first + NIGHTLY and not missing:
            break
        views, what = random_runs.seen(seed)
        for name in REFERENCES:
            rows = findings(REGISTRY[name], views)
            missing -= {(name, row.kind) for row in rows if row.finding == "found"}
            said = disagreement(name, rows, views)
            disagreements += [f"seed {seed}, {what}, {name}: {said}"] if said else []
    assert disagreements == []
    assert missing == set()


def permitted(views: Sequence[PartitionView]) -> Collection[str]:
    """The findings that this faithful run may have. A mirror that truncates once may open an
    earlier transaction again (docs/shadow.md, case RS4-truncate-once)."""
    once = views[0].mirror.options.get("open_transactions") == "truncate-once"
    return {*PERMITTED, "hanging-transaction"} if once else PERMITTED


@pytest.mark.parametrize("name", REGISTRY)
def test_faithful_run_has_no_findings(name: str) -> None:
    found = {
        (seed, row.kind)
        for seed in FAITHFUL
        for views in [seen(seed, faithful=True)[0]]
        for row in findings(REGISTRY[name], views)
        if row.finding in ("found", "crashed") and row.kind not in permitted(views)
    }
    assert found == set()


def test_a_finding_proven_in_a_torn_log_by_one_check_may_be_unproven_by_another() -> None:
    """A marker that the coordinator recorded as written is missing if it is not there; a marker
    that only records imply may be in the torn part."""
    log = Log("A").txn(uid(1, 1), pid=7, end=None).txn(uid(2, 1), pid=7, end=None)
    rows = findings(REGISTRY["marker-pairing"], [view([log])])
    assert ("marker-missing", 0) in {(row.kind, row.offset) for row in rows}
    torn = [view([log.torn()])]
    rows = findings(REGISTRY["marker-pairing"], torn)
    assert "marker-missing" not in {row.kind for row in rows}
    assert not disagreement("marker-pairing", rows, torn)
