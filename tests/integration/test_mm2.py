"""MirrorMaker 2 on a real link: what it mirrors in each mode, what a killed worker repeats, how it
fails and stops; all counted, none hidden."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import cast
from unittest.mock import patch

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from linkflap.harness.mirrors import mm2, mm2_config
from linkflap.harness.mirrors.mm2 import ConnectProgress
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Deployment, Mirror
from linkflap.harness.model.wait import until
from linkflap.harness.wire.librdkafka import bounds, quiet
from tests.events import Rows
from tests.mm2_pair import mirrored
from tests.shadows import TOPIC, TOPIC_PARTITIONS, drained, read
from tests.waiting import eventually


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
def test_a_worker_killed_mid_write_repeats_records_and_loses_none(
    linkflap_deployment: Deployment,
) -> None:
    """The case KIP-618-exactly-once has the other delivery."""
    with mirrored(linkflap_deployment, delivery="at-least-once") as (mirror, writer, events):
        with writer.writing():
            crash_between_produce_and_offset_commit(linkflap_deployment, mirror)
            assert not mirror.alive
            mirror.restart()
        drained(mirror)
        mirror.stop()
        found = read(linkflap_deployment.clusters["B"].bootstrap)
        once = {partition: distinct(values) for partition, values in found.items()}
        assert once == writer.committed
        assert sum(len(values) - len(once[partition]) for partition, values in found.items()) > 0
        own = [(kind, data) for kind, _, data in events if kind != "mirror-state"]
        ran = ["mirror-started", "mirror-crashed", "mirror-started", "mirror-stopped"]
        assert [kind for kind, _ in own] == ran
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
        synced = eventually("group app to be synced to B", lambda: group_offsets(admin, "app"))
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
        eventually("the lag to be reported exactly", lambda: mirror.lag() == 80, state=mirror.lag)
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


OLDER = "A@3.9.2->B@3.9.2"


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param("A->B", marks=pytest.mark.linkflap(topology="A->B")),
        pytest.param(OLDER, marks=[pytest.mark.linkflap(topology=OLDER), pytest.mark.nightly]),
    ],
)
def test_a_connector_and_a_task_that_fail_are_written_down(
    linkflap_deployment: Deployment, topology: str
) -> None:
    """A connector that cannot start (Java refuses its pattern), and a task that fails later (B
    refuses a record as too large).

    That pattern is refused before a start, so here nobody looks at it but Java.
    """
    with (
        patch.object(mm2_config, "reason_against", return_value=""),
        mirrored(linkflap_deployment, groups="(?<a>x)(?<a>y)") as (mirror, writer, events),
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
        admin = AdminClient(quiet(linkflap_deployment.clusters["B"].bootstrap))
        limited = [ConfigResource("TOPIC", TOPIC, incremental_configs=limit)]
        large = Producer(quiet(linkflap_deployment.clusters["A"].bootstrap))

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

        eventually(
            "the task to fail and its state to be written down",
            failed,
            state=lambda: (mirror.lag(), states(events)),
        )
        assert any("RecordTooLargeException" in str(data.get("trace", "")) for _, _, data in events)
        mirror.stop()
        assert events[-1][2] == {"drained": False}


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
