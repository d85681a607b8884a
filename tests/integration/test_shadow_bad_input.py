"""Input that a shadow refuses: one sentence that names the thing and how to fix it, the process
ended, and B unchanged."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.settings import JOURNAL
from linkflap.harness.model.errors import InputError, LinkflapError, SetupError
from linkflap.harness.model.protocols import Cluster, Deployment
from linkflap.harness.wire.librdkafka import bounds, quiet
from tests.on_runtimes import deployed
from tests.shadow_sides import Shadowed, shadow
from tests.shadows import TOPIC, TOPIC_PARTITIONS, headers
from tests.waiting import eventually


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed("A->B", tmp_path_factory.mktemp("pair")) as up:
        yield up


@pytest.fixture
def mirror(pair: Deployment) -> Iterator[Shadowed]:
    made = shadow(pair)
    # A broker forgets a deleted topic before it renames the folders of its replicas.
    eventually("B to have no topic's folder", lambda: not topics_of(pair.clusters["B"]))
    yield made
    if made.alive:
        made.crash()


def error_of(mirror: Shadowed, kind: type[LinkflapError]) -> str:
    """The error with which it ends."""
    with pytest.raises(kind) as seen:
        mirror.start()
    assert not mirror.alive
    return str(seen.value)


def topics_of(cluster: Cluster) -> dict[str, str]:
    """Per replica of the broker, the topic's identity: a recreated topic has another id."""
    folders = cluster.brokers[1].log_dir.glob("*-*/partition.metadata")
    ours = [
        file
        for file in folders
        if not file.parent.name.startswith("__") and not file.parent.name.endswith("-delete")
    ]
    return {file.parent.name: file.read_text() for file in ours}


@contextmanager
def unchanged(cluster: Cluster) -> Iterator[None]:
    before = topics_of(cluster)
    yield
    assert topics_of(cluster) == before


def test_a_topic_with_data_of_its_own_is_left_alone(pair: Deployment, mirror: Shadowed) -> None:
    b = pair.clusters["B"]
    admin = AdminClient(quiet(b.bootstrap))
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
    producer = Producer(quiet(b.bootstrap) | {"linger.ms": 0, "enable.idempotence": False})
    for n in range(10):
        producer.produce(TOPIC, b"B's own", partition=n % 2)
    producer.flush(30)
    before = [headers(b.brokers[1], tp) for tp in TOPIC_PARTITIONS]
    assert len(topics_of(b)) == 2
    with unchanged(b):
        assert (
            f"topic {TOPIC} exists on the destination of A->B already; remove it there"
            in error_of(mirror, InputError)
        )
    assert [headers(b.brokers[1], tp) for tp in TOPIC_PARTITIONS] == before
    producer.produce(TOPIC, b"B's own", partition=0)
    assert producer.flush(30) == 0
    ends = bounds(admin, TOPIC_PARTITIONS, "high", within=120)
    assert ends == {TOPIC_PARTITIONS[0]: 6, TOPIC_PARTITIONS[1]: 5}


def test_another_cluster_than_was_meant(pair: Deployment, mirror: Shadowed) -> None:
    plain = mirror.plain
    mirror.override = lambda: dataclasses.replace(plain(), cluster_id="WrongClusterIdWrongCl0")
    with unchanged(pair.clusters["B"]):
        sentence = error_of(mirror, InputError)
    assert (
        "refused the shadow of A->B (inconsistent_cluster_id); its cluster id is not "
        "WrongClusterIdWrongCl0" in sentence
    )


@pytest.mark.nightly
def test_a_broker_id_that_another_process_has(
    pair: Deployment, mirror: Shadowed, tmp_path: Path
) -> None:
    config, ready, stop = mirror.plain(), threading.Event(), threading.Event()

    async def other() -> None:
        membership = Membership(config, Journal(tmp_path))
        await membership.join()
        ready.set()
        await asyncio.get_running_loop().run_in_executor(None, stop.wait)
        await membership.leave(within=5)

    thread = threading.Thread(target=asyncio.run, args=(other(),))
    thread.start()
    try:
        assert ready.wait(30)
        with unchanged(pair.clusters["B"]):
            assert (
                "broker id 1000 is in use on the destination of A->B; stop the other shadow"
                in error_of(mirror, InputError)
            )
    finally:
        stop.set()
        thread.join(30)


JOURNALS = {
    "torn": b'{"directory_id": "x", "incarn',
    "empty": b"",
    "zeros": b"\0" * 300,
    "other": b"[]",
}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(data, id=name, marks=() if name == "torn" else pytest.mark.nightly)
        for name, data in JOURNALS.items()
    ],
)
def test_a_journal_that_cannot_be_read(pair: Deployment, mirror: Shadowed, content: bytes) -> None:
    mirror.folder.mkdir(parents=True, exist_ok=True)
    (mirror.folder / JOURNAL).write_bytes(content)
    with unchanged(pair.clusters["B"]):
        sentence = error_of(mirror, SetupError)
    assert f"the shadow's journal {mirror.folder / JOURNAL} cannot be read" in sentence
    assert (mirror.folder / JOURNAL).read_bytes() == content


def test_a_control_port_that_is_taken(pair: Deployment, mirror: Shadowed) -> None:
    with socket.create_server(("127.0.0.1", mirror.port)), unchanged(pair.clusters["B"]):
        sentence = error_of(mirror, SetupError)
    assert (
        f"the control port {mirror.port} of the shadow of A->B is not free (Address already in use)"
        in sentence
    )
    assert not (mirror.folder / JOURNAL).exists()


@pytest.mark.nightly
def test_a_broker_port_that_is_taken(pair: Deployment, mirror: Shadowed) -> None:
    config = mirror.plain()
    mirror.override = lambda: config
    port = config.listeners[config.followers]
    with socket.create_server(("127.0.0.1", port)), unchanged(pair.clusters["B"]):
        sentence = error_of(mirror, SetupError)
    assert (
        f"port {port}, on which the shadow of A->B listens as broker 1000, is not free (Address "
        "already in use)" in sentence
    )


@pytest.mark.nightly
def test_a_second_process_on_the_same_journal(pair: Deployment, mirror: Shadowed) -> None:
    """However it was started: the first continues, and owns the journal."""
    mirror.start()
    pid, first = mirror.pid, mirror._child
    mirror._start_process()
    second, mirror._child = mirror._child, first
    assert second is not None
    eventually("the second process to end", lambda: not second.alive)
    assert second.poll() == SetupError.exit_code
    assert "is not free" in mirror.log.read_text()
    assert mirror.pid == pid
    mirror.stop()


@pytest.mark.nightly
def test_a_source_that_does_not_answer(pair: Deployment, mirror: Shadowed) -> None:
    link = pair.links["A->B"]
    link.cut()
    try:
        with unchanged(pair.clusters["B"]):
            sentence = error_of(mirror, SetupError)
    finally:
        link.restore()
    assert (
        f"the source of A->B does not answer at {link.bootstrap}; start it, or repair the link"
        in sentence
    )
