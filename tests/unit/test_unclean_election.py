"""unclean-election: what is refused, what its bite reports as lost, what that allows, and where it
is generated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.chaos.faults.leadership_move import Led
from linkflap.chaos.faults.unclean_election import UncleanElection
from linkflap.chaos.generator import Bounds, Coverage, generate
from linkflap.chaos.schedule_checks import check_losses
from linkflap.harness.guarantees import mm2, shadow
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.verdict import Anomaly
from linkflap.harness.rundir import RunWriter
from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.verdict.allowances import why_allowed
from tests.events import event
from tests.unit.recorded_run import run

A_0, A_1 = ("A.t", 0), ("A.t", 1)


def spec(target: str = "A") -> FaultSpec:
    return FaultSpec(id="f", fault="unclean-election", target=target, at=0, duration=0)


def fault(brokers: int = 3) -> Any:
    nodes = {
        n: SimpleNamespace(id=n, state="running", client_address="") for n in range(1, brokers + 1)
    }
    cluster = SimpleNamespace(name="A", brokers=nodes, bootstrap="")
    world = SimpleNamespace(
        deployment=SimpleNamespace(clusters={"A": cluster}), topics={"A.t": 2}, stopping=True
    )
    return UncleanElection(spec(), cast(World, world))


def led(leader: int, *replicas: int) -> Led:
    return Led(leader=leader, replicas=replicas, in_sync=frozenset(replicas))


def test_a_cluster_that_is_not_there_is_refused() -> None:
    world = cast(
        World, SimpleNamespace(deployment=SimpleNamespace(clusters={"A": None, "B": None}))
    )
    with pytest.raises(InputError, match="the clusters are A, B"):
        UncleanElection(spec("C"), world)


def test_partitions_with_one_replica_are_refused_before_anything_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = fault()
    monkeypatch.setattr(one, "_led", lambda: {A_0: led(1, 1)})
    with pytest.raises(FaultError, match="one replica each"):
        one.inject()
    monkeypatch.setattr(one, "_led", dict)
    with pytest.raises(FaultError, match="leads no partition"):
        one.inject()


def test_it_has_bitten_where_the_elected_replica_leads_and_lacks_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = fault()
    one._before, one._elected = {A_0: led(1, 1, 2, 3), A_1: led(1, 1, 3, 2)}, 2
    one._kept, one._acknowledged = {A_0: 5, A_1: 7}, {A_0: 9, A_1: 7}
    monkeypatch.setattr(one, "_led", lambda: {A_0: led(2, 2, 1), A_1: led(2, 2, 1)})
    assert one._measure() == (True, {"A.t-0": [5, 9]})
    monkeypatch.setattr(one, "_led", lambda: {A_0: led(1, 1, 2), A_1: led(2, 2, 1)})
    assert not one._measure()[0], "the old leader leads again"
    one._acknowledged = {A_0: 5, A_1: 7}
    monkeypatch.setattr(one, "_led", lambda: {A_0: led(2, 2, 1), A_1: led(2, 2, 1)})
    assert one._measure() == (False, {}), "nothing was lost"


def test_a_fault_that_was_not_injected_needs_no_heal() -> None:
    assert fault().heal() == ["nothing was changed"]


@pytest.mark.parametrize(
    ("fault_name", "bit", "measured", "lost"),
    [
        (
            "unclean-election",
            True,
            {"A.t-1": [3, 8], "A.t-0": [5, 9]},
            (("A.t", 0, 5, 9), ("A.t", 1, 3, 8)),
        ),
        ("unclean-election", False, {"A.t-0": [5, 9]}, ()),
        ("unclean-election", True, "nothing", ()),
        ("unclean-election", True, {"A.t": [5, 9], "A.t-0": [5], "A.t-1": ["5", 9]}, ()),
        ("records-deleted", True, {"A.t-0": [5, 9]}, ()),
    ],
    ids=["bitten", "not bitten", "not measured", "torn", "another fault"],
)
def test_what_a_window_lost_is_what_its_bite_measured(
    tmp_path: Any, fault_name: str, bit: bool, measured: object, lost: object
) -> None:
    writer = RunWriter(tmp_path / "run", run())
    writer.write(event("fault-start", "A", id="f", fault=fault_name))
    writer.write(
        event("fault-bite", "A", id="f", bit=bit, observable="o", measured=measured, expected="e")
    )
    writer.close("finished")
    assert [window.lost for window in plan(tmp_path / "run").facts.windows] == [lost]


@pytest.mark.parametrize(
    ("kind", "partition", "offset", "allowed"),
    [
        ("lost-write", 0, 4, False),
        ("lost-write", 0, 5, True),
        ("lost-write", 0, 8, True),
        ("lost-write", 0, 9, False),
        ("lost-write", 0, -1, False),
        ("lost-write", 1, 5, False),
        ("uncommitted-read", 0, 5, False),
    ],
    ids=["below", "first", "last", "behind", "nowhere", "another partition", "another kind"],
)
def test_it_allows_what_it_lost_and_nothing_else(
    kind: str, partition: int, offset: int, allowed: bool
) -> None:
    window = Window(
        id="f", fault="unclean-election", target="A", start=0, end=9, lost=(("A.t", 0, 5, 9),)
    )
    anomaly = Anomaly(
        check="", kind=kind, cluster="A", topic="A.t", partition=partition, offset=offset
    )
    why = why_allowed(anomaly, shadow.guarantee({}), "", [window])
    assert (why is not None) == allowed
    assert why is None or "unclean-election (f) lost A.t-0 from 5 to 9" in why


@pytest.mark.parametrize(
    ("evidence", "allowed"),
    [
        ({"records": 4}, True),
        ({"records": 5}, False),
        ({"records": 2, "last_offset": 8}, True),
        ({"last_offset": 9}, False),
    ],
    ids=["to the end", "over it", "with a gap", "with a gap over it"],
)
def test_anomalies_above_the_lost_offsets_are_not_allowed(
    evidence: dict[str, int], allowed: bool
) -> None:
    window = Window(
        id="f", fault="unclean-election", target="A", start=0, end=9, lost=(("A.t", 0, 5, 9),)
    )
    anomaly = Anomaly(
        check="",
        kind="ghost-ack",
        cluster="A",
        topic="A.t",
        partition=0,
        offset=5,
        evidence=evidence,
    )
    assert (why_allowed(anomaly, shadow.guarantee({}), "", [window]) is not None) == allowed


@pytest.mark.parametrize(
    ("mine", "other", "lost", "allowed"),
    [
        ({"absent": 2}, {"visible": 3}, (("A.t", 0, 5, 9),), True),
        ({"absent": 4}, {"visible": 3}, (("A.t", 0, 5, 9),), True),
        ({"absent": 5}, {"visible": 3}, (("A.t", 0, 5, 9),), False),
        ({"absent": 2}, {"visible": 2, "absent": 1}, (("A.t", 0, 5, 9),), False),
        ({"absent": 2}, {"absent": 1}, (("A.t", 0, 5, 9), ("A.t", 1, 3, 4)), True),
        ({"absent": 2}, {"visible": 3}, (("A.t", 1, 5, 9),), False),
        ({"visible": 2}, {"visible": 3}, (("A.t", 0, 5, 9),), False),
        ({"absent": 1, "aborted": 1}, {"visible": 3}, (("A.t", 0, 5, 9),), False),
        ({"absent": 1}, {"open": 3}, (("A.t", 0, 5, 9),), False),
    ],
    ids=[
        "in one",
        "to the end",
        "over it",
        "another lost nothing",
        "in both",
        "in another",
        "nothing is missing",
        "aborted",
        "open",
    ],
)
def test_a_transaction_may_lack_what_was_lost_of_it(
    mine: dict[str, int],
    other: dict[str, int],
    lost: tuple[tuple[str, int, int, int], ...],
    allowed: bool,
) -> None:
    window = Window(id="f", fault="unclean-election", target="A", start=0, end=9, lost=lost)
    parts = [{"topic": "A.t", "partition": 0} | mine, {"topic": "A.t", "partition": 1} | other]
    anomaly = Anomaly(
        check="",
        kind="torn-transaction",
        cluster="A",
        topic="A.t",
        partition=0,
        offset=5,
        evidence={"records": 9, "partitions": parts},
    )
    assert (why_allowed(anomaly, shadow.guarantee({}), "", [window]) is not None) == allowed


def test_without_a_bite_nothing_is_allowed() -> None:
    window = Window(id="f", fault="unclean-election", target="A", start=0, end=9)
    anomaly = Anomaly(check="", kind="lost-write", cluster="A", topic="A.t", partition=0, offset=5)
    assert why_allowed(anomaly, shadow.guarantee({}), "", [window]) is None


def test_it_is_drawn_where_a_suite_names_it_and_a_cluster_has_three_brokers() -> None:
    def drawn(topology: str, *faults: str) -> set[str]:
        bounds = Bounds(topologies=(topology,), faults=faults, most=6)
        made = [generate(3, n, Coverage(), bounds, guided=False) for n in range(1, 30)]
        return {f"{each.fault} {each.target}" for scenario in made for each in scenario.schedule}

    assert "unclean-election A" in drawn("A:3->B", "unclean-election", "link-cut")
    assert "unclean-election A" not in drawn("A->B", "unclean-election", "link-cut")
    assert "unclean-election A" not in drawn("A:3->B")


def test_a_mirror_that_moves_offsets_is_refused_with_the_reason_and_not_drawn() -> None:
    with pytest.raises(
        InputError,
        match="'f' \\(unclean-election\\) does not apply: this mirror does not keep offsets",
    ):
        check_losses([spec()], mm2.guarantee({}))
    check_losses([spec()], shadow.guarantee({}))
    bounds = Bounds(
        topologies=("A:3->B",), mirrors=("mm2",), faults=("unclean-election", "link-cut"), most=6
    )
    made = [generate(3, n, Coverage(), bounds, guided=False) for n in range(20)]
    assert {fault.fault for scenario in made for fault in scenario.schedule} == {"link-cut"}
