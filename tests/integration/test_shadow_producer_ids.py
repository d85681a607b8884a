"""What `producer_ids=jump` prevents when a broker of B is suspended, and what it cannot: real
brokers allocate ids."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.failpoints import PAUSE_AT
from linkflap.harness.mirrors.shadow.producer_ids import MARGIN
from linkflap.harness.model.protocols import Broker, Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet
from tests.events import Rows
from tests.quorum import active_controller
from tests.shadow_sides import Shadowed, shadow
from tests.shadows import TOPIC, drained, ends, headers, make_topic

pytestmark = pytest.mark.nightly
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
    until(lambda: by.flush(0.5) == 0, within=90, what="a record to be acknowledged")
    return answers[0]


def mirrored_ids(deployment: Deployment, count: int) -> set[int]:
    """So many producers write one record each to A's topic; returns their ids."""
    for _ in range(count):
        write(producer(deployment, "A"))
    return set(headers(deployment.clusters["A"].brokers[1], (TOPIC, 0))["producer_id"])


def all_drained(mirror: Shadowed, brokers: Iterable[int]) -> None:
    until(
        lambda: mirror.notes().drained.keys() >= set(brokers),
        within=60,
        what="ids to be past",
        state=mirror._state,
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
    mirror = shadow(linkflap_deployment)
    mirror.start()
    taken = mirrored_ids(linkflap_deployment, 8)
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
    mirror = shadow(linkflap_deployment)
    monkeypatch.setenv(PAUSE_AT, "registered")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(mirror.start)
        until(
            lambda: mirror.step() == "registered",
            within=60,
            what="the shadow to be registered",
            state=mirror._state,
        )
        monkeypatch.delenv(PAUSE_AT)
        still.pause()
        try:
            mirror.go_on()
            starting.result(160)
            taken = mirrored_ids(linkflap_deployment, 8)
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
    mirror = shadow(linkflap_deployment)
    mirror.start()
    assert mirrored_ids(linkflap_deployment, 8) == set(range(8))
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
        until(there, within=60, what=f"{TOPIC}-0 to be read up to offset {end}")
    finally:
        consumer.close()
    return found
