"""Cluster Mirroring without a build of it: generations by their jars, recorded answers, and
promotions in recorded logs."""

from __future__ import annotations

import re
import shutil
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from linkflap.chaos.generator.bounds import Bounds
from linkflap.chaos.generator.coverage import Coverage
from linkflap.chaos.generator.generate import generate, playable
from linkflap.chaos.scenario_file import read
from linkflap.chaos.scenarios import SCENARIOS
from linkflap.chaos.scenarios.base import Wish
from linkflap.harness import mirrors
from linkflap.harness.log import batches
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.mirrors.cluster_mirroring import (
    from_bytes,
    mirror,
    settings,
    starting,
    truncations,
)
from linkflap.harness.mirrors.cluster_mirroring.answers import (
    Answer,
    Refused,
    Row,
    mirroring,
    summary,
    until_accepted,
)
from linkflap.harness.mirrors.cluster_mirroring.truncations import Watch
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError
from linkflap.harness.model.events import Event, FailoverRefused, JournalPartition, MirrorStopped
from linkflap.harness.model.faults import OF_BROKERS_MIRRORS
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.distribution import cluster_mirroring
from linkflap.harness.runtimes.distribution.kafka import Kafka, look_for
from linkflap.harness.runtimes.kraft.configuration import BrokerPorts, server_properties
from linkflap.topologies import parse

LOGS = Path(__file__).parents[1] / "data" / "logs" / "kip-1279"
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
    """A directory as a build of Kafka leaves it, of which nothing but the names of its classes
    matters here."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "kafka-clients-4.2.0-SNAPSHOT.jar", "w") as jar:
        jar.writestr("kafka/kafka-version.properties", "version=4.2.0-SNAPSHOT\ncommitId=1\n")
        for name in classes:
            jar.writestr(f"{ADMIN}{name}.class", b"")
    return folder


def kafka_in(libs: Path) -> Kafka:
    found = look_for(str(libs))
    assert found is not None
    return found


def headers(moment: str, cluster: str, partition: int = 0) -> Headers:
    return batches.scan(sorted((LOGS / moment / cluster / f"tx-{partition}").glob("*.log"))).headers


def row(partition: int = 0, state: str = "MIRRORING", **fields: str | int) -> Row:
    given: dict[str, Any] = {
        "source_offset": 10,
        "destination_offset": 10,
        "lag": 0,
        "retries": 0,
        "error": "",
        **fields,
    }
    return Row(topic="A.orders", partition=partition, state=state, **given)


@pytest.mark.parametrize(
    ("classes", "name", "aligning"),
    [(FIRST, "prefixed keys", "LOG_TRUNCATION"), (NEWER, "recovery", "LOG_ALIGNMENT")],
)
def test_a_generation_is_known_by_the_classes_of_its_clients(
    tmp_path: Path, classes: list[str], name: str, aligning: str
) -> None:
    found = cluster_mirroring.generation(kafka_in(build(tmp_path / "libs", classes)))
    assert found is not None
    assert (found.name, found.aligning) == (name, aligning)


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
        Wish(seed=1, mirror="cluster-mirroring", topology=parse(f"A@{libs}->B@{libs}"))
    )
    with pytest.raises(
        InputError,
        match=(
            r"NOT APPLICABLE: .*mirror-kill.*no object.*brokers of the destination are the mirror"
        ),
    ):
        mirrors.check_played(made)


def test_the_runtime_docker_is_refused_in_one_sentence_for_runs_and_suites(tmp_path: Path) -> None:
    libs = build(tmp_path / "libs", FIRST)
    made = SCENARIOS["baseline"](
        Wish(seed=1, mirror="cluster-mirroring", topology=parse(f"A@{libs}->B@{libs}"))
    )
    mirrors.check_played(made, "process")
    with pytest.raises(
        InputError,
        match=r"NOT APPLICABLE: .*cannot be played in runtime docker.*leave --runtime out",
    ):
        mirrors.check_played(made, "docker")
    with pytest.raises(InputError, match="runtime docker"):
        Bounds(mirrors=("cluster-mirroring",), kafka=(str(libs),), runtime="docker").check()


def test_a_cluster_without_the_feature_is_refused_as_destination_and_for_a_failback(
    tmp_path: Path,
) -> None:
    libs = build(tmp_path / "libs", FIRST)

    def refusal(name: str, topology: str) -> str:
        return (
            settings.refusal(
                SCENARIOS[name](Wish(seed=1, mirror="cluster-mirroring", topology=parse(topology)))
            )
            or ""
        )

    assert "cluster B runs Kafka 4.3.1, which has no Cluster Mirroring" in refusal(
        "link-flap", f"A@{libs}->B"
    )
    assert refusal("link-flap", f"A->B@{libs}") == "", "any Kafka can be mirrored from"
    assert "cluster A runs Kafka 4.3.1" in refusal("failback-divergence", f"A->B@{libs}")
    assert refusal("failback-divergence", f"A@{libs}->B@{libs}") == ""


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


def test_a_suite_draws_it_where_a_build_is_named_and_never_kills_what_it_has_not(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match="no Cluster Mirroring"):
        Bounds(mirrors=("cluster-mirroring",)).check()
    bounds = Bounds(mirrors=("cluster-mirroring",), kafka=(str(build(tmp_path / "libs", FIRST)),))
    bounds.check()
    made = [generate(7, number, Coverage(), bounds) for number in range(1, 9)]
    assert all(playable(one) for one in made)
    assert "mirror-kill" not in {fault.fault for one in made for fault in one.schedule}
    named = replace(bounds, faults=("mirror-kill",))
    with pytest.raises(InputError, match="no fault of mirror-kill can be played"):
        generate(7, 1, Coverage(), named)


def test_a_suite_draws_verbs_other_addresses_and_the_loss_of_coordinators(tmp_path: Path) -> None:
    libs = str(build(tmp_path / "libs", FIRST))
    bounds = Bounds(mirrors=("cluster-mirroring",), kafka=(libs,), topologies=("A->B", "A:3->B:3"))
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


def test_mirroring_means_a_row_of_every_partition_in_that_state() -> None:
    both = [("A.orders", 0), ("A.orders", 1)]
    assert mirroring([row(0), row(1)], both)
    assert not mirroring([row(0)], both), "rows may be missing"
    assert not mirroring(
        [row(0), row(1, "FAILED", error="Failed to get source metadata", lag=-1)], both
    )
    assert not mirroring([], [])


def test_states_are_summed_up_with_their_errors() -> None:
    rows = [
        row(0),
        row(1, "FAILED", error="Failed to get source metadata"),
        row(2, "FAILED", error="Failed to get source metadata"),
    ]
    assert summary(rows) == "2 FAILED, 1 MIRRORING; Failed to get source metadata"
    assert summary([]) == "no rows"


def refused(
    times: int, name: str = "INVALID_CLUSTER_MIRROR_STATES", code: int = 145
) -> Callable[[], None]:
    left = [Refused("stop", name, code, "not in the expected states")] * times

    def ask() -> None:
        if left:
            raise left.pop()

    return ask


def test_a_verb_is_asked_again_until_it_is_accepted_and_what_was_refused_is_written_down() -> None:
    notes: list[Answer] = []
    answer = until_accepted("stop", refused(2), within=60, note=notes.append)
    assert notes == [answer]
    assert (answer.accepted, answer.tries, answer.refused) == (
        True,
        3,
        {"INVALID_CLUSTER_MIRROR_STATES (145)": 2},
    )


def test_a_verb_that_is_refused_to_the_end_says_with_what() -> None:
    notes: list[Answer] = []
    with pytest.raises(
        Refused, match=r"stop was refused with INVALID_CLUSTER_MIRROR_STATES \(145\)"
    ):
        until_accepted("stop", refused(1000), within=0.1, note=notes.append)
    assert [n.accepted for n in notes] == [False]


def test_an_error_that_asking_again_cannot_change_is_raised_at_once() -> None:
    with pytest.raises(Refused, match="ALREADY_EXISTS"):
        until_accepted(
            "create",
            refused(1, "CLUSTER_MIRROR_ALREADY_EXISTS", 136),
            within=60,
            note=print,
            never="CLUSTER_MIRROR_ALREADY_EXISTS",
        )


def stopping_mirror(monkeypatch: pytest.MonkeyPatch, *states: str) -> tuple[Any, list[Event]]:
    """A mirror whose stop is accepted, and whose partitions get no reset: describe says these
    states of them."""
    made: Any = object.__new__(mirror.ClusterMirror)  # its parts are stand-ins
    written: list[Event] = []
    monkeypatch.setattr(mirror, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(from_bytes, "every", lambda cluster, partitions: {})
    monkeypatch.setattr(made, "lag", lambda: 0, raising=False)
    rows = [row(n, state) for n, state in enumerate(states)]
    made.link, made._homes, made._destination = LinkSpec(source="A", destination="B"), ("A",), None
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


def test_a_promotion_begins_with_the_markers_right_before_the_reset() -> None:
    assert from_bytes.promoted(headers("1-before-stop", "B")) is None
    assert from_bytes.promoted(headers("2-after-stop", "B")) == 21, (
        "an ABORT of the open transaction, then the reset at 22"
    )
    assert from_bytes.resets(headers("2-after-stop", "B")) == 1
    assert from_bytes.journal(("tx", 0), headers("1-before-stop", "B")) is None
    assert from_bytes.journal(("tx", 0), headers("2-after-stop", "B")) == JOURNAL
    assert from_bytes.promoted(headers("5-a-stopped", "A")) == 29, (
        "the second reset, of the failback"
    )


def test_logs_part_where_the_source_has_what_was_never_mirrored() -> None:
    ours, theirs = headers("3-diverged", "A"), headers("3-diverged", "B")
    assert from_bytes.parted(ours, theirs) == from_bytes.Parted(
        offset=21, end=from_bytes.end_of(ours)
    )
    assert from_bytes.parted(headers("1-before-stop", "A"), headers("1-before-stop", "B")) is None
    assert from_bytes.parted(headers("1-before-stop", "A"), theirs) is None, (
        "a log that has nothing of its own loses nothing"
    )


def copied(folder: Path, brokers: int = 1, moment: str = "3-diverged") -> SimpleNamespace:
    """Cluster A with the log of tx-0 on each of its brokers; it parts from B's at 21."""
    found = {}
    for number in range(1, brokers + 1):
        shutil.copytree(LOGS / moment / "A" / "tx-0", folder / str(number) / "tx-0")
        found[number] = SimpleNamespace(log_dir=folder / str(number), state="running")
    return SimpleNamespace(brokers=found)


def log_file(cluster: SimpleNamespace, number: int = 1) -> Path:
    folder: Path = cluster.brokers[number].log_dir / "tx-0"
    return max(folder.glob("*.log"))


def truncate_at(cluster: SimpleNamespace, offset: int, number: int = 1) -> None:
    """Truncates a log's file, and gives it B's bytes from there on at once."""
    mine, theirs = headers("3-diverged", "A"), headers("3-diverged", "B")
    position, there = (int(h.position[(h.base_offset >= offset).argmax()]) for h in (mine, theirs))
    tail = max((LOGS / "3-diverged" / "B" / "tx-0").glob("*.log")).read_bytes()[there:]
    with log_file(cluster, number).open("r+b") as file:
        file.truncate(position)
        file.seek(position)
        file.write(tail)


def watched(
    cluster: SimpleNamespace, source: Headers
) -> tuple[Watch, list[tuple[str, int, int, int]]]:
    noted = []
    logs = truncations.logs_of(cluster, [("tx", 0)])
    tails = {tp: truncations.expected(log, source) for tp, log in logs.items()}
    return (
        truncations.Watch(tails, lambda tp, where: noted.append((*tp, where.offset, where.end))),
        noted,
    )


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_truncation_is_noted_when_the_bytes_show_it_whatever_follows_at_once(
    tmp_path: Path, brokers: int
) -> None:
    cluster = copied(tmp_path, brokers)
    end = from_bytes.end_of(headers("3-diverged", "A"))
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    assert noted == []
    truncate_at(cluster, 21)
    until(lambda: bool(noted), within=60, what="the truncation to be noted")
    watch.close()
    assert noted == [("tx", 0, 21, end)]


def test_a_log_that_was_not_truncated_is_not_noted(tmp_path: Path) -> None:
    watch, noted = watched(copied(tmp_path), headers("3-diverged", "B"))
    watch.close()
    assert noted == []


def test_a_log_with_nothing_of_its_own_is_noted_when_it_grows(tmp_path: Path) -> None:
    cluster = copied(tmp_path, moment="1-before-stop")
    end = from_bytes.end_of(headers("1-before-stop", "A"))
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
    """A build says MIRRORING before it has truncated, and another topic's record is through by
    then."""
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
    truncate_at(cluster, 21)
    made.stop()
    assert [(partition, offset) for _, partition, offset, _ in noted] == [(0, 21)]


def test_what_is_truncated_after_the_end_is_not_noted(tmp_path: Path) -> None:
    cluster = copied(tmp_path)
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    watch.end()
    truncate_at(cluster, 21)
    watch.close()
    assert noted == []


def test_logs_that_have_something_to_lose_are_owed_until_they_lost_it(tmp_path: Path) -> None:
    (tmp_path / "tail").mkdir()
    cluster = copied(tmp_path / "tail")
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    assert watch.not_yet_truncated == [("tx", 0)]
    truncate_at(cluster, 21)
    until(lambda: bool(noted), within=60, what="the truncation to be noted")
    assert watch.not_yet_truncated == []
    watch.close()
    (tmp_path / "none").mkdir()
    nothing, _ = watched(
        copied(tmp_path / "none", moment="1-before-stop"), headers("3-diverged", "B")
    )
    assert nothing.not_yet_truncated == []
    nothing.close()


def test_a_failback_that_never_mirrors_is_a_failover_that_did_not_happen_and_no_mirror_that_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, written = stopping_mirror(monkeypatch, "FAILED")

    def never(began: float) -> None:
        raise DeadlineExceeded(110.0, "every partition to be MIRRORING", "1 FAILED")

    made._there, made._source, made._reverses = None, SimpleNamespace(brokers={1: None}), object()
    made._running = made._mirrored = False
    made._options = settings.Options(first_start=settings.AT_ONCE)
    made._admin.start = lambda name, topics, patterns: None
    made._destination = SimpleNamespace(brokers={})
    monkeypatch.setattr(starting, "create", lambda admin, topics: None)
    monkeypatch.setattr(made, "_create", lambda: None, raising=False)
    monkeypatch.setattr(made, "_topics", lambda: {"A.orders": 1}, raising=False)
    monkeypatch.setattr(made, "_watch", lambda: truncations.Watch({}, print), raising=False)
    monkeypatch.setattr(made, "_await_mirroring", never, raising=False)
    with pytest.raises(FaultError, match=r"refused for 120 s with NEVER_MIRRORED \(0\)"):
        made.start()
    (found,) = (event for event in written if isinstance(event, FailoverRefused))
    assert (found.mode, found.error, found.seconds) == ("planned", "NEVER_MIRRORED", 120.0)
    made.stop()
    assert not made.alive
    assert not [event for event in written if isinstance(event, MirrorStopped)]
