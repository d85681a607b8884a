"""Runs that did not record something, or in which something did not happen, and the verdict that is
unknown because of it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TypedDict

import msgspec
import pytest

from linkflap.harness.model.events import Event
from linkflap.harness.model.history import PollKind
from linkflap.harness.model.scenario import FaultSpec, Minimums, WorkloadSpec, clients
from linkflap.harness.model.verdict import CheckResult, Verdict
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import RunReader
from linkflap.harness.rundir.files import Status
from linkflap.harness.workloads.crew import ClientNames
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.finding_rows import damaged
from linkflap.spark_verify.verdict.due import failed_parts
from linkflap.topologies import parse
from tests.events import event
from tests.run_copy import seal
from tests.unit.checks.judged_runs import LINK, Recorded, looked, result, row, verdict_of


def test_less_than_the_scenario_asks_for_is_unknown(tmp_path: Path) -> None:
    folder = Recorded(tmp_path / "run", minimums=Minimums(committed=2, aborted=1, reads=5)).close(
        commits=1, reads=4
    )
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    reason = result(judgement, "recording").reason
    assert "only 1 transactions committed, the scenario asks for 2" in reason
    assert "only 4 records read" in reason


@pytest.mark.parametrize("status", ["interrupted", "failed", "running"])
def test_a_run_that_did_not_finish_is_unknown(recorded: Recorded, status: Status) -> None:
    folder = recorded.close(status=status)
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert judgement.verdict is Verdict.UNKNOWN
    said = "the run never ended" if status == "running" else f"the run was {status}"
    assert said in result(judgement, "recording").reason


def test_first_reason_of_a_killed_run_is_the_kill(recorded: Recorded) -> None:
    folder = recorded.close(status="running")
    (folder / "manifest.json").unlink()
    damage = damaged(str(folder), "x", "torn")
    unjudged = row(folder, "duplicate", "unjudged", data={"reason": "no log of A was captured"})
    judgement = verdict_of(folder, [damage, unjudged], "duplicate")
    reason = str(judgement.document["reason"])
    assert reason.startswith(
        "the run never ended: its harness was killed, or it still runs; recording: x: torn; "
    )
    assert "duplicate: no log of A was captured" in reason


@pytest.mark.parametrize("status", ["interrupted", "failed", "running"])
def test_the_end_of_a_run_without_logs_is_reported_in_one_sentence(
    recorded: Recorded, status: Status
) -> None:
    folder = recorded.close(commits=0, aborts=0, reads=0, status=status)
    shutil.rmtree(folder / "captures")
    seal(folder)
    judgement = verdict_of(folder, [], *REGISTRY)
    (said, follows) = judgement.judged.reason.split("; ")
    assert said == RunReader(folder).run.unfinished
    unknown = [c for c in judgement.checks if c.reason == "no log was captured"]
    assert follows == f"no log was captured, so {len(unknown)} checks had nothing to examine"
    assert {c.verdict for c in unknown} == {Verdict.UNKNOWN}
    others = [c for c in judgement.checks if c.verdict is Verdict.UNKNOWN and c not in unknown]
    assert [c.name for c in others] == ["recording"]


def test_checks_that_are_unknown_for_one_reason_say_it_once(recorded: Recorded) -> None:
    folder = recorded.close()
    names = ("duplicate", "unseen", "send-order", "order-equality")
    rows = [
        each
        for name in names
        for each in (*looked(folder, name), row(folder, name, "unjudged", data={"reason": "dark"}))
    ]
    assert verdict_of(folder, rows, *names).judged.reason == "4 checks: dark"
    assert verdict_of(folder, rows, *names[:2]).judged.reason == "duplicate, unseen: dark"


def test_a_run_without_digests_is_valid_and_says_that_it_has_none(recorded: Recorded) -> None:
    folder = recorded.close()
    said = "manifest.json has no digests (an older linkflap wrote it)"
    recording = result(verdict_of(folder, looked(folder, "duplicate"), "duplicate"), "recording")
    assert recording.verdict is Verdict.VALID
    assert said in recording.reason
    seal(folder, digests=True)
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert result(judgement, "recording").reason == ""
    manifest = folder / "manifest.json"
    recorded_ = msgspec.json.decode(manifest.read_bytes())
    manifest.write_bytes(msgspec.json.encode(dict.fromkeys(recorded_, -1)))
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert judgement.verdict is Verdict.UNKNOWN
    assert "has no digest in manifest.json; it had one" in result(judgement, "recording").reason


def test_a_missing_file_is_unknown(recorded: Recorded) -> None:
    folder = recorded.close()
    (folder / "polls" / "reader.jsonl").unlink()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert judgement.verdict is Verdict.UNKNOWN
    assert "polls/reader.jsonl" in result(judgement, "recording").reason


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            r'"destination": "B"',
            '"destination": "Q"',
            "run.json: its link A->Q names Q, which is no cluster of its topology",
        ),
        (
            r'"started": \d+',
            '"started": 1' + 30 * "0",
            "run.json: started is 1e+30 ns after 1970, a time that no run can have",
        ),
        (
            r'"ended": \d+',
            '"ended": -7',
            "run.json: ended is -7 ns after 1970, a time that no run can have",
        ),
    ],
)
def test_an_impossible_run_is_unknown(recorded: Recorded, old: str, new: str, said: str) -> None:
    folder = recorded.close()
    path = folder / "run.json"
    text, changed = re.subn(old, new, path.read_text())
    assert changed
    path.write_text(text)
    assert said in result(verdict_of(folder, [], "duplicate"), "recording").reason


def test_missing_files_that_are_judged_are_named_first(recorded: Recorded) -> None:
    folder = recorded.close()
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
    segments = [
        f"captures/1/A/1/{topic}-0/0.log"
        for topic in ("__consumer_offsets", "__transaction_state", "A.t")
    ]
    gone = dict.fromkeys(segments, -1) | {f"captures/1/A/1/__x-{n}/0.log": -1 for n in range(9)}
    (folder / "manifest.json").write_bytes(msgspec.json.encode(gone | manifest))
    (folder / "polls" / "reader.jsonl").unlink()
    reason = result(
        verdict_of(folder, looked(folder, "duplicate"), "duplicate"), "recording"
    ).reason
    assert [said.partition(":")[0] for said in reason.split("; ")[:2]] == [
        "polls/reader.jsonl",
        segments[2],
    ]


def test_damage_that_the_tables_met_is_unknown(recorded: Recorded) -> None:
    folder = recorded.close()
    damage = damaged(str(folder), "x", "torn")
    judgement = verdict_of(folder, [*looked(folder, "duplicate"), damage], "duplicate")
    assert result(judgement, "recording").reason == "x: torn"


@pytest.mark.parametrize(
    ("gone", "check", "kind", "verdict"),
    [
        ("events.jsonl", "duplicate", "duplicate", Verdict.UNKNOWN),
        ("events.jsonl", "replica-agreement", "corrupt-batch", Verdict.INVALID),
        ("operations/client.jsonl", "lost-write", "lost-write", Verdict.UNKNOWN),
        ("operations/client.jsonl", "duplicate", "duplicate", Verdict.INVALID),
        ("polls/reader.jsonl", "read-committed-visibility", "hidden-committed", Verdict.UNKNOWN),
        ("polls/reader.jsonl", "order-equality", "mirror-hole", Verdict.INVALID),
    ],
)
def test_an_anomaly_that_a_missing_part_could_have_made_up_proves_nothing(
    recorded: Recorded, gone: str, check: str, kind: str, verdict: Verdict
) -> None:
    folder = recorded.close()
    (folder / gone).unlink()
    rows = [*looked(folder, check), row(folder, check, "found", cluster="A", kind=kind, offset=4)]
    checked = result(verdict_of(folder, rows, check), check)
    assert (checked.verdict, checked.anomalies) == (verdict, 1)
    assert kind in checked.reason
    assert (gone in checked.reason) == (verdict is Verdict.UNKNOWN)


def test_a_failover_that_was_scheduled_and_promoted_nothing_is_unknown(tmp_path: Path) -> None:
    planned = FaultSpec(id="f", fault="failover-forced", target=LINK, at=1.0, duration=0.0)
    folder = Recorded(tmp_path / "run", schedule=(planned,)).close()
    checked = result(verdict_of(folder, [], "failover"), "failover")
    assert (checked.verdict, checked.reason) == (
        Verdict.UNKNOWN,
        "no native promotions of B were there to examine",
    )


class Effect(TypedDict, total=False):
    """The effect of a fault."""

    bit: bool
    healed: bool


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"bit": False}, "did not bite: worker was alive, expected dead"),
        ({"healed": False}, "was not confirmed"),
    ],
)
def test_a_fault_without_effect_or_heal_is_unknown(
    recorded: Recorded, how: Effect, reason: str
) -> None:
    recorded.fault(**how)
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert judgement.verdict is Verdict.UNKNOWN
    assert reason in result(judgement, "fault-bite").reason


def test_faults_that_bit_are_valid(recorded: Recorded) -> None:
    recorded.fault()
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert (judgement.verdict, result(judgement, "fault-bite").examined) == (
        Verdict.VALID,
        {"run/faults": 1},
    )


def test_a_scheduled_fault_that_never_started_is_unknown(tmp_path: Path) -> None:
    planned = FaultSpec(id="f9", fault="link-cut", target=LINK, at=1.0, duration=1.0)
    folder = Recorded(tmp_path / "run", schedule=(planned,)).close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert result(judgement, "fault-bite").reason == "fault f9 was scheduled and never started"


READ_TOO = (
    WorkloadSpec(kind="transactional", home="A"),
    WorkloadSpec(kind="readers", home="A"),
)


def test_readers_that_got_nothing_after_a_fault_make_it_unknown(tmp_path: Path) -> None:
    nobody = flapped(tmp_path / "nobody", READ_TOO[:1])
    assert "no reader got anything" not in nobody
    once = "no reader got anything after fault f (link-cut on A->B)"
    assert once in flapped(tmp_path / "run", READ_TOO)
    both = "no reader got anything after faults f (link-cut on A->B), g (link-cut on A->B)"
    assert both in flapped(tmp_path / "both", READ_TOO, "fg")


def flapped(folder: Path, workloads: tuple[WorkloadSpec, ...], faults: str = "f") -> str:
    """The reason of `recording` where nothing was read after the faults."""
    run = Recorded(folder, workloads=workloads)
    for name in faults:
        run.event("fault-start", LINK, id=name, fault="link-cut", restores=False)
        run.event("fault-bite", LINK, id=name, bit=True)
        run.event("fault-end", LINK, id=name)
    made = run.close(reads=0)
    judgement = verdict_of(made, looked(made, "duplicate"), "duplicate")
    return result(judgement, "recording").reason


@pytest.mark.parametrize(
    ("drained", "failover", "lagging"),
    [
        (False, None, True),
        (True, None, False),
        (False, ("A->B", "planned"), False),
        (False, ("C->B", "forced"), True),
    ],
)
def test_a_mirror_that_copied_nothing_to_the_end_is_unknown(
    recorded: Recorded, drained: bool, failover: tuple[str, str] | None, lagging: bool
) -> None:
    recorded.event("mirror-stopped", LINK, drained=drained)
    if failover:
        recorded.event("failover", failover[0], kind=failover[1])
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert (
        "the mirror of A->B had not caught up" in result(judgement, "recording").reason
    ) == lagging


def test_a_topic_that_a_mirror_gave_up_is_unknown(recorded: Recorded) -> None:
    recorded.event(
        "topic-given-up",
        LINK,
        topic="A.t",
        reason="topic A.t was deleted on the destination of A->B",
    )
    folder = recorded.close()
    checked = result(verdict_of(folder, looked(folder, "duplicate"), "duplicate"), "recording")
    assert checked.verdict is Verdict.UNKNOWN
    assert (
        checked.reason
        == "the mirror of A->B gave a topic up: topic A.t was deleted on the destination of A->B"
    )


def test_a_mirror_whose_source_was_given_up_need_not_catch_up(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "run", topology=parse("A->B, A->C"))
    recorded.event("promotion", "A->C", cluster="C", topic="A.t", partition=0, offset=3)
    recorded.event("failover", "A->C", kind="forced")
    recorded.event("mirror-stopped", LINK, drained=False)
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert (
        result(judgement, "recording").reason == "captures: cluster C is in no finished capture"
    ), "and nothing of A->B"


GROUP = WorkloadSpec(kind="readers", home="A", clients=2, options={"group": "g"})
FIXED = WorkloadSpec(kind="readers", home="A", options={"cluster": "B", "assign": True})
RELAY = WorkloadSpec(kind="relay", home="A")
Row = tuple[PollKind, str, str, str]
"""A reader's step: what it did, its name, the cluster and its group."""


def heard(
    tmp_path: Path, *rows: Row, moved: bool = False, status: Status = "finished"
) -> dict[str, CheckResult]:
    """The rows of two members of a group, a reader of B and a relay; partition 0 of A and B was
    captured."""
    run = Recorded(
        tmp_path / "run",
        workloads=(WorkloadSpec(kind="transactional", home="A"), GROUP, FIXED, RELAY),
    )
    if moved:
        run.event("clients-moved", "A", to="B")
    for kind, reader, cluster, group in rows:
        run.read(kind, reader, cluster=cluster, group=group)
    folder = run.close(status=status)
    names = ("aborted-read", "lost-write", "exactly-once", "duplicate")
    where = (("A", "native"), ("B", "mirrored"), ("A", "checkpoints"))
    found = [
        row(folder, name, "examined", cluster=cluster, origin=origin, count=3)
        for name in names
        for cluster, origin in where
    ]
    judgement = verdict_of(folder, found, *names)
    return {name: result(judgement, name) for name in (*names, "recording")}


ASSIGNED: list[Row] = [
    ("assign", "readers-1", "A", "g"),
    ("assign", "readers-2", "A", "g"),
    ("assign", "relay-1", "A", "r"),
]
TO_THE_END: list[Row] = [("drained", "readers-1", "A", "g"), ("drained", "readers-3", "B", "")]


def test_readers_that_read_to_the_end_leave_nothing_open(tmp_path: Path) -> None:
    assert {r.verdict for r in heard(tmp_path, *ASSIGNED, *TO_THE_END).values()} == {Verdict.VALID}


@pytest.mark.parametrize(
    ("lost", "reader", "unknown"),
    [
        ("readers-3", "readers-3", {"aborted-read", "lost-write"}),
        ("readers-2", "readers-2", {"aborted-read", "lost-write"}),
        ("relay-1", "relay-1", {"aborted-read", "lost-write", "exactly-once"}),
    ],
)
def test_a_reader_that_left_no_row_is_named_by_all_that_rests_on_it(
    tmp_path: Path, lost: str, reader: str, unknown: set[str]
) -> None:
    checked = heard(
        tmp_path,
        *(row for row in (*ASSIGNED, *TO_THE_END) if row[1] != lost),
        ("error", lost, "A", ""),
    )
    said = f"missing: run.json names {reader}, and no row says what it read"
    assert {name for name, each in checked.items() if said in each.reason} == {
        *unknown,
        "recording",
    }
    assert {name for name, each in checked.items() if each.verdict is Verdict.UNKNOWN} == {
        *unknown,
        "recording",
    }


@pytest.mark.parametrize(
    ("rows", "moved", "said"),
    [
        (
            (*ASSIGNED, TO_THE_END[0], ("poll", "readers-3", "B", "")),
            False,
            "readers-3 ends in the middle: it never read A.t-0 of B",
        ),
        (
            (*ASSIGNED, TO_THE_END[1]),
            False,
            "readers-1 ends in the middle: it never read A.t-0 of A",
        ),
        ((*ASSIGNED, *TO_THE_END), True, "readers-1 ends in the middle: it never read A.t-0 of B"),
    ],
    ids=["a reader of fixed partitions", "no member of a group", "a group that others left behind"],
)
def test_a_reader_that_ends_in_the_middle_is_unknown(
    tmp_path: Path, rows: tuple[Row, ...], moved: bool, said: str
) -> None:
    checked = heard(tmp_path, *rows, moved=moved)
    assert {name for name, each in checked.items() if f"{said} to the end" in each.reason} == {
        "aborted-read",
        "recording",
    }
    assert {name for name, each in checked.items() if each.verdict is Verdict.UNKNOWN} == {
        "aborted-read",
        "recording",
    }


def test_a_failed_run_needs_no_readers(tmp_path: Path) -> None:
    checked = heard(tmp_path, *ASSIGNED, status="interrupted")
    assert {name for name, each in checked.items() if each.verdict is Verdict.UNKNOWN} == {
        "recording"
    }


def test_clients_are_called_what_the_scenario_says() -> None:
    specs = (GROUP, RELAY, FIXED)
    names = ClientNames()
    assert [name for name, _ in clients(specs)] == [
        names.next(s.kind) for s in specs for _ in range(s.clients)
    ]


def group_failed_over(tmp_path: Path, *states: tuple[str, int, str, str]) -> Path:
    """A run whose group followed a failover; `states` of its mirror's connectors were recorded
    before."""
    readers = WorkloadSpec(kind="readers", home="A", options={"group": "g"})
    run = Recorded(
        tmp_path / "run", workloads=(WorkloadSpec(kind="transactional", home="A"), readers)
    )
    for connector, task, state, trace in states:
        run.event("mirror-state", LINK, connector=connector, task=task, state=state, trace=trace)
    run.event("failover", LINK, kind="forced", fault_time=now())
    run.event("promotion", LINK, cluster="B", topic="A.t", partition=0, offset=3)
    run.event("clients-moved", "A", to="B")
    run.read("drained", "readers-1", cluster="B", group="g")
    return run.close()


NEVER_SAMPLED = (
    "no committed offset of a group was ever sampled on A, so how far groups were there is unknown"
)
NEVER_SYNCED = (
    "the mirror had synced no group's offset to B before the failover: every group starts over "
    "there"
)


@pytest.mark.parametrize(
    ("looked_at", "verdict", "reason"),
    [
        ((), Verdict.UNKNOWN, f"{NEVER_SAMPLED}; no mirrored records of B were there to examine"),
        ((("B", "mirrored"),), Verdict.UNKNOWN, NEVER_SAMPLED),
        ((("B", "mirrored"), ("A", "checkpoints")), Verdict.VALID, NEVER_SYNCED),
        ((("B", "mirrored"), ("A", "checkpoints"), ("B", "checkpoints")), Verdict.VALID, ""),
    ],
)
def test_a_group_that_failed_over_and_was_not_sampled_is_unknown(
    tmp_path: Path, looked_at: tuple[tuple[str, str], ...], verdict: Verdict, reason: str
) -> None:
    folder = group_failed_over(tmp_path)
    rows = [
        row(folder, "group-offsets", "examined", cluster=c, origin=o, count=2) for c, o in looked_at
    ]
    checked = result(verdict_of(folder, rows, "group-offsets"), "group-offsets")
    assert (checked.verdict, checked.reason) == (verdict, reason)
    assert checked.examined == {f"{c}/{o}": 2 for c, o in sorted(looked_at)}


CHECKPOINTS, SOURCE = "MirrorCheckpointConnector", "MirrorSourceConnector"
TRACE = (
    "java.util.regex.PatternSyntaxException: Unclosed character class near index 0\n\tat "
    "java.base/java.util.regex.Pattern"
)
FAILED = (CHECKPOINTS, -1, "FAILED", TRACE)


@pytest.mark.parametrize(
    ("states", "why"),
    [
        (
            [FAILED],
            (
                f"{CHECKPOINTS} of the mirror of A->B failed: "
                "java.util.regex.PatternSyntaxException: Unclosed"
            ),
        ),
        (
            [FAILED, (CHECKPOINTS, -1, "UNASSIGNED", "")],
            f"{CHECKPOINTS} of the mirror of A->B failed: java.util.regex",
        ),
        (
            [(CHECKPOINTS, 0, "FAILED", TRACE)],
            f"task 0 of {CHECKPOINTS} of the mirror of A->B failed: java.util.regex",
        ),
        ([(CHECKPOINTS, -1, "PAUSED", "")], f"{CHECKPOINTS} of the mirror of A->B was paused"),
        ([(CHECKPOINTS, -1, "STOPPED", "")], f"{CHECKPOINTS} of the mirror of A->B was stopped"),
        (
            [(CHECKPOINTS, -1, "NONE", "started\nno such class")],
            f"{CHECKPOINTS} of the mirror of A->B never had a state: no such",
        ),
    ],
)
@pytest.mark.parametrize("synced", [False, True])
def test_a_failed_connector_of_groups_makes_synced_offsets_unknown(
    tmp_path: Path, states: list[tuple[str, int, str, str]], why: str, synced: bool
) -> None:
    folder = group_failed_over(tmp_path, *states)
    where = [("B", "mirrored"), ("A", "checkpoints"), *([("B", "checkpoints")] if synced else [])]
    rows = [
        row(folder, "group-offsets", "examined", cluster=c, origin=o, count=2) for c, o in where
    ]
    checked = result(verdict_of(folder, rows, "group-offsets"), "group-offsets")
    assert checked.verdict is Verdict.UNKNOWN
    assert f"group offsets were not synced to B from then on: {why}" in checked.reason
    assert "\tat" not in checked.reason


@pytest.mark.parametrize(
    "states",
    [
        [FAILED, (CHECKPOINTS, -1, "RUNNING", "")],
        [(CHECKPOINTS, -1, "RUNNING", "")],
        [(SOURCE, 0, "FAILED", TRACE)],  # of partitions, not of groups
    ],
)
def test_a_connector_that_runs_again_and_one_of_something_else_say_nothing_of_groups(
    tmp_path: Path, states: list[tuple[str, int, str, str]]
) -> None:
    folder = group_failed_over(tmp_path, *states)
    rows = [
        row(folder, "group-offsets", "examined", cluster=c, origin=o, count=2)
        for c, o in EVERYWHERE
    ]
    assert (
        result(verdict_of(folder, rows, "group-offsets"), "group-offsets").verdict is Verdict.VALID
    )


EVERYWHERE = [("B", "mirrored"), ("A", "checkpoints"), ("B", "checkpoints")]


def test_failed_connector_task_is_the_reason_for_nothing_mirrored(recorded: Recorded) -> None:
    recorded.event(
        "mirror-state",
        LINK,
        connector=SOURCE,
        task=0,
        state="FAILED",
        trace="RecordTooLargeException: 2 of 1\n\tat",
    )
    recorded.event("mirror-stopped", LINK, drained=False)
    folder = recorded.close()
    rows = [row(folder, "duplicate", "examined", cluster="A", origin="native", count=2)]
    judgement = verdict_of(folder, rows, "duplicate")
    why = f"task 0 of {SOURCE} of the mirror of A->B failed: RecordTooLargeException: 2 of 1"
    assert (
        result(judgement, "duplicate").reason
        == f"no mirrored records of B were there to examine; {why}"
    )
    assert (
        result(judgement, "recording").reason
        == f"the mirror of A->B had not caught up when the run ended; {why}"
    )


def test_a_killed_worker_takes_its_states_with_it_and_a_dead_source_counts_for_nothing() -> None:
    def at(time: int, kind: str, **data: str | int) -> Event:
        return event(kind, LINK, at=time, **data)

    def failed(time: int, task: int) -> Event:
        return at(time, "mirror-state", connector=SOURCE, task=task, state="FAILED", trace="why")

    assert [part.task for part in failed_parts([failed(1, 0), failed(2, 1)])] == [0, 1]
    assert [
        part.task for part in failed_parts([failed(1, 0), at(2, "mirror-crashed"), failed(3, 1)])
    ] == [1]
    assert [
        part.task
        for part in failed_parts([failed(1, 0), at(5, "failover", fault_time=4), failed(6, 1)])
    ] == [0]
