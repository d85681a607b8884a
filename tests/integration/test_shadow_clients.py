"""Clients of B while it is a mirror: Java's own tools, admins who create topics, and the group
offsets that a shadow syncs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.machine.java import java_for
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.runtimes.distribution.kafka import kafka
from linkflap.harness.wire.librdkafka import quiet
from tests.command_line import ran
from tests.shadows import TOPIC, Writer, drained, ends, make_topic, shadow, stray
from tests.waiting import eventually

pytestmark = pytest.mark.linkflap(topology="A->B")


CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"


def java(main: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's own tools, as a user would."""
    light = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    command: list[str | Path] = [
        java_for(DEFAULT_KAFKA).path,
        *light,
        "-cp",
        kafka(DEFAULT_KAFKA).classpath,
        main,
        *arguments,
    ]
    return ran(command, input=stdin)


def consumed(bootstrap: str, isolation: str, *, most: int, idle: int = 60) -> list[str]:
    """Sorted values that Java's console consumer prints: the first `most`, or those until it is
    silent for `idle` seconds."""
    done = java(
        CONSUMER,
        *f"--bootstrap-server {bootstrap} --topic {TOPIC} --from-beginning".split(),
        *f"--isolation-level {isolation} --timeout-ms {idle * 1000} --max-messages {most}".split(),
    )
    return sorted(line for line in done.stdout.splitlines() if line.isdigit())


def values(*sizes: int) -> list[str]:
    """The values that consumers read of transactions of these sizes."""
    return sorted(str(n) * size for size in sizes for n in range(20))


def test_java_reads_a_mirror_in_both_isolations_and_is_refused_as_read_only(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    b = up.clusters["B"].bootstrap
    make_topic(up, "A")
    writer = Writer(up.clusters["A"].bootstrap)
    mirror = shadow(up, "A->B")
    mirror.start()
    for size in (2, 3, 4, 5):  # the third is aborted
        writer.write(size=size)
    writer.begin(size=6)
    drained(mirror)
    assert consumed(b, "read_committed", most=60) == values(2, 3, 5)
    assert consumed(b, "read_uncommitted", most=100) == values(2, 3, 4, 5, 6)
    output = java(PRODUCER, "--bootstrap-server", b, "--topic", TOPIC, stdin="own\n")
    assert (
        "PolicyViolationException: a mirror topic is read-only until its failover"
        in output.stdout + output.stderr
    )
    mirror.stop()
    output = java(PRODUCER, "--bootstrap-server", b, "--topic", TOPIC, stdin="7\n")
    assert "Exception" not in output.stdout + output.stderr
    assert consumed(b, "read_committed", most=61) == sorted([*values(2, 3, 5), "7"])


@pytest.mark.nightly
def test_java_waits_where_the_mirror_is_hidden(linkflap_deployment: Deployment) -> None:
    up = linkflap_deployment
    b = up.clusters["B"].bootstrap
    make_topic(up, "A")
    writer = Writer(up.clusters["A"].bootstrap)
    mirror = shadow(up, "A->B", clients="hidden")
    mirror.start()
    writer.write(3)
    drained(mirror)
    assert consumed(b, "read_committed", most=1, idle=8) == []
    limits = [
        f"--producer-property={name}=3000"
        for name in ("max.block.ms", "delivery.timeout.ms", "request.timeout.ms")
    ]
    to = ("--bootstrap-server", b, "--topic", TOPIC)
    output = java(PRODUCER, *to, *limits, "--producer-property=linger.ms=0", stdin="own\n")
    assert "TimeoutException" in output.stdout + output.stderr
    mirror.stop()
    assert consumed(b, "read_committed", most=40) == values(100, 100)


OTHERS = [
    pytest.param(t, marks=[pytest.mark.linkflap(topology=t), pytest.mark.nightly])
    for t in ("A->B@3.9.2", "A->B@4.1.2:3", "A->B:3")
]


@pytest.mark.parametrize("topology", ["A->B", *OTHERS])
def test_topics_that_are_made_beside_a_mirror_do_not_stay_on_the_shadow(
    linkflap_deployment: Deployment, topology: str
) -> None:
    """An admin's own topics, and those of the first group, are led by real brokers, and are
    writable at once."""
    up = linkflap_deployment
    make_topic(up, "A")
    mirror = shadow(up, "A->B")
    mirror.start()
    b = up.clusters["B"].bootstrap
    replicas = min(3, len(up.clusters["B"].brokers))
    admin = AdminClient(quiet(b))
    names = [f"own{n}" for n in range(4)]
    for future in admin.create_topics([NewTopic(name, 5, replicas) for name in names]).values():
        future.result(60)
    eventually("the shadow to be left", lambda: not stray(up, "B"), state=lambda: stray(up, "B"))
    cordons = not up.clusters["B"].kafka.startswith(("3.", "4.1"))
    assert ("moved off the shadow" in mirror.log.read_text()) == (not cordons)
    output: list[object] = []
    producer = Producer(quiet(b) | {"acks": "all", "message.timeout.ms": 30_000})
    for name in names:
        for number in range(5):
            producer.produce(
                name, b"x", partition=number, on_delivery=lambda error, _: output.append(error)
            )
    eventually("topics beside the mirror to be written", lambda: producer.flush(1) == 0)
    assert output == [None] * 20
    group = Consumer(quiet(b) | {"group.id": "beside", "auto.offset.reset": "earliest"})
    group.subscribe(names)
    seen: list[str] = []

    def read() -> bool:
        seen.extend(str(m.topic()) for m in group.consume(100, 0.2))
        return len(seen) == 20

    eventually("a group to read", read)
    group.close()
    mirror.crash()
    mirror.restart()
    assert not stray(up, "B")
    mirror.stop()
    assert not stray(up, "B")


# Group offsets that a shadow syncs: which groups, up to which offset, and when not.


def commit(bootstrap: str, group: str, offset: int) -> None:
    consumer = Consumer(quiet(bootstrap) | {"group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


class Groups:
    """The committed offsets on a cluster."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap, self._admin = bootstrap, AdminClient(quiet(bootstrap))

    def names(self) -> set[str]:
        # A client that has known the shadow waits for it for a while after it has left: a new one
        # gets the current brokers.
        admin = AdminClient(quiet(self._bootstrap))
        return {
            group.group_id
            for group in admin.list_consumer_groups(request_timeout=60).result(90).valid
        }

    def offset(self, group: str, partition: int = 0) -> int | None:
        asked = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=60
        )[group]
        return next(
            (p.offset for p in asked.result(20).topic_partitions if p.partition == partition), None
        )

    def come_to(self, group: str, offset: int) -> None:
        eventually(group, lambda: self.offset(group) == offset, state=lambda: self.offset(group))


def test_groups_are_filtered_clamped_left_alone_while_active_and_no_more_synced_after_a_failover(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    a, b = (up.clusters[name].bootstrap for name in "AB")
    make_topic(up, "A")
    writer = Writer(a)
    mirror = shadow(up, "A->B", groups="app-.*")
    mirror.start()
    writer.write(6)
    drained(mirror)
    here, end = Groups(b), ends(up.clusters["B"])[TOPIC, 0]

    live = Consumer(
        quiet(b)
        | {"group.id": "app-live", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    live.subscribe([TOPIC])
    eventually("a member of app-live to read the mirror", lambda: live.consume(1, 0.5))
    live.commit(offsets=[TopicPartition(TOPIC, 0, 3)], asynchronous=False)
    commit(a, "app-live", 20)
    commit(a, "other", 20)
    commit(a, "app-ahead", 10_000)  # a mirror that is behind looks like this
    commit(a, "app-plain", 30)
    here.come_to("app-plain", 30)
    here.come_to("app-ahead", end)
    commit(a, "app-plain", 25)  # back again: by then the others have been looked at once more
    here.come_to("app-plain", 25)
    assert here.offset("app-live") == 3
    assert "other" not in here.names()
    eventually(
        "it to be reported",
        lambda: "group app-live is not synced: it is " in mirror.log.read_text(),
    )
    live.close()
    here.come_to("app-live", 20)

    admin, begin = AdminClient(quiet(a)), TopicPartition(TOPIC, 0, 40)
    admin.delete_records([begin])[begin].result(20)
    here.come_to("app-plain", 40)  # B's log start
    mirror.stop()
    commit(a, "app-plain", 50)
    commit(a, "app-new", 50)
    assert not mirror.alive
    assert here.offset("app-plain") == 40
    assert "app-new" not in here.names()
    assert here.offset("app-ahead") == end


@pytest.mark.nightly
def test_a_mirror_back_is_there_when_groups_are_synced_whose_members_died_with_the_cluster(
    linkflap_deployment: Deployment,
) -> None:
    """A, alive again, keeps its dead reader as a member until the session ends; a failback before
    that would make the group replay."""
    up = linkflap_deployment
    a, b = up.clusters["A"], up.clusters["B"]
    make_topic(up, "A")
    writer = Writer(a.bootstrap)
    mirror = shadow(up, "A->B")
    mirror.start()
    writer.write(3)
    settings = {
        "group.id": "app",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 20_000,
    }
    reader = Consumer(quiet(a.bootstrap) | settings)
    reader.subscribe([TOPIC])
    eventually("a member of app to read A", lambda: reader.consume(1, 0.5))
    reader.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
    drained(mirror)
    Groups(b.bootstrap).come_to("app", 7)
    a.brokers[1].kill()
    reader.close()  # it can tell nobody
    mirror.stop()
    end = ends(up.clusters["B"])[TOPIC, 0]
    commit(b.bootstrap, "app", end)
    a.brokers[1].start()
    back = mirror.reversed()
    back.start()
    assert Groups(a.bootstrap).offset("app") == end
    back.stop()
    assert back.notes().unsynced == {}
    assert Groups(a.bootstrap).offset("app") == end
