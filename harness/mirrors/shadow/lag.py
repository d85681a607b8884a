"""How far a mirror is behind: what its source has, asked directly and not over the link, against
what the destination has.

Leaders are asked. In a chain whose shadows are hidden the source's own topics have no leader that
clients see: there each live replica is asked how far its log goes, and the longest is what the
source has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors.shadow.destination.client import DEBUGGING, follower_bounds
from linkflap.harness.mirrors.shadow.destination.picture import Picture, picture
from linkflap.harness.mirrors.shadow.destination.topic_configs import shadows_into
from linkflap.harness.mirrors.shadow.settings import Options, folder_at
from linkflap.harness.mirrors.topics import data_topics
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import AnyOf, Connection, Unanswered
from linkflap.harness.wire.messages import Error
from linkflap.harness.wire.offsets import Partition, bounds

_LATEST: Final = -1


def source_ends(
    source: Cluster, admin: AdminClient, homes: tuple[str, ...], options: Options, *, within: float
) -> dict[Partition, int]:
    """Where the partitions of these homes' topics end that are to be mirrored; `within` is for each
    of at most three questions.

    Raises KafkaException or Unanswered when it is unknown.
    """
    topics = data_topics(admin, homes, within=within)
    stable = options.bound == "lso"
    leaderless: set[str] = set()
    if options.clients == "hidden":
        leaderless = {name for notes in shadows_into(folder_at(source)) for name in notes.topics}
    led = [
        (name, number)
        for name, count in topics.items()
        if name not in leaderless
        for number in range(count)
    ]
    followed = [
        (name, number)
        for name, count in topics.items()
        if name in leaderless
        for number in range(count)
    ]
    ends = bounds(admin, led, "stable" if stable else "high", within=within)
    return ends | (replica_ends(source, followed, stable=stable, within=within) if followed else {})


def replica_ends(
    cluster: Cluster, tps: Sequence[Partition], *, stable: bool, within: float
) -> dict[Partition, int]:
    """Where the longest live replica of each partition ends. Raises Unanswered where that is not
    known of one of them.

    `stable`: the last stable offset instead, as far as that replica knows it. A replica that does
    not know the high watermark yet of what it has cannot tell more than that nothing before is
    open: then it is the end, so that nobody takes it for the last.
    """
    running = [
        broker.client_address for broker in cluster.brokers.values() if broker.state == "running"
    ]
    return asyncio.run(_replica_ends(running, tps, stable=stable, within=within))


async def _replica_ends(
    addresses: Sequence[str], tps: Sequence[Partition], *, stable: bool, within: float
) -> dict[Partition, int]:
    nodes, brokers = AnyOf(addresses), {address: Connection(address) for address in addresses}
    try:
        async with asyncio.timeout(within):
            found = await picture(nodes, {topic for topic, _ in tps})
            ends = {
                address: await _ends(connection, tps) for address, connection in brokers.items()
            }
            longest = {p: max(addresses, key=lambda a, p=p: ends[a].get(p, -1)) for p in tps}  # type: ignore[misc]
            furthest = {p: ends[longest[p]].get(p, -1) for p in tps}
            if min(furthest.values(), default=0) < 0:
                raise Unanswered(
                    f"no live replica of {min(furthest, key=lambda p: furthest[p])} said how far it"
                    " goes"
                )
            return await _stable(found, brokers, longest, furthest) if stable else furthest
    except TimeoutError as error:
        raise Unanswered(f"{', '.join(addresses)} did not all answer in {within:g} s") from error
    finally:
        nodes.close()
        for connection in brokers.values():
            connection.close()


async def _ends(connection: Connection, tps: Iterable[Partition]) -> dict[Partition, int]:
    """Log ends of those partitions that a broker has a replica of."""
    m = messages.request("list_offsets", 7)
    by_topic: dict[str, list[int]] = {}
    for topic, number in tps:
        by_topic.setdefault(topic, []).append(number)
    topics = tuple(
        m.ListOffsetsTopic(
            name=topic,
            partitions=tuple(
                m.ListOffsetsPartition(partition_index=number, timestamp=_LATEST)
                for number in numbers
            ),
        )
        for topic, numbers in by_topic.items()
    )
    answer = await connection.call(
        "list_offsets",
        7,
        m.ListOffsetsRequest(replica_id=DEBUGGING, isolation_level=0, topics=topics),
    )
    return {
        (str(topic.name), int(row.partition_index)): int(row.offset)
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code == Error.none
    }


async def _stable(
    found: Picture,
    brokers: Mapping[str, Connection],
    longest: Mapping[Partition, str],
    ends: Mapping[Partition, int],
) -> dict[Partition, int]:
    ids = {name: topic.id for name, topic in found.topics.items()}
    stable = dict(ends)
    for address, connection in brokers.items():
        asked = {tp: ends[tp] for tp, at in longest.items() if at == address}
        for tp, (mark, last_stable) in (
            await follower_bounds(connection, ids, asked) if asked else {}
        ).items():
            if last_stable < mark or mark >= ends[tp]:
                stable[tp] = last_stable
    return stable
