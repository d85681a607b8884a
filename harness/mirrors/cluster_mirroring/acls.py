"""ACLs on the topics of a mirror's source: the run creates some, and reads them on both sides.

In a build with Cluster Mirroring, the authorizer makes every anonymous client a super user, so that
it refuses nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

_SECONDS: Final = 10.0
_MADE: Final = (
    ("User:linkflap-reader", AclOperation.READ, AclPermissionType.ALLOW),
    ("User:linkflap-nobody", AclOperation.WRITE, AclPermissionType.DENY),
)
"""Created on each topic, for principals that no client uses."""
PER_TOPIC: Final = len(_MADE)
_EVERY: Final = AclBindingFilter(
    ResourceType.TOPIC,
    cast(str, None),  # any; missing in the client's type hints
    ResourcePatternType.LITERAL,
    cast(str, None),
    cast(str, None),
    AclOperation.ANY,
    AclPermissionType.ANY,
)
Acls = Mapping[str, Collection[str]]


def make(admin: AdminClient, topics: Collection[str]) -> bool:
    """Creates the ACLs on each of these topics. Returns whether the cluster has an authorizer.
    Raises KafkaException."""
    asked = admin.create_acls(list(_made(topics)), request_timeout=_SECONDS) if topics else {}
    try:
        for future in asked.values():
            future.result(2 * _SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.SECURITY_DISABLED:
            raise
        return False
    return True


def _made(topics: Collection[str]) -> Iterator[AclBinding]:
    for topic in topics:
        for who, what, permission in _MADE:
            yield AclBinding(
                ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, who, "*", what, permission
            )


def acls_of(admin: AdminClient, topics: Collection[str]) -> Acls | None:
    """Topic -> the ACLs on its name, in words; None when the cluster has no authorizer. Raises
    KafkaException."""
    try:
        listed = admin.describe_acls(_EVERY, request_timeout=_SECONDS).result(2 * _SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.SECURITY_DISABLED:
            raise
        return None
    found: dict[str, set[str]] = {topic: set() for topic in topics}
    for acl in listed:
        if acl.name in found:
            found[acl.name].add(words(acl))
    return found


def words(acl: AclBinding) -> str:
    permission, operation = AclPermissionType(acl.permission_type), AclOperation(acl.operation)
    return f"{permission.name.lower()} {operation.name.lower()} to {acl.principal} from {acl.host}"
