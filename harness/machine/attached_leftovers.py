"""The topics and consumer groups that a run creates on clusters that linkflap did not start, and
their removal. They are known by their names.

A run owns the names that begin with those of its clusters, and MirrorMaker 2's internal topics for
them. It refuses to start where there is a topic or group of such a name (`owned`). So whatever has
one later was made by the run, and is removed at its end; after its death by its watchdog, or by
`linkflap clean`. MirrorMaker 2 makes one more topic, HEARTBEATS, that others may have too. It is
removed where it was not there before, and if it is empty: linkflap's never writes to it.

One run at a time plays on a cluster, whatever the names of its clusters: IN_USE is there until all
else is removed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from linkflap.harness.machine import client_properties
from linkflap.harness.machine.engine_leftovers import StillThere
from linkflap.harness.model.errors import DeadlineExceeded, InputError
from linkflap.harness.model.wait import until

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ASK_SECONDS: Final = 10.0
GONE_WITHIN: Final = 20.0
"""Seconds in which topics and groups must be gone. Members of a group that died stay in it until
their session ends: 6 s for linkflap's own (`harness.workloads.readers`)."""
SERVES_WITHIN: Final = 60.0
"""Seconds in which a broker that was just started must serve."""
HEARTBEATS: Final = "heartbeats"
IN_USE: Final = "linkflap.in-use.internal"
"""The topic that a run creates first and removes last, so that no other run uses the cluster."""
_GROUP: Final = re.compile(r"linkflap[.-].*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A cluster that a run attaches to: its addresses, its cluster id, the names of the clusters in
    the run's topology, whether it had a topic HEARTBEATS before, and where its client properties
    are."""

    name: str
    bootstrap: str
    id: str
    clusters: tuple[str, ...]
    had_heartbeats: bool
    properties: str = ""

    def owns_topic(self, topic: str) -> bool:
        """Whether a topic of this name is the run's: `A.orders`, `mm2-offsets.A.internal`."""
        names = "|".join(map(re.escape, self.clusters))
        return bool(re.fullmatch(rf"(?:{names})\..+|mm2-[a-z-]+\.(?:{names})\.internal", topic))

    def owns_group(self, group: str) -> bool:
        """Whether a group of this name is the run's: `linkflap.A.read_committed`, or that of a
        MirrorMaker 2 worker, `A-mm2`."""
        return bool(_GROUP.fullmatch(group)) or group in {f"{name}-mm2" for name in self.clusters}


def admin_of(bootstrap: str, properties: str) -> AdminClient:
    """A client that prints nothing. Raises InputError for client properties that cannot be
    read."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient  # the ledger is read by processes without it

    found = client_properties.read(properties)
    try:
        return AdminClient(found.librdkafka(bootstrap))
    except KafkaException as error:
        raise InputError(
            f"{properties}: librdkafka refuses these client properties ({error.args[0].str()})"
        ) from None


def owned(cluster: Attached, admin: AdminClient) -> tuple[Sequence[str], Sequence[str]]:
    """The topics and the groups that a cluster has under the run's names. Raises KafkaException."""
    topics = admin.list_topics(timeout=ASK_SECONDS).topics
    made = not cluster.had_heartbeats and HEARTBEATS in topics and _is_empty(admin)
    listed = admin.list_consumer_groups(request_timeout=ASK_SECONDS).result(2 * ASK_SECONDS)
    return (
        sorted([*filter(cluster.owns_topic, topics), *([HEARTBEATS] if made else [])]),
        sorted(g.group_id for g in listed.valid if cluster.owns_group(g.group_id)),
    )


def _is_empty(admin: AdminClient) -> bool:
    """Whether HEARTBEATS, which has one partition, is empty. Raises KafkaException."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    asked = {TopicPartition(HEARTBEATS, 0): OffsetSpec.latest()}
    (end,) = admin.list_offsets(asked, request_timeout=ASK_SECONDS).values()
    return not end.result(2 * ASK_SECONDS).offset


def remove(cluster: Attached, *, starting: bool = False) -> Iterator[str]:
    """Removes the topics and groups of the run, and yields their names. `starting`: a broker has
    just been started, and may serve only in a while. Raises StillThere if some are left, or if
    another cluster now answers at the addresses.
    """
    from confluent_kafka import KafkaException

    where = f"cluster {cluster.name} at {cluster.bootstrap}"
    left: tuple[Sequence[str], Sequence[str]] = ((), ())
    asked: set[str] = set()

    try:
        admin = admin_of(cluster.bootstrap, cluster.properties)
    except InputError as error:
        raise StillThere(
            [
                f"{where} may still have topics {_topics_of(cluster)}, and cannot be entered "
                f"({error}); correct that, and run `linkflap clean` again"
            ]
        ) from None

    def gone() -> bool:
        nonlocal left
        left = owned(cluster, admin)
        topics, groups = left
        asked.update((*(f"topic {name}" for name in topics), *(f"group {name}" for name in groups)))
        if topics:
            _settle(admin.delete_topics(list(topics), operation_timeout=ASK_SECONDS))
        if groups:
            _settle(admin.delete_consumer_groups(list(groups), request_timeout=ASK_SECONDS))
        return not (topics or groups)

    if starting:
        with contextlib.suppress(DeadlineExceeded):  # the requests below say what is wrong
            until(partial(_serves, cluster, admin), within=SERVES_WITHIN, every=0.5, what=where)
    try:
        found = str(admin.describe_cluster(request_timeout=ASK_SECONDS).result().cluster_id)
        if found != cluster.id:
            raise StillThere(
                [
                    f"{where} is another one by now (cluster.id {found}, and not {cluster.id}): "
                    "nothing was removed there"
                ]
            )
        until(gone, within=GONE_WITHIN, every=0.5, what=f"what was made on {where} to be gone")
        left = ([IN_USE], ())
        _delete_if_there(admin, IN_USE)
    except (DeadlineExceeded, _Denied):
        raise StillThere(
            [
                f"{what} {name} is left on {where}; remove it as somebody who may (kafka-{tool}.sh "
                f"--bootstrap-server {cluster.bootstrap} --delete --{what} {name}), or run "
                "linkflap clean again"
                for what, tool, names in zip(
                    ("topic", "group"), ("topics", "consumer-groups"), left, strict=True
                )
                for name in names
            ]
        ) from None
    except (KafkaException, TimeoutError) as error:
        raise StillThere(
            [
                f"{where} cannot be cleaned yet ({why(error)}), and may still have topics "
                f"{_topics_of(cluster)}; when its brokers serve again, remove them with `linkflap "
                "clean`"
            ]
        ) from None
    for name in sorted(asked):
        yield f"{name} on {where}"


def _serves(cluster: Attached, admin: AdminClient) -> bool:
    from confluent_kafka import KafkaException

    with contextlib.suppress(KafkaException, TimeoutError):
        owned(cluster, admin)
        return True
    return False


def why(error: Exception) -> str:
    """The reason in a KafkaException or TimeoutError, in words for people who run clusters."""
    from confluent_kafka import KafkaException

    if not isinstance(error, KafkaException) or error.args[0].code() < 0:  # librdkafka's own
        return "no broker answers in time"
    found = error.args[0]
    return f"its brokers are not ready: {found.str()}" if found.retriable() else str(found.str())


class _Denied(Exception):
    """The credentials of the run may not delete what it has made."""


def _delete_if_there(admin: AdminClient, topic: str) -> None:
    """Raises KafkaException, and _Denied."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        admin.delete_topics([topic], operation_timeout=ASK_SECONDS)[topic].result(2 * ASK_SECONDS)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise _Denied from None
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise


def _topics_of(cluster: Attached) -> str:
    return ", ".join(f"{name}.*" for name in cluster.clusters)


def _settle(asked: dict[Any, Future[None]]) -> None:
    """Waits for the answers, and ignores errors: what was not removed is found again by the next
    request.
    """
    from confluent_kafka import KafkaException

    for future in asked.values():
        with contextlib.suppress(KafkaException, TimeoutError):
            future.result(2 * ASK_SECONDS)
