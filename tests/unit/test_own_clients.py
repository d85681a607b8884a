"""The caller's own clients: what they refuse, and which histories are decided without a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka.cimpl import KafkaError, Message

import linkflap
from linkflap.api.producer import Flight
from linkflap.harness.model.scenario import WorkloadSpec


def record(
    flight: Flight, topic: str, partition: int, uid: int
) -> Callable[[KafkaError | None, Message[bytes, bytes]], None]:
    return flight.record(topic, partition, uid)


class Delivered:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


def test_records_of_one_partition_with_consecutive_ids_are_one_group() -> None:
    flight = Flight(7, "transaction")
    reports = [
        record(flight, "A.orders", partition, uid) for uid, partition in enumerate([0, 0, 1, 0, 0])
    ]
    planned = [
        (g.topic, g.partition, g.first_uid, g.count)
        for g in (each.planned() for each in flight.groups)
    ]
    assert planned == [("A.orders", 0, 0, 2), ("A.orders", 1, 2, 1), ("A.orders", 0, 3, 2)]
    for report, offset in zip(reports, [10, 11, 5, 12, 13], strict=True):
        report(None, cast("Message[bytes, bytes]", Delivered(offset)))
    assert [group.outcome().acks for group in flight.groups] == [
        ((0, 2, 10),),
        ((0, 1, 5),),
        ((0, 2, 12),),
    ]
    assert flight.acked == 5


def test_a_record_that_the_client_did_not_accept_is_certainly_refused() -> None:
    flight = Flight(7, "send")
    record(flight, "A.orders", 0, 3)
    flight.refuse()
    assert flight.groups[0].all_refused
    assert flight.groups[0].outcome().refused == ((0, 1),)


@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
@pytest.mark.parametrize(
    "config", [{}, {"bootstrap.servers": "localhost:1"}, {"bootstrap.servers": 5}]
)
def test_an_address_of_no_world_is_refused(
    kind: str, config: dict[str, str] | dict[str, int]
) -> None:
    with pytest.raises(linkflap.InputError, match="leads to no cluster of this process"):
        getattr(linkflap, kind)({"group.id": "mine", **config})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"topology": "A->"}, "topology 'A->'"),
        (
            {"topics": {"orders": 1}},
            "topic 'orders' does not begin with its home cluster; call it A.orders",
        ),
        ({"topics": {"C.orders": 1}}, "does not begin with its home cluster"),
        ({"topics": {"A.orders": 0}}, "cannot have 0 partitions"),
        ({"topics": "A.orders"}, "topics is the text"),
        ({"mirror": "mm3"}, "there is no mirror 'mm3'"),
        ({"mirror_options": {"tasks": 3}}, "mirror_options need a mirror"),
        ({"runtime": "boat"}, "there is no runtime 'boat'"),
        (
            {"workloads": [linkflap.WorkloadSpec(kind="readres", home="A")]},
            "there is no workload 'readres'",
        ),
        ({"workloads": [linkflap.WorkloadSpec(kind="readers", home="C")]}, "no cluster 'C'"),
    ],
)
def test_a_deployment_that_cannot_be_is_one_sentence_before_anything_starts(
    tmp_path: Path,
    arguments: dict[str, str] | dict[str, dict[str, int]] | dict[str, list[WorkloadSpec]],
    said: str,
) -> None:
    with (
        pytest.raises(linkflap.InputError, match=said),
        linkflap.deploy(folder=tmp_path / "run", **arguments),
    ):
        pytest.fail("it started")
    assert list(tmp_path.iterdir()) == []
