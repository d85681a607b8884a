"""From findings to the verdict: what is invalid, unknown, and allowed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import pytest

from linkflap.harness.model.clock import now
from linkflap.harness.model.history import Ending, Operation, OperationKind, Phase
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.spark.finding_rows import FindingName, FindingRow, damaged
from tests.unit.checks.judged_runs import (
    LINK,
    Recorded,
    document_of,
    looked,
    result,
    row,
    verdict_of,
)
from tests.unit.checks.logs import SECOND


def test_nothing_found_is_valid(recorded: Recorded) -> None:
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert judgement.verdict is Verdict.VALID, document_of(judgement)["reason"]
    assert result(judgement, "duplicate").examined == {"A/native": 3, "B/mirrored": 3}


def test_a_violation_is_invalid_whatever_else_is_unknown(recorded: Recorded) -> None:
    folder = recorded.close(commits=0)
    found = row(folder, "duplicate", "found", cluster="A", kind="duplicate", offset=4)
    judgement = verdict_of(folder, [*looked(folder, "duplicate"), found], "duplicate")
    assert judgement.verdict is Verdict.INVALID
    assert result(judgement, "duplicate").reason == "1 duplicate"
    assert result(judgement, "recording").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("finding", ["unjudged", "crashed"])
def test_unjudged_partitions_are_unknown(recorded: Recorded, finding: FindingName) -> None:
    folder = recorded.close()
    rows = [
        *looked(folder, "duplicate"),
        row(folder, "duplicate", finding, data={"reason": "because"}),
    ]
    judgement = verdict_of(folder, rows, "duplicate")
    assert judgement.verdict is Verdict.UNKNOWN
    assert "because" in result(judgement, "duplicate").reason


def test_reasons_are_in_the_order_of_partitions_and_not_of_the_tasks_that_found_them(
    recorded: Recorded,
) -> None:
    folder = recorded.close()
    found = [
        replace(
            row(folder, "duplicate", "unjudged", data={"reason": f"of {number}"}), partition=number
        )
        for number in (1, 0)
    ]
    judgement = verdict_of(folder, [*looked(folder, "duplicate"), *found], "duplicate")
    assert result(judgement, "duplicate").reason == "of 0; of 1"


def test_damage_is_in_the_order_of_partitions_and_not_of_the_tasks_that_found_it(
    recorded: Recorded,
) -> None:
    folder = recorded.close()
    found = [
        damaged(str(folder), "captures", f"no log of A.t-{number} was captured")
        for number in (10, 2, 1)
    ]
    reason = result(verdict_of(folder, found, "duplicate"), "recording").reason
    assert [reason.index(f"A.t-{number} ") for number in (1, 2, 10)] == sorted(
        reason.index(f"A.t-{number} ") for number in (1, 2, 10)
    )


def test_nothing_examined_where_something_was_due_is_unknown(recorded: Recorded) -> None:
    folder = recorded.close()
    rows = [r for r in looked(folder, "duplicate") if r.origin == "native"]
    judgement = verdict_of(folder, rows, "duplicate")
    assert (judgement.verdict, result(judgement, "duplicate").reason) == (
        Verdict.UNKNOWN,
        "no mirrored records of B were there to examine",
    )


def test_after_a_promotion_native_records_of_the_destination_are_due(recorded: Recorded) -> None:
    recorded.event("failover", LINK, kind="forced", fault_time=now())
    recorded.event("promotion", LINK, cluster="B", topic="A.t", partition=0, offset=3)
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "ghost-ack"), "ghost-ack")
    assert (
        result(judgement, "ghost-ack").reason
        == "no native acknowledgements of B were there to examine"
    )


def test_an_empty_history_is_unknown(recorded: Recorded) -> None:
    folder = recorded.close(commits=0, aborts=0, reads=0)
    judgement = verdict_of(folder, [], *REGISTRY)
    assert judgement.verdict is Verdict.UNKNOWN
    assert "the history is empty" in result(judgement, "recording").reason
    assert result(judgement, "lost-write").verdict is Verdict.UNKNOWN


def repeated(folder: Path, written_at: int) -> FindingRow:
    evidence = {
        "copy": 1,
        "first_written": [written_at, written_at],
        "written": [written_at, written_at + SECOND],
    }
    return row(
        folder,
        "duplicate",
        "found",
        cluster="B",
        kind="mirrored-duplicate",
        offset=1,
        data=evidence,
    )


def test_a_check_that_had_nothing_to_look_at_says_so(recorded: Recorded) -> None:
    folder = recorded.close()
    checked = result(verdict_of(folder, [], "group-offsets"), "group-offsets")
    assert (checked.verdict, checked.reason) == (
        Verdict.NOT_DUE,
        (
            "nothing to examine; this check expects records: those mirrored to where a group fails "
            "over, if the mirror carries its offsets"
        ),
    )


OF_TRANSACTIONS = ("commit-aborted", "torn-transaction", "marker-pairing")
OF_PRODUCER_IDS = ("producer-id-uniqueness", "sequence-continuity")


class Asked(TypedDict, total=False):
    """What a client recorded of its operation."""

    producer_id: int
    producer_epoch: int
    transactional_id: str
    ending: Ending


@pytest.mark.parametrize(
    ("kind", "rest", "due"),
    [
        ("send", {}, ()),
        ("send", {"producer_id": 7, "producer_epoch": 0}, OF_PRODUCER_IDS),
        ("send", {"transactional_id": "x"}, (*OF_TRANSACTIONS, *OF_PRODUCER_IDS)),
        ("init", {}, (*OF_TRANSACTIONS, *OF_PRODUCER_IDS)),
        ("transaction", {"ending": "open"}, (*OF_TRANSACTIONS, *OF_PRODUCER_IDS)),
    ],
)
def test_checks_of_transactions_and_of_producer_ids_are_due_once_a_client_has_asked_for_some(
    recorded: Recorded, kind: OperationKind, rest: Asked, due: tuple[str, ...]
) -> None:
    phases: tuple[Phase, ...] = ("invoke", "return")
    for phase in phases:
        recorded.operations.write(
            Operation(
                number=9,
                phase=phase,
                time=now(),
                client="client",
                process=1,
                cluster="A",
                kind=kind,
                **rest,
            )
        )
    folder = recorded.close(commits=0, aborts=0)
    every = (*OF_TRANSACTIONS, *OF_PRODUCER_IDS)
    assert {check.name for check in REGISTRY.values() if check.only_of} == set(every)
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate", *every)
    assert {c.name for c in judgement.checks[1:6] if c.verdict is Verdict.UNKNOWN} == set(due)
    assert {c.name for c in judgement.checks[1:6] if c.verdict is Verdict.NOT_DUE} == {*every} - {
        *due
    }
    assert result(judgement, "duplicate").verdict is Verdict.VALID


def test_checks_that_are_not_due_do_not_count(recorded: Recorded) -> None:
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate", "group-offsets")
    assert result(judgement, "group-offsets").verdict is Verdict.NOT_DUE
    assert judgement.verdict is Verdict.VALID


def test_a_run_in_which_nothing_was_due_is_unknown(recorded: Recorded) -> None:
    folder = recorded.close()
    judgement = verdict_of(folder, [], "group-offsets", "byte-equality")
    assert {c.verdict for c in judgement.checks[:2]} == {Verdict.NOT_DUE}
    assert (judgement.verdict, judgement.verdict.exit_code) == (Verdict.UNKNOWN, 2)
    assert document_of(judgement)["reason"] == "nothing was due: no check had anything to examine"


def test_an_allowed_anomaly_is_counted_and_leaves_the_check_valid(recorded: Recorded) -> None:
    recorded.fault()
    folder = recorded.close()
    judgement = verdict_of(
        folder, [*looked(folder, "duplicate"), repeated(folder, now())], "duplicate"
    )
    checked = result(judgement, "duplicate")
    assert (checked.verdict, checked.anomalies, checked.allowed) == (Verdict.VALID, 0, 1)
    (shown,) = document_of(judgement)["anomalies"]
    assert shown["allowed"] is True
    assert "mirror-kill (f)" in shown["evidence"]["why"]


def test_the_same_anomaly_without_a_fault_is_invalid(recorded: Recorded) -> None:
    folder = recorded.close()
    judgement = verdict_of(
        folder, [*looked(folder, "duplicate"), repeated(folder, now())], "duplicate"
    )
    assert result(judgement, "duplicate").verdict is Verdict.INVALID


def test_a_stalled_host_makes_time_based_checks_unknown(recorded: Recorded) -> None:
    recorded.event("host-stall", "host", seconds=4.5)
    folder = recorded.close()
    judgement = verdict_of(
        folder, looked(folder, "last-stable-offset", "duplicate"), "last-stable-offset", "duplicate"
    )
    assert result(judgement, "last-stable-offset").verdict is Verdict.UNKNOWN
    assert result(judgement, "duplicate").verdict is Verdict.VALID
