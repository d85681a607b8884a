"""Failback on real brokers: the reverse mirror takes over, truncates what was never mirrored, and
the logs are equal."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet
from tests.failback import away, led_by_its_own, revived, same_everywhere, truncations
from tests.shadows import (
    TOPIC,
    TOPIC_PARTITIONS,
    Writer,
    drained,
    ends,
    headers,
    own_write,
    shadowed,
)

pytestmark = pytest.mark.linkflap(topology="A->B")


def test_a_round_trip(linkflap_deployment: Deployment) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = shadowed(linkflap_deployment)
    mirror.start()
    Writer(a.bootstrap).write(6)
    with pytest.raises(
        InputError,
        match="the mirror of A->B cannot be reversed before it has failed over; stop it first",
    ):
        mirror.reversed()
    tail = away(linkflap_deployment, mirror)
    promoted = mirror.promotion()
    assert all(promoted[tp] < tail[tp] for tp in TOPIC_PARTITIONS)
    revived(a)
    assert ends(a.bootstrap) == tail
    back = mirror.reversed()
    back.start()
    truncated = truncations(events, "B->A")
    assert {tp: where for tp, (where, _) in truncated.items()} == promoted
    assert all(truncated[tp][1] >= tail[tp] for tp in TOPIC_PARTITIONS)
    assert own_write(a.bootstrap) == "POLICY_VIOLATION"
    Writer(b.bootstrap).write(2)
    drained(back)
    same_everywhere(linkflap_deployment)
    back.stop()
    led_by_its_own(a)
    same_everywhere(linkflap_deployment)
    assert back.promotion() == ends(b.bootstrap) == ends(a.bootstrap) == ends(a.bootstrap, "stable")
    assert isinstance(own_write(a.bootstrap), int)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("rounds", "options"),
    [
        (3, {}),
        (3, {"failback_point": "epoch"}),
        (1, {"leader_epochs": "keep", "producer_ids": "keep"}),
    ],
    ids=["offset", "epoch", "keep"],
)
def test_rounds_of_ping_pong(
    linkflap_deployment: Deployment, rounds: int, options: dict[str, str]
) -> None:
    mirror, events = shadowed(linkflap_deployment, **options)
    mirror.start()
    for _ in range(2 * rounds):
        here = linkflap_deployment.clusters[mirror.link.source]
        Writer(here.bootstrap).write(3)
        tail = away(linkflap_deployment, mirror)
        promoted = mirror.promotion()
        revived(here)
        mirror = mirror.reversed()
        mirror.start()
        truncated = truncations(events, mirror.link.name)
        assert {tp: where for tp, (where, _) in truncated.items()} == promoted
        assert all(truncated[tp][1] >= tail[tp] > promoted[tp] for tp in TOPIC_PARTITIONS)
        drained(mirror)
        same_everywhere(linkflap_deployment)
    mirror.stop()
    led_by_its_own(linkflap_deployment.clusters["A"])
    same_everywhere(linkflap_deployment)


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A:3->B")
def test_a_broker_that_was_down_during_the_failback_loses_its_tail_when_it_comes_back(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, _ = shadowed(linkflap_deployment)
    mirror.start()
    Writer(a.bootstrap).write(4)
    # It dies first, or brokers that were killed beside it would wait for it to lead (KIP-966).
    away(linkflap_deployment, mirror, first=3)
    revived(a, without=(3,))
    back = mirror.reversed()
    back.start()
    drained(back)
    same_everywhere(linkflap_deployment)
    a.brokers[3].start()
    Writer(b.bootstrap).write(2)

    def caught_up() -> bool:
        return all(
            headers(a.brokers[3], tp)["crc"] == headers(b.brokers[1], tp)["crc"]
            for tp in TOPIC_PARTITIONS
        )

    until(caught_up, within=60, every=0.2, what="broker 3 to have what the others have")
    drained(back)
    same_everywhere(linkflap_deployment)
    back.stop()
    led_by_its_own(a, replicas=3)
    same_everywhere(linkflap_deployment)


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A@3.9.2->B@4.1.2")
def test_releases_of_different_years(linkflap_deployment: Deployment) -> None:
    a = linkflap_deployment.clusters["A"]
    mirror, _ = shadowed(linkflap_deployment)
    mirror.start()
    Writer(a.bootstrap).write(4)
    away(linkflap_deployment, mirror)
    revived(a)
    back = mirror.reversed()
    back.start()
    away(linkflap_deployment, back, dead=False)
    led_by_its_own(a)
    forth = back.reversed()  # now B's log is cut: it was written to after the link was
    forth.start()
    drained(forth)
    same_everywhere(linkflap_deployment)
    forth.stop()


@pytest.mark.nightly
def test_transactions_that_the_dead_left_open_are_ended_after_the_failback(
    linkflap_deployment: Deployment,
) -> None:
    """A's coordinator owes an ABORT to partitions that the shadow leads: it waits until brokers
    lead them, and clients wait with it."""
    a = linkflap_deployment.clusters["A"]
    mirror, _ = shadowed(linkflap_deployment)
    mirror.start()
    left = Producer(
        quiet(a.bootstrap) | {"transactional.id": "left", "transaction.timeout.ms": 600_000}
    )
    left.init_transactions(60)
    Writer(a.bootstrap).write(2)
    left.begin_transaction()
    left.produce(TOPIC, b"open", partition=0)
    left.flush(60)
    away(linkflap_deployment, mirror)
    revived(a)
    back = mirror.reversed()
    back.start()
    drained(back)
    before = ends(linkflap_deployment.clusters["B"].bootstrap)
    late = Producer(quiet(a.bootstrap) | {"transactional.id": "left"})
    # The new incarnation makes the coordinator abort the old one's open transaction, which it
    # cannot do yet.
    with pytest.raises(KafkaException):
        late.init_transactions(8)
    assert ends(a.bootstrap) == before
    same_everywhere(linkflap_deployment)
    back.stop()
    led_by_its_own(a)
    until(
        lambda: _initialised(late),
        within=60,
        every=0.5,
        what="the coordinator to end what was left open",
    )
    late.begin_transaction()
    late.produce(TOPIC, b"after", partition=0)
    late.commit_transaction(60)
    assert ends(a.bootstrap) == ends(a.bootstrap, "stable")


def _initialised(producer: Producer) -> bool:
    try:
        producer.init_transactions(5)
    except KafkaException:
        return False
    return True
