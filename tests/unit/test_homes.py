"""Where topics of any name are at home, and which of them are not judged."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec
import pytest

from linkflap.harness.model.events import Event, Promotion, WireRecorded
from linkflap.harness.model.topology import (
    ANY_NAME,
    Topology,
    is_among,
    is_data_topic,
    topic_pattern,
)
from linkflap.spark_verify.read.plan import inferred_homes, judged_events
from linkflap.topologies import parse

BOTH = {"A": ["t"], "B": ["t"]}
BACK = Promotion(link="B->A", cluster="A", topic="t", partition=0, offset=9, time=70)
PROMOTED = Promotion(link="A->B", cluster="B", topic="t", partition=0, offset=9, time=50)


def wrote(cluster: str, asked: int, accepted: int, topic: str = "t") -> WireRecorded:
    return WireRecorded(
        cluster=cluster, connections=1, requests=1, batches=1, acknowledged=1, by_leader=0,
        unpromised=0, unread={}, passed={}, written={topic: (asked, accepted)},
    )  # fmt: skip


HOMES: Mapping[str, tuple[list[Event], Mapping[str, Collection[str]], str]] = {
    "mirrored": ([wrote("A", 1, 2)], BOTH, "A"),
    "written where the link leads": ([wrote("B", 1, 2)], {"B": ["t"]}, "B"),
    "of both only the second was written": ([wrote("B", 1, 2)], BOTH, "B"),
    "never acknowledged": ([wrote("A", 1, 0)], BOTH, "A"),
    "never written": ([], BOTH, "A"),
    "made on the second cluster alone": ([], {"A": [], "B": ["t"]}, "B"),
    "after its failover": ([wrote("B", 60, 61), wrote("A", 1, 2), PROMOTED], BOTH, "A"),
    "refused before it": ([wrote("B", 3, 61), wrote("A", 1, 2), PROMOTED], BOTH, "A"),
    "refused at home": ([wrote("A", 1, 0), wrote("B", 60, 61), PROMOTED], BOTH, "A"),
    "only after its failover": ([wrote("B", 60, 61), PROMOTED], BOTH, "A"),
    "on the second cluster alone, before a failover": ([wrote("B", 1, 2), PROMOTED], BOTH, "B"),
    "made and written there alone": ([wrote("B", 60, 61), PROMOTED], {"A": [], "B": ["t"]}, "B"),
}


@pytest.mark.parametrize("case", HOMES)
def test_a_topic_is_at_home_where_it_was_written_first(case: str) -> None:
    events, captured, home = HOMES[case]
    found = inferred_homes(parse("A->B"), events, captured)
    assert (found.of, found.doubts) == ({"t": home}, [])


DOUBTS: Mapping[str, tuple[list[Event], Mapping[str, Collection[str]], str]] = {
    "written on both": ([wrote("A", 1, 2), wrote("B", 3, 4)], BOTH, "on A and on B"),
    "on both, never accepted": ([wrote("A", 1, 2), wrote("B", 3, 0)], BOTH, "on A and on B"),
    "before its failover": (
        [wrote("A", 1, 2), wrote("B", 3, 49), PROMOTED],
        BOTH,
        "no failover had promoted it",
    ),
    "failed back from where it was written first": (
        [wrote("B", 60, 61), BACK],
        BOTH,
        "a failback carried it where no link",
    ),
    "deleted at home": ([wrote("A", 1, 2)], {"A": [], "B": ["t"]}, "is not there any more"),
    "deleted": ([wrote("A", 1, 2)], {}, "is not there any more"),
    "of Kafka's names": ([wrote("A", 1, 2, "t-internal")], {}, "give it another name"),
}


@pytest.mark.parametrize("case", DOUBTS)
def test_a_topic_whose_home_is_in_doubt_is_named_and_not_judged(case: str) -> None:
    events, captured, says = DOUBTS[case]
    found = inferred_homes(parse("A->B"), events, captured)
    assert not found.of
    assert len(found.doubts) == 1
    assert says in found.doubts[0]


def deleted(unsure: int, done: int) -> WireRecorded:
    return msgspec.structs.replace(wrote("A", 1, 2), deleted={"t": (unsure, done)})


@pytest.mark.parametrize(
    ("report", "captured", "named", "doubts", "home"),
    [
        (deleted(0, 1), {"A": [], "B": ["t"]}, True, "", None),
        (deleted(0, 1), BOTH, True, "", None),  # and made again
        (deleted(1, 0), {"A": [], "B": ["t"]}, True, "", None),
        (deleted(1, 0), BOTH, True, "whether the one that is there is the same", None),
        (deleted(0, 0), BOTH, False, "", "A"),  # refused
        (deleted(0, 0), {"A": [], "B": ["t"]}, False, "is not there any more", None),
    ],
)
def test_a_topic_that_a_program_deleted_is_named_and_leaves_no_doubt_of_the_others(
    report: WireRecorded,
    captured: Mapping[str, Collection[str]],
    named: bool,
    doubts: str,
    home: str | None,
) -> None:
    events = [report, wrote("A", 1, 2, "other")]
    with_other = {name: [*topics, "other"] for name, topics in captured.items()}
    found = inferred_homes(parse("A->B"), events, with_other)
    assert found.of == {"other": "A"} | ({"t": home} if home else {})
    assert ("t" in found.deleted, len(found.doubts)) == (named, bool(doubts))
    assert all(doubts in doubt for doubt in found.doubts)


def test_failover_promotes_no_topic_at_home_on_its_destination() -> None:
    back = Promotion(link="B->A", cluster="A", topic="t", partition=0, offset=9, time=70)
    events = [wrote("A", 1, 2), PROMOTED, back]
    assert judged_events(parse("A->B"), events, {"t": "A"}) == events
    assert judged_events(parse("A->B"), events, {"t": "B"}) == [events[0], back]
    assert judged_events(parse("A->B"), events, {}) == [events[0]]


def test_two_sources_that_write_one_topic_leave_a_doubt() -> None:
    events = [wrote("A", 1, 2), wrote("B", 3, 4)]
    found = inferred_homes(parse("A->C, B->C"), events, {"A": ["t"], "B": ["t"], "C": ["t"]})
    assert not found.of


DATA = ["orders", "A.orders", "a.b.c", "_schemas", "app-KTABLE-changelog", "x.replica", "internal"]
NO_DATA = [
    "__consumer_offsets", ".hidden", "connect-internal", "A.checkpoints.internal", "heartbeats",
    "A.heartbeats", "A.linkflap-canary", "A.linkflap-recreated.1", "mm2-offsets.A.internal",
]  # fmt: skip


def test_all_topics_are_data_but_those_of_kafka_and_of_mirrors() -> None:
    assert [name for name in DATA + NO_DATA if is_data_topic(name, ("A", ANY_NAME))] == DATA
    assert [name for name in DATA + NO_DATA if is_among(name, {ANY_NAME})] == DATA
    assert not any(is_data_topic(name, ("A",)) for name in ("orders", "B.orders"))
    assert is_among("A.x", {"A.x"})
    assert not is_among("orders", {"A.x"})


def test_mirrors_are_asked_for_all_that_is_data() -> None:
    pattern = topic_pattern(("A", ANY_NAME))
    assert all(re.fullmatch(pattern, name) for name in DATA)
    assert "\\" not in pattern  # an escape in a properties file
    assert not re.fullmatch(pattern, "__consumer_offsets")


@pytest.mark.parametrize(
    ("arrows", "cycle"),
    [("A->B", False), ("A->C, B->C, C->D", False), ("A<->B", True), ("A->B->C->A", True)],
)
def test_links_that_lead_back_are_a_cycle(arrows: str, cycle: bool) -> None:
    topology: Topology = parse(arrows)
    assert topology.has_cycle is cycle
