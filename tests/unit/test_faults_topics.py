"""Faults of topics: deleted records and topics that are made again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults import topics
from linkflap.chaos.faults.topics import NEW, OLD, RecordsDeletion, TopicRecreated, copied, reached
from linkflap.chaos.generator import GeneratorBounds
from linkflap.chaos.triggers import condition
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.events import TopicGivenUp
from linkflap.harness.model.protocols import FaultWorld
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import is_data_topic, is_recreated
from linkflap.spark_verify.verdict.run_checks import _given_up
from linkflap.topologies import parse
from tests.scenarios import drawn

# records-deleted: what is deleted, what is refused, where it is generated.


WORLD = cast(
    FaultWorld,
    SimpleNamespace(deployment=SimpleNamespace(clusters={"A": None, "B": None}), topics={}),
)


def spec(target: str = "A") -> FaultSpec:
    return FaultSpec(id="f", fault="records-deleted", target=target, at=0, duration=0)


def test_delete_records_removes_records_below_the_last_stable_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds = {
        "start": {("A.t", 0): 10, ("A.t", 1): 0, ("A.t", 2): 7, ("A.t", 3): 5},
        "stable": {("A.t", 0): 110, ("A.t", 1): 1, ("A.t", 2): 7, ("A.t", 4): 9},
    }
    asked: list[object] = []

    def answered(
        _admin: object, partitions: list[tuple[str, int]], which: str, *, within: float
    ) -> dict[tuple[str, int], int]:
        asked.append(partitions)
        return bounds[which]

    monkeypatch.setattr(topics, "answered_bounds", answered)
    world = SimpleNamespace(
        deployment=SimpleNamespace(clusters={"A": None}, topology=parse("A->B")),
        topics={"A.t": 2, "B.t": 3},
    )
    fault = RecordsDeletion(spec(), cast(FaultWorld, world))
    assert fault._choose(cast(AdminClient, None))
    assert fault._wanted == {("A.t", 0): 110, ("A.t", 1): 1}
    assert asked[0] == [("A.t", 0), ("A.t", 1)], "what is at home elsewhere is left alone"


def test_a_cluster_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="the clusters are A, B"):
        RecordsDeletion(spec("C"), WORLD)


def test_topics_include_the_destinations_of_running_mirrors() -> None:
    def mirror(source: str, destination: str, *, alive: bool = True) -> SimpleNamespace:
        return SimpleNamespace(
            link=SimpleNamespace(source=source, destination=destination), alive=alive
        )

    mirrors = {
        "A->B": mirror("A", "B"),
        "B->C": mirror("B", "C"),
        "C->A": mirror("C", "A"),
        "A->D": mirror("A", "D", alive=False),
    }
    assert reached("A", cast(FaultWorld, SimpleNamespace(mirrors=mirrors))) == ["A", "B", "C"]


def test_records_deleted_is_drawn_during_link_cuts_and_only_with_kept_offsets() -> None:
    bounds = GeneratorBounds(faults=("records-deleted", "link-cut"), most=6)
    kept = drawn(bounds, 60)
    deleted = [fault for fault in kept if fault.fault == "records-deleted"]
    overtaking = [fault for fault in deleted if condition(fault.when).during]
    assert overtaking
    assert len(overtaking) < len(deleted)
    moved = drawn(replace(bounds, mirrors=("mm2",)))
    assert {fault.fault for fault in moved} == {"link-cut"}


# topic-recreated: what a copy of both topics is, what captures and checks leave out, where it
# is generated.


OLD_LOG = [f"old {n}" for n in range(OLD)]
NEW_LOG = [f"new {n}" for n in range(NEW)]
SAYS = "topic A.t was deleted and made again at the source"


def recreation_spec(target: str = "A", fault_id: str = "1-topic-recreated") -> FaultSpec:
    return FaultSpec(id=fault_id, fault="topic-recreated", target=target, at=0, duration=0)


def world(*, given_up: str = "") -> FaultWorld:
    mirror = SimpleNamespace(
        link=SimpleNamespace(destination="B"), given_up=lambda: {"A.linkflap-recreated.f": given_up}
    )
    clusters = {name: SimpleNamespace(name=name) for name in "AB"}
    return cast(
        FaultWorld,
        SimpleNamespace(deployment=SimpleNamespace(clusters=clusters), mirrors={"A->B": mirror}),
    )


@pytest.mark.parametrize(
    ("log", "given_up"),
    [(NEW_LOG, ""), (NEW_LOG, SAYS), ([NEW_LOG[0], *NEW_LOG], ""), (OLD_LOG, SAYS)],
    ids=[
        "the new one",
        "the new one, given up since",
        "a repeat at least once",
        "the old one, given up",
    ],
)
def test_a_copy_of_one_topic_is_accepted(log: list[str], given_up: str) -> None:
    found = copied(log, given_up)
    assert (found.sound, found.mixed) == (True, False)


@pytest.mark.parametrize(
    ("log", "given_up", "mixed", "said"),
    [
        (
            [*OLD_LOG, *NEW_LOG],
            "",
            True,
            "20 records of the deleted topic and 50 of the new one, behind one another",
        ),
        (
            [*OLD_LOG, *NEW_LOG[OLD:]],
            SAYS,
            True,
            "20 records of the deleted topic and 30 of the new one",
        ),
        ([*OLD_LOG, NEW_LOG[0]], "", True, "and 1 of the new one"),
        ([NEW_LOG[0], *OLD_LOG], "", True, "in one another"),
        (OLD_LOG, "", False, "its mirror does not report that it stopped mirroring the topic"),
        (OLD_LOG[1:], SAYS, False, "19 records of the deleted topic"),
        ([], SAYS, False, "0 records of the deleted topic"),
        (NEW_LOG[1:], "", False, "49 of 50 records of the new topic"),
        ([*NEW_LOG[1:], NEW_LOG[0]], "", False, "50 of 50"),
        ([*NEW_LOG, "stranger"], "", False, "and 1 of neither"),
        ([*OLD_LOG, "stranger"], SAYS, False, "and 1 of neither"),
    ],
)
def test_a_copy_of_both_or_of_less_is_not_accepted(
    log: list[str], given_up: str, mixed: bool, said: str
) -> None:
    found = copied(log, given_up)
    assert (found.sound, found.mixed) == (False, mixed)
    assert said in found.words


def test_a_log_of_both_topics_is_not_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    here = world(given_up=SAYS)
    fault = TopicRecreated(recreation_spec(fault_id="f"), here)
    monkeypatch.setattr(fault, "_read", lambda _cluster: [*OLD_LOG, *NEW_LOG])
    with pytest.raises(
        FaultError, match="on B has 20 records of the deleted topic and 50 of the new one"
    ):
        fault._settled(here.mirrors["A->B"])


def test_a_mirror_that_says_that_it_gave_the_topic_up_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = world(given_up=SAYS)
    fault = TopicRecreated(recreation_spec(fault_id="f"), here)
    monkeypatch.setattr(fault, "_read", lambda _cluster: OLD_LOG)
    assert SAYS in fault._settled(here.mirrors["A->B"])


def test_recreation_on_a_cluster_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="A, B"):
        TopicRecreated(recreation_spec("C"), world())


def test_recreated_topics_are_not_judged_nor_reported_when_a_mirror_gives_them_up() -> None:
    topic = TopicRecreated(recreation_spec(), world())._topic
    assert topic == "A.linkflap-recreated.1-topic-recreated"
    assert is_recreated(topic)
    assert not is_data_topic(topic, ("A",))
    assert is_data_topic("A.orders", ("A",))
    assert not is_recreated("A.orders")
    assert list(_given_up([TopicGivenUp(link="A->B", topic=topic, reason=SAYS)])) == []
    assert list(_given_up([TopicGivenUp(link="A->B", topic="A.t", reason=SAYS)])) == [
        f"the mirror of A->B gave a topic up: {SAYS}"
    ]


def test_topic_recreated_is_drawn_only_if_named_and_only_with_kept_offsets() -> None:
    named = GeneratorBounds(faults=("topic-recreated", "link-cut"))
    assert "topic-recreated" in {fault.fault for fault in drawn(named)}
    for bounds in (replace(named, mirrors=("mm2",)), GeneratorBounds()):
        assert "topic-recreated" not in {fault.fault for fault in drawn(bounds)}
