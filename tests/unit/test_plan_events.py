"""Events that contradict the run or each other: what they concern is unknown, and the run's damage
names them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from linkflap.harness.rundir import RunWriter
from linkflap.spark_verify.facts.partition_facts import Description, Refusal
from linkflap.spark_verify.read.plan import plan
from linkflap.topologies import parse
from tests.events import append_row, event
from tests.unit.recorded_run import run

WHERE = {"cluster": "A", "topic": "A.t", "partition": 0}
ROW = {"topic": "A.t", "partition": 0, "mirrored": 9, "promoted": 9}


Said = tuple[str, str, dict[str, Any]]
"""Kind, subject and data of an event."""


def reasons(tmp_path: Path, *events: Said, arrows: str = "A->B") -> list[str]:
    """The damage of events.jsonl, in the plan of a run with these events."""
    recorded = run()
    scenario = replace(recorded.scenario, topology=parse(arrows))
    writer = RunWriter(tmp_path / "run", replace(recorded, scenario=scenario))
    for kind, subject, data in events:
        append_row(
            writer.root,
            kind,
            subject,
            **{"drained": True, **data} if kind == "mirror-stopped" else data,
        )
    writer.close("finished")
    return [d.reason for d in plan(tmp_path / "run").damage if d.path == "events.jsonl"]


def test_a_truncation_that_the_mirrors_journal_confirms(tmp_path: Path) -> None:
    truncated = ("truncation", "B->A", {**WHERE, "offset": 3, "end": 5})
    stopped = ("mirror-stopped", "B->A", {"partitions": [{**ROW, "cut": 3, "cut_from": 5}]})
    assert not [r for r in reasons(tmp_path, truncated, stopped) if "truncation" in r]


@pytest.mark.parametrize(("truncated_to", "truncated_from"), [(3, 5000), (2, 5)])
def test_a_truncation_that_the_mirrors_journal_contradicts(
    tmp_path: Path, truncated_to: int, truncated_from: int
) -> None:
    truncated = ("truncation", "B->A", {**WHERE, "offset": 3, "end": 5})
    stopped = (
        "mirror-stopped",
        "B->A",
        {"partitions": [{**ROW, "cut": truncated_to, "cut_from": truncated_from}]},
    )
    said = (
        f"a truncation of A.t-0 on A says (3, 5), its mirror ({truncated_to}, {truncated_from}) "
        "(offset, end)"
    )
    assert said in reasons(tmp_path, truncated, stopped)


def test_a_journal_that_truncated_nothing_says_nothing(tmp_path: Path) -> None:
    truncated = ("truncation", "B->A", {**WHERE, "offset": 3, "end": 5})
    stopped = (
        "mirror-stopped",
        "B->A",
        {"partitions": [{**ROW, "cut": -1, "cut_from": -1}, "torn"]},
    )
    assert not [r for r in reasons(tmp_path, truncated, stopped) if "says" in r]


CHAIN = "A.t-0 on B was truncated from 5 to 3 for a failback, and C mirrors it: what C and its "


@pytest.mark.parametrize(("cluster", "end", "unclear"), [("B", 5, True), ("B", 3, False)])
def test_a_truncation_of_what_another_mirror_copies(
    tmp_path: Path, cluster: str, end: int, unclear: bool
) -> None:
    truncated = ("truncation", "A->B", {**WHERE, "cluster": cluster, "offset": 3, "end": end})
    assert any(CHAIN in r for r in reasons(tmp_path, truncated, arrows="A->B->C")) is unclear
    assert not any(CHAIN in r for r in reasons(tmp_path / "pair", truncated))


@pytest.mark.parametrize("kind", ["promotion", "truncation"])
def test_a_cluster_that_the_run_does_not_have(tmp_path: Path, kind: str) -> None:
    event = (kind, "B->A", {**WHERE, "cluster": "C", "offset": 3, "end": 5})
    assert f"a {kind} is of cluster 'C', and the run has A, B" in reasons(tmp_path, event)


def test_a_failover_that_was_refused_and_the_source_that_it_had_killed(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", run())
    began = writer.write(event("fault-start", "A->B", id="failover", fault="failover-forced"))
    refused: dict[str, Any] = {
        "kind": "forced",
        "error": "INVALID_CLUSTER_MIRROR_STATES",
        "code": 145,
        "seconds": 60.0,
    }
    writer.write(event("failover-refused", "A->B", **refused))
    writer.close("finished")
    facts = plan(tmp_path / "run").facts
    assert facts.refusals == (Refusal(link="A->B", **refused),)
    assert facts.deaths == {"A": began.time}, "what was open there can be ended by nobody"


@pytest.mark.parametrize(
    ("fault", "promoted", "dead"),
    [
        ("failover-forced", False, True),
        ("failover-forced", True, True),
        ("failover-planned", False, False),
    ],
    ids=["killed, and nothing was promoted", "promoted", "drained, and nothing was promoted"],
)
def test_the_source_of_a_forced_failover_is_dead(
    tmp_path: Path, fault: str, promoted: bool, dead: bool
) -> None:
    writer = RunWriter(tmp_path / "run", run())
    began = writer.write(event("fault-start", "A->B", id="failover", fault=fault))
    if promoted:
        writer.write(
            event("failover", "A->B", kind="forced", fault_time=began.time, open_transactions=1)
        )
    writer.close("finished")
    assert plan(tmp_path / "run").facts.deaths == ({"A": began.time} if dead else {})


def described(**changed: str) -> Said:
    row = {
        "topic": "A.orders",
        "partition": 0,
        "state": "MIRRORING",
        "mirrors": True,
        "lag": 3,
    } | changed
    return ("mirror-described", "A->B", {"asked": 5, "rows": [row]})


def test_what_a_mirror_said_of_itself(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", run())
    kind, subject, data = described()
    answered = writer.write(event(kind, subject, **data))
    writer.close("finished")
    (facts,) = (
        facts
        for key, facts in plan(tmp_path / "run").partition_facts.items()
        if key == ("A.orders", 0)
    )
    wanted = Description(
        link="A->B", state="MIRRORING", mirrors=True, lag=3, asked=5, returned=answered.time
    )
    assert facts.descriptions == (wanted,)


def test_what_a_mirror_said_and_nobody_can_read(tmp_path: Path) -> None:
    said = reasons(tmp_path, described(lag="much"))
    assert [
        reason
        for reason in said
        if reason.startswith("a mirror-described of A->B that cannot be read")
    ]
