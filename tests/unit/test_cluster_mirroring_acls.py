"""ACLs of a mirror's source and destination: their names, their differences, and clusters that have
none."""

from __future__ import annotations

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

from linkflap.harness.mirrors.cluster_mirroring.comparison import acls_of, agrees, make, with_acls
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
    assert not make(without, ["A.x"])
    refuses = refusing(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        acls_of(refuses, ["A.x"])
    with pytest.raises(KafkaException):
        make(refuses, ["A.x"])


def test_they_are_made_where_they_are_kept() -> None:
    assert make(cluster(None), ["A.x"])


def test_what_is_missing_and_what_is_beside_differs() -> None:
    row = with_acls(ROW, {"A.x": {"a", "b"}}, {"A.x": {"b", "c"}})
    assert (row.acls, row.missing, row.beside) == (3, ("a",), ("c",))
    assert not agrees(row)
    assert agrees(with_acls(ROW, {"A.x": {"a"}}, {"A.x": {"a"}}))
