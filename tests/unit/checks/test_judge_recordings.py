"""What a run did not record, or what did not happen in it, and what is unknown because of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypedDict

import msgspec
import pytest

from linkflap.harness.model.scenario import FaultSpec, Minimums, WorkloadSpec
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.rundir.values import Status
from linkflap.spark_verify.spark.finding_rows import FindingRow
from linkflap.topologies import parse
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


def test_of_a_killed_run_the_first_reason_is_that_it_was_killed(recorded: Recorded) -> None:
    folder = recorded.close(status="running")
    (folder / "manifest.json").unlink()
    damage = FindingRow(
        run=str(folder),
        topic="",
        partition=-1,
        check="",
        finding="damage",
        data={"path": "x", "reason": "torn"},
    )
    unjudged = row(folder, "duplicate", "unjudged", data={"reason": "no log of A was captured"})
    judgement = verdict_of(folder, [damage, unjudged], "duplicate")
    reason = str(judgement.document["reason"])
    assert reason.startswith(
        "recording: run.json: the run never ended: its harness was killed, or it still runs; "
    )
    assert "duplicate: no log of A was captured" in reason


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


def test_of_missing_files_those_that_are_judged_come_first(recorded: Recorded) -> None:
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
    damage = FindingRow(
        run=str(folder),
        topic="",
        partition=-1,
        check="",
        finding="damage",
        data={"path": "x", "reason": "torn"},
    )
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


def test_nothing_read_after_a_fault_is_unknown_if_somebody_reads(tmp_path: Path) -> None:
    nobody = flapped(tmp_path / "nobody", READ_TOO[:1])
    assert "no reader got anything" not in nobody
    assert "no reader got anything after fault f" in flapped(tmp_path / "run", READ_TOO)


def flapped(folder: Path, workloads: tuple[WorkloadSpec, ...]) -> str:
    """The reason of `recording` where nothing was read after a fault."""
    run = Recorded(folder, workloads=workloads)
    run.event("fault-start", LINK, id="f", fault="link-cut", restores=False)
    run.event("fault-bite", LINK, id="f", bit=True)
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
