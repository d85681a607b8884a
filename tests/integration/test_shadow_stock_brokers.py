"""Stock brokers with a shadow's records: leader epochs, and producer ids that are kept or jump.
Resets, and ids that come back, are cases: reset-on-stock-brokers, RS12-*-ids-on-a-chain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
)

from linkflap.chaos.cases.wire import Wire, record_batch
from linkflap.harness.mirrors.shadow.batches import MARGIN
from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.journal import PAUSE_AT, Journal
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Broker, Deployment
from linkflap.harness.wire.librdkafka import quiet
from linkflap.recording.kept_clusters import align_producer_ids
from tests.events import Rows
from tests.on_runtimes import active_controller
from tests.shadow_sides import Shadowed
from tests.shadow_sides import shadow as behind_sides
from tests.shadows import (
    TOPIC,
    TOPIC_PARTITIONS,
    Writer,
    assert_equal,
    drained,
    ends,
    headers,
    make_topic,
    own_write,
    shadow,
)
from tests.waiting import eventually

pytestmark = pytest.mark.nightly


HERE = (TOPIC, 0)


def leader(deployment: Deployment, cluster: str) -> int:
    found = AdminClient(quiet(deployment.clusters[cluster].bootstrap)).list_topics(
        TOPIC, timeout=60
    )
    return found.topics[TOPIC].partitions[0].leader


@pytest.mark.linkflap(topology="A->B")
def test_a_batch_above_the_leader_epoch_is_skipped_for_ever_and_raising_the_epoch_cures_it(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    make_topic(up, "A")
    mirror = shadow(up, "A->B")
    writer = Writer(up.clusters["A"].bootstrap)
    mirror.start()
    writer.write(2)
    drained(mirror)
    end = ends(up.clusters["A"])
    mirror.crash()
    journal = Journal(mirror.log.parent)
    for topic, number in TOPIC_PARTITIONS:
        note = journal.partition(topic, number)
        note.epochs = [*note.epochs, (3, end[topic, number])]
    journal.save()
    mirror.restart()
    writer.write(2)
    with pytest.raises(DeadlineExceeded):
        drained(mirror, within=5)
    broker = up.clusters["B"].brokers[1]
    assert {tp: headers(broker, tp)["last_offset"][-1] + 1 for tp in TOPIC_PARTITIONS} == end
    assert max(headers(broker, HERE)["leader_epoch"]) < 3
    for _ in range(2):  # every time the shadow is fenced, the leader epoch rises by 2
        mirror.crash()
        eventually("the shadow's session to end", lambda: leader(up, "B") == -1)
        mirror.restart()
    drained(mirror)
    assert_equal(up, "A", "B")
    assert headers(broker, HERE, above=end[HERE])["leader_epoch"][0] >= 3


@pytest.mark.linkflap(topology="A->B")
def test_epochs_that_are_kept_and_rise_on_the_source_are_raised_on_the_destination_first(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    make_topic(up, "A")
    mirror = shadow(up, "A->B", leader_epochs="keep")
    mirror.start()
    a = up.clusters["A"]
    for _ in range(3):
        assert isinstance(own_write(a.bootstrap), int)
        a.brokers[1].kill()
        a.brokers[1].start()
    eventually("A to be led", lambda: isinstance(own_write(a.bootstrap), int))
    drained(mirror)
    assert_equal(up, "A", "B", [HERE])
    kept = headers(up.clusters["B"].brokers[1], HERE)["leader_epoch"]
    assert kept == headers(a.brokers[1], HERE)["leader_epoch"]
    assert len(set(kept)) > 1


@pytest.mark.linkflap(topology="A->B")
def test_a_kept_id_is_refused_where_the_mirrored_producer_had_written_more_than_a_broker_keeps(
    linkflap_deployment: Deployment,
) -> None:
    """On clusters that were used before, too, once their producer ids are aligned: there a mirror
    that mixes up ids is noticed as on new ones."""
    up = linkflap_deployment
    source, destination = (Wire(up.clusters[n].brokers[1].client_address) for n in "AB")
    with closing(source), closing(destination):
        while (ahead := destination.init_producer_id().id) < 1200:  # in another block than A
            pass
        align_producer_ids(up)
        make_topic(up, "A")
        mirror = shadow(up, "A->B", producer_ids="keep")
        mirror.start()
        theirs = source.init_producer_id()
        for sequence in range(7):
            batch = record_batch([b"of A"], producer=theirs, sequence=sequence)
            assert source.produce(HERE, batch) == ("none", sequence)
        drained(mirror)
        mirror.stop()
        own = destination.init_producer_id()
        assert own == theirs
        assert own.id > ahead
        batch = record_batch([b"of B"], producer=own, sequence=0)
        error, _ = destination.produce(HERE, batch)
    assert error == "out_of_order_sequence_number"
    assert ends(up.clusters["B"])[HERE] == 7


# What `producer_ids=jump` prevents when a broker of B is suspended, and what it cannot: real
# brokers allocate ids.


OWN = "B.own"


def drawn(broker: Broker) -> int:
    """An id that this broker allocates."""

    async def draw() -> int:
        destination = Destination([broker.client_address])
        try:
            async with asyncio.timeout(60):
                while (
                    producer_id := await destination.draw_producer_id(broker.client_address)
                ) < 0:
                    await asyncio.sleep(0.05)
            return producer_id
        finally:
            destination.close()

    return asyncio.run(draw())


def producer(deployment: Deployment, cluster: str, **settings: str) -> Producer:
    config = {"enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": 60_000}
    return Producer(quiet(deployment.clusters[cluster].bootstrap) | config | settings)


def write(by: Producer, topic: str = TOPIC, value: bytes = b"own") -> object:
    """The acknowledged offset of one record, or the name of the error."""
    answers: list[object] = []
    by.produce(
        topic,
        value,
        partition=0,
        on_delivery=lambda e, m: answers.append(e.name() if e else m.offset()),
    )
    eventually("a record to be acknowledged", lambda: by.flush(0.5) == 0)
    return answers[0]


def mirrored_ids(deployment: Deployment) -> set[int]:
    """Eight producers write one record each to A's topic; returns their ids."""
    for _ in range(8):
        write(producer(deployment, "A"))
    return set(headers(deployment.clusters["A"].brokers[1], (TOPIC, 0))["producer_id"])


def all_drained(mirror: Shadowed, brokers: Iterable[int]) -> None:
    eventually(
        "ids to be past", lambda: mirror.notes().drained.keys() >= set(brokers), state=mirror._state
    )


@pytest.mark.linkflap(topology="A->B:3")
def test_the_active_controller_stands_still_in_the_failover(
    linkflap_deployment: Deployment,
) -> None:
    """Its block had ids that the source allocated as well; brokers wait half a minute for their
    channel to it."""
    b = linkflap_deployment.clusters["B"]
    still = b.brokers[active_controller(b)]
    first = drawn(still)
    mirror = behind_sides(linkflap_deployment)
    mirror.start()
    taken = mirrored_ids(linkflap_deployment)
    drained(mirror)
    all_drained(mirror, b.brokers)
    assert first in taken
    still.pause()
    try:
        mirror.stop()
    finally:
        still.resume()
    assert mirror.notes().undrained == {}
    assert cast(Rows, mirror._recorder)[-1][2]["undrained"] == {}
    promoted = mirror.promotion()[TOPIC, 0]
    assert promoted == 8
    assert min(map(drawn, b.brokers.values())) >= max(taken) + MARGIN
    assert [write(producer(linkflap_deployment, "B")) for _ in range(6)] == list(
        range(promoted, promoted + 6)
    )


@pytest.mark.linkflap(topology="A->B:3")
def test_a_broker_that_stood_still_all_the_while_is_reported_and_is_safe_when_it_is_started_anew(
    linkflap_deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it continued, it would allocate mirrored ids: that danger remains, and docs/shadow.md
    describes it."""
    b = linkflap_deployment.clusters["B"]
    active = active_controller(b)
    number = next(one for one in b.brokers if one != active)
    still = b.brokers[number]
    first = drawn(still)
    mirror = behind_sides(linkflap_deployment)
    monkeypatch.setenv(PAUSE_AT, "registered")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(mirror.start)
        mirror.come_to("registered")
        monkeypatch.delenv(PAUSE_AT)
        still.pause()
        try:
            mirror.go_on()
            starting.result(160)
            taken = mirrored_ids(linkflap_deployment)
            drained(mirror)
            mirror.stop()
        finally:
            still.resume()
    assert cast(Rows, mirror._recorder)[-1][2]["undrained"] == {str(number): 0}
    assert first < drawn(still) < max(taken) + MARGIN
    still.kill()
    still.start()
    assert drawn(still) >= max(taken) + MARGIN


@pytest.mark.linkflap(topology="A->B")
def test_producers_of_b_that_are_older_than_the_mirror_keep_ids_that_are_mirrored(
    linkflap_deployment: Deployment,
) -> None:
    """B takes their first records for repeats of A's, and acknowledges them: also in a transaction
    whose record does not exist."""
    make_topic(linkflap_deployment, "B", OWN)
    older = [producer(linkflap_deployment, "B") for _ in range(3)]
    for one in older:
        write(one, OWN)
    transactional = producer(linkflap_deployment, "B", **{"transactional.id": "older"})
    transactional.init_transactions(60)
    transactional.begin_transaction()
    write(transactional, OWN)
    transactional.commit_transaction(60)
    mirror = behind_sides(linkflap_deployment)
    mirror.start()
    assert mirrored_ids(linkflap_deployment) == set(range(8))
    drained(mirror)
    mirror.stop()
    assert sorted(cast(int, write(one)) for one in older) == [0, 1, 2], "offsets of A's records"
    transactional.begin_transaction()
    assert write(transactional, value=b"lost") == 3
    transactional.commit_transaction(60)
    # An id drawn after the mirror began lies above all that was mirrored.
    younger = producer(linkflap_deployment, "B")
    at = write(younger, value=b"kept")
    assert at == ends(linkflap_deployment.clusters["B"], partitions=[(TOPIC, 0)])[TOPIC, 0] - 1 >= 8
    assert [
        value for value in read(linkflap_deployment, at + 1) if not value.startswith(b"own")
    ] == [b"kept"]


def read(deployment: Deployment, end: int) -> list[bytes]:
    """Values that a read_committed reader of B gets up to that offset."""
    settings = {
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(quiet(deployment.clusters["B"].bootstrap) | settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []

    def there() -> bool:
        got = consumer.poll(0.5)
        if got is not None and got.error() is None:
            value = got.value()
            assert value is not None
            found.append(value)
        return consumer.position([TopicPartition(TOPIC, 0)])[0].offset >= end

    try:
        eventually(f"{TOPIC}-0 to be read up to offset {end}", there)
    finally:
        consumer.close()
    return found
