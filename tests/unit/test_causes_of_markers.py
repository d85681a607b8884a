"""The consequences of a transaction's marker, or of a commit that has none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.verdict.causes import rank
from linkflap.spark_verify.verdict.sentences import sentence
from tests.unit.found_anomalies import NAMES, found, marker, ranked, uid, visible


def test_what_is_found_at_the_records_of_a_transaction_follows_from_its_marker() -> None:
    split = found(
        "marker-pairing",
        "outcome-split",
        22,
        producer_id=3,
        first_offset=20,
        source="A",
        outcomes=["ABORT", "COMMIT"],
    )
    read = found("aborted-read", "aborted-read", 20, uid=uid(9, 3), records=2, reader="readers-1")
    elsewhere = found(
        "order-equality",
        "mirrored-aborted",
        23,
        uid=uid(9, 9),
        records=1,
        source="A",
        state="aborted",
    )
    assert ranked(split, read, marker(), visible(), elsewhere) == [
        ("byte-divergence", {"mirrored-aborted": 1, "outcome-split": 1, "aborted-read": 1}),
        ("mirrored-aborted", {}),
    ]


@pytest.mark.parametrize("joined", [True, False])
def test_two_roots_with_a_common_consequence_are_one_where_the_one_can_follow_from_the_other(
    joined: bool,
) -> None:
    """The marker is at 22 and the records are at 20; the anomaly of two outcomes concerns both."""
    root = marker(first_offset=22) if joined else found("internal-topics", "log-disorder", 22)
    split = found(
        "marker-pairing",
        "outcome-split",
        22,
        producer_id=3,
        first_offset=20,
        source="A",
        outcomes=["ABORT", "COMMIT"],
    )
    causes = ranked(split, root, visible())
    follow = {"mirrored-aborted": 1, "outcome-split": 1}
    assert causes[0] == (("byte-divergence", follow) if joined else ("log-disorder", {}))
    assert len(causes) == (1 if joined else 2)


def test_a_commit_without_a_marker_follows_from_the_coordinator_that_wrote_none() -> None:
    """The coordinator's anomaly has no offset, and the client does not know its producer id: both
    name the transactional id."""
    coordinator = found(
        "internal-topics", "marker-missing", transactional_id="t1", producer_id=7, decided="COMMIT"
    )
    commit = found(
        "commit-aborted",
        "commit-unmarked",
        42,
        operation=uid(7, 3),
        transactional_id="t1",
        records=3,
    )
    other = replace(commit, evidence={**commit.evidence, "transactional_id": "t2"})
    assert [(c.kind, c.led_to) for c in rank([commit, coordinator], REGISTRY)] == [
        ("marker-missing", 1)
    ]
    assert sorted(c.kind for c in rank([other, coordinator], REGISTRY)) == [
        "commit-unmarked",
        "marker-missing",
    ]


def test_a_marker_that_ends_otherwise_says_both_and_what_it_comes_to() -> None:
    seen = "B has another batch than A at A.orders-0 @ 22: "
    assert (
        sentence(marker(), REGISTRY, NAMES)
        == f"{seen}COMMIT where A has ABORT, so 2 records that A aborted are visible on B"
    )
    hidden = marker(ours="ABORT", ends=1)
    assert (
        sentence(hidden, REGISTRY, NAMES)
        == f"{seen}ABORT where A has COMMIT, so 1 record that A committed is hidden on B"
    )
    assert sentence(marker(ends=0), REGISTRY, NAMES) == f"{seen}COMMIT where A has ABORT"
    assert sentence(marker(markers=None), REGISTRY, NAMES) == f"{seen}crc differs"
    assert (
        sentence(marker(markers=None, fields=["length", "crc"]), REGISTRY, NAMES)
        == f"{seen}length, crc differ"
    )
    changed = [
        {"offset": 22, "uid": 3, "fields": ["key", "value"]},
        {"offset": 23, "uid": 4, "fields": ["value", "headers"]},
    ]
    other = marker(markers=None, changed=changed, records=[22, 23, 24])
    assert sentence(other, REGISTRY, NAMES) == f"{seen}3 records differ in key, value, headers"
    assert sentence(
        marker(markers=None, changed=changed[:1], records=[22]), REGISTRY, NAMES
    ).endswith("1 record differs in key, value")


def test_a_hanging_transaction_follows_from_the_refused_failover() -> None:
    refused = found("failover", "failover-refused", -1, "B", link="A->B", refused_over="A->B")
    hangs = found("last-stable-offset", "hanging-transaction", 7, "B", refused_over="A->B")
    other = found("last-stable-offset", "hanging-transaction", 9, "C", producer_id=4)
    assert ranked(hangs, refused, other) == [
        ("failover-refused", {"hanging-transaction": 1}),
        ("hanging-transaction", {}),
    ]


def test_a_partial_promotion_is_said_first() -> None:
    """B's own ABORT and reset, and the refusal, follow from what the refused stop did."""
    promoted = found(
        "standby-isolation",
        "partial-promotion",
        100,
        link="A->B",
        refused_over="A->B",
        records=2,
        failover="forced",
        how="was refused with NOT_STOPPED (145)",
        extent="partial",
        promoted=1,
        partitions=10,
    )
    strangers = [
        found("byte-equality", "byte-stranger", at, source="A", producer_id=3) for at in (100, 101)
    ]
    refused = found("failover", "failover-refused", -1, "B", link="A->B", refused_over="A->B")
    elsewhere = found("byte-equality", "byte-stranger", 100, partition=1, source="A")
    assert ranked(*strangers, refused, promoted, elsewhere) == [
        ("partial-promotion", {"byte-stranger": 2, "failover-refused": 1}),
        ("byte-stranger", {}),
    ]
    assert sentence(promoted, REGISTRY, NAMES) == (
        "partial promotion: the forced failover over A->B was refused with NOT_STOPPED (145), and "
        "1 of 10 partitions were promoted all the same, among them A.orders-0 @ 100 on B"
    )
