"""MirrorMaker 2 on a real link: what it mirrors in each mode, what a killed worker repeats, how it
fails and stops; all counted, none hidden."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast
from unittest.mock import patch

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import SparkSession

from linkflap.chaos.default_workloads import GROUP, default_workloads
from linkflap.harness.mirrors import mm2, mm2_config
from linkflap.harness.mirrors.mm2 import ConnectProgress
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Deployment, Mirror
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec, Scenario, WorkloadSpec
from linkflap.harness.model.verdict import Anomaly, CheckResult, Verdict
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import bounds, quiet
from linkflap.recording.run import record
from linkflap.report.progress import shown_on
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import verify
from linkflap.topologies import parse
from tests.events import Rows
from tests.mm2_pair import mirrored
from tests.shadows import TOPIC, TOPIC_PARTITIONS, drained, read


def distinct(values: list[bytes]) -> list[bytes]:
    """The first of each record, without repeats."""
    return list(dict.fromkeys(values))


def crash_between_produce_and_offset_commit(deployment: Deployment, mirror: Mirror) -> None:
    """Kills the worker when B has records that Connect's committed offsets do not cover yet.

    Connect commits offsets once a second; right after it did, there is time for B to grow and for
    the worker to die.
    """
    b = deployment.clusters["B"].bootstrap
    admin, progress = AdminClient(quiet(b)), ConnectProgress(mirror.link, b)
    known = dict(progress.positions) if progress.refresh() else {}
    until(
        lambda: progress.refresh() and progress.positions != known,
        within=120,
        what="Connect to commit offsets",
        every=0.005,
    )
    then = bounds(admin, TOPIC_PARTITIONS, "high", within=120)
    until(
        lambda: all(
            end > then[tp] + 20
            for tp, end in bounds(admin, TOPIC_PARTITIONS, "high", within=120).items()
        ),
        within=120,
        what="B to grow",
        every=0.005,
    )
    mirror.crash()
    progress.close()


@pytest.mark.linkflap(topology="A->B")
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_worker_killed_mid_write_repeats_at_least_once_and_loses_nothing(
    linkflap_deployment: Deployment, delivery: str
) -> None:
    with mirrored(linkflap_deployment, delivery=delivery) as (mirror, writer, events):
        with writer.writing():
            crash_between_produce_and_offset_commit(linkflap_deployment, mirror)
            assert not mirror.alive
            mirror.restart()
        drained(mirror)
        mirror.stop()
        found = read(linkflap_deployment.clusters["B"].bootstrap)
        repeats = {
            partition: len(values) - len(distinct(values)) for partition, values in found.items()
        }
        assert {
            partition: distinct(values) for partition, values in found.items()
        } == writer.committed
        if delivery == "exactly-once":
            assert repeats == {0: 0, 1: 0}
        else:
            assert sum(repeats.values()) > 0
        own = [(kind, data) for kind, _, data in events if kind != "mirror-state"]
        assert [kind for kind, _ in own] == [
            "mirror-started",
            "mirror-crashed",
            "mirror-started",
            "mirror-stopped",
        ]
        assert own[-1][1] == {"drained": True}


@pytest.mark.linkflap(topology="A->B")
def test_a_stop_leaves_no_transaction_open_and_nothing_is_appended_after_it(
    linkflap_deployment: Deployment,
) -> None:
    """Also when the worker died in a transaction: otherwise the coordinator would abort it late,
    after the promotion."""
    with mirrored(linkflap_deployment, delivery="exactly-once", groups="") as (mirror, writer, _):
        admin = AdminClient(quiet(linkflap_deployment.clusters["B"].bootstrap))
        with writer.writing():
            # a transaction may end between the look and the kill: then the next one is tried
            for _ in range(10):
                until(
                    lambda: open_on(admin),
                    within=60,
                    what="an open transaction of the mirror",
                    every=0.001,
                )
                mirror.crash()
                if open_on(admin):
                    break
                mirror.restart()
        assert open_on(admin), (
            "ten times the worker was killed after its transaction ended: nothing is tested"
        )
        mirror.stop()
        assert not open_on(admin)
        promoted = mirror.promotion()
        assert promoted == bounds(admin, TOPIC_PARTITIONS, "high", within=120)
        mirror.stop()  # a failover and the end of a run may both request it
        assert mirror.promotion() == promoted


def open_on(admin: AdminClient) -> bool:
    return bounds(admin, TOPIC_PARTITIONS, "stable", within=10) != bounds(
        admin, TOPIC_PARTITIONS, "high", within=120
    )


@pytest.mark.linkflap(topology="A->B")
def test_reading_uncommitted_makes_aborted_records_plain_records_and_groups_are_synced(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    with mirrored(linkflap_deployment, isolation="read_uncommitted", groups="app") as (
        mirror,
        writer,
        _,
    ):
        writer.write(20)
        commit_group(a, "app", {tp: 30 for tp in TOPIC_PARTITIONS})
        commit_group(a, "other", {tp: 30 for tp in TOPIC_PARTITIONS})
        drained(mirror)
        on_b = read(b)
        assert {partition: len(values) for partition, values in on_b.items()} == {0: 100, 1: 100}
        assert all(
            set(writer.committed[partition]) < set(values) for partition, values in on_b.items()
        )
        admin = AdminClient(quiet(b))
        synced = until(
            lambda: group_offsets(admin, "app"),
            within=60,
            every=0.2,
            what="group app to be synced to B",
        )
        # Never ahead of what the group had read: 30 offsets of A hold at most 30 records.
        assert all(0 < offset <= 30 for offset in synced.values())
        assert group_offsets(admin, "other") == {}
        mirror.stop()


def commit_group(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    consumer = Consumer(quiet(bootstrap) | {"group.id": group, "enable.auto.commit": False})
    wanted = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def group_offsets(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {
        (p.topic, p.partition): p.offset
        for p in asked[group].result(20).topic_partitions
        if p.offset >= 0
    }


@pytest.mark.linkflap(topology="A->B")
@pytest.mark.nightly
def test_lag_is_exact_while_the_link_is_cut_and_unknown_when_the_source_is_dead(
    linkflap_deployment: Deployment,
) -> None:
    with mirrored(linkflap_deployment, groups="") as (mirror, writer, _):
        writer.write(10)
        drained(mirror)
        link = linkflap_deployment.links["A->B"]
        link.cut()
        # 8 committed, 2 aborted, 10 records each; and 20 markers, which are not records
        writer.write(10)
        until(
            lambda: mirror.lag() == 80,
            within=60,
            what="the lag to be reported exactly",
            state=mirror.lag,
        )
        link.restore()
        drained(mirror)
        linkflap_deployment.clusters["A"].brokers[1].kill()
        assert mirror.lag() is None
        mirror.stop()
        assert not mirror.alive
        assert set(mirror.promotion()) == set(TOPIC_PARTITIONS)


# MirrorMaker 2 that cannot start or fails in part, and what the run records of it.


def states(events: Rows) -> dict[tuple[str, int], list[str]]:
    """(connector, task) -> the recorded states."""
    found: dict[tuple[str, int], list[str]] = {}
    for kind, _, data in events:
        if kind == "mirror-state":
            at = cast(tuple[str, int], (data["connector"], data["task"]))
            found.setdefault(at, []).append(str(data["state"]))
    return found


def what_fails_is_written_down(deployment: Deployment) -> None:
    """A connector that cannot start (Java refuses its pattern), and a task that fails later (B
    refuses a record as too large).

    That pattern is refused before a start, so here nobody looks at it but Java.
    """
    with (
        patch.object(mm2_config, "reason_against", return_value=""),
        mirrored(deployment, groups="(?<a>x)(?<a>y)") as (mirror, writer, events),
    ):
        writer.write(1)
        drained(mirror)
        assert states(events)["MirrorCheckpointConnector", -1][-1] == "FAILED"
        assert states(events)["MirrorSourceConnector", 0][-1] == "RUNNING"
        (trace,) = [
            data["trace"]
            for kind, _, data in events
            if kind == "mirror-state" and data["state"] == "FAILED"
        ]
        assert "PatternSyntaxException" in str(trace).splitlines()[0]
        limit = [
            ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
        ]
        admin = AdminClient(quiet(deployment.clusters["B"].bootstrap))
        limited = [ConfigResource("TOPIC", TOPIC, incremental_configs=limit)]
        large = Producer(quiet(deployment.clusters["A"].bootstrap))

        tries = 0.0

        def failed() -> bool:
            # Releases before 4.0 sync every setting of the topic, and take the limit off again. One
            # record at a time: of a batch of several 3.9.2 splits and sends the halves for ever,
            # until its thread has no stack left (KAFKA-8350).
            nonlocal tries
            if time.monotonic() > tries and mirror.lag() == 0:
                tries = time.monotonic() + 10
                (done,) = admin.incremental_alter_configs(limited).values()
                done.result(30)
                large.produce(TOPIC, bytes(100_000), partition=0)
                assert not large.flush(30)
            return any(t >= 0 and state[-1] == "FAILED" for (_, t), state in states(events).items())

        until(
            failed,
            within=60,
            every=0.5,
            what="the task to fail and its state to be written down",
            state=lambda: (mirror.lag(), states(events)),
        )
        assert any("RecordTooLargeException" in str(data.get("trace", "")) for _, _, data in events)
        mirror.stop()
        assert events[-1][2] == {"drained": False}


@pytest.mark.linkflap(topology="A->B")
def test_a_connector_and_a_task_that_fail_are_written_down(linkflap_deployment: Deployment) -> None:
    what_fails_is_written_down(linkflap_deployment)


@pytest.mark.linkflap(topology="A->B")
@pytest.mark.nightly
@pytest.mark.linkflap(topology="A@3.9.2->B@3.9.2")
def test_those_of_an_older_release_are_too(linkflap_deployment: Deployment) -> None:
    what_fails_is_written_down(linkflap_deployment)


@pytest.mark.linkflap(topology="A->B")
@pytest.mark.nightly
def test_a_mirror_that_cannot_start_says_what_it_saw(
    linkflap_deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mm2, "START_SECONDS", 15.0)
    linkflap_deployment.links["A->B"].cut()
    with (
        pytest.raises(
            DeadlineExceeded, match=r"mm2 on A->B did not start: .*worker alive.*its log ends:\n.+"
        ),
        mirrored(linkflap_deployment),
    ):
        pass


# The real behaviour of MirrorMaker 2 on real clusters: repeats, aborted records, group offsets;
# all counted, none hidden.
#
# One run per mode and one Spark job for all of them. Nightly: in CI, the tests above prove what
# MirrorMaker 2 does, and faithful histories that its repeats are allowed.


PAIR = parse("A->B")
CRASH = FaultSpec(
    id="crash", fault="mirror-kill", target="A->B", at=2.0, duration=0.5, when="mirror-behind"
)
LEAVE = FaultSpec(
    id="failover",
    fault="failover-forced",
    target="A->B",
    at=4.0,
    duration=0.0,
    when="open-transactions",
)


BACKLOG = WorkloadSpec(kind="idempotent", home="A", options={"rate": 20.0})
"""Enough that the worker writes records between any two commits of its position."""


def run_of(
    name: str,
    *schedule: FaultSpec,
    duration: float = 5.0,
    more: tuple[WorkloadSpec, ...] = (),
    **options: str,
) -> Scenario:
    return Scenario(
        name=name,
        about="what MirrorMaker 2 does",
        seed=11,
        topology=PAIR,
        mirror=MirrorSpec(kind="mm2", options=options),
        workloads=(*default_workloads(PAIR, "A"), *more),
        schedule=schedule,
        duration=duration,
    )


# A kill right after the worker has committed its position repeats nothing: three of them do not all
# fall there.
ATTEMPTS = tuple(run_of(f"at-least-once-{n}", CRASH, more=(BACKLOG,)) for n in range(3))
UNCOMMITTED = run_of("uncommitted", isolation="read_uncommitted", duration=4.0)
OTHERS = (
    UNCOMMITTED,
    run_of("exactly-once", CRASH, delivery="exactly-once"),
    run_of("groups", LEAVE, duration=8.0),
)


def judged(
    scenarios: tuple[Scenario, ...], folder: Path, spark: SparkSession
) -> dict[str, Judgement]:
    with shown_on() as progress:
        folders = [
            record(
                scenario,
                runtime="process",
                folder=folder / scenario.name,
                command="pytest",
                progress=progress,
            )
            for scenario in scenarios
        ]
    return {judgement.folder.name: judgement for judgement in verify(folders, spark=spark)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, Judgement]:
    folder = tmp_path_factory.mktemp("mm2")
    first, *more = ATTEMPTS
    found = judged((first, *OTHERS), folder, spark)
    killed = found[first.name]
    for attempt in more:
        if of_kind(killed, "mirrored-duplicate"):
            break
        killed = judged((attempt,), folder, spark)[attempt.name]
    return found | {"at-least-once": killed}


def of_kind(judgement: Judgement, *kinds: str) -> list[Anomaly]:
    return [a for a in judgement.anomalies if a.kind in kinds]


def records(anomalies: Iterable[Anomaly]) -> int:
    return sum(int(cast("int | str", a.evidence["records"])) for a in anomalies)


def check(judgement: Judgement, name: str) -> CheckResult:
    return next(c for c in judgement.checks if c.name == name)


def assert_killed(judgement: Judgement) -> None:
    assert check(judgement, "fault-bite").examined == {"run/faults": 1}
    assert check(judgement, "fault-bite").verdict is Verdict.VALID, check(
        judgement, "fault-bite"
    ).reason


@pytest.mark.spark
@pytest.mark.nightly
def test_a_killed_worker_repeats_at_least_once_and_loses_nothing(
    runs: dict[str, Judgement],
) -> None:
    """Whether a kill falls between a write and the commit of its position is random; at least one
    of three must. Repeats are counted, equally by both checks that find them, and allowed because
    of the kill; nothing else is found."""
    judgement = runs["at-least-once"]
    assert_killed(judgement)
    repeats = of_kind(judgement, "mirrored-duplicate")
    counted = {
        name: sum(int(cast("int | str", a.evidence["records"])) for a in repeats if a.check == name)
        for name in ("duplicate", "order-equality")
    }
    assert counted["duplicate"] == counted["order-equality"] > 0
    assert all(a.allowed and "mirror-kill (crash)" in str(a.evidence["why"]) for a in repeats)
    assert judgement.verdict is Verdict.VALID, judgement.document["reason"]
    arrived = check(judgement, "order-equality").examined["B/mirrored"]
    committed = check(judgement, "lost-write").examined["A/native"]
    assert arrived == committed + counted["order-equality"]


@pytest.mark.spark
@pytest.mark.nightly
def test_reading_uncommitted_turns_aborted_records_into_plain_ones(
    runs: dict[str, Judgement],
) -> None:
    judgement = runs["uncommitted"]
    assert judgement.verdict is Verdict.INVALID
    plain, read = of_kind(judgement, "mirrored-aborted"), of_kind(judgement, "aborted-read")
    assert plain
    assert read
    assert not any(a.allowed for a in (*plain, *read))
    assert {a.cluster for a in (*plain, *read)} == {"B"}
    assert {a.evidence["state"] for a in plain} == {"aborted"}
    assert {a.evidence["witness"] for a in read} == {"client"}
    assert records(plain) >= len(plain)


@pytest.mark.spark
@pytest.mark.nightly
def test_a_killed_worker_repeats_nothing_visible_exactly_once(runs: dict[str, Judgement]) -> None:
    judgement = runs["exactly-once"]
    assert_killed(judgement)
    assert of_kind(judgement, "mirrored-duplicate") == []
    assert judgement.verdict is Verdict.VALID, judgement.document["reason"]
    assert (
        check(judgement, "order-equality").examined["B/mirrored"]
        == check(judgement, "lost-write").examined["A/native"]
    )


@pytest.mark.spark
@pytest.mark.nightly
def test_a_group_that_fails_over_skips_nothing_and_repeats_within_bounds(
    runs: dict[str, Judgement],
) -> None:
    judgement = runs["groups"]
    assert judgement.verdict is Verdict.VALID, judgement.document["reason"]
    groups = check(judgement, "group-offsets")
    assert groups.examined["B/mirrored"] > 0
    assert [
        a for a in judgement.anomalies if a.check == "group-offsets" and a.kind != "group-replay"
    ] == []
    assert groups.examined["A/checkpoints"] > 0
    replays = of_kind(judgement, "group-replay")
    assert replays, (
        "the source died with transactions open, so that "
        "what was committed last had not been synced"
    )
    for replay in replays:
        assert replay.allowed
        assert replay.evidence["group"] == GROUP
        assert (
            0
            < int(cast("int | str", replay.evidence["records"]))
            <= int(cast("int | str", replay.evidence["bound"]))
        )
