"""provenance: the smallest histories."""

from __future__ import annotations

import pytest

from linkflap.harness.log import reference
from linkflap.harness.log.records import contents_written
from linkflap.harness.model import payload
from linkflap.harness.model.payload import Values
from linkflap.spark_verify.checks import REGISTRY, provenance
from linkflap.spark_verify.checks.base import Unjudged
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import (
    SECOND,
    Log,
    but,
    commit,
    ints,
    promoted,
    reversed_,
    send,
    view,
)
from tests.unit.checks.round_trip import trip
from tests.unit.checks.verdicts import Rejected, anomalies, findings

NAME = "provenance"
VALUES = Values(7, 12)
GIVEN = None
"""The value of a record by the seed."""


def written(*values: bytes | None) -> PartitionView:
    """Records from uid 1 on, each with its own key, and with a value."""
    uids = range(1, 1 + len(values))
    contents = {
        uid: reference.content(VALUES.key(uid), value or VALUES.value(uid))
        for uid, value in zip(uids, values, strict=True)
    }
    sent = [send(uid, acked=uid - 1) for uid in uids]
    one = view([Log("A").data(*uids, digest=contents)], sends=sent)
    return but(one, values={"client": VALUES})


ACCEPTED = {
    "sent": (view([Log("A").data(1, 2)], sends=[send(1, 2, acked=0)]), {"A/native": 2}),
    "sent, nobody knows": (
        view([Log("A").txn(1, pid=7, end=None)], sends=[commit(1, outcome="info")]),
        {"A/native": 1},
    ),
    "refused, and not there": (
        view([Log("A").data(1)], sends=[send(1, 2, offsets=[0, -1], outcome="info", refused=(2,))]),
        {"A/native": 1},
    ),
    "given up in flight, and there": (
        view([Log("A").data(1)], sends=[send(1, outcome="info")]),
        {"A/native": 1},
    ),
    "in any order": (
        view([Log("A").data(8, 9).data(1)], sends=[send(1), send(8, 9)]),
        {"A/native": 3},
    ),
    "by a program of the user's, which has no history": (
        but(view([Log("A").data(-1, 9)], sends=[send(1)]), programs=frozenset({"A.t"})),
        {},
    ),
    "mirrored": (view([Log("A"), Log("B").data(9).data(-1)]), {}),
    "with the key and value of their clients": (written(GIVEN, GIVEN), {"A/native": 2}),
    "what a program sends through linkflap's API": (
        but(written(b"x", b"y"), values={"transactional-1": VALUES}),
        {"A/native": 2},
    ),
    "native on B": (
        view([Log("B").data(1).data(8)], sends=[send(8, cluster="B")], promotions=[promoted(1)]),
        {"B/native": 1},
    ),
}
REJECTS = {
    "refused-write": Rejected(
        view(
            [Log("A").data(1, 2)], sends=[send(1, 2, offsets=[0, -1], outcome="info", refused=(2,))]
        ),
        "A",
        1,
    ),
    "other-content": Rejected(written(GIVEN, b"y"), "A", 1),
    "stranger": Rejected(view([Log("A").data(1, 9)], sends=[send(1, acked=0)]), "A", 1),
}


def test_without_any_history_there_is_nothing_to_hold_a_log_against() -> None:
    (unjudged,) = [
        f for f in REGISTRY[NAME].kernel(view([Log("A").data(1)])) if isinstance(f, Unjudged)
    ]
    assert unjudged.reason == "nothing is written down of what clients sent to A.t-0"
    assert anomalies(NAME, view([Log("A").data(1)])) == []


@pytest.mark.parametrize("end", ["commit", "abort", None])
def test_a_refused_record_is_absent_however_its_transaction_ended(end: str | None) -> None:
    sent = commit(
        1, 2, 3, ending="abort" if end == "abort" else "commit", offsets=[0, -1, -1], refused=(2, 3)
    )
    (found,) = findings(NAME, view([Log("A").txn(1, 2, 3, pid=7, end=end)], sends=[sent]))
    state = {"commit": "committed", "abort": "aborted", None: "open"}[end]
    assert (found.kind, found.offset, found.evidence["records"], found.evidence["state"]) == (
        "refused-write",
        1,
        2,
        state,
    )


def test_mirrored_copy_of_a_refused_write_is_reported_at_its_source() -> None:
    sent = [send(1, outcome="fail", refused=(1,))]
    assert anomalies(NAME, view([Log("A").data(1), Log("B").data(1)], sends=sent)) == [
        ("refused-write", "A", 0)
    ]


def test_before_between_and_after_what_was_sent_neighbours_together() -> None:
    seen = view([Log("A").data(1, 2, 3, 4, 5, 6, 7)], sends=[send(3), send(5)])
    assert [(f.offset, f.evidence["records"]) for f in findings(NAME, seen)] == [
        (0, 2),
        (3, 1),
        (5, 2),
    ]


def test_a_record_without_a_payload_id_is_a_stranger() -> None:
    seen = view([Log("A").data(1, -1, -1).data(2).data(-1)], sends=[send(1), send(2)])
    assert [(f.offset, f.evidence["records"]) for f in findings(NAME, seen)] == [(1, 2), (4, 1)]


def test_a_record_without_a_payload_id_on_a_cluster_that_was_left() -> None:
    away, home = promoted(1), promoted(3, source="B", cluster="A", at=700 * SECOND)
    seen = view(
        [Log("A").data(1).data(2, 3), Log("B").data(1).data(2, 3).data(-1)],
        sends=[send(1), send(2, 3, cluster="B")], promotions=[away, home], mirror_kind="shadow",
        windows=[reversed_("A->B", at=600)],
    )  # fmt: skip
    assert anomalies(NAME, seen) == [("stranger", "B", 3)]


def test_sent_to_another_cluster() -> None:
    seen = view([Log("B").data(1).data(2, 3)], sends=[send(1, 2, 3)], promotions=[promoted(1)])
    assert [(f.offset, f.evidence["planned_on"]) for f in findings(NAME, seen)] == [(1, ["A"])]


def test_a_stranger_above_a_truncation_is_reported_separately() -> None:
    before = Log("A").data(1).data(90).data(91).taken("1-away", at=510)
    assert anomalies(NAME, trip(earlier=[before])) == [("stranger", "A", 2)]


@pytest.mark.parametrize(
    "values",
    [
        Values(7, 12),
        Values(7, 1, keys=1),
        Values(7, 300, keys=1000, skew=4.0),
        Values(7, 70_000, tombstones=0.5),
        Values(7, 3, tombstones=1.0),
    ],
    ids=["plain", "one key", "skewed", "large and deleted", "all deleted"],
)
def test_the_content_of_a_record_is_that_of_its_key_and_its_value(values: Values) -> None:
    uids = ints(*range(1, 20), *(5 << 40 | n for n in range(9)))
    expected = [reference.content(values.key(uid), values.value(uid)) for uid in uids.tolist()[:12]]
    assert contents_written(values, uids)[:12].tolist() == expected
    assert contents_written(values, uids[:0]).tolist() == []


@pytest.mark.parametrize(
    ("values", "wrong"),
    [([GIVEN] * 8 + [b"y"], [8]), ([b"y"] * 9, [0]), ([GIVEN, b"y", b"y", GIVEN, b"y"], [1])],
    ids=["the last", "every one", "some"],
)
def test_values_that_run_json_alone_asks_for_are_not_made_without_end(
    values: list[bytes | None], wrong: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of small records, and a run.json with values of 8 MiB: what is right is compared to the
    end, and what differs up to a bound."""
    monkeypatch.setattr(provenance, "_AT_ONCE", 2 * VALUES.size)
    monkeypatch.setattr(provenance, "_MOST_DIFFERING", VALUES.size)
    assert [f.offset for f in findings(NAME, written(*values))] == wrong


def test_few_pools_of_values_are_kept() -> None:
    for size in range(70_000, 70_010):
        assert len(Values(7, size).pool) == size + (1 << 16)
    assert payload._pool.cache_info().currsize <= 2
