"""The lag of a mirror: the ends of the source's logs, asked for directly and not over the link,
against the offsets that the destination has.

The ends come from the leaders. In a chain whose shadows are hidden, clients see no leader for the
topics that the source itself mirrors. For those, each live replica reports its log end, and the
longest counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors.shadow.destination.client import follower_bounds
from linkflap.harness.mirrors.shadow.destination.picture import MetadataSnapshot, picture
from linkflap.harness.mirrors.shadow.destination.topic_configs import shadows_into
from linkflap.harness.mirrors.shadow.settings import ShadowOptions, folder_at
from linkflap.harness.mirrors.topics import data_topics
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.wire.connection import AnyOf, Connection, Unanswered
from linkflap.harness.wire.offsets import Partition, bounds
from linkflap.harness.wire.replicas import LATEST, replica_offsets


def source_ends(
    source: Cluster,
    admin: AdminClient,
    homes: tuple[str, ...],
    options: ShadowOptions,
    *,
    within: float,
) -> dict[Partition, int]:
    """The ends of all partitions of these homes' data topics at the source: the high watermark, or
    the last stable offset with the option bound=lso. Makes up to three requests, each with a
    timeout of `within` seconds.

    Raises KafkaException or Unanswered when an end is unknown.
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
    """The log end offset of the longest live replica of each partition. Raises Unanswered when one
    is unknown.

    `stable`: returns the last stable offset (LSO) of that replica instead. A replica caps its LSO
    at the high watermark it knows. When both are equal and below its log end, its real LSO may be
    higher. Then its log end is returned, so that the lag is never underestimated.
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
                address: await replica_offsets(connection, tps, LATEST)
                for address, connection in brokers.items()
            }
            longest = {p: max(addresses, key=lambda a, p=p: ends[a].get(p, -1)) for p in tps}  # type: ignore[misc]
            furthest = {p: ends[longest[p]].get(p, -1) for p in tps}
            if min(furthest.values(), default=0) < 0:
                raise Unanswered(
                    "no live replica reported its log end for"
                    f" {min(furthest, key=lambda p: furthest[p])}; is its cluster healthy?"
                )
            return await _stable(found, brokers, longest, furthest) if stable else furthest
    except TimeoutError as error:
        raise Unanswered(
            f"not all of {', '.join(addresses)} answered within {within:g} s"
        ) from error
    finally:
        nodes.close()
        for connection in brokers.values():
            connection.close()


async def _stable(
    found: MetadataSnapshot,
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
