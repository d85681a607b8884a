"""Readers that left no row, or ended in the middle: what depends on them is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.model.history import PollKind
from linkflap.harness.model.scenario import WorkloadSpec, clients
from linkflap.harness.model.verdict import CheckResult, Verdict
from linkflap.harness.rundir.values import Status
from linkflap.harness.workloads.crew import ClientNames
from tests.unit.checks.judged_runs import Recorded, result, row, verdict_of

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
