"""What admins request of a running mirror: verbs that do not promote, its coordinator, the
addresses of its source."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from linkflap.harness import mirrors
from linkflap.harness.mirrors.cluster_mirroring.admin import DescribeRow, MirrorAdmin, VerbRefused
from linkflap.harness.mirrors.cluster_mirroring.administration import (
    Rule,
    Write,
    code_of,
    one_each,
    partition_of,
    played,
    steps_of,
)
from linkflap.harness.mirrors.cluster_mirroring.verbs import MIRRORING, MirrorModel, Verb, expected
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.events import Event, Kind, SourceMoved, VerbsPlayed, stamped
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec, Scenario
from linkflap.topologies import parse

TOPICS = ["A.x", "A.y"]


def refusing(topics: Collection[str]) -> list[Write]:
    """A destination of two brokers, both of which refuse writes as the KIP says."""
    return [Write(broker=n, topic=min(topics), partition=n, code=134) for n in (1, 2)]


class Modelled:
    """A build that answers as the model does, except for the answers in `wrong`. Its canary is
    mirrored all the time."""

    def __init__(self, wrong: dict[str, str] | None = None) -> None:
        self.world, self.wrong = (
            MirrorModel(exists=True, topics=dict.fromkeys(TOPICS, MIRRORING)),
            wrong or {},
        )

    def ask(self, asked: Verb) -> str:
        if asked.words in self.wrong:
            return self.wrong[asked.words]
        wanted = expected(self.world, asked)
        self.world = wanted.after
        return min(wanted.errors, default="")

    def describe(self) -> list[DescribeRow]:
        states = {**self.world.topics, "A.linkflap-canary": MIRRORING}
        return [
            DescribeRow(
                topic=t,
                partition=0,
                state=s,
                source_offset=-1,
                destination_offset=-1,
                lag=-1,
                retries=0,
                error="",
            )
            for t, s in states.items()
        ]


def test_every_sequence_begins_with_a_pause_and_promotes_nothing() -> None:
    for seed in range(20):
        steps = steps_of(f"verbs-1 {seed}", TOPICS, 12)
        assert len(steps) == 12
        assert steps[0] == (Verb(name="pause", topics=("A.x", "A.y")),)
        assert "stop" not in {verb.name for step in steps for verb in step}
        assert steps == steps_of(f"verbs-1 {seed}", TOPICS, 12)


def test_a_mirror_that_does_as_the_kip_says_agrees_and_is_not_deleted() -> None:
    build = Modelled()
    event, found = played(build, "A->B", TOPICS, "verbs-1 7", 20, refusing, within=5)
    assert (event.wrong, event.topic, event.unanswered) == (None, None, None)
    assert len(event.steps) == 20
    assert found.asked >= 20
    assert 0 < found.changed < found.asked, "some are refused"
    assert build.world.exists


def test_a_disagreement_is_reported_with_a_topic_and_ends_the_sequence() -> None:
    build = Modelled({"pause A.x A.y": "UNKNOWN_CLUSTER_MIRROR"})
    event, found = played(build, "A->B", TOPICS, "verbs-1 7", 20, refusing, within=1)
    assert (
        event.wrong == "pause A.x A.y was refused with UNKNOWN_CLUSTER_MIRROR, expected: accepted"
    )
    assert (event.topic, len(event.steps), found.changed, found.wrong) == ("A.x", 1, 0, event.wrong)


def test_a_verb_without_an_answer_disagrees_with_nothing() -> None:
    event, found = played(
        Modelled({"pause A.x A.y": "NO_ANSWER"}),
        "A->B",
        TOPICS,
        "verbs-1 7",
        20,
        refusing,
        within=1,
    )
    assert (event.wrong, event.topic, event.unanswered) == (None, None, "pause A.x A.y: NO_ANSWER")
    assert found.unanswered == event.unanswered
    assert not found.wrong


def test_each_broker_refuses_a_write_to_a_mirrored_topic() -> None:
    event, found = played(Modelled(), "A->B", TOPICS, "verbs-1 7", 20, refusing, within=5)
    assert event.writes == (
        "a write to A.x-1 on broker 1 was refused with 134",
        "a write to A.x-2 on broker 2 was refused with 134",
    )
    assert not found.wrong


@pytest.mark.parametrize(("code", "said"), [(0, "acknowledged"), (29, "refused with 29"), (-1, "")])
def test_a_broker_that_takes_a_write_disagrees_and_one_that_does_not_answer_does_not(
    code: int, said: str
) -> None:
    def write(topics: Collection[str]) -> list[Write]:
        return [*refusing(topics), Write(broker=3, topic="A.y", partition=0, code=code)]

    event, found = played(Modelled(), "A->B", TOPICS, "verbs-1 7", 20, write, within=5)
    wanted = (
        f"a write to A.y-0 on broker 3 was {said}, expected: refused with READ_ONLY_TOPIC (134)"
    )
    assert found.wrong == (wanted if said else "")
    assert (event.wrong, event.topic) == ((wanted, "A.y") if said else (None, None))
    assert len(event.writes or ()) == 3


def test_every_broker_that_leads_is_asked_once() -> None:
    leaders = {("A.x", 0): 2, ("A.x", 1): 1, ("A.x", 2): 2, ("A.x", 3): -1}
    assert one_each(leaders) == {1: ("A.x", 1), 2: ("A.x", 0)}


def test_a_clients_local_or_retriable_error_proves_nothing() -> None:
    assert code_of(None) == 0
    assert code_of(KafkaError(134)) == 134
    assert code_of(KafkaError(KafkaError._MSG_TIMED_OUT)) == -1
    assert code_of(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION, "moved", False, True)) == -1


@pytest.mark.parametrize(
    ("name", "partitions", "number"),
    [("A-B", 5, 1), ("A-B", 50, 26), ("polygenelubricants", 7, 0), ("", 5, 0)],
)
def test_the_coordinating_partition_is_by_javas_hash(
    name: str, partitions: int, number: int
) -> None:
    assert partition_of(name, partitions) == number


class Admin:
    """The settings and verbs of a mirror, as its admin returns them."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses, self.values, self.states, self.resumed = (
            refuses,
            {"bootstrap.servers": "h:2,h:1"},
            ["PAUSED"],
            list[Any](),
        )
        self.created: list[Mapping[str, str]] = []

    def setting(self, name: str, setting: str) -> str:
        if self.refuses:
            raise VerbRefused("describe-configs", "NO_ANSWER", -1, "nobody")
        return self.values[setting]

    def change(self, name: str, setting: str, value: str) -> None:
        if self.refuses:
            raise VerbRefused("alter-configs", "INVALID_REQUEST", 42, "no")
        self.values[setting] = value

    def describe(self, name: str) -> list[DescribeRow]:
        return [
            DescribeRow(
                topic="A.x",
                partition=n,
                state=s,
                source_offset=-1,
                destination_offset=-1,
                lag=-1,
                retries=0,
                error="",
            )
            for n, s in enumerate(self.states)
        ]

    def create(self, name: str, configs: Mapping[str, str]) -> None:
        self.created.append(configs)
        raise VerbRefused("create", "CLUSTER_MIRROR_ALREADY_EXISTS", 136, "it is there")

    def pause(self, name: str, topics: tuple[str, ...]) -> None:
        if self.states == ["PAUSED"]:
            raise VerbRefused("pause", "MIRROR_TOPIC_ALREADY_PAUSED", 140, "it is paused")
        self.states = ["PAUSED"]

    def start(self, name: str, topics: tuple[str, ...], patterns: Sequence[str]) -> None:
        raise VerbRefused("start", "INVALID_CLUSTER_MIRROR_STATES", 145, "it is mirrored")

    def delete(self, name: str) -> None:
        raise VerbRefused("delete", "CLUSTER_MIRROR_NOT_EMPTY", 143, "it has topics")

    def resume(self, name: str, topics: tuple[str, ...]) -> None:
        if self.states == ["MIRRORING"]:
            raise VerbRefused("resume", "MIRROR_TOPIC_NOT_PAUSED", 141, "it is mirrored")
        self.resumed.append(topics)
        self.states = ["MIRRORING"]


def rule(admin: Admin, written: list[Event] | None = None, leader: int = 2) -> Rule:
    class Recorder:
        def write(self, event: Kind, /) -> Kind:
            (written if written is not None else []).append(event)
            return stamped(event)

    partitions = {n: SimpleNamespace(leader=leader if n == 1 else 9) for n in range(5)}
    here = SimpleNamespace(
        list_topics=lambda *_, **__: SimpleNamespace(
            topics={"__mirror_state": SimpleNamespace(partitions=partitions)}
        )
    )
    return Rule(
        "A-B",
        "A->B",
        cast(MirrorAdmin, admin),
        cast(Any, here),
        Recorder(),
        "bootstrap.servers",
        {"bootstrap.servers": "h:1"},
        refusing,
    )


def test_the_coordinator_leads_the_partition_of_the_mirrors_name() -> None:
    assert rule(Admin()).coordinator() == 2
    assert rule(Admin(), leader=-1).coordinator() is None


def test_addresses_of_the_source_are_read_and_changed() -> None:
    written: list[Event] = []
    of = rule(Admin(), written)
    assert of.source_addresses() == ["h:1", "h:2"]
    of.move_source(["h:3"])
    assert of.source_addresses() == ["h:3"]
    assert [event.addresses for event in written if isinstance(event, SourceMoved)] == [("h:3",)]


def test_settings_that_are_refused_are_a_fault_that_cannot_be() -> None:
    with pytest.raises(
        FaultError,
        match=r"the source addresses of mirror .* could not be changed: .*INVALID_REQUEST \(42\)",
    ):
        rule(Admin(refuses=True)).move_source(["h:3"])
    with pytest.raises(FaultError, match="could not be read"):
        rule(Admin(refuses=True)).source_addresses()


def test_paused_topics_are_resumed_until_all_are_mirrored() -> None:
    admin = Admin()
    assert rule(admin).resume_all(["A.x"]) == ["A.x"]
    assert admin.resumed == [("A.x",)]


@pytest.mark.parametrize("kind", ["shadow", "mm2"])
def test_other_mirrors_are_processes_and_have_no_object_for_these_faults(kind: str) -> None:
    fault = FaultSpec(id="f", fault="mirror-verbs", target="A->B", at=0, duration=1)
    scenario = Scenario(
        name="s",
        about="",
        seed=0,
        topology=parse("A->B"),
        mirror=MirrorSpec(kind=kind),
        workloads=(),
        schedule=(fault,),
    )
    with pytest.raises(
        InputError, match=r"NOT APPLICABLE: fault 'f' \(mirror-verbs\) does not apply to mirror"
    ):
        mirrors.check_played(scenario)


def test_verbs_are_requested_with_the_settings_of_the_mirror_and_recorded() -> None:
    admin, written = Admin(), list[Event]()
    admin.states = ["MIRRORING"]
    played = rule(admin, written).play_verbs(["A.x"], "verbs-1 3", 30)
    assert not played.wrong
    assert admin.created, "a create that has to be refused was asked for"
    assert all(configs == {"bootstrap.servers": "h:1"} for configs in admin.created), (
        "the source is asked before a create is sent"
    )
    (event,) = (event for event in written if isinstance(event, VerbsPlayed))
    assert len(event.steps) == 30
    assert event.wrong is None
