"""What stock brokers do with a shadow's records: resets, leader epochs, and producer ids that come
back."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet
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

pytestmark = pytest.mark.nightly

HERE = (TOPIC, 0)


class Idempotent:
    """A producer that gets an id with its first write; `write` returns the acknowledged offset."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(quiet(bootstrap) | {"enable.idempotence": True, "linger.ms": 0})

    def write(self) -> object:
        answers: list[object] = []
        self._producer.produce(
            TOPIC,
            b"own",
            partition=0,
            on_delivery=lambda e, m: answers.append(e.name() if e else m.offset()),
        )
        until(lambda: self._producer.flush(0.5) == 0, within=60, what="an acknowledgement")
        return answers[0]


def producer_states(deployment: Deployment, cluster: str) -> dict[int, int]:
    """Producer id -> last sequence, as the partition's leader reports them (KIP-664)."""

    async def ask() -> dict[int, int]:
        broker = deployment.clusters[cluster].brokers[1].client_address
        asked = Destination([broker])
        try:
            return {
                int(s.producer_id): int(s.last_sequence)
                for s in await asked.producers(broker, HERE)
            }
        finally:
            asked.close()

    return asyncio.run(ask())


def expire_producers(bootstrap: str) -> None:
    """The effect of a reset by other means: brokers forget producers that have not written for a
    millisecond."""
    entry = ConfigEntry(
        "producer.id.expiration.ms", "1", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient(quiet(bootstrap))
    admin.incremental_alter_configs([resource])[resource].result(30)


def leader(deployment: Deployment, cluster: str) -> int:
    found = AdminClient(quiet(deployment.clusters[cluster].bootstrap)).list_topics(
        TOPIC, timeout=60
    )
    return found.topics[TOPIC].partitions[0].leader


@pytest.mark.linkflap(topology="A->B")
def test_a_reset_record_clears_no_producer_state_and_expiry_does_what_it_should(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    a, b = (up.clusters[name].bootstrap for name in "AB")
    make_topic(up, "A")
    mirror = shadow(up, "A->B", producer_ids="reset")
    mirror.start()
    first = Idempotent(a)
    assert [first.write(), first.write()] == [0, 1]
    assert Idempotent(a).write() == 2
    drained(mirror)
    mirror.stop()
    assert mirror.promotion()[HERE] == 3
    reset = headers(up.clusters["B"].brokers[1], HERE, above=3)
    assert (reset["base_offset"], reset["control"], reset["producer_id"]) == ([3], [2], [-1])
    assert producer_states(up, "B") == {0: 1, 1: 0}, "behind the reset, as if it were not there"
    assert Idempotent(b).write() == 0, "id 0 again: acknowledged with the offset of a record of A"
    assert ends(up.clusters["B"])[HERE] == 4, "and nothing was appended"
    expire_producers(b)
    until(
        lambda: not producer_states(up, "B"),
        within=60,
        what="B to forget A's producers",
        state=lambda: producer_states(up, "B"),
    )
    assert Idempotent(b).write() == 4, "id 1, which A's second producer had: appended"
    assert headers(up.clusters["B"].brokers[1], HERE, above=4)["producer_id"] == [1]


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
        until(lambda: leader(up, "B") == -1, within=60, what="the shadow's session to end")
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
    until(lambda: isinstance(own_write(a.bootstrap), int), within=60, what="A to be led")
    drained(mirror)
    assert_equal(up, "A", "B", [HERE])
    kept = headers(up.clusters["B"].brokers[1], HERE)["leader_epoch"]
    assert kept == headers(a.brokers[1], HERE)["leader_epoch"]
    assert len(set(kept)) > 1


@pytest.mark.linkflap(topology="A->B->C")
def test_ids_that_a_second_hop_gives_back_collide_there(linkflap_deployment: Deployment) -> None:
    """RS12: the ids that complement keeps away from B reach C."""
    up = linkflap_deployment
    make_topic(up, "A")
    first, second = (shadow(up, link, producer_ids="complement") for link in ("A->B", "B->C"))
    first.start()
    second.start()
    source = Idempotent(up.clusters["A"].bootstrap)
    assert [source.write(), source.write()] == [0, 1]
    drained(first, second)
    held = {name: set(headers(up.clusters[name].brokers[1], HERE)["producer_id"]) for name in "ABC"}
    assert held == {"A": {0}, "B": {2**63 - 2}, "C": {0}}
    first.stop()
    second.stop()
    answers = {name: Idempotent(up.clusters[name].bootstrap).write() for name in "BC"}
    assert answers == {"B": 2, "C": 0}, "C takes its own producer 0 for A's, and appends nothing"
    assert {name: ends(up.clusters[name])[HERE] for name in "BC"} == {"B": 3, "C": 2}
