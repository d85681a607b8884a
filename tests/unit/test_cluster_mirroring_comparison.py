"""Topics of a cluster mirror's source and destination are compared: configs, partitions, ACLs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from linkflap.harness.mirrors.cluster_mirroring.comparison import (
    LEFT_OUT,
    acls_of,
    agreed,
    agrees,
    compared,
    make_acls,
    with_acls,
)
from linkflap.harness.model.events import ComparedTopic

ROW = ComparedTopic(topic="A.x", there=1, here=1, compared=0)


def answered(value: object) -> Future[object]:
    future: Future[object] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


def cluster(answer: object) -> AdminClient:
    def create_acls(asked: list[AclBinding], **_: object) -> dict[AclBinding, Future[object]]:
        return {acl: answered(answer) for acl in asked}

    fake = SimpleNamespace(describe_acls=lambda _, **__: answered(answer), create_acls=create_acls)
    return cast(AdminClient, fake)


def refusing(code: int) -> AdminClient:
    return cluster(KafkaException(KafkaError(code)))


def reading(topic: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:r",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


def test_acls_are_by_topic_and_those_of_others_are_left_out() -> None:
    found = acls_of(cluster([reading("A.x"), reading("A.other")]), ["A.x", "A.y"])
    assert found == {"A.x": {"allow read to User:r from *"}, "A.y": set()}


def test_a_cluster_without_an_authorizer_keeps_none_and_another_refusal_is_raised() -> None:
    without = refusing(KafkaError.SECURITY_DISABLED)
    assert acls_of(without, ["A.x"]) is None
    assert not make_acls(without, ["A.x"])
    refuses = refusing(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        acls_of(refuses, ["A.x"])
    with pytest.raises(KafkaException):
        make_acls(refuses, ["A.x"])


def test_they_are_made_where_they_are_kept() -> None:
    assert make_acls(cluster(None), ["A.x"])


def test_what_is_missing_and_what_is_beside_differs() -> None:
    row = with_acls(ROW, {"A.x": {"a", "b"}}, {"A.x": {"b", "c"}})
    assert (row.acls, row.missing, row.beside) == (3, ("a",), ("c",))
    assert not agrees(row)
    assert agrees(with_acls(ROW, {"A.x": {"a"}}, {"A.x": {"a"}}))


SAME = ComparedTopic(topic="A.x", there=2, here=2, compared=1)
LATE = ComparedTopic(topic="A.x", there=2, here=0, compared=0)


def test_a_topic_that_is_the_same_has_nothing_that_differs() -> None:
    there = {"A.x": {"retention.ms": "1", "min.insync.replicas": "2"}}
    here = {"A.x": {"retention.ms": "1", "mirror.name": "A-B", "min.insync.replicas": "1"}}
    assert compared({"A.x": 2}, {"A.x": 2, "A.own": 1}, there, here) == (SAME,)


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_settings_that_mirrors_do_not_sync_by_default_may_differ(name: str) -> None:
    (row,) = compared({"A.x": 1}, {"A.x": 1}, {"A.x": {name: "1"}}, {})
    assert row.differing is None


def test_a_setting_that_is_not_set_there_or_of_another_value_differs() -> None:
    there, here = (
        {"A.x": {"retention.ms": "1", "segment.ms": "2"}},
        {"A.x": {"retention.ms": "3", "delete.retention.ms": "4"}},
    )
    (row,) = compared({"A.x": 1}, {"A.x": 1}, there, here)
    assert row.differing == {
        "retention.ms": ("1", "3"),
        "segment.ms": ("2", None),
    }
    assert row.compared == 2


def test_settings_that_the_source_has_not_set_are_not_compared() -> None:
    (row,) = compared({"A.x": 1}, {"A.x": 1}, {"A.x": {}}, {"A.x": {"retention.ms": "1"}})
    assert (row.differing, row.compared) == (None, 0)


def test_a_missing_topic_is_reported_as_missing_only() -> None:
    (row,) = compared({"A.x": 2}, {}, {"A.x": {"retention.ms": "1"}}, {})
    assert (row.there, row.here, row.differing) == (2, 0, None)


def test_it_is_waited_until_all_agree_and_a_cluster_that_never_answers_proves_nothing() -> None:
    answers: Iterator[Sequence[ComparedTopic]] = iter([(LATE,), (SAME,)])
    found = agreed("A->B", lambda: next(answers), within=5)
    assert found is not None
    assert found.rows == (SAME,)
    late = agreed("A->B", lambda: (LATE,), within=0.05)
    assert late is not None
    assert late.rows == (LATE,)

    def silent() -> Sequence[ComparedTopic]:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    assert agreed("A->B", silent, within=0.05) is None
