"""Compares the topics of a mirror's source and destination: existence, partition counts, configs
and ACLs.

Only configs set on the source's topic itself count (DYNAMIC_TOPIC_CONFIG), without those that a
mirror excludes by default. Configs that only the destination has are not compared: a mirror copies
the source's configs, but does not remove those that were removed at the source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, cast

import msgspec
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

from linkflap.harness.mirrors.topics import NOT_COPIED, data_topics
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.events import ComparedTopic, TopicsCompared
from linkflap.harness.model.wait import until
from linkflap.harness.wire.librdkafka import settings_on_topics

_SECONDS: Final = 10.0
_MADE: Final = (
    ("User:linkflap-reader", AclOperation.READ, AclPermissionType.ALLOW),
    ("User:linkflap-nobody", AclOperation.WRITE, AclPermissionType.DENY),
)
"""Created on each topic, for principals that no client uses."""
ACLS_PER_TOPIC: Final = len(_MADE)
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


def make_acls(admin: AdminClient, topics: Collection[str]) -> bool:
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


SYNCED_WITHIN: Final = 20.0
"""How long a sync of topics and configs may take: several times the refresh interval of a mirror's
metadata (2 s here)."""
LEFT_OUT: Final = NOT_COPIED | {
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
}
"""Topic configs that are not synced by default (mirror.topic.properties.exclude)."""
_OWN: Final = "mirror."
Settings = Mapping[str, Mapping[str, str]]


def with_acls(row: ComparedTopic, there: Acls, here: Acls) -> ComparedTopic:
    """The row with the differences between the ACLs of the source (`there`) and the destination
    (`here`)."""
    theirs, ours = set(there.get(row.topic, ())), set(here.get(row.topic, ()))
    return msgspec.structs.replace(
        row,
        acls=len(theirs | ours),
        missing=tuple(sorted(theirs - ours)),
        beside=tuple(sorted(ours - theirs)),
    )


def compared(
    there: Mapping[str, int], here: Mapping[str, int], theirs: Settings, ours: Settings
) -> tuple[ComparedTopic, ...]:
    """A row per topic of the source. The arguments map topics to partition counts, and topics to
    configs, at the source and at the destination."""
    return tuple(
        _row(topic, count, here.get(topic, 0), theirs.get(topic, {}), ours.get(topic, {}))
        for topic, count in there.items()
    )


def _row(
    topic: str, there: int, here: int, theirs: Mapping[str, str], ours: Mapping[str, str]
) -> ComparedTopic:
    names = [name for name in sorted(theirs) if name not in LEFT_OUT and not name.startswith(_OWN)]
    differing = {
        name: (theirs[name], ours.get(name)) for name in names if theirs[name] != ours.get(name)
    }
    return ComparedTopic(
        topic=topic,
        there=there,
        here=here,
        compared=len(names),
        differing=(differing or None) if here else None,
    )


def agrees(row: ComparedTopic) -> bool:
    differs = row.differing or row.missing or row.beside or row.recorded
    return row.there == row.here and not differs


def awaited(
    link: str,
    there: AdminClient,
    here: AdminClient,
    homes: tuple[str, ...],
    disagreeing: Callable[[Sequence[str]], Mapping[str, tuple[str, ...]]],
) -> TopicsCompared | None:
    """Compares the data topics of these homes at the source (`there`) and the destination (`here`);
    see `agreed`. `disagreeing` returns the differences between the mirror's own records and
    describe."""

    def ask() -> Sequence[ComparedTopic]:
        theirs, ours = data_topics(there, homes), data_topics(here, homes)
        both = [topic for topic in theirs if topic in ours]
        recorded = disagreeing(both)
        rows = [
            msgspec.structs.replace(row, recorded=recorded.get(row.topic, ()))
            for row in compared(
                theirs,
                ours,
                settings_on_topics(there, both, within=_SECONDS),
                settings_on_topics(here, both, within=_SECONDS),
            )
        ]
        at_source, at_destination = acls_of(there, both), acls_of(here, both)
        if at_source is None or at_destination is None:
            return rows
        return [with_acls(row, at_source, at_destination) if row.here else row for row in rows]

    return agreed(link, ask)


def agreed(
    link: str, ask: Callable[[], Sequence[ComparedTopic]], *, within: float = SYNCED_WITHIN
) -> TopicsCompared | None:
    """Compares until all topics agree or the time is up. Returns the last comparison; None when a
    cluster never answered, which proves nothing."""
    began, last = time.monotonic(), list[ComparedTopic]()

    def synced() -> bool:
        try:
            found = ask()
        except KafkaException:
            return False
        last[:] = found
        return all(map(agrees, found))

    with suppress(DeadlineExceeded):
        until(synced, within=within, every=0.2, what=f"the topics of {link} to be synced")
    return (
        TopicsCompared(link=link, rows=tuple(last), seconds=round(time.monotonic() - began, 3))
        if last
        else None
    )
