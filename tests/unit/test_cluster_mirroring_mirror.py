"""A cluster mirror: its failover and failback, topics that it gives up, its state topic, and the
comparison of topics."""

from __future__ import annotations

import re
import struct
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Unpack, cast

import pytest

from linkflap.chaos.generator.bounds import GeneratorBounds
from linkflap.chaos.generator.coverage import Coverage
from linkflap.chaos.generator.generate import generate, playable
from linkflap.chaos.scenario_file import read
from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest
from linkflap.harness import mirrors
from linkflap.harness.machine.java import Java
from linkflap.harness.mirrors.cluster_mirroring import logs, mirror, settings, state_topic
from linkflap.harness.mirrors.cluster_mirroring.admin import (
    DescribeRow,
    MirrorAdmin,
    VerbRefused,
    given_up,
    mirroring,
    summary,
    until_accepted,
)
from linkflap.harness.mirrors.cluster_mirroring.state_topic import (
    STATES,
    LeftAligning,
    await_loaded,
    differing,
    lacking,
    latest,
)
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError, SetupError
from linkflap.harness.model.events import (
    Event,
    FailoverRefused,
    JournalPartition,
    MirrorStopped,
    MirrorVerb,
)
from linkflap.harness.model.faults import OF_BROKERS_MIRRORS
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.runtimes.distribution import cluster_mirroring
from linkflap.harness.runtimes.distribution.kafka import BROKER_CLASSES, Kafka, look_for
from linkflap.harness.runtimes.kraft.configuration import BrokerPorts, server_properties
from linkflap.topologies import parse
from tests.unit.test_cluster_mirroring_verbs import RowFields, headers, row


def mirrored_row(
    partition: int = 0, state: str = "MIRRORING", **fields: Unpack[RowFields]
) -> DescribeRow:
    known: RowFields = {"lag": 0}
    return row("A.orders", state, partition, **(known | fields))


def test_mirroring_means_a_row_of_every_partition_in_that_state() -> None:
    both = [("A.orders", 0), ("A.orders", 1)]
    assert mirroring([mirrored_row(0), mirrored_row(1)], both)
    assert not mirroring([mirrored_row(0)], both), "rows may be missing"
    assert not mirroring(
        [mirrored_row(0), mirrored_row(1, "FAILED", error="Failed to get source metadata", lag=-1)],
        both,
    )
    assert not mirroring([], [])


def test_states_are_summed_up_with_their_errors() -> None:
    rows = [
        mirrored_row(0),
        mirrored_row(1, "FAILED", error="Failed to get source metadata"),
        mirrored_row(2, "FAILED", error="Failed to get source metadata"),
    ]
    assert summary(rows) == "2 FAILED, 1 MIRRORING; Failed to get source metadata"
    assert summary([]) == "no rows"


def refused(
    times: int, name: str = "INVALID_CLUSTER_MIRROR_STATES", code: int = 145
) -> Callable[[], None]:
    left = [VerbRefused("stop", name, code, "not in the expected states")] * times

    def ask() -> None:
        if left:
            raise left.pop()

    return ask


def test_a_verb_is_asked_again_until_it_is_accepted_and_what_was_refused_is_written_down() -> None:
    notes: list[MirrorVerb] = []
    answer = until_accepted("A->B", "stop", refused(2), within=60, note=notes.append)
    assert [(n.link, n.accepted, n.tries) for n in notes] == [("A->B", True, 3)]
    assert (answer.accepted, answer.tries, answer.refused) == (
        True,
        3,
        {"INVALID_CLUSTER_MIRROR_STATES (145)": 2},
    )


def test_a_verb_that_is_refused_to_the_end_says_with_what() -> None:
    notes: list[MirrorVerb] = []
    with pytest.raises(
        VerbRefused, match=r"stop was refused with INVALID_CLUSTER_MIRROR_STATES \(145\)"
    ):
        until_accepted("A->B", "stop", refused(1000), within=0.1, note=notes.append)
    assert [n.accepted for n in notes] == [False]


def test_an_error_that_asking_again_cannot_change_is_raised_at_once() -> None:
    with pytest.raises(VerbRefused, match="ALREADY_EXISTS"):
        until_accepted(
            "A->B",
            "create",
            refused(1, "CLUSTER_MIRROR_ALREADY_EXISTS", 136),
            within=60,
            note=print,
            never="CLUSTER_MIRROR_ALREADY_EXISTS",
        )


def stopping_mirror(monkeypatch: pytest.MonkeyPatch, *states: str) -> tuple[Any, list[Event]]:
    """A mirror whose stop is accepted, and whose partitions get no reset: describe reports these
    states."""
    made: Any = object.__new__(mirror.ClusterMirror)  # with stand-ins for its parts
    written: list[Event] = []
    monkeypatch.setattr(mirror, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(logs, "every_log", lambda cluster, partitions: {})
    monkeypatch.setattr(made, "lag", lambda: 0, raising=False)
    rows = [mirrored_row(n, state) for n, state in enumerate(states)]
    made.link, made._homes, made._destination = LinkSpec(source="A", destination="B"), ("A",), None
    made._canary = "A.canary"
    made._recorder = SimpleNamespace(write=written.append)
    made._admin = SimpleNamespace(
        stop=lambda name, topics, patterns: None, describe=lambda name: rows
    )
    made._name, made._promoted, made._watching, made._stopping = (
        "A-B",
        False,
        None,
        threading.Lock(),
    )
    monkeypatch.setattr(
        made,
        "_destination_partitions",
        lambda: [("A.orders", n) for n in range(len(rows))],
        raising=False,
    )
    return made, written


def test_a_stop_that_is_accepted_and_takes_no_effect_is_a_failover_that_did_not_happen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, written = stopping_mirror(monkeypatch, "FAILED", "FAILED")
    with pytest.raises(FaultError, match=r"with ACCEPTED_WITHOUT_EFFECT \(0\)"):
        made.fail_over("forced")
    (found,) = (event for event in written if isinstance(event, FailoverRefused))
    assert (found.error, found.code, found.mode) == ("ACCEPTED_WITHOUT_EFFECT", 0, "forced")
    assert "2 FAILED" in (found.states or "")


def test_a_stop_that_is_still_under_way_is_not_said_to_be_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, written = stopping_mirror(monkeypatch, "STOPPED", "STOPPING")
    with pytest.raises(DeadlineExceeded):
        made.fail_over("forced")
    assert not [event for event in written if isinstance(event, FailoverRefused)]


def test_a_failback_that_never_mirrors_is_a_failover_that_did_not_happen_and_no_mirror_that_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, written = stopping_mirror(monkeypatch, "FAILED")

    def never(began: float) -> None:
        raise DeadlineExceeded(110.0, "every partition to be MIRRORING", "1 FAILED")

    made._there, made._source, made._reverses = None, SimpleNamespace(brokers={1: None}), object()
    made._running = made._mirrored = False
    made._options = settings.ClusterMirroringOptions(first_start=settings.AT_ONCE)
    made._admin.start = lambda name, topics, patterns: None
    made._destination = SimpleNamespace(brokers={})
    monkeypatch.setattr(mirror, "create", lambda admin, topics: None)
    monkeypatch.setattr(made, "_create", lambda: None, raising=False)
    monkeypatch.setattr(made, "_topics", lambda: {"A.orders": 1}, raising=False)
    monkeypatch.setattr(made, "_watch", lambda: logs.TruncationWatch({}, print), raising=False)
    monkeypatch.setattr(made, "_await_mirroring", never, raising=False)
    with pytest.raises(FaultError, match=r"refused for 120 s with NEVER_MIRRORED \(0\)"):
        made.start()
    (found,) = (event for event in written if isinstance(event, FailoverRefused))
    assert (found.mode, found.error, found.seconds) == ("planned", "NEVER_MIRRORED", 120.0)
    made.stop()
    assert not made.alive
    assert not [event for event in written if isinstance(event, MirrorStopped)]


def test_a_verb_that_the_java_admin_lacks_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class AdminWithoutResume:
        def close(self, wait: object) -> None: ...

    clients = SimpleNamespace(
        AdminClient=SimpleNamespace(create=lambda properties: AdminWithoutResume()),
        ResumeMirrorTopicsOptions=object,
    )
    apache = SimpleNamespace(kafka=SimpleNamespace(clients=SimpleNamespace(admin=clients)))
    duration = SimpleNamespace(time=SimpleNamespace(Duration=SimpleNamespace(ofMillis=int)))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=apache), java=duration)
    bridge = SimpleNamespace(java=jvm, properties=dict)
    asked = MirrorAdmin(
        cast(Kafka, SimpleNamespace()), cast(Java, SimpleNamespace()), tmp_path, "127.0.0.1:1"
    )
    monkeypatch.setattr(asked, "_open", lambda: bridge)
    with pytest.raises(SetupError, match=r"has no verb resume.*resumeMirrorTopics"):
        asked.resume("m", ["A.x"])


WHY = "The source topic is deleted."


def failed_row(partition: int, state: str, retries: int, error: str = "") -> DescribeRow:
    return row("A.orders", state, partition, retries=retries, error=error)


def test_a_topic_is_given_up_where_a_partition_has_failed_and_is_not_tried_again() -> None:
    assert given_up([failed_row(0, "MIRRORING", 0), failed_row(1, "FAILED", -1, WHY)]) == {
        "A.orders": WHY
    }
    assert given_up([failed_row(0, "FAILED", -1)]) == {"A.orders": "FAILED"}


def test_topic_that_is_retried_or_mirrored_is_not_given_up() -> None:
    assert (
        given_up([failed_row(0, "FAILED", 3, "no leader"), failed_row(1, "MIRRORING", -1, WHY)])
        == {}
    )


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "cluster-mirroring"
JOURNAL = JournalPartition(
    topic="tx",
    partition=0,
    mirrored=21,
    promoted=23,
    truncated=(),
    appended=((21, "ABORT of producer 2, epoch 0"), (22, "producer-id reset")),
    epochs=((0, 0), (2, 5)),
)
ADMIN = "org/apache/kafka/clients/admin/"
FIRST, NEWER = (
    ["StartMirrorTopicsOptions"],
    ["StartMirrorTopicsOptions", "RecoverMirrorTopicsOptions"],
)


def build(folder: Path, classes: list[str]) -> Path:
    """A directory like a build of Kafka; only the names of its classes matter here."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "kafka-clients-4.2.0-SNAPSHOT.jar", "w") as jar:
        jar.writestr("kafka/kafka-version.properties", "version=4.2.0-SNAPSHOT\ncommitId=1\n")
        for name in BROKER_CLASSES:
            jar.writestr(f"{name.replace('.', '/')}.class", b"")
        for named in classes:
            name, _, method = named.partition(".")
            inside = b"\x01" + len(method).to_bytes(2, "big") + method.encode()
            jar.writestr(f"{ADMIN}{name}.class", inside if method else b"")
    return folder


def kafka_in(libs: Path) -> Kafka:
    found = look_for(str(libs))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("classes", "name", "aligning"),
    [
        (FIRST, "prefixed keys", "LOG_TRUNCATION"),
        (NEWER, "recovery", "LOG_ALIGNMENT"),
        ([*NEWER, "DescribeClusterMirrorsOptions"], "recovery", "LOG_ALIGNMENT"),
        (
            [*NEWER, "DescribeClusterMirrorsOptions.includeMirrorStates"],
            "recovery",
            "LOG_ALIGNMENT",
        ),
        (
            [*NEWER, "DescribeClusterMirrorsOptions.includeMirrorState"],
            "leader states",
            "LOG_ALIGNMENT",
        ),
    ],
)
def test_a_generation_is_known_by_the_classes_of_its_clients(
    tmp_path: Path, classes: list[str], name: str, aligning: str
) -> None:
    found = cluster_mirroring.generation(kafka_in(build(tmp_path / "libs", classes)))
    assert found is not None
    assert (found.name, found.aligning) == (name, aligning)


@pytest.mark.parametrize(
    "classes", [FIRST, [*NEWER, "DescribeClusterMirrorsOptions.includeMirrorState"]]
)
def test_describe_asks_as_the_generation_answers(
    tmp_path: Path, classes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = SimpleNamespace(
        topicPartition=lambda: SimpleNamespace(topic=lambda: "A.x", partition=lambda: 1),
        state=lambda: "MIRRORING",
        lag=lambda: 2,
        retryAttempt=lambda: 0,
        errorMessage=lambda: None,
    )
    newest = classes is not FIRST
    rows = {"A.x": [given]}
    description = SimpleNamespace(**{"leaderStates" if newest else "topics": lambda: rows})
    asked: list[tuple[object, ...]] = []

    class Options:
        def __init__(self) -> None:
            self.wanted: list[str] = []

        def includeMirrorState(self, wanted: bool) -> Options:
            self.wanted += ["state"] * wanted
            return self

        def includeMirrorOffset(self, wanted: bool) -> Options:
            self.wanted += ["offset"] * wanted
            return self

    def describe(*arguments: object) -> object:
        asked.append(arguments)
        answer = SimpleNamespace(get=lambda seconds, unit: {"m": description})
        return SimpleNamespace(allDescriptions=lambda: answer)

    admin = SimpleNamespace(describeClusterMirrors=describe)
    kinds = SimpleNamespace(DescribeClusterMirrorsOptions=Options)
    apache = SimpleNamespace(kafka=SimpleNamespace(clients=SimpleNamespace(admin=kinds)))
    units = SimpleNamespace(concurrent=SimpleNamespace(TimeUnit=SimpleNamespace(SECONDS=1)))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=apache), java=SimpleNamespace(util=units))
    build_ = kafka_in(build(tmp_path / "libs", classes))
    mirror = MirrorAdmin(build_, cast(Java, SimpleNamespace()), tmp_path, "127.0.0.1:1")
    monkeypatch.setattr(mirror, "_with", lambda verb, run: run(admin, jvm))
    (found,) = mirror.describe("m")
    assert (found.topic, found.partition, found.state, found.lag) == ("A.x", 1, "MIRRORING", 2)
    ((names, *options),) = asked
    assert names == ["m"]
    wanted = [each.wanted for each in options if isinstance(each, Options)]
    assert (len(options), wanted) == ((2, [["state", "offset"]]) if newest else (0, []))


def test_other_builds_have_none_of_it_and_need_none_of_its_settings(tmp_path: Path) -> None:
    found = cluster_mirroring.generation(
        kafka_in(build(tmp_path / "libs", ["CreateTopicsOptions"]))
    )
    assert found is None
    assert cluster_mirroring.broker_settings(found, 3) == {}


@pytest.mark.parametrize(("nodes", "replicas"), [(1, "1"), (3, "3"), (5, "3")])
def test_brokers_of_such_a_build_have_both_flags_and_as_many_replicas_of_the_state_as_fit(
    nodes: int, replicas: str
) -> None:
    ports = {
        n: BrokerPorts(
            listens={"INTERNAL": n, "CLIENT": 10 + n, "CONTROLLER": 20 + n}, advertised={}
        )
        for n in (1, 2)
    }
    kind = cluster_mirroring.broker_settings(cluster_mirroring.GENERATIONS[0], nodes)
    lines = server_properties(1, ports, Path("/data"), kind).splitlines()
    assert {"unstable.api.versions.enable=true", "unstable.feature.versions.enable=true"} <= set(
        lines
    )
    assert f"mirror.state.topic.replication.factor={replicas}" in lines


def test_a_scenario_that_kills_the_mirror_is_not_applicable_and_says_why(tmp_path: Path) -> None:
    libs = build(tmp_path / "libs", FIRST)
    made = SCENARIOS["mirror-crash"](
        ScenarioRequest(seed=1, mirror="cluster-mirroring", topology=parse(f"A@{libs}->B@{libs}"))
    )
    with pytest.raises(
        InputError,
        match=(
            r"NOT APPLICABLE: .*mirror-kill.*does not apply.*brokers of the destination are the"
        ),
    ):
        mirrors.check_played(made)


def test_the_runtime_docker_is_refused_in_one_sentence_for_runs_and_suites(tmp_path: Path) -> None:
    libs = build(tmp_path / "libs", FIRST)
    made = SCENARIOS["baseline"](
        ScenarioRequest(seed=1, mirror="cluster-mirroring", topology=parse(f"A@{libs}->B@{libs}"))
    )
    mirrors.check_played(made, "process")
    with pytest.raises(
        InputError,
        match=r"NOT APPLICABLE: .*cannot be played in runtime docker.*leave --runtime out",
    ):
        mirrors.check_played(made, "docker")
    with pytest.raises(InputError, match="runtime docker"):
        GeneratorBounds(
            mirrors=("cluster-mirroring",), kafka=(str(libs),), runtime="docker"
        ).check()


def test_a_cluster_without_the_feature_is_refused_as_destination_and_for_a_failback(
    tmp_path: Path,
) -> None:
    libs = build(tmp_path / "libs", FIRST)

    def refusal(name: str, topology: str) -> str:
        return (
            settings.refusal(
                SCENARIOS[name](
                    ScenarioRequest(seed=1, mirror="cluster-mirroring", topology=parse(topology))
                )
            )
            or ""
        )

    assert "cluster B runs Kafka 4.3.1, which has no Cluster Mirroring" in refusal(
        "link-flap", f"A@{libs}->B"
    )
    assert refusal("link-flap", f"A->B@{libs}") == "", "any Kafka can be mirrored from"
    assert "cluster A, to which fault 'reverse' reverses the mirror, runs Kafka 4.3.1" in refusal(
        "failback-divergence", f"A->B@{libs}"
    )
    assert refusal("failback-divergence", f"A@{libs}->B@{libs}") == ""


def test_a_build_of_a_generation_that_is_not_in_the_table_is_not_said_to_lack_the_feature(
    tmp_path: Path,
) -> None:
    libs = build(tmp_path / "libs", ["CreateClusterMirrorOptions", "BeginMirrorTopicsOptions"])
    made = SCENARIOS["link-flap"](
        ScenarioRequest(seed=1, mirror="cluster-mirroring", topology=parse(f"A@{libs}->B@{libs}"))
    )
    said = settings.refusal(made) or ""
    assert "runs Kafka 4.2.0-SNAPSHOT, which has Cluster Mirroring of a generation that" in said
    assert "StartMirrorTopicsOptions, RecoverMirrorTopicsOptions" in said
    assert "DescribeClusterMirrorsOptions.includeMirrorState" in said
    assert "needs an entry for it" in said


@pytest.mark.parametrize("name", ["stalled", "round-trip", "third-promotion", "paused-follower"])
def test_the_examples_are_scenarios_that_a_build_can_play(tmp_path: Path, name: str) -> None:
    libs = build(tmp_path / "libs", FIRST)
    text = (EXAMPLES / f"{name}.toml").read_text().replace("./build/libs", str(libs))
    (tmp_path / "mine.toml").write_text(text)
    made = read(tmp_path / "mine.toml", seed=1)
    assert settings.refusal(made) is None
    assert all(
        fault.options == {"source": "stalled"} for fault in made.schedule if fault.id == "failover"
    )


def test_a_suite_plays_it_only_with_a_build_and_never_kills_its_mirror(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match="no Cluster Mirroring"):
        GeneratorBounds(mirrors=("cluster-mirroring",)).check()
    bounds = GeneratorBounds(
        mirrors=("cluster-mirroring",), kafka=(str(build(tmp_path / "libs", FIRST)),)
    )
    bounds.check()
    made = [generate(7, number, Coverage(), bounds) for number in range(1, 9)]
    assert all(playable(one) for one in made)
    assert "mirror-kill" not in {fault.fault for one in made for fault in one.schedule}
    named = replace(bounds, faults=("mirror-kill",))
    with pytest.raises(InputError, match="no fault of mirror-kill can be played"):
        generate(7, 1, Coverage(), named)


def test_a_suite_draws_verbs_other_addresses_and_the_loss_of_coordinators(tmp_path: Path) -> None:
    libs = str(build(tmp_path / "libs", FIRST))
    bounds = GeneratorBounds(
        mirrors=("cluster-mirroring",), kafka=(libs,), topologies=("A->B", "A:3->B:3")
    )
    made = [generate(7, number, Coverage(), bounds, guided=False) for number in range(1, 120)]
    found = {
        name: [(one, f) for one in made for f in one.schedule if f.fault == name]
        for name in OF_BROKERS_MIRRORS
    }
    assert all(found.values()), {name: len(rows) for name, rows in found.items()}
    for one, fault in found["mirror-coordinator-loss"]:
        assert one.topology.cluster(fault.target).brokers == 3, (
            "another broker takes the part of the dead one"
        )
    forced = [fault for one in made for fault in one.schedule if fault.name.forced]
    stalled = [fault for fault in forced if fault.options.get("source") == "stalled"]
    assert 0.3 < len(stalled) / len(forced) < 0.7


def test_patterns_are_of_all_topics_of_the_homes_but_the_one_that_proves_the_path() -> None:
    (pattern,) = settings.patterns(("A", "B"))
    assert [
        bool(re.fullmatch(pattern, name))
        for name in ("A.orders", "B.x.y", "C.orders", "A.linkflap-canary")
    ] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("given", [{"group": ".*"}, {"groups": "("}, {"groups": 3}])
def test_wrong_options_are_refused(given: dict[str, str] | dict[str, int]) -> None:
    with pytest.raises(InputError, match="mirror cluster-mirroring"):
        settings.options(given)


def test_a_promotion_begins_with_the_markers_right_before_the_reset() -> None:
    assert logs.promotion_offset(headers("1-before-stop", "B")) is None
    assert logs.promotion_offset(headers("2-after-stop", "B")) == 21, (
        "an ABORT of the open transaction, then the reset at 22"
    )
    assert logs.reset_count(headers("2-after-stop", "B")) == 1
    assert logs.journal(("tx", 0), headers("1-before-stop", "B")) is None
    assert logs.journal(("tx", 0), headers("2-after-stop", "B")) == JOURNAL
    assert logs.promotion_offset(headers("5-a-stopped", "A")) == 29, (
        "the second reset, of the failback"
    )


def test_logs_diverge_at_the_sources_unmirrored_records() -> None:
    ours, theirs = headers("3-diverged", "A"), headers("3-diverged", "B")
    assert logs.first_difference(ours, theirs) == logs.FirstDifference(
        offset=21, end=logs.end_of(ours)
    )
    assert (
        logs.first_difference(headers("1-before-stop", "A"), headers("1-before-stop", "B")) is None
    )
    assert logs.first_difference(headers("1-before-stop", "A"), theirs) is None, (
        "a log that has nothing of its own loses nothing"
    )


# The topic `__mirror_state`: the wait for its replicas, and its records against describe.


REPLICAS = {0: [1, 2, 3], 1: [2, 3, 1]}
BOTH = {(STATES, 0), (STATES, 1)}


class Destination:
    """Three brokers that answer `held` one after the other, and the last one forever; broker 3 has
    ended."""

    def __init__(
        self, *held: dict[int, set[tuple[str, int]]], leader: int = 1, topic: bool = True
    ) -> None:
        self.held, self.leader, self.topic, self.asked = list(held), leader, topic, 0

    def replicas(self, brokers: list[int]) -> dict[int, set[tuple[str, int]]]:
        assert brokers == [1, 2], "the third has ended"
        self.asked += 1
        if not self.held:
            raise VerbRefused("describe-log-dirs", "NO_ANSWER", -1, "nobody answered")
        return self.held.pop(0) if len(self.held) > 1 else self.held[0]

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        partitions = (
            {n: SimpleNamespace(leader=self.leader, replicas=r) for n, r in REPLICAS.items()}
            if self.topic
            else {}
        )
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)})

    def wait(self, **how: bool) -> None:
        states = {1: "running", 2: "running", 3: "killed"}
        cluster = SimpleNamespace(
            brokers={number: SimpleNamespace(state=state) for number, state in states.items()}
        )
        await_loaded(cast(Any, self), cast(Any, self), cast(Any, cluster), **how)


def test_a_broker_lacks_its_replicas_without_a_log() -> None:
    assert lacking(REPLICAS, {1: BOTH, 2: {(STATES, 1), ("A.orders", 0)}}) == [
        f"broker 2 lacks {STATES}-0"
    ]
    assert lacking(REPLICAS, {1: BOTH, 2: BOTH, 3: set()}) == [f"broker 3 lacks {STATES}-0, -1"]


def test_a_start_waits_until_every_running_broker_holds_its_part() -> None:
    destination = Destination({1: set(), 2: set()}, {1: BOTH, 2: {(STATES, 0)}}, {1: BOTH, 2: BOTH})
    destination.wait()
    assert destination.asked == 3


@pytest.mark.parametrize(
    ("destination", "said"),
    [
        (Destination({1: BOTH, 2: {(STATES, 0)}}), f"broker 2 lacks {STATES}-1"),
        (Destination({1: BOTH, 2: BOTH}, leader=-1), f"{STATES}-0 has no leader"),
        (Destination({1: BOTH, 2: BOTH}, topic=False), f"there is no {STATES}"),
        (Destination(), "nobody answered"),
    ],
)
def test_a_log_that_never_gets_there_is_named_but_not_where_it_is_awaited_in_vain(
    monkeypatch: pytest.MonkeyPatch, destination: Destination, said: str
) -> None:
    monkeypatch.setattr(state_topic, "LOADED_SECONDS", 0.1)
    with pytest.raises(
        DeadlineExceeded,
        match=rf"replicas of {STATES} on brokers 1, 2; last seen: .*{said}",
    ):
        destination.wait()
    destination.wait(in_vain=True)


def test_a_start_at_once_is_an_option_and_another_word_is_none() -> None:
    assert settings.options({}).first_start == "loaded"
    assert settings.options({"first_start": "at-once"}).first_start == "at-once"
    with pytest.raises(
        InputError,
        match=(
            r"option first_start of mirror cluster-mirroring is 'later'; it must be loaded or"
            r" at-once"
        ),
    ):
        settings.options({"first_start": "later"})


class Brokers:
    """A destination whose leaders can be moved; the first request is not answered."""

    def __init__(self) -> None:
        self.moved: list[dict[tuple[str, int], list[int]]] = []
        self.unanswered = 1

    def list_topics(self, timeout: float) -> SimpleNamespace:
        partitions = {n: SimpleNamespace(leader=2, replicas=[2, 3, 1]) for n in range(2)}
        return SimpleNamespace(topics={"A.orders": SimpleNamespace(partitions=partitions)})

    def lead(self, orders: dict[tuple[str, int], list[int]]) -> None:
        if self.unanswered:
            self.unanswered -= 1
            raise VerbRefused("elect-leaders", "NO_ANSWER", -1, "nobody answered")
        self.moved.append(orders)


def rows(*states: str) -> list[DescribeRow]:
    return [row("A.orders", state, number) for number, state in enumerate(states)]


def test_a_partition_that_is_left_behind_gets_another_leader_once() -> None:
    brokers = Brokers()
    behind = LeftAligning(cast(Any, brokers), cast(Any, brokers), "LOG_TRUNCATION")
    behind.look(rows("LOG_TRUNCATION", "LOG_TRUNCATION"), 0)
    behind.look(rows("MIRRORING", "LOG_TRUNCATION"), 9)
    assert behind.moved == [], "it may still get there"
    for now in (10, 11, 12, 30):
        behind.look(rows("MIRRORING", "LOG_TRUNCATION"), now)
    assert brokers.moved == [{("A.orders", 1): [3, 1, 2]}]
    assert behind.moved == [("A.orders", 1)]


def test_a_partition_that_aligns_again_and_again_is_not_left_behind() -> None:
    brokers = Brokers()
    behind = LeftAligning(cast(Any, brokers), cast(Any, brokers), "LOG_TRUNCATION")
    for now in range(0, 60, 3):
        behind.look(rows("LOG_TRUNCATION" if now % 2 else "FAILED"), now)
    assert (behind.moved, brokers.moved) == ([], [])


TOPIC_ID = bytes(range(16))
SPELLED = "AAECAwQFBgcICQoLDA0ODw"


def key(partition: int, kind: int = 2) -> bytes:
    return struct.pack(">hh", kind, 3) + b"A-B" + TOPIC_ID + struct.pack(">i", partition)


def value(state: int) -> bytes:
    return struct.pack(">hbbh", 0, state, -1, 0) + b"\x00\x00"


def test_the_latest_record_of_a_partition_counts_and_a_tombstone_takes_it_away() -> None:
    records = [
        (key(0), value(0)),
        (key(1), value(2)),
        (key(0), value(2)),
        (key(0, kind=1), b"\x00\x00\x00\x00\x00\x07\x00"),
        (key(1), None),
    ]
    assert latest(records) == {("A-B", SPELLED, 0): "MIRRORING"}


@pytest.mark.parametrize("record", [(b"\x00", b""), (key(0), b"\x00"), (key(0), value(99))])
def test_bytes_of_another_form_are_said(record: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="__mirror_state has an unknown format"):
        latest([record])


def test_state_that_differs_from_describe_is_named_by_partition() -> None:
    found = {("A-B", SPELLED, 0): "MIRRORING", ("A-B", SPELLED, 1): "FAILED"}
    ids = {"A.x": SPELLED}
    rows = [row("A.x", "MIRRORING", 1), row("A.x", "MIRRORING", 0), row("A.other", "PAUSED", 0)]
    assert differing("A-B", found, ids, rows) == {
        "A.x": ("partition 1: FAILED recorded, MIRRORING described",)
    }
    assert differing("A-B", found, ids, [row("A.x", "MIRRORING", 2)]) == {
        "A.x": ("partition 2: nothing recorded, MIRRORING described",)
    }
