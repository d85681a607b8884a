"""Failback on real brokers: the reverse mirror takes over what is there, cuts the tail that never crossed, and the logs are one."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from harness.model.errors import InputError
from harness.model.wait import until
from harness.wire.offsets import quiet
from tests.integration.test_shadow import PLACES, SAME, TOPIC, Writer, drained, ends, headers, own_write, shadowed

pytestmark = [pytest.mark.integration, pytest.mark.linkflap(topology="A->B")]


def level(deployment, one: str, other: str) -> None:
    """Every live replica of both clusters has the same bytes, leader epochs apart."""
    logs = {
        (name, broker.id, place): [headers(broker, place)[key] for key in SAME]
        for name in (one, other)
        for broker in deployment.clusters[name].brokers.values()
        if broker.state == "running"
        for place in PLACES
    }
    for place in PLACES:
        told = [log for (_, _, at), log in logs.items() if at == place]
        assert told[0][0], f"nothing in {place}"
        assert all(log == told[0] for log in told), place


def led_by_real_brokers(bootstrap: str) -> bool:
    partitions = AdminClient(quiet(bootstrap)).list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()
    return all(0 <= p.leader < 1000 and max(p.replicas) < 1000 and sorted(p.isrs) == sorted(p.replicas) for p in partitions)


def test_a_round_trip(linkflap_deployment):
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = shadowed(linkflap_deployment)
    writer = Writer(a.bootstrap)
    mirror.start()
    writer.write(6)
    drained(mirror)
    with pytest.raises(InputError, match="the mirror of A->B cannot be reversed before it has failed over"):
        mirror.reversed()
    linkflap_deployment.links["A->B"].cut()
    writer.write(2)
    tail = ends(a.bootstrap)
    for broker in a.brokers.values():
        broker.kill()
    mirror.stop()
    promoted = mirror.promotion()
    assert all(promoted[place] < tail[place] for place in PLACES)
    Writer(b.bootstrap).write(5)
    linkflap_deployment.links["A->B"].restore()
    for broker in a.brokers.values():
        broker.start()
    assert ends(a.bootstrap) == tail
    back = mirror.reversed()
    assert back.link.name == "B->A"
    back.start()
    cuts = {(d["topic"], d["partition"]): (d["offset"], d["end"]) for kind, _, d in events if kind == "truncation"}
    assert {place: offset for place, (offset, _) in cuts.items()} == promoted
    assert all(cuts[place][1] >= tail[place] for place in PLACES)
    drained(back)
    level(linkflap_deployment, "A", "B")
    Writer(b.bootstrap).write(2)
    drained(back)
    back.stop()
    level(linkflap_deployment, "A", "B")
    until(lambda: led_by_real_brokers(a.bootstrap), within=30, what="real brokers to lead A")
    assert back.promotion() == ends(b.bootstrap)
    producer = Producer(quiet(a.bootstrap) | {"transactional.id": "writer"})
    producer.init_transactions(60)
    assert own_write(a.bootstrap) >= ends(b.bootstrap)[PLACES[0]]
