"""From findings to the verdict: what is invalid, unknown, and allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TypedDict

import msgspec
import pytest

from linkflap.harness.model.history import Ending, Operation, OperationKind, Phase, SendGroup
from linkflap.harness.model.scenario import (
    FaultSpec,
    Minimums,
    MirrorSpec,
    WorkloadSpec,
    least_of,
    unread,
)
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import RunReader
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.finding_rows import FindingName, FindingRow, damaged
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.verdict.judge import EXAMPLES, Judgement, judge
from tests.run_copy import seal
from tests.unit.checks.histories import SECOND
from tests.unit.checks.judged_runs import (
    LINK,
    Recorded,
    document_of,
    looked,
    result,
    row,
    scenario,
    verdict_of,
)


def test_run_without_findings_is_valid(recorded: Recorded) -> None:
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


def test_logs_that_had_to_be_fetched_are_missing_with_the_reason(recorded: Recorded) -> None:
    recorded.writer.unfetched("A", "A was dead")
    folder = recorded.close()
    missing = damaged(str(folder), "captures", "no log of A.t-0 on A was captured")
    reason = result(verdict_of(folder, [missing], "duplicate"), "recording").reason
    assert reason.startswith("A was dead; captures: no log of A.t-0 on A")
    assert "A was dead" not in result(verdict_of(folder, [], "duplicate"), "recording").reason


def test_check_that_examined_nothing_due_is_unknown(recorded: Recorded) -> None:
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


def test_each_check_of_bytes_says_what_a_capture_by_fetch_costs_it(recorded: Recorded) -> None:
    recorded.writer.fetched("A", {"A.t"})
    recorded.writer.fetched("A", {"A.s"})
    for _ in range(2):
        recorded.writer.uncompared("A", "A.t-0 of broker 1 (it went away)")
    folder = recorded.close()
    assert RunReader(folder).run.fetched == {"A": ("A.s", "A.t")}
    rows = [*looked(folder, "duplicate"), *looked(folder, "replica-agreement")]
    judgement = verdict_of(folder, rows, "duplicate", "replica-agreement", "group-offsets")
    assert judgement.verdict is Verdict.VALID, judgement.judged.reason
    said = {check.name: check.reason for check in judgement.checks}
    fetched = "A.s, A.t from Fetch, not from disk: "
    assert said["duplicate"] == f"{fetched}nothing above the high watermark is seen of them"
    assert said["replica-agreement"] == (
        f"{fetched}their replicas are what each broker gives to consumers; not compared with a "
        "second fetch: A.t-0 of broker 1 (it went away) on A"
    )
    assert "Fetch" not in said["group-offsets"]


@pytest.mark.parametrize(("failed", "said"), [(3, True), (2, False)])
def test_the_error_that_most_operations_failed_with_is_said_first(
    recorded: Recorded, failed: int, said: bool
) -> None:
    operations = recorded.writer.operations("p-9")
    for number in range(4):
        wrong = number < failed
        operations.write(
            Operation(
                number=(9 << 40) + number, phase="return", time=now(), client="p-9", process=9,
                cluster="A", kind="send", outcome="fail" if wrong else "ok",
                error=f"Invalid topic of {100 + number}" if wrong else "",
            )
        )  # fmt: skip
    # one that was to be left open did not fail
    operations.write(
        Operation(
            number=(9 << 40) + 7, phase="return", time=now(), client="p-9", process=9,
            cluster="A", kind="transaction", ending="open", outcome="info", error="left open",
        )
    )  # fmt: skip
    folder = recorded.close(commits=0, aborts=0, reads=0)
    document = document_of(verdict_of(folder, [], "duplicate"))
    sentence = "3 of 5 operations of clients failed with one error: Invalid topic of #"
    assert document["mostly_failed"] == (sentence if said else "")
    assert str(document["reason"]).startswith(sentence) is said


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
    """A client's row of its operation."""

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
        ("init", {}, OF_PRODUCER_IDS),
        ("init", {"transactional_id": "x"}, (*OF_TRANSACTIONS, *OF_PRODUCER_IDS)),
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
    assert document_of(judgement)["allowed"] == "1 record was mirrored twice"


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


PRODUCERS = {
    "transactional": (1, 1, 2000),
    "idempotent": (0, 0, 2000),
    "zombie": (1, 0, 2000),
    "relay": (0, 0, 0),  # nobody writes what it relays
    "readers": (0, 0, 0),
    "share-group": (0, 0, 0),
    "command": (0, 0, 0),
}


@pytest.mark.parametrize("kinds", [*((k,) for k in PRODUCERS), *combinations(PRODUCERS, 2)])
def test_the_minimums_follow_from_what_the_workloads_do(kinds: tuple[str, ...]) -> None:
    writes = ("payments",)
    specs = [
        WorkloadSpec(
            kind=k, home="A", command=("x",) * (k == "command"), writes=writes * (k == "command")
        )
        for k in kinds
    ]
    written = bool({"transactional", "idempotent", "zombie", "command"} & {*kinds})
    relays = written and "relay" in kinds
    committed, aborted, afterwards = (
        max(numbers) for numbers in zip(*(PRODUCERS[k] for k in kinds), strict=True)
    )
    reads = written and bool({"readers", "share-group", "relay"} & {*kinds})
    assert least_of(specs) == Minimums(
        committed=int(committed or relays),
        aborted=int(aborted or relays),
        reads=int(reads),
        afterwards=2000 if relays else afterwards,
    )


def test_minimums_leave_out_endings_that_the_workload_never_has() -> None:
    for share, aborted in ((0.0, 0), (0.04, 0), (0.05, 1)):
        spec = WorkloadSpec(kind="transactional", home="A", options={"abort_share": share})
        assert (least_of([spec]).committed, least_of([spec]).aborted) == (1, aborted)
    spec = WorkloadSpec(kind="transactional", home="A", options={"abort_share": 1.0})
    assert (least_of([spec]).committed, least_of([spec]).aborted) == (0, 1)


IDEMPOTENT = WorkloadSpec(kind="idempotent", home="A")
AT_A = WorkloadSpec(kind="readers", home="A")
AT_B = WorkloadSpec(kind="readers", home="A", options={"cluster": "B", "assign": True})


@pytest.mark.parametrize(
    ("workloads", "schedule", "unheard"),
    [
        ((IDEMPOTENT,), (), {"A": "A", "B": "A"}),
        ((IDEMPOTENT, AT_A), (), {"B": "A"}),
        ((IDEMPOTENT, AT_B), (), {"A": "A"}),
        ((IDEMPOTENT, AT_A, AT_B), (), {}),
        (
            (IDEMPOTENT, AT_A),
            (FaultSpec(id="f", fault="failover-forced", target=LINK, at=1.0, duration=1.0),),
            {},
        ),
        ((AT_A,), (), {}),
    ],
)
def test_clusters_without_readers_are_known_from_workloads_and_schedule(
    workloads: tuple[WorkloadSpec, ...], schedule: tuple[FaultSpec, ...], unheard: dict[str, str]
) -> None:
    assert unread(scenario(workloads=workloads, schedule=schedule)) == unheard


def test_a_cluster_without_a_reader_is_unknown_and_says_what_to_add(tmp_path: Path) -> None:
    folder = Recorded(tmp_path / "run", workloads=(IDEMPOTENT, AT_A)).close()
    rows = [r for r in looked(folder, "aborted-read") if r.origin == "native"]
    judgement = verdict_of(folder, rows, "aborted-read")
    assert judgement.verdict is Verdict.UNKNOWN
    assert result(judgement, "aborted-read").reason.endswith(
        "no read_committed reader read the mirrored records of B: add a [[workload]] with kind = "
        '"readers" and home = "A", with the options cluster = "B" and assign = true'
    )


UNCOMMITTED = replace(AT_A, options={"isolation": "read_uncommitted"})
UNCOMMITTED_AT_B = replace(AT_B, options={**AT_B.options, "isolation": "read_uncommitted"})
RELAY = WorkloadSpec(kind="relay", home="A")
GIVEN = WorkloadSpec(kind="command", home="A", command=("x",), reads=("t",), record="wire")


@pytest.mark.parametrize("check", ["aborted-read", "uncommitted-read"])
def test_checks_of_read_committed_are_not_due_without_such_readers(
    tmp_path: Path, check: str
) -> None:
    mine = (IDEMPOTENT, UNCOMMITTED, UNCOMMITTED_AT_B)
    folder = Recorded(tmp_path / "run", workloads=mine).close()
    checked = result(verdict_of(folder, [], check), check)
    assert (checked.verdict, checked.reason) == (
        Verdict.NOT_DUE,
        "nothing to examine: no workload has read_committed readers",
    )


@pytest.mark.parametrize("more", [AT_A, RELAY, GIVEN], ids=lambda spec: str(spec.kind))
def test_one_workload_that_may_read_committed_makes_the_check_due_everywhere(
    tmp_path: Path, more: WorkloadSpec
) -> None:
    mine = (IDEMPOTENT, UNCOMMITTED, UNCOMMITTED_AT_B, more)
    folder = Recorded(tmp_path / "run", workloads=mine).close()
    rows = [r for r in looked(folder, "aborted-read") if r.origin == "native"]
    judgement = verdict_of(folder, rows, "aborted-read")
    assert judgement.verdict is Verdict.UNKNOWN
    said = result(judgement, "aborted-read").reason
    assert "no read_committed reader read the mirrored records of B: add a [[workload]]" in said


def test_readers_of_any_isolation_show_what_the_log_does_not_have(tmp_path: Path) -> None:
    folder = Recorded(tmp_path / "run", workloads=(IDEMPOTENT, UNCOMMITTED)).close()
    judgement = verdict_of(folder, [], "read-committed-visibility")
    assert result(judgement, "read-committed-visibility").verdict is Verdict.UNKNOWN


def test_a_refused_write_that_was_read_uncommitted_is_invalid(tmp_path: Path) -> None:
    folder = Recorded(tmp_path / "run", workloads=(IDEMPOTENT, UNCOMMITTED)).close()
    refused = replace(
        repeated(folder, now()), check="aborted-read", kind="refused-read", cluster="A"
    )
    judgement = verdict_of(folder, [refused], "aborted-read")
    assert result(judgement, "aborted-read").verdict is Verdict.INVALID


def test_without_any_reader_nothing_is_due_of_what_readers_see(tmp_path: Path) -> None:
    folder = Recorded(tmp_path / "run", workloads=(IDEMPOTENT,)).close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate", "aborted-read")
    assert judgement.verdict is Verdict.VALID
    checked = result(judgement, "aborted-read")
    assert (checked.verdict, checked.reason) == (
        Verdict.NOT_DUE,
        "nothing to examine: no workload has readers",
    )


PROGRAM = WorkloadSpec(kind="command", home="A", command=("x",), writes=("t",))


def by_bytes(folder: Path, rows: list[FindingRow], *checks: str, size: int = 9) -> Judgement:
    """The verdict on a run in which a program of the user's wrote this much."""
    planned = plan(folder)
    replicas = [replace(captured, size=size) for captured in planned.replicas]
    return judge(
        folder,
        rows,
        [REGISTRY[name] for name in checks],
        planned=replace(planned, replicas=replicas),
    )


def test_programs_without_a_history_get_a_verdict_by_bytes(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "run", workloads=(PROGRAM,))
    folder = run.close(commits=0, aborts=0, reads=0)
    checks = ("leader-epochs", "lost-write", "aborted-read")
    judgement = by_bytes(folder, looked(folder, "leader-epochs"), *checks)
    assert judgement.verdict is Verdict.VALID, judgement.judged.reason
    assert judgement.judged.by_bytes == "the clients' acknowledgements were not recorded"
    assert result(judgement, "lost-write").verdict is Verdict.NOT_DUE
    unseen = by_bytes(folder, [], *checks)
    assert result(unseen, "leader-epochs").verdict is Verdict.UNKNOWN
    assert "no native batches of A" in result(unseen, "leader-epochs").reason


REPORTED: Mapping[str, object] = {
    **dict.fromkeys(
        ("connections", "requests", "batches", "acknowledged", "by_leader", "unpromised"), 1
    ),
    "unread": {},
    "passed": {},
}


def wired(folder: Path, *acks: tuple[int, int, int], **report: object) -> Judgement:
    """The verdict on a program that is recorded on the wire, with one write, these acknowledgements
    of it, and what the recorder of A reports."""
    run = Recorded(folder, workloads=(replace(PROGRAM, record="wire"),))
    group = SendGroup(topic="A.t", partition=0, first_uid=1, count=1, acks=acks)
    run.operations.write(
        Operation(
            number=1,
            phase="invoke",
            time=now(),
            client="client",
            process=1,
            cluster="A",
            kind="send",
            sends=(group,),
        )
    )
    for cluster, more in (("A", report), ("B", {})):
        run.event("wire-recorded", cluster, **{**REPORTED, **more})
    run.close(commits=0, aborts=0, reads=0)
    return by_bytes(folder, looked(folder, "leader-epochs"), "leader-epochs", "lost-write")


def test_records_acknowledged_on_the_wire_are_due(tmp_path: Path) -> None:
    judgement = wired(tmp_path / "acknowledged", (0, 1, 0))
    assert "recorder" not in result(judgement, "recording").reason
    assert judgement.judged.by_bytes == ""
    assert "no native records of A" in result(judgement, "lost-write").reason


def test_recording_without_acknowledgements_is_judged_by_bytes(tmp_path: Path) -> None:
    judgement = wired(tmp_path / "run")
    assert judgement.verdict is Verdict.VALID, judgement.judged.reason
    assert judgement.judged.by_bytes == "nothing was acknowledged"
    assert result(judgement, "lost-write").verdict is Verdict.NOT_DUE


def test_requests_that_no_check_needs_are_counted_and_leave_the_verdict(tmp_path: Path) -> None:
    forwarded = {"ApiVersions v4": 2, "API 999 v3": 1}
    judgement = wired(tmp_path / "run", (0, 1, 0), forwarded_unread=forwarded)
    assert judgement.document["forwarded_unread"] == {"A": forwarded}
    bare = wired(tmp_path / "bare", (0, 1, 0))
    assert bare.document["forwarded_unread"] == {}
    assert [judgement.checks, judgement.judged.reason] == [bare.checks, bare.judged.reason]


def test_requests_that_the_recorder_could_not_read_make_the_run_unknown(tmp_path: Path) -> None:
    judgement = wired(tmp_path / "unread", (0, 1, 0), unread={"produce v99": 3})
    recording = result(judgement, "recording")
    assert recording.verdict is Verdict.UNKNOWN
    assert "the recorder of A could not read produce v99, 3 times" in recording.reason
    passed = wired(tmp_path / "passed", (0, 1, 0), passed={"a program sent TLS": 1})
    assert "passed unread (1): a program sent TLS" in result(passed, "recording").reason


@pytest.mark.parametrize(
    ("count", "said"), [(None, ""), (0, ""), (1, "1 batch of"), (1200, "1,200 batches of")]
)
def test_batches_without_an_id_and_an_answer_are_said_and_change_no_verdict(
    tmp_path: Path, count: int | None, said: str
) -> None:
    run = Recorded(tmp_path / "run")
    run.event("wire-recorded", "A", **REPORTED, **({} if count is None else {"unanswered": count}))
    seal(run.close(), digests=True)
    judgement = verdict_of(run.folder, looked(run.folder, "duplicate"), "duplicate")
    recording = result(judgement, "recording")
    assert (judgement.verdict, recording.verdict) == (Verdict.VALID, Verdict.VALID)
    assert recording.reason.partition(" programs")[0] == said


@pytest.mark.parametrize("what", ["", "answer to share_fetch v9"])
def test_without_all_that_a_share_group_got_nothing_is_proven_of_it(
    tmp_path: Path, what: str
) -> None:
    run = Recorded(tmp_path / "run")
    run.event("wire-recorded", "A", **{**REPORTED, "unread": {what: 1} if what else {}})
    seal(run.close(), digests=True)
    wrong = replace(
        repeated(run.folder, now()), check="share-groups", kind="never-delivered", cluster="A"
    )
    found = result(verdict_of(run.folder, [wrong], "share-groups"), "share-groups")
    assert found.verdict is (Verdict.UNKNOWN if what else Verdict.INVALID), found.reason


def test_connections_that_never_got_through_tls_are_said_and_change_no_verdict(
    tmp_path: Path,
) -> None:
    said = "2 connections of programs to A ended before the TLS handshake was complete"
    for count, reason in ((0, ""), (2, said)):
        run = Recorded(tmp_path / str(count))
        run.event("wire-recorded", "A", **REPORTED, handshakes_failed=count)
        seal(run.close(), digests=True)
        judgement = verdict_of(run.folder, looked(run.folder, "duplicate"), "duplicate")
        recording = result(judgement, "recording")
        assert (recording.verdict, recording.reason) == (Verdict.VALID, reason)
    run = Recorded(tmp_path / "run", workloads=(PROGRAM,))
    run.event("wire-recorded", "A", **REPORTED, handshakes_failed=2)
    folder = run.close(commits=0, aborts=0, reads=0)
    reason = by_bytes(folder, [], "leader-epochs", size=0).judged.reason
    assert reason.startswith("recording: nothing was written to A.t")
    assert reason.endswith(f"; {said}")


def test_a_recorder_that_reported_nothing_is_unknown(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "run", workloads=(replace(PROGRAM, record="wire"),))
    folder = run.close(reads=0)
    judgement = by_bytes(folder, looked(folder, "leader-epochs"), "leader-epochs")
    assert "the recorder of A did not report" in result(judgement, "recording").reason


def test_programs_that_wrote_nothing_are_unknown(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "run", workloads=(PROGRAM,))
    folder = run.close(commits=0, aborts=0, reads=0)
    judgement = by_bytes(folder, [], "leader-epochs", size=0)
    assert (judgement.verdict, judgement.judged.by_bytes) == (Verdict.UNKNOWN, "")
    assert judgement.judged.reason.startswith("recording: nothing was written to A.t, so there is")
    assert ";" not in judgement.judged.reason


def test_an_empty_history_of_clients_that_record_one_is_no_verdict_by_bytes(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "run", workloads=(PROGRAM, IDEMPOTENT))
    folder = run.close(commits=0, aborts=0, reads=0)
    judgement = by_bytes(folder, looked(folder, "leader-epochs"), "leader-epochs")
    assert (judgement.verdict, judgement.judged.by_bytes) == (Verdict.UNKNOWN, "")


def test_the_document_explains_every_era(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "run")
    run.event("failover", LINK, kind="forced", fault_time=now())
    run.event("promotion", LINK, cluster="B", topic="A.t", partition=0, offset=3)
    folder = run.close()
    counts = (("A", "native", 5, 0), ("B", "mirrored", 3, 0), ("B", "native", 2, 3))
    rows = [
        *(
            row(
                folder,
                "duplicate",
                "examined",
                cluster=cluster,
                origin=origin,
                count=count,
                offset=offset,
                data={"generation": 0},
            )
            for cluster, origin, count, offset in counts
        ),
        row(folder, "duplicate", "found", cluster="B", kind="duplicate", offset=4),
    ]
    eras = document_of(verdict_of(folder, rows, "duplicate"))["eras"]
    names = ("cluster", "origin", "start", "end", "compared", "anomalies", "verdict")
    shown = [tuple(era[name] for name in names) for era in eras]
    assert shown == [
        ("A", "native", 0, None, {"records": 5}, 0, "valid"),
        ("B", "mirrored", 0, 3, {"records": 3}, 0, "valid"),
        ("B", "native", 3, None, {"records": 2}, 1, "invalid"),
    ]


def test_examples_are_capped_and_counts_are_not(recorded: Recorded) -> None:
    folder = recorded.close()
    many = [
        row(folder, "duplicate", "found", cluster="A", kind="duplicate", offset=i)
        for i in range(EXAMPLES + 5)
    ]
    judgement = verdict_of(folder, [*looked(folder, "duplicate"), *many], "duplicate")
    assert len(document_of(judgement)["anomalies"]) == EXAMPLES
    assert document_of(judgement)["anomalies_left_out"] == 5
    assert result(judgement, "duplicate").anomalies == EXAMPLES + 5
    assert [a["offset"] for a in document_of(judgement)["anomalies"]] == list(range(EXAMPLES))


def test_the_document_is_what_the_design_promises(recorded: Recorded) -> None:
    folder = recorded.close()
    found = row(
        folder,
        "duplicate",
        "found",
        cluster="A",
        kind="duplicate",
        offset=4,
        data={"uid": 7, "first_offset": 2},
    )
    document = document_of(verdict_of(folder, [*looked(folder, "duplicate"), found], "duplicate"))
    assert {
        "verdict",
        "run",
        "seed",
        "scenario",
        "runtime",
        "mirror",
        "checks",
        "failovers",
        "anomalies",
    } <= set(document)
    assert (document["seed"], document["scenario"], document["runtime"]) == (5, "test", "process")
    assert document["mirror"] == "mm2 delivery=at-least-once"
    assert {"name", "verdict", "examined", "anomalies", "reason"} <= set(document["checks"][0])
    assert document["anomalies"] == [
        {
            "check": "duplicate", "kind": "duplicate", "cluster": "A", "topic": "A.t",
            "partition": 0, "offset": 4,
            "allowed": False, "cause": 1,
            "sentence": "A has producer 0 #7 at A.t-0 @ 4 again, first at offset 2",
            "evidence": {"uid": 7, "first_offset": 2},
        }
    ]  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(document)) == document


def test_the_whole_directory_is_read_once_it_is_closed(recorded: Recorded) -> None:
    folder = recorded.close()
    assert RunReader(folder).damage() == []


def failed_over(
    folder: Path, *, partition_writes: Sequence[int | None], fault_time: int = 100 * SECOND
) -> list[FindingRow]:
    return [
        row(
            folder, "failover", "partial", cluster="B", offset=3,
            data={"link": LINK, "kind": "forced", "fault_time": fault_time, "rpo_records": 2,
                "first_write": write, "budgets": [None, 20.0]},
        )
        for write in partition_writes
    ]  # fmt: skip


def test_failovers_are_added_up_over_partitions(recorded: Recorded) -> None:
    folder = recorded.close()
    judgement = verdict_of(
        folder, failed_over(folder, partition_writes=[None, 104 * SECOND, 103 * SECOND]), "failover"
    )
    (row,) = document_of(judgement)["failovers"]
    assert [row[name] for name in ("link", "kind", "promoted", "rpo_records", "rto_seconds")] == [
        LINK,
        "forced",
        3,
        6,
        3.0,
    ]
    assert [each["rto_seconds"] for each in row["partitions"]] == [None, 4.0, 3.0]
    assert judgement.failovers[0].costs == "RPO 6 records, RTO 3.00 s (budget 20 s)"
    assert result(judgement, "failover").verdict is Verdict.NOT_DUE, (
        "no promotion was recorded in this run"
    )


def test_a_failover_after_which_nothing_was_written_is_unknown(recorded: Recorded) -> None:
    folder = recorded.close()
    judgement = verdict_of(folder, failed_over(folder, partition_writes=[None]), "failover")
    assert judgement.failovers[0].rto_seconds is None
    assert result(judgement, "failover").verdict is Verdict.UNKNOWN


def test_a_failover_that_promoted_nothing_is_unknown(recorded: Recorded) -> None:
    recorded.event("failover", LINK, kind="forced", fault_time=1)
    folder = recorded.close()
    assert "promoted no partition" in result(verdict_of(folder, [], "failover"), "failover").reason


def followed(tmp_path: Path) -> Path:
    """A run in which A became a mirror of B."""
    reverse = FaultSpec(id="r", fault="mirror-reverse", target=LINK, at=1.0, duration=0.0)
    run = Recorded(tmp_path / "run", mirror=MirrorSpec(kind="shadow"), schedule=(reverse,))
    run.event("promotion", LINK, cluster="B", topic="A.t", partition=0, offset=3)
    run.event("failover", LINK, kind="forced", fault_time=now())
    run.fault("r", fault="mirror-reverse")
    run.event("mirror-started", "B->A", mirror="shadow", options={}, seconds=1.0)
    return run.close()


def everywhere(folder: Path, check: str, *, mirrored_to_a: bool) -> list[FindingRow]:
    where = [
        ("A", "native"),
        ("B", "mirrored"),
        ("B", "native"),
        *([("A", "mirrored")] if mirrored_to_a else []),
    ]
    return [
        row(folder, check, "examined", cluster=cluster, origin=origin, count=3)
        for cluster, origin in where
    ]


def test_records_mirrored_back_must_have_been_compared(tmp_path: Path) -> None:
    folder = followed(tmp_path)
    checked = result(
        verdict_of(folder, everywhere(folder, "byte-equality", mirrored_to_a=False), "duplicate"),
        "duplicate",
    )
    assert checked.verdict is Verdict.UNKNOWN
    rows = everywhere(folder, "duplicate", mirrored_to_a=False)
    checked = result(verdict_of(folder, rows, "duplicate"), "duplicate")
    assert (checked.verdict, checked.reason) == (
        Verdict.UNKNOWN,
        "no mirrored records of A were there to examine",
    )
    rows = everywhere(folder, "duplicate", mirrored_to_a=True)
    assert result(verdict_of(folder, rows, "duplicate"), "duplicate").verdict is Verdict.VALID


def test_no_reader_is_needed_on_a_cluster_that_follows_and_the_verdict_tells(
    tmp_path: Path,
) -> None:
    folder = followed(tmp_path)
    rows = everywhere(folder, "aborted-read", mirrored_to_a=False)
    checked = result(verdict_of(folder, rows, "aborted-read"), "aborted-read")
    assert (checked.verdict, checked.reason) == (
        Verdict.VALID,
        "no reader read the records mirrored to A after the failback",
    )
