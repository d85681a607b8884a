"""What clients of B see while it is a mirror: Java's own tools at both isolation levels, and admins
who create topics."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.machine.java import java_for
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.distribution.kafka import kafka
from linkflap.harness.wire.offsets import quiet
from tests.shadows import TOPIC, Writer, drained, make_topic, shadow, stray

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
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=600, check=False
    )


def consumed(bootstrap: str, isolation: str, *, most: int, idle: int = 60) -> list[str]:
    """Sorted values that Java's console consumer prints: the first `most`, or those until it is
    silent for `idle` seconds."""
    done = java(
        CONSUMER,
        *(
            "--bootstrap-server",
            bootstrap,
            "--topic",
            TOPIC,
            "--from-beginning",
            "--isolation-level",
            isolation,
        ),
        *("--timeout-ms", str(idle * 1000), "--max-messages", str(most)),
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
    output = java(
        PRODUCER,
        "--bootstrap-server",
        b,
        "--topic",
        TOPIC,
        *limits,
        "--producer-property=linger.ms=0",
        stdin="own\n",
    )
    assert "TimeoutException" in output.stdout + output.stderr
    mirror.stop()
    assert consumed(b, "read_committed", most=40) == values(100, 100)


@pytest.mark.parametrize(
    "topology", [pytest.param("A->B", marks=pytest.mark.linkflap(topology="A->B"))]
)
def test_topics_that_are_made_beside_a_mirror_do_not_stay_on_the_shadow(
    linkflap_deployment: Deployment, topology: str
) -> None:
    beside_a_mirror(linkflap_deployment)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(t, marks=pytest.mark.linkflap(topology=t))
        for t in ("A->B@3.9.2", "A->B@4.1.2:3", "A->B:3")
    ],
)
def test_topics_that_are_made_beside_a_mirror_on_other_releases(
    linkflap_deployment: Deployment, topology: str
) -> None:
    beside_a_mirror(linkflap_deployment)


def beside_a_mirror(up: Deployment) -> None:
    """An admin's own topics, and those of the first group, are led by real brokers, and are
    writable at once."""
    make_topic(up, "A")
    mirror = shadow(up, "A->B")
    mirror.start()
    b = up.clusters["B"].bootstrap
    replicas = min(3, len(up.clusters["B"].brokers))
    admin = AdminClient(quiet(b))
    names = [f"own{n}" for n in range(4)]
    for future in admin.create_topics([NewTopic(name, 5, replicas) for name in names]).values():
        future.result(60)
    until(
        lambda: not stray(up, "B"),
        within=120,
        every=0.2,
        what="the shadow to be left",
        state=lambda: stray(up, "B"),
    )
    cordons = not up.clusters["B"].kafka.startswith(("3.", "4.1"))
    assert ("moved off the shadow" in mirror.log.read_text()) == (not cordons)
    output: list[object] = []
    producer = Producer(quiet(b) | {"acks": "all", "message.timeout.ms": 30_000})
    for name in names:
        for number in range(5):
            producer.produce(
                name, b"x", partition=number, on_delivery=lambda error, _: output.append(error)
            )
    until(lambda: producer.flush(1) == 0, within=60, what="topics beside the mirror to be written")
    assert output == [None] * 20
    group = Consumer(quiet(b) | {"group.id": "beside", "auto.offset.reset": "earliest"})
    group.subscribe(names)
    seen: list[str] = []

    def read() -> bool:
        seen.extend(str(m.topic()) for m in group.consume(100, 0.2))
        return len(seen) == 20

    until(read, within=60, what="a group to read")
    group.close()
    mirror.crash()
    mirror.restart()
    assert not stray(up, "B")
    mirror.stop()
    assert not stray(up, "B")
