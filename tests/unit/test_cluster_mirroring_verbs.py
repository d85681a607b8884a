"""Verbs of a cluster mirror against their model; what the bytes and the topics of both clusters
show afterwards."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict, Unpack, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from linkflap.harness import mirrors
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.mirrors.cluster_mirroring import logs, mirror
from linkflap.harness.mirrors.cluster_mirroring.admin import (
    MIRRORING,
    DescribeRow,
    MirrorAdmin,
    VerbRefused,
)
from linkflap.harness.mirrors.cluster_mirroring.administration import (
    Administration,
    Write,
    code_of,
    one_each,
    play_in_use,
    steps_of,
)
from linkflap.harness.mirrors.cluster_mirroring.comparison import (
    LEFT_OUT,
    acls_of,
    agreed,
    agrees,
    compared,
    make_acls,
    with_acls,
)
from linkflap.harness.mirrors.cluster_mirroring.logs import TruncationWatch
from linkflap.harness.mirrors.cluster_mirroring.verbs import (
    NAMES,
    NOTHING,
    PAUSED,
    STOPPED,
    MirrorModel,
    Name,
    Verb,
    expected,
    explained,
    known,
    play,
    sequence,
)
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.events import (
    ComparedTopic,
    Event,
    Kind,
    SourceMoved,
    VerbsPlayed,
    stamped,
)
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import LinkSpec
from tests.copied_logs import KIP_1279, kip_1279_log
from tests.scenarios import scenario_of
from tests.waiting import eventually

TOPICS = ["A.x", "A.y"]


def refusing(topics: Collection[str]) -> list[Write]:
    """A destination of two brokers, both of which refuse writes as the KIP says."""
    return [Write(broker=n, topic=min(topics), partition=n, code=134) for n in (1, 2)]


def row(topic: str, state: str, partition: int = 0, **fields: Unpack[RowFields]) -> DescribeRow:
    """A row of describe for a partition with an unknown lag."""
    unknown = DescribeRow(
        topic=topic,
        partition=partition,
        state=state,
        lag=-1,
        retries=0,
        error="",
    )
    return replace(unknown, **fields)


class RowFields(TypedDict, total=False):
    """The other fields of a row."""

    lag: int
    retries: int
    error: str


class Modelled:
    """A build that answers as the model does, except for the answers in `wrong`. `beside`: what
    else it describes."""

    def __init__(
        self,
        wrong: dict[str, list[str]] | None = None,
        *,
        deaf: bool = False,
        began: MirrorModel = NOTHING,
        beside: Sequence[DescribeRow] = (),
    ) -> None:
        self.world, self.wrong, self.deaf, self.beside = began, wrong or {}, deaf, beside

    def ask(self, asked: Verb) -> str:
        if planned := self.wrong.get(asked.words):
            return planned.pop(0)
        wanted = expected(self.world, asked)
        if not (self.deaf and asked.name == "stop"):
            self.world = wanted.after
        return min(wanted.errors, default="")

    def describe(self) -> list[DescribeRow]:
        return [row(t, s, n) for t, s in self.world.topics.items() for n in range(2)] + [
            *self.beside
        ]


def in_use(wrong: dict[str, list[str]] | None = None) -> Modelled:
    """A build whose canary is mirrored all the time, as are its topics at first."""
    began = MirrorModel(exists=True, topics=dict.fromkeys(TOPICS, MIRRORING))
    return Modelled(wrong, began=began, beside=[row("A.linkflap-canary", MIRRORING)])


def test_every_sequence_begins_with_a_pause_and_promotes_nothing() -> None:
    for seed in range(20):
        steps = steps_of(f"verbs-1 {seed}", TOPICS, 12)
        assert len(steps) == 12
        assert steps[0] == (Verb(name="pause", topics=("A.x", "A.y")),)
        assert "stop" not in {verb.name for step in steps for verb in step}
        assert steps == steps_of(f"verbs-1 {seed}", TOPICS, 12)


def test_a_mirror_that_does_as_the_kip_says_agrees_and_is_not_deleted() -> None:
    build = in_use()
    event, found = play_in_use(build, "A->B", TOPICS, "verbs-1 7", 20, refusing, within=60)
    assert (event.wrong, event.topic, event.unanswered) == (None, None, None)
    assert len(event.steps) == 20
    assert found.asked >= 20
    assert 0 < found.changed < found.asked, "some are refused"
    assert build.world.exists


def test_a_disagreement_is_reported_with_a_topic_and_ends_the_sequence() -> None:
    build = in_use({"pause A.x A.y": ["UNKNOWN_CLUSTER_MIRROR"]})
    event, found = play_in_use(build, "A->B", TOPICS, "verbs-1 7", 20, refusing, within=1)
    assert (
        event.wrong == "pause A.x A.y was refused with UNKNOWN_CLUSTER_MIRROR, expected: accepted"
    )
    assert (event.topic, len(event.steps), found.changed, found.wrong) == ("A.x", 1, 0, event.wrong)


def test_a_verb_without_an_answer_disagrees_with_nothing() -> None:
    event, found = play_in_use(
        in_use({"pause A.x A.y": ["NO_ANSWER"]}),
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
    event, found = play_in_use(in_use(), "A->B", TOPICS, "verbs-1 7", 20, refusing, within=60)
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

    event, found = play_in_use(in_use(), "A->B", TOPICS, "verbs-1 7", 20, write, within=60)
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
        return [row("A.x", s, n) for n, s in enumerate(self.states)]

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


def administration(
    admin: Admin, written: list[Event] | None = None, leader: int = 2
) -> Administration:
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
    return Administration(
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
    assert administration(Admin()).coordinator() == 2
    assert administration(Admin(), leader=-1).coordinator() is None


def test_addresses_of_the_source_are_read_and_changed() -> None:
    written: list[Event] = []
    of = administration(Admin(), written)
    assert of.source_addresses() == ["h:1", "h:2"]
    of.move_source(["h:3"])
    assert of.source_addresses() == ["h:3"]
    assert [event.addresses for event in written if isinstance(event, SourceMoved)] == [("h:3",)]


def test_settings_that_are_refused_are_a_fault_that_cannot_be() -> None:
    with pytest.raises(
        FaultError,
        match=r"the source addresses of mirror .* could not be changed: .*INVALID_REQUEST \(42\)",
    ):
        administration(Admin(refuses=True)).move_source(["h:3"])
    with pytest.raises(FaultError, match="could not be read"):
        administration(Admin(refuses=True)).source_addresses()


def test_paused_topics_are_resumed_until_all_are_mirrored() -> None:
    admin = Admin()
    assert administration(admin).resume_all(["A.x"]) == ["A.x"]
    assert admin.resumed == [("A.x",)]


@pytest.mark.parametrize("kind", ["shadow", "mm2"])
def test_other_mirrors_are_processes_and_have_no_object_for_these_faults(kind: str) -> None:
    fault = FaultSpec(id="f", fault="mirror-verbs", target="A->B", at=0, duration=1)
    scenario = scenario_of(mirror=kind, schedule=(fault,))
    with pytest.raises(
        InputError, match=r"NOT APPLICABLE: fault 'f' \(mirror-verbs\) does not apply to mirror"
    ):
        mirrors.check_played(scenario)


def test_verbs_are_requested_with_the_settings_of_the_mirror_and_recorded() -> None:
    admin, written = Admin(), list[Event]()
    admin.states = ["MIRRORING"]
    played = administration(admin, written).play_verbs(["A.x"], "verbs-1 3", 30)
    assert not played.wrong
    assert admin.created, "a create that has to be refused was asked for"
    assert all(configs == {"bootstrap.servers": "h:1"} for configs in admin.created), (
        "the source is asked before a create is sent"
    )
    (event,) = (event for event in written if isinstance(event, VerbsPlayed))
    assert len(event.steps) == 30
    assert event.wrong is None


NO_MIRROR = MirrorModel()
EMPTY = MirrorModel(exists=True)


def at(**states: str) -> MirrorModel:
    return MirrorModel(exists=True, topics=states)


def verb(name: Name, *topics: str) -> Verb:
    return Verb(name=name, topics=topics)


@pytest.mark.parametrize(
    ("world", "asked", "after"),
    [
        (NO_MIRROR, verb("create"), EMPTY),
        (EMPTY, verb("start", "x"), at(x=MIRRORING)),
        (at(x=STOPPED), verb("start", "x", "y"), at(x=MIRRORING, y=MIRRORING)),
        (at(x=MIRRORING, y=MIRRORING), verb("pause", "x"), at(x=PAUSED, y=MIRRORING)),
        (at(x=PAUSED), verb("resume", "x"), at(x=MIRRORING)),
        (at(x=MIRRORING, y=PAUSED), verb("stop", "x", "y"), at(x=STOPPED, y=STOPPED)),
        (at(x=STOPPED, y=STOPPED), verb("delete"), NO_MIRROR),
        (EMPTY, verb("delete"), NO_MIRROR),
    ],
)
def test_accepted_verbs_and_the_states_that_they_lead_to(
    world: MirrorModel, asked: Verb, after: MirrorModel
) -> None:
    wanted = expected(world, asked)
    assert (wanted.errors, wanted.after) == (frozenset(), after)
    assert wanted.fits("")
    assert not wanted.fits("INVALID_CLUSTER_MIRROR_STATES")


@pytest.mark.parametrize(
    ("world", "asked", "error"),
    [
        (EMPTY, verb("create"), "CLUSTER_MIRROR_ALREADY_EXISTS"),
        *(
            (NO_MIRROR, verb(name, "x"), "UNKNOWN_CLUSTER_MIRROR")
            for name in NAMES
            if name != "create"
        ),
        (at(x=MIRRORING), verb("start", "x"), "INVALID_CLUSTER_MIRROR_STATES"),
        (at(x=PAUSED), verb("start", "x"), "INVALID_CLUSTER_MIRROR_STATES"),
        (at(x=MIRRORING, y=PAUSED), verb("pause", "x", "y"), "INVALID_CLUSTER_MIRROR_STATES"),
        (at(x=MIRRORING), verb("resume", "x"), "MIRROR_TOPIC_NOT_PAUSED"),
        (at(x=STOPPED), verb("resume", "x"), "INVALID_CLUSTER_MIRROR_STATES"),
        (at(x=MIRRORING, y=STOPPED), verb("stop", "x", "y"), "INVALID_CLUSTER_MIRROR_STATES"),
        (at(x=MIRRORING), verb("stop", "z"), "TOPIC_NOT_IN_CLUSTER_MIRROR"),
        (at(x=STOPPED, y=PAUSED), verb("delete"), "CLUSTER_MIRROR_NOT_EMPTY"),
    ],
)
def test_refused_verbs_change_no_topic(world: MirrorModel, asked: Verb, error: str) -> None:
    wanted = expected(world, asked)
    assert wanted.after == world
    assert wanted.fits(error)
    assert not wanted.fits("")
    assert not wanted.fits("UNKNOWN_SERVER_ERROR")


def test_verbs_of_two_admins_are_explained_by_an_order() -> None:
    start, stop, pause = verb("start", "x"), verb("stop", "x"), verb("pause", "x")
    assert explained(EMPTY, [(start, ""), (stop, "")]) == [at(x=STOPPED)], "started, then stopped"
    assert explained(EMPTY, [(start, ""), (stop, "INVALID_CLUSTER_MIRROR_STATES")]) == [
        at(x=MIRRORING)
    ], "stopped first: refused"
    assert explained(at(x=MIRRORING), [(pause, ""), (stop, "")]) == [at(x=STOPPED)]
    assert explained(EMPTY, [(start, ""), (start, "")]) == [], "the second one has to be refused"
    assert explained(NO_MIRROR, [(start, "")]) == []
    both = explained(at(x=STOPPED, y=STOPPED), [(start, ""), (verb("start", "y"), "")])
    assert both == [at(x=MIRRORING, y=MIRRORING)]


def test_sequences_are_a_function_of_their_seed_and_reach_every_verb() -> None:
    assert list(sequence(7, ["x", "y"], 40)) == list(sequence(7, ["x", "y"], 40))
    steps = list(sequence(7, ["x", "y"], 60))
    assert {one.name for step in steps for one in step} == set(NAMES)
    assert {len(step) for step in steps} == {1, 2}
    world = MirrorModel()
    legal = list(sequence(7, ["x", "y"], 60, legal=True))
    for (one,) in legal:
        wanted = expected(world, one)
        assert not wanted.errors
        world = wanted.after
    assert len({one.name for (one,) in legal}) >= 5


def test_known_defects_of_the_build_are_recognised() -> None:
    assert known(NO_MIRROR, verb("start", "x")) == "start-without-a-mirror"
    assert known(at(x=PAUSED, y=MIRRORING), verb("stop", "x", "y")) == "stop-of-a-paused-topic"
    assert known(at(x=STOPPED), verb("delete")) == "created-anew"
    others: list[tuple[MirrorModel, Name]]
    others = [
        (EMPTY, "start"),
        (at(x=MIRRORING), "stop"),
        (EMPTY, "delete"),
        (at(x=MIRRORING), "delete"),
        (NO_MIRROR, "create"),
    ]
    assert not [name for world, name in others if known(world, verb(name, "x"))]


def test_sequences_without_known_disagreements_continue() -> None:
    steps = list(sequence(11, ["x", "y"], 60, but_known=True))
    world = MirrorModel()
    for step in steps:
        for one in step:
            assert not known(world, one)
            world = expected(world, one).after
    assert {one.name for step in steps for one in step} == set(NAMES)
    assert any(known(NO_MIRROR, one) for step in sequence(2, ["x", "y"], 5) for one in step)


def test_a_build_that_does_as_the_kip_says_agrees() -> None:
    steps = [(one,) for step in sequence(3, ["x", "y"], 40) for one in step]
    seen = play(Modelled(), steps, within=60)
    assert len(seen) == len(steps)
    assert not [step for step in seen if step.wrong]
    assert any(answer for step in seen for _, answer in step.answers), "some were refused"


def test_a_verb_that_is_accepted_where_the_kip_refuses_it_ends_the_sequence() -> None:
    steps = [(verb("create"),), (verb("delete"),), (verb("start", "x"),), (verb("create"),)]
    seen = play(Modelled({"start x": [""]}), steps, within=60)
    assert [step.wrong for step in seen] == [
        "",
        "",
        "start x was accepted, expected: UNKNOWN_CLUSTER_MIRROR",
    ]
    assert seen[-1].words.startswith("[no mirror] start x: accepted -- ")


def test_a_verb_that_is_accepted_and_changes_nothing_is_a_disagreement() -> None:
    steps = [(verb("create"),), (verb("start", "x"),), (verb("stop", "x"),)]
    seen = play(Modelled(deaf=True), steps, within=0.3)
    assert seen[-1].wrong == "after 0.3 s describe says x MIRRORING, expected: x STOPPED"


def test_a_momentary_refusal_is_counted_and_is_no_disagreement() -> None:
    refused = {"stop x": ["INVALID_CLUSTER_MIRROR_STATES"]}
    steps = [(verb("create"),), (verb("start", "x"),), (verb("stop", "x"),)]
    seen = play(Modelled(refused), steps, within=60)
    assert [(step.wrong, step.early) for step in seen] == [("", 0), ("", 0), ("", 1)]


# Topics of a cluster mirror's source and destination are compared: configs, partitions, ACLs.


ROW = ComparedTopic(topic="A.x", there=1, here=1, compared=0)


def answered(value: object) -> Future[object]:
    future: Future[object] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


def cluster(answer: object) -> AdminClient:
    def create_acls(asked: list[AclBinding], **_: object) -> dict[AclBinding, Future[object]]:
        return {acl: answered(answer) for acl in asked}

    fake = SimpleNamespace(describe_acls=lambda _, **__: answered(answer), create_acls=create_acls)
    return cast(AdminClient, fake)


def refusing_comparison(code: int) -> AdminClient:
    return cluster(KafkaException(KafkaError(code)))


def reading(topic: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:r",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


def test_acls_are_by_topic_and_those_of_others_are_left_out() -> None:
    found = acls_of(cluster([reading("A.x"), reading("A.other")]), ["A.x", "A.y"])
    assert found == {"A.x": {"allow read to User:r from *"}, "A.y": set()}


def test_a_cluster_without_an_authorizer_keeps_none_and_another_refusal_is_raised() -> None:
    without = refusing_comparison(KafkaError.SECURITY_DISABLED)
    assert acls_of(without, ["A.x"]) is None
    assert not make_acls(without, ["A.x"])
    refuses = refusing_comparison(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        acls_of(refuses, ["A.x"])
    with pytest.raises(KafkaException):
        make_acls(refuses, ["A.x"])


def test_acls_are_created_on_a_cluster_that_stores_acls() -> None:
    assert make_acls(cluster(None), ["A.x"])


def test_missing_and_additional_acls_differ() -> None:
    row = with_acls(ROW, {"A.x": {"a", "b"}}, {"A.x": {"b", "c"}})
    assert (row.acls, row.missing, row.beside) == (3, ("a",), ("c",))
    assert not agrees(row)
    assert agrees(with_acls(ROW, {"A.x": {"a"}}, {"A.x": {"a"}}))


SAME = ComparedTopic(topic="A.x", there=2, here=2, compared=1)
LATE = ComparedTopic(topic="A.x", there=2, here=0, compared=0)


def test_a_topic_that_is_the_same_has_nothing_that_differs() -> None:
    there = {"A.x": {"retention.ms": "1", "min.insync.replicas": "2"}}
    here = {"A.x": {"retention.ms": "1", "mirror.name": "A-B", "min.insync.replicas": "1"}}
    assert compared({"A.x": 2}, {"A.x": 2, "A.own": 1}, there, here) == (SAME,)


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_settings_that_mirrors_do_not_sync_by_default_may_differ(name: str) -> None:
    (row,) = compared({"A.x": 1}, {"A.x": 1}, {"A.x": {name: "1"}}, {})
    assert row.differing is None


def test_a_setting_that_is_not_set_there_or_of_another_value_differs() -> None:
    there, here = (
        {"A.x": {"retention.ms": "1", "segment.ms": "2"}},
        {"A.x": {"retention.ms": "3", "delete.retention.ms": "4"}},
    )
    (row,) = compared({"A.x": 1}, {"A.x": 1}, there, here)
    assert row.differing == {
        "retention.ms": ("1", "3"),
        "segment.ms": ("2", None),
    }
    assert row.compared == 2


def test_settings_that_the_source_has_not_set_are_not_compared() -> None:
    (row,) = compared({"A.x": 1}, {"A.x": 1}, {"A.x": {}}, {"A.x": {"retention.ms": "1"}})
    assert (row.differing, row.compared) == (None, 0)


def test_a_missing_topic_is_reported_as_missing_only() -> None:
    (row,) = compared({"A.x": 2}, {}, {"A.x": {"retention.ms": "1"}}, {})
    assert (row.there, row.here, row.differing) == (2, 0, None)


def test_topic_comparison_repeats_until_all_agree_and_proves_nothing_without_answers() -> None:
    answers: Iterator[Sequence[ComparedTopic]] = iter([(LATE,), (SAME,)])
    found = agreed("A->B", lambda: next(answers), within=60)
    assert found is not None
    assert found.rows == (SAME,)
    late = agreed("A->B", lambda: (LATE,), within=0.05)
    assert late is not None
    assert late.rows == (LATE,)

    def silent() -> Sequence[ComparedTopic]:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    assert agreed("A->B", silent, within=0.05) is None


# Truncations of a log by its new mirror: recorded when the bytes show them.


def copied(folder: Path, brokers: int = 1, moment: str = "3-diverged") -> SimpleNamespace:
    """Cluster A with the log of tx-0 on each of its brokers; it diverges from B's at 21."""
    found = {}
    for number in range(1, brokers + 1):
        shutil.copytree(KIP_1279 / moment / "A" / "tx-0", folder / str(number) / "tx-0")
        found[number] = SimpleNamespace(log_dir=folder / str(number), state="running")
    return SimpleNamespace(brokers=found)


def log_file(cluster: SimpleNamespace, number: int = 1) -> Path:
    folder: Path = cluster.brokers[number].log_dir / "tx-0"
    return max(folder.glob("*.log"))


def truncate(cluster: SimpleNamespace) -> None:
    """Truncates broker 1's log where it diverges, and appends B's bytes from there on at once."""
    mine, theirs = headers("3-diverged", "A"), headers("3-diverged", "B")
    position, there = (int(h.position[(h.base_offset >= 21).argmax()]) for h in (mine, theirs))
    tail = max((KIP_1279 / "3-diverged" / "B" / "tx-0").glob("*.log")).read_bytes()[there:]
    with log_file(cluster).open("r+b") as file:
        file.truncate(position)
        file.seek(position)
        file.write(tail)


def watched(
    cluster: SimpleNamespace, source: Headers
) -> tuple[TruncationWatch, list[tuple[str, int, int, int]]]:
    noted = []
    read = logs.logs_of(cluster, [("tx", 0)])
    tails = {tp: logs.expected_tails(log, source) for tp, log in read.items()}
    return (
        logs.TruncationWatch(tails, lambda tp, where: noted.append((*tp, where.offset, where.end))),
        noted,
    )


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_truncation_is_noted_when_the_bytes_show_it_whatever_follows_at_once(
    tmp_path: Path, brokers: int
) -> None:
    cluster = copied(tmp_path, brokers)
    end = logs.end_of(headers("3-diverged", "A"))
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    assert noted == []
    truncate(cluster)
    eventually("the truncation to be noted", lambda: bool(noted))
    watch.close()
    assert noted == [("tx", 0, 21, end)]


def test_a_log_that_was_not_truncated_is_not_noted(tmp_path: Path) -> None:
    watch, noted = watched(copied(tmp_path), headers("3-diverged", "B"))
    watch.close()
    assert noted == []


def test_a_log_with_nothing_of_its_own_is_noted_when_it_grows(tmp_path: Path) -> None:
    cluster = copied(tmp_path, moment="1-before-stop")
    end = logs.end_of(headers("1-before-stop", "A"))
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    with log_file(cluster).open("ab") as file:
        file.write(b"the source's next batch")
    watch.close()
    assert noted == [("tx", 0, end, end)]


def test_a_replica_that_is_behind_grows_by_the_old_log_and_that_is_no_truncation(
    tmp_path: Path,
) -> None:
    cluster = copied(tmp_path, 2)
    whole = log_file(cluster, 2).read_bytes()
    log_file(cluster, 2).write_bytes(whole[: int(headers("3-diverged", "A").position[5])])
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    log_file(cluster, 2).write_bytes(whole)
    watch.close()
    assert noted == []


def test_truncations_are_looked_for_until_the_mirror_ends_and_not_only_until_it_mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build reports MIRRORING before it has truncated, and another topic's record has been
    mirrored by then."""
    cluster = copied(tmp_path)
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    made = object.__new__(mirror.ClusterMirror)
    made._watching, made._running, made._mirrored, made._stopping = (
        watch,
        True,
        True,
        threading.Lock(),
    )
    made.link, made._recorder = (
        LinkSpec(source="B", destination="A"),
        SimpleNamespace(write=lambda event: event),
    )
    made._destination = SimpleNamespace(brokers={})
    monkeypatch.setattr(mirror.ClusterMirror, "lag", lambda self: None)
    truncate(cluster)
    made.stop()
    assert [(partition, offset) for _, partition, offset, _ in noted] == [(0, 21)]


def test_truncation_after_the_watch_ended_is_not_noted(tmp_path: Path) -> None:
    cluster = copied(tmp_path)
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    watch.stop()
    truncate(cluster)
    watch.close()
    assert noted == []


def test_logs_that_have_something_to_lose_are_owed_until_they_lost_it(tmp_path: Path) -> None:
    (tmp_path / "tail").mkdir()
    cluster = copied(tmp_path / "tail")
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    assert watch.not_yet_truncated == [("tx", 0)]
    truncate(cluster)
    eventually("the truncation to be noted", lambda: bool(noted))
    assert watch.not_yet_truncated == []
    watch.close()
    (tmp_path / "none").mkdir()
    nothing, _ = watched(
        copied(tmp_path / "none", moment="1-before-stop"), headers("3-diverged", "B")
    )
    assert nothing.not_yet_truncated == []
    nothing.close()


def headers(moment: str, cluster: str) -> Headers:
    return kip_1279_log(moment, cluster, 0).headers
