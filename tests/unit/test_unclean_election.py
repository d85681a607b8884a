"""unclean-election: what is refused, what its bite reports as lost, what that allows, and where it
is generated."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.chaos.faults.leaders import PartitionMetadata, UncleanElection, read_lost
from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.chaos.schedule import check_losses
from linkflap.harness.guarantees import mm2, shadow
from linkflap.harness.log.layout import ABORT, COMMIT
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.events import FaultBite, LostRange
from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.verdict import Anomaly
from linkflap.harness.rundir import RunWriter
from linkflap.spark_verify.facts.partition_facts import Loss, Window
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.verdict.allowances import why_allowed
from tests.events import event
from tests.kafka_log import batch, marker, ours, record, segment
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


def led(leader: int, *replicas: int) -> PartitionMetadata:
    return PartitionMetadata(leader=leader, replicas=replicas, in_sync=frozenset(replicas))


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
            (("A.t", 0, 5, 9, 7), ("A.t", 1, 3, 8, 7)),
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
        event(
            "fault-bite",
            "A",
            at=7,
            id="f",
            bit=bit,
            observable="o",
            measured=measured,
            expected="e",
        )
    )
    writer.close("finished")
    (window,) = plan(tmp_path / "run").facts.windows
    assert tuple(_short(each) for each in window.lost) == lost
    assert all(each.cluster == "A" and each.records is None for each in window.lost)


def _short(loss: Loss) -> tuple[str, int, int, int, int]:
    """Where it is, and when the election was."""
    return loss.topic, loss.partition, loss.start, loss.end, loss.elected


def test_a_window_lost_exactly_what_its_bite_lists(tmp_path: Any) -> None:
    row = LostRange(
        topic="A.t", partition=1, start=3, end=8, deposed_epoch=4, elected_epoch=6, elected=5,
        records=((77, 3, 2, 9),), markers=((5, 9, 0, True),),
    )  # fmt: skip
    writer = RunWriter(tmp_path / "run", run())
    writer.write(event("fault-start", "A", id="f", fault="unclean-election"))
    writer.write(
        FaultBite(
            target="A", id="f", bit=True, observable="o", measured={"A.t-1": [3, 8]}, expected="e",
            lost=(row,),
        )
    )  # fmt: skip
    writer.close("finished")
    (window,) = plan(tmp_path / "run").facts.windows
    assert window.lost == (
        Loss(
            cluster="A", topic="A.t", partition=1, start=3, end=8, elected=5, deposed_epoch=4,
            elected_epoch=6, records=row.records, markers=row.markers,
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("records", "markers", "why"),
    [
        ([(77, 2, 2, 9)], [], "lists more than offsets 3 to 99999999"),
        ([(77, 3, 2, 9)], [(10**8, 9, 0, True)], "lists more than offsets 3 to 99999999"),
        ([(77, 3, 1 << 24, 9)], [], "lists 16777216 records, which is too many to be read"),
    ],
)
def test_a_bite_that_lists_what_it_cannot_have_taken_away_is_damage(
    tmp_path: Any, records: Any, markers: Any, why: str
) -> None:
    row = LostRange(
        topic="A.t", partition=1, start=3, end=99_999_999, deposed_epoch=4, elected_epoch=6,
        elected=5, records=tuple(records), markers=tuple(markers),
    )  # fmt: skip
    writer = RunWriter(tmp_path / "run", run())
    writer.write(event("fault-start", "A", id="f", fault="unclean-election"))
    writer.write(
        FaultBite(target="A", id="f", bit=True, observable="o", measured=1, expected=1, lost=(row,))
    )
    writer.close("finished")
    planned = plan(tmp_path / "run")
    assert planned.facts.windows[0].lost == ()
    assert f"the bite of fault f {why}" in [each.reason for each in planned.damage]


def test_the_dead_leaders_log_lists_every_record_and_marker_that_the_elected_replica_lacks(
    tmp_path: Any,
) -> None:
    first = 5 << 40
    segment(
        tmp_path,
        [
            batch(0, [ours(first)], leader_epoch=1, pid=9),
            batch(1, [ours(first + 1), ours(first + 2)], leader_epoch=1, pid=9),
            marker(3, COMMIT, pid=7, epoch=2, leader_epoch=1),
            batch(4, [ours(first + 3)], leader_epoch=1, pid=9),
            batch(5, [record(b"foreign"), record(b"foreign")], leader_epoch=1),
            marker(7, ABORT, pid=8, epoch=0, leader_epoch=1),
        ],
    )
    read = read_lost(tmp_path, A_0, start=1, end=8, elected_epoch=3, elected=50)
    assert read == LostRange(
        topic="A.t", partition=0, start=1, end=8, deposed_epoch=1, elected_epoch=3, elected=50,
        records=((first + 1, 1, 2, 9), (first + 3, 4, 1, 9), (-1, 5, 2, -1)),
        markers=((3, 7, 2, True), (7, 8, 0, False)),
    )  # fmt: skip
    end = read_lost(tmp_path, A_0, start=8, end=8, elected_epoch=3, elected=50)
    assert (end.records, end.markers, end.deposed_epoch) == ((), (), -1)


@pytest.mark.parametrize(
    ("kind", "partition", "by", "allowed"),
    [
        ("lost-write", 0, "f", True),
        ("lost-write", 0, "", False),
        ("lost-write", 0, "g", False),
        ("lost-write", 1, "f", False),
        ("uncommitted-read", 0, "f", False),
    ],
    ids=["lost", "not lost", "another fault", "another partition", "another kind"],
)
def test_it_allows_what_it_lost_and_nothing_else(
    kind: str, partition: int, by: str, allowed: bool
) -> None:
    loss = Loss(cluster="A", topic="A.t", partition=0, start=5, end=9, elected=3)
    window = Window(id="f", fault="unclean-election", target="A", start=0, end=9, lost=(loss,))
    anomaly = Anomaly(
        check="", kind=kind, cluster="A", topic="A.t", partition=partition, offset=5,
        evidence={"lost_by": by} if by else {},
    )  # fmt: skip
    why = why_allowed(anomaly, shadow.guarantee({}), "", [window])
    assert (why is not None) == allowed
    assert why is None or "unclean-election (f) lost A.t-0 of A from 5 to 9" in why
    unmeasured = replace(window, lost=())
    assert why_allowed(anomaly, shadow.guarantee({}), "", [unmeasured]) is None


def test_it_is_drawn_where_a_suite_names_it_and_a_cluster_has_three_brokers() -> None:
    def drawn(topology: str, *faults: str) -> set[str]:
        bounds = GeneratorBounds(topologies=(topology,), faults=faults, most=6)
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
    bounds = GeneratorBounds(
        topologies=("A:3->B",), mirrors=("mm2",), faults=("unclean-election", "link-cut"), most=6
    )
    made = [generate(3, n, Coverage(), bounds, guided=False) for n in range(20)]
    assert {fault.fault for scenario in made for fault in scenario.schedule} == {"link-cut"}
