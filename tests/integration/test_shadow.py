"""The shadow mirror on real brokers: bytes on the destination's disks against the source's,
whatever happens to the mirror."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import numpy as np
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from linkflap.harness.log.batches import scan
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.mm2_progress import reader
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Broker, Deployment
from linkflap.harness.model.protocols.mirrors import Mirror
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import Bound, answered_bounds, quiet
from tests.events import Rows
from tests.events import Rows as Events
from tests.shadows import answered

pytestmark = [pytest.mark.integration, pytest.mark.linkflap(topology="A->B")]

TOPIC = "A.records"
TOPIC_PARTITIONS = [(TOPIC, 0), (TOPIC, 1)]


class Writer:
    """One transactional producer; every third transaction is aborted."""

    def __init__(self, bootstrap: str, **settings: str) -> None:
        self._producer = Producer(
            quiet(bootstrap) | {"transactional.id": "writer", "linger.ms": 0} | settings
        )
        self._producer.init_transactions(60)
        self.committed = self._turn = 0

    def write(self, transactions: int = 1, size: int = 100) -> None:
        for _ in range(transactions):
            self.begin(size)
            self._turn += 1
            if self._turn % 3:
                self._producer.commit_transaction(60)
                self.committed += 20
            else:
                self._producer.abort_transaction(60)

    def begin(self, size: int = 100) -> None:
        self._producer.begin_transaction()
        for n in range(20):
            self._producer.produce(TOPIC, b"%d" % n * size, partition=n % 2)
        self._producer.flush(60)

    @contextmanager
    def writing(self) -> Iterator[None]:
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                self.write()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)


def shadowed(deployment: Deployment, **options: str) -> tuple[ShadowMirror, Rows]:
    """TOPIC on A, and a shadow that is not started; (mirror, events)."""
    admin = AdminClient(quiet(deployment.clusters["A"].bootstrap))
    replicas = min(3, len(deployment.clusters["A"].brokers))
    admin.create_topics([NewTopic(TOPIC, 2, replicas)])[TOPIC].result(60)
    events = Events()
    mirror = make_mirror(
        MirrorSpec(kind="shadow", options=options), deployment.topology.links[0], deployment, events
    )
    return cast(ShadowMirror, mirror), events


def headers(
    broker: Broker, tp: tuple[str, int], *, below: int | None = None
) -> dict[str, list[int]]:
    topic, number = tp
    found = scan(sorted((broker.log_dir / f"{topic}-{number}").glob("*.log")))
    assert not found.damage
    keep = np.full(len(found.headers), True) if below is None else found.headers.last_offset < below
    return {name: getattr(found.headers, name)[keep].tolist() for name in found.headers.__slots__}


SAME = ("base_offset", "last_offset", "length", "crc", "producer_id", "control")


def assert_equal(
    deployment: Deployment,
    partitions: list[tuple[str, int]] = TOPIC_PARTITIONS,
    *,
    below: Mapping[tuple[str, int], int] | None = None,
    names: tuple[str, ...] = SAME,
) -> None:
    """Every replica on B has A's bytes, leader epochs apart."""
    source = next(iter(deployment.clusters["A"].brokers.values()))
    for tp in partitions:
        end = None if below is None else below[tp]
        there = headers(source, tp, below=end)
        assert there["base_offset"], f"nothing in {tp}"
        for broker in deployment.clusters["B"].brokers.values():
            here = headers(broker, tp, below=end)
            assert [here[name] for name in names] == [there[name] for name in names], (
                tp,
                broker.id,
            )


def drained(mirror: Mirror) -> None:
    until(
        lambda: mirror.lag() == 0,
        within=90,
        every=0.1,
        what="the mirror to drain",
        state=mirror.lag,
    )


def count(bootstrap: str, isolation: str) -> int:
    """Records of TOPIC that a reader of that isolation is given."""
    seen, ended = 0, set()
    consumer = reader(bootstrap, isolation)
    consumer.assign([TopicPartition(*tp, 0) for tp in TOPIC_PARTITIONS])

    def read_through() -> bool:
        nonlocal seen
        for message in consumer.consume(5000, 0.1):
            if message.error():
                ended.add(message.partition())
            else:
                seen += 1
        return len(ended) == len(TOPIC_PARTITIONS)

    until(read_through, within=60, what=f"{TOPIC} to be read", state=lambda: (seen, ended))
    consumer.close()
    return seen


def own_write(bootstrap: str, partition: int = 0, **settings: int) -> object:
    """Writes a record; its offset, or the error."""
    answers: list[object] = []
    producer = Producer(
        quiet(bootstrap) | {"message.timeout.ms": 10_000, "linger.ms": 0} | settings
    )
    producer.produce(
        TOPIC,
        b"own",
        partition=partition,
        on_delivery=lambda e, m: answers.append(e.name() if e else m.offset()),
    )
    producer.flush(20)
    return answers[0]


def ends(
    bootstrap: str, which: Bound = "high", partitions: list[tuple[str, int]] = TOPIC_PARTITIONS
) -> dict[tuple[str, int], int]:
    return answered(bootstrap, which, partitions)


def test_bytes_are_equal_across_a_kill_and_a_failover_aborts_what_was_open(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    mirror, events = shadowed(linkflap_deployment)
    writer = Writer(a, **{"compression.type": "lz4"})
    writer.write(6)
    mirror.start()
    with writer.writing():
        mirror.crash()
        assert not mirror.alive
        mirror.restart()
    other = Producer(quiet(a) | {"transactional.id": "other"})
    other.init_transactions(60)
    other.begin_transaction()
    other.produce(TOPIC, b"open", partition=0)
    other.flush(60)
    writer.write(2)
    group = Consumer(quiet(a) | {"group.id": "app", "enable.auto.commit": False})
    group.commit(offsets=[TopicPartition(TOPIC, 0, 30)], asynchronous=False)
    group.close()
    drained(mirror)
    assert_equal(linkflap_deployment)
    assert ends(b, "stable") == ends(a, "stable") != ends(b) == ends(a)
    assert count(b, "read_uncommitted") == count(a, "read_uncommitted")
    assert count(b, "read_committed") == count(a, "read_committed") > 0
    assert own_write(b) == "POLICY_VIOLATION"
    mirror.stop()
    assert not mirror.alive
    promoted = mirror.promotion()
    assert promoted == ends(a)
    assert_equal(linkflap_deployment, below=promoted)
    assert ends(b, "stable")[TOPIC, 0] == promoted[TOPIC, 0] + 1  # one ABORT marker
    assert own_write(b) == promoted[TOPIC, 0] + 1
    admin = AdminClient(quiet(b))
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("app")])["app"].result(
        20
    )
    assert [(p.topic, p.partition, p.offset) for p in asked.topic_partitions] == [(TOPIC, 0, 30)]
    mirror.stop()  # a failover and the end of a run may both ask for it
    kinds = [kind for kind, _, _ in events]
    assert kinds == ["mirror-started", "mirror-crashed", "mirror-started", "mirror-stopped"]


def test_growth_and_log_start_are_followed_and_a_topic_made_again_is_refused(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    mirror, _ = shadowed(linkflap_deployment)
    writer = Writer(a)
    writer.write(4)
    admin = AdminClient(quiet(a))
    admin.delete_records([TopicPartition(TOPIC, 0, 15)])[TopicPartition(TOPIC, 0, 15)].result(20)
    mirror.start()
    drained(mirror)
    until(
        lambda: ends(b, "start") == {TOPIC_PARTITIONS[0]: 15, TOPIC_PARTITIONS[1]: 0},
        within=120,
        what="B's log start",
        state=lambda: ends(b, "start"),
    )
    admin.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result(20)
    until(lambda: isinstance(own_write(a, 2), int), within=120, what="the new partition of A")
    drained(mirror)
    assert_equal(linkflap_deployment, [(TOPIC, 1), (TOPIC, 2)])
    before = ends(b)
    admin.delete_topics([TOPIC])[TOPIC].result(20)
    until(
        lambda: TOPIC not in admin.list_topics(timeout=60).topics,
        within=120,
        what="the topic to be gone",
    )
    admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(20)
    until(lambda: isinstance(own_write(a), int), within=120, what="the topic that was made again")
    until(lambda: "made again" in mirror.log.read_text(), within=120, what="the shadow to notice")
    assert ends(b) == before
    mirror.stop()
    assert mirror.promotion()[TOPIC, 1] == before[TOPIC, 1]


def test_a_topic_that_is_on_the_destination_already_is_refused(
    linkflap_deployment: Deployment,
) -> None:
    mirror, _ = shadowed(linkflap_deployment)
    admin = AdminClient(quiet(linkflap_deployment.clusters["B"].bootstrap))
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
    with pytest.raises(
        InputError,
        match=f"topic {TOPIC} exists on the destination of A->B already; remove it there",
    ):
        mirror.start()


@pytest.mark.linkflap(topology="A->B:3")
@pytest.mark.nightly
def test_nothing_is_writable_in_a_stall_and_a_dead_source_and_broker_do_not_stop_a_failover(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, _ = shadowed(linkflap_deployment)
    writer = Writer(a.bootstrap)
    mirror.start()
    writer.write(20)
    mirror.pause()
    stood, tried = time.monotonic(), []
    while time.monotonic() < stood + 30:
        tried.append(own_write(b.bootstrap, **{"message.timeout.ms": 3000}))
    assert not [offset for offset in tried if isinstance(offset, int)], tried
    mirror.resume()
    writer.write(5)
    drained(mirror)
    assert_equal(linkflap_deployment)
    a.brokers[1].kill()
    b.brokers[2].kill()
    mirror.crash()
    mirror.stop()
    promoted = mirror.promotion()
    until(
        lambda: ends(b.bootstrap) == promoted,
        within=120,
        what="B to be led",
        state=lambda: ends(b.bootstrap),
    )
    assert own_write(b.bootstrap) == promoted[TOPIC, 0]
    b.brokers[2].start()
    described = AdminClient(quiet(b.bootstrap))

    def whole() -> bool:
        partitions = described.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()
        return all(sorted(p.isrs) == [1, 2, 3] == sorted(p.replicas) for p in partitions)

    until(whole, within=60, every=0.2, what="the broker that was down to be back in every ISR")


@pytest.mark.nightly
@pytest.mark.parametrize("rule", ["truncate-once", "truncate-stable"])
def test_truncation_goes_back_to_the_last_stable_offset(
    linkflap_deployment: Deployment, rule: str
) -> None:
    """X opens before Y, and Y commits before X does: truncated where X begins the log has no marker
    of Y, and Y is open."""
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    mirror, _ = shadowed(linkflap_deployment, open_transactions=rule)
    mirror.start()
    y, x = (Producer(quiet(a) | {"transactional.id": name}) for name in "yx")
    for producer in (y, x):
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(TOPIC, b"begun", partition=0)  # y at offset 0, x at 1
        producer.flush(60)
    y.commit_transaction(60)
    drained(mirror)
    mirror.stop()
    # Y was committed on A. Truncated to 1 it has lost its marker; truncated until nothing is open
    # it is gone.
    assert mirror.promotion()[TOPIC, 0] == (1 if rule == "truncate-once" else 0)
    assert ends(b, "stable")[TOPIC, 0] == 0


@pytest.mark.nightly
@pytest.mark.parametrize("ids", ["negate", "region", "complement", "keep"])
def test_what_is_done_to_producer_ids_decides_what_brokers_track(
    linkflap_deployment: Deployment, ids: str
) -> None:
    """Negative ids are none to a broker: an open transaction does not hold the last stable offset
    back."""
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    mirror, _ = shadowed(linkflap_deployment, producer_ids=ids)
    writer = Writer(a)
    mirror.start()
    writer.write(3)
    writer.begin()
    drained(mirror)
    blind = ids in ("negate", "region")
    assert (ends(b, "stable") == ends(b)) == blind
    assert (count(b, "read_committed") > writer.committed) == blind
    assert_equal(linkflap_deployment, names=("base_offset", "last_offset", "length", "control"))
    here = headers(linkflap_deployment.clusters["B"].brokers[1], TOPIC_PARTITIONS[0])["producer_id"]
    assert all(producer_id < 0 for producer_id in here) == blind


def test_followers_report_the_clients_isolation(linkflap_deployment: Deployment) -> None:
    """Ends of logs through the shadow are a real broker's: high watermark, and last stable offset
    for read_committed."""
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    mirror, _ = shadowed(linkflap_deployment, bound="hw")
    writer = Writer(a)
    mirror.start()
    writer.write(3)
    writer.begin()
    drained(mirror)
    admin = AdminClient(quiet(b))
    asked = {TopicPartition(TOPIC, 0): OffsetSpec.latest()}
    seen_by = {
        isolation: (
            next(iter(admin.list_offsets(asked, isolation_level=isolation).values()))
            .result(20)
            .offset
        )
        for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    }
    assert seen_by == {IsolationLevel.READ_COMMITTED: 33, IsolationLevel.READ_UNCOMMITTED: 43}


@pytest.mark.nightly
def test_hidden_from_clients_the_destination_shows_nothing_until_the_failover(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    mirror, _ = shadowed(linkflap_deployment, clients="hidden", bound="lso", producer_ids="reset")
    writer = Writer(a)
    mirror.start()
    writer.write(3)
    drained(mirror)
    found = AdminClient(quiet(b)).list_topics(timeout=60)
    assert sorted(found.brokers) == [1]
    assert {p.leader for p in found.topics[TOPIC].partitions.values()} == {-1}
    assert_equal(linkflap_deployment)
    mirror.stop()
    promoted = mirror.promotion()
    assert promoted == ends(a)
    # The reset of each partition is behind what was mirrored, and readers skip it.
    assert {tp: end - promoted[tp] for tp, end in ends(b).items()} == dict.fromkeys(
        TOPIC_PARTITIONS, 1
    )
    assert count(b, "read_committed") == writer.committed


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A:3->B")
@pytest.mark.parametrize("epochs", ["rewrite", "keep"])
def test_a_source_that_was_truncated_by_an_unclean_election_is_followed(
    linkflap_deployment: Deployment, epochs: str
) -> None:
    """Records that only the dead leader had leave B too, and what A writes in their place has
    another leader epoch there."""
    a, b = linkflap_deployment.clusters["A"], linkflap_deployment.clusters["B"]
    admin = AdminClient(quiet(a.bootstrap))
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2]], config=config)])[
        TOPIC
    ].result(60)
    mirror = make_mirror(
        MirrorSpec(kind="shadow", options={"leader_epochs": epochs}),
        linkflap_deployment.topology.links[0],
        linkflap_deployment,
        Events(),
    )
    tp = (TOPIC, 0)
    assert [own_write(a.bootstrap) for _ in range(5)] == list(range(5))
    mirror.start()
    drained(mirror)
    a.brokers[2].stop()
    assert [own_write(a.bootstrap) for _ in range(5)] == list(range(5, 10))
    drained(mirror)
    a.brokers[1].kill()
    a.brokers[2].start()
    until(lambda: own_write(a.bootstrap) == 5, within=90, what="an unclean election on A")
    reaching = AdminClient(quiet(b.bootstrap))
    # While the shadow raises leader epochs the partition has no leader for a moment.
    until(
        lambda: answered_bounds(reaching, [tp], "high", within=5) == {tp: 6},
        within=60,
        what="B to be truncated and to follow",
    )
    drained(mirror)
    there, here = headers(a.brokers[2], tp), headers(b.brokers[1], tp)
    assert [here[name] for name in SAME] == [there[name] for name in SAME]
    assert here["leader_epoch"][5] > here["leader_epoch"][4]
    if epochs == "keep":
        assert here["leader_epoch"] == there["leader_epoch"]
    mirror.stop()
    assert mirror.promotion()[tp] == 6
