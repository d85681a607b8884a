"""torn-transaction: the smallest histories, of one partition and of two."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import numpy as np
import pytest

from linkflap.harness.guarantees import DECLARATIONS
from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Found, PartialFinding
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.verdict.allowances import why_allowed
from tests.unit.checks.histories import History, Log, commit, poll, promoted, view
from tests.unit.checks.verdicts import Rejected, examined, findings, found_in, unjudged

NAME = "torn-transaction"
A12 = Log("A").txn(1, 2, pid=7)
ACKED = [commit(1, 2, acked=0)]
ACCEPTED = {
    "whole": (view([A12, Log("B").data(1, 2)], sends=ACKED), {"A/native": 1}),
    "aborted": (
        view([Log("A").txn(1, 2, pid=7, end="abort")], sends=[commit(1, 2, ending="abort")]),
        {"A/native": 1},
    ),
    "whole on both sides": (
        view([A12, Log("B").data(1, 2)], sends=ACKED, promotions=[promoted(2)]),
        {"A/native": 1, "B/mirrored": 1},
    ),
    "deleted on B": (
        view([A12, Log("B", start=1).data(2)], sends=ACKED, promotions=[promoted(2)]),
        {"A/native": 1, "B/mirrored": 1},
    ),
    "nothing of it arrived": (
        view([A12, Log("B")], sends=ACKED, promotions=[promoted(0)]),
        {"A/native": 1, "B/mirrored": 1},
    ),
    "sent alone": (
        view([Log("A").data(1)], sends=[replace(commit(1, 2, acked=0), kind="send")]),
        {},
    ),
    "refused": (
        view(
            [Log("A").txn(1, pid=7)],
            sends=[replace(commit(1, 2, offsets=[0, -1]), refused=np.array([False, True]))],
        ),
        {"A/native": 1},
    ),
}
REJECTS = {
    "torn-transaction": Rejected(
        view([Log("A").txn(1, pid=7).txn(2, pid=7, end="abort")], sends=ACKED), "A", 2
    ),
    "torn-by-failover": Rejected(
        view([A12, Log("B").data(1)], sends=ACKED, promotions=[promoted(1)]), "B", -1
    ),
}


def together(*views: PartitionView, mirror: str = "mm2") -> list[tuple[str, str, int, int, bool]]:
    """(kind, cluster, partition, offset, allowed) of the findings once the partitions of one topic
    are combined."""
    partials = [
        PartialFinding(
            cluster=f.cluster, offset=f.offset, data=f.data, topic="A.t", partition=partition
        )
        for partition, seen in enumerate(views)
        for f in REGISTRY[NAME].kernel(seen)
        if isinstance(f, PartialFinding)
    ]
    combine = REGISTRY[NAME].combine
    assert combine is not None
    combined = [(c.partition, found_in(c)) for c in combine(partials)]
    return [
        (f.kind, f.cluster, partition, f.offset, allowed(f, mirror)) for partition, f in combined
    ]


def allowed(found: Found, mirror: str) -> bool:
    anomaly = Anomaly(
        check=NAME, kind=found.kind, cluster=found.cluster, topic="A.t", partition=0,
        offset=found.offset,
        evidence=found.evidence,
    )  # fmt: skip
    return why_allowed(anomaly, DECLARATIONS[mirror]({}), "A->B", []) is not None


def share(
    uid: int, log: Log, *others: Log, outcome: str = "info", **rest: Unpack[History]
) -> PartitionView:
    """One partition's part of operation 1."""
    given: History = {"sends": [replace(commit(uid, acked=0, outcome=outcome), number=1)]}
    return view([log, *others], **(given | rest))


COMMITTED, ABORTED = Log("A").txn(1, pid=7), Log("A").txn(2, pid=7, end="abort")
WAITING, NOWHERE = Log("A").txn(2, pid=7, end=None), Log("A").data(9)


@pytest.mark.parametrize(("other", "offset"), [(ABORTED, 0), (WAITING, 0), (NOWHERE, 0)])
@pytest.mark.parametrize("outcome", ["ok", "info", "fail"])
def test_committed_in_one_partition_and_not_in_the_other(
    other: Log, offset: int, outcome: str
) -> None:
    found = together(share(1, COMMITTED, outcome=outcome), share(2, other, outcome=outcome))
    assert found == [("torn-transaction", "A", 1, offset, False)]


def test_transaction_read_in_one_partition_and_aborted_in_the_other_is_torn() -> None:
    found = together(share(1, NOWHERE, reads=[poll((0, 1))]), share(2, ABORTED))
    assert found == [("torn-transaction", "A", 0, 0, False)]


def test_aborted_everywhere_is_whole() -> None:
    assert together(share(1, Log("A").txn(1, pid=7, end="abort")), share(2, ABORTED)) == []


def test_a_marker_that_was_not_written_yet_when_the_cluster_was_given_up() -> None:
    given_up: History = {"promotions": [promoted(0)]}
    assert together(share(1, COMMITTED, **given_up), share(2, WAITING, **given_up)) == []
    assert together(share(1, COMMITTED, **given_up), share(2, ABORTED, **given_up)) == [
        ("torn-transaction", "A", 1, 0, False)
    ]


@pytest.mark.parametrize("mirror", ["mm2", "shadow"])
def test_a_forced_failover_may_tear_a_transaction(mirror: str) -> None:
    arrived = share(1, COMMITTED, Log("B").data(1), promotions=[promoted(1)])
    behind = share(2, Log("A").txn(2, pid=7), Log("B"), promotions=[promoted(0)])
    assert together(arrived, behind, mirror=mirror) == [("torn-by-failover", "B", 1, -1, True)]
    waiting = share(2, WAITING, Log("B"), promotions=[promoted(0)])
    assert together(arrived, waiting, mirror=mirror) == [("torn-by-failover", "B", 1, -1, True)]


def test_a_planned_failover_may_not() -> None:
    arrived = share(1, COMMITTED, Log("B").data(1), promotions=[promoted(1, kind="planned")])
    behind = share(2, Log("A").txn(2, pid=7), Log("B"), promotions=[promoted(0, kind="planned")])
    assert together(arrived, behind) == [("torn-transaction", "B", 1, -1, False)]


def test_torn_transaction_is_not_allowed_behind_an_exact_mirror() -> None:
    arrived = share(1, COMMITTED, Log("B").data(1), promotions=[promoted(1)])
    behind = share(2, Log("A").txn(2, pid=7), Log("B"), promotions=[promoted(0)])
    assert together(arrived, behind, mirror="exact") == [("torn-by-failover", "B", 1, -1, False)]


def test_a_torn_log_and_an_unknown_leader_prove_no_tear() -> None:
    whole = share(1, COMMITTED)
    assert together(whole, share(2, Log("A").txn(2, pid=7, end=None).torn())) == []
    assert together(whole, share(2, Log("A", leader=False).data(9), topology="A:3->B:3")) == []
    assert unjudged(NAME, view([], sends=ACKED))


def test_a_transaction_is_counted_once_per_partition() -> None:
    twice = [replace(commit(1, acked=0), number=1), replace(commit(2, acked=1), number=1)]
    assert examined(NAME, view([A12], sends=twice)) == {"A/native": 1}


def test_an_unacknowledged_record_is_missing_too() -> None:
    """Only acknowledged records below the cleaned offset may be gone because of compaction."""
    seen = view([Log("A").txn(1, pid=7)], sends=[commit(1, 2, offsets=[0, -1])])
    assert [f.kind for f in findings(NAME, seen)] == ["torn-transaction"]


def test_a_forced_failover_tears_no_transaction_whose_records_later_ones_overtook() -> None:
    arrived = share(1, COMMITTED, Log("B").data(1), promotions=[promoted(1)])
    overtaken = share(2, Log("A").txn(2, pid=7).data(8), Log("B").data(8), promotions=[promoted(1)])
    assert together(arrived, overtaken) == [("torn-by-failover", "B", 1, -1, False)]
