"""Aborts transactions like a transaction coordinator: sends WriteTxnMarkers (KIP-98) to the brokers
that lead after the handover.

The transactions to abort are journaled before the handover, because after it clients of the
destination may begin transactions of their own. A WriteTxnMarkers response has no marker offsets,
so they are read from the log. After a kill, the markers that were already written are found there
too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.destination.picture import MetadataSnapshot
from linkflap.harness.mirrors.shadow.log.batches import ABORT, controls, end_of
from linkflap.harness.mirrors.shadow.log.mirrored_log import MirroredLog
from linkflap.harness.mirrors.shadow.log.partition import Partition
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection, Unanswered
from linkflap.harness.wire.messages import Error, Message

log = logging.getLogger(__name__)
WITHIN_SECONDS: Final = 60.0
_LOOK: Final = 0.05
_READ_BYTES: Final = 1 << 20
Open = tuple[int, int, int, int]
"""A transaction to abort: producer id, producer epoch, coordinator epoch, first offset."""


async def write(mirrored: MirroredLog, destination: Destination) -> None:
    """Returns when every journaled transaction has its ABORT, and the journal has its offset.

    Can be repeated after a kill. Raises DeadlineExceeded.
    """
    deadline = time.monotonic() + WITHIN_SECONDS
    leaders: dict[str, Connection] = {}
    try:
        while waiting := [p for p in mirrored.partitions.values() if not _done(p)]:
            if time.monotonic() > deadline:
                names = ", ".join(p.name for p in waiting[:5])
                raise DeadlineExceeded(
                    f"transactions of {names} could not be aborted; see the logs of the brokers "
                    "that lead them"
                )
            try:
                await _try(mirrored, destination, waiting, leaders)
            except (Unanswered, EnvironmentFailure) as error:
                log.warning("transaction markers: %s", error)
            await asyncio.sleep(_LOOK)
    finally:
        for connection in leaders.values():
            connection.close()


def _done(partition: Partition) -> bool:
    appended = {what_ for _, what_ in partition.note.appended}
    return all(what(producer, epoch) in appended for producer, epoch, _, _ in partition.note.open)


async def _try(
    mirrored: MirroredLog,
    destination: Destination,
    waiting: list[Partition],
    leaders: dict[str, Connection],
) -> None:
    here = await destination.picture({p.topic for p in waiting})
    for partition in waiting:
        topic = here.topics.get(partition.topic)
        if (
            topic is None
            or str(topic.id) != mirrored.journal.notes.topics[partition.topic].destination_id
        ):
            continue  # deleted, or another topic has its name: `Topics.look` finds out
        leader = topic.partitions[partition.number].leader
        if not 0 <= leader < FIRST_BROKER_ID:
            continue
        address = mirrored.config.brokers[leader]
        connection = leaders.setdefault(address, Connection(address))
        still = {
            (int(state.producer_id), int(state.current_txn_start_offset))
            for state in await destination.producers(address, (partition.topic, partition.number))
        }
        left = [one for one in partition.note.open if (one[0], one[3]) in still]
        if left:
            await _abort(connection, (partition.topic, partition.number), left)
        found = await _found(connection, here, partition)
        if len(found) == len(partition.note.open):
            partition.note.appended += found
            mirrored.journal.save()
            for offset, what in found:
                log.info("%s: %s at offset %d, by WriteTxnMarkers", partition.name, what, offset)


async def _abort(connection: Connection, tp: TopicPartition, transactions: Iterable[Open]) -> None:
    """Asks the leader to write the markers. Raises EnvironmentFailure when it refuses one."""
    m = messages.request("write_txn_markers", 1)
    topic = m.WritableTxnMarkerTopic(name=tp[0], partition_indexes=(tp[1],))
    body = m.WriteTxnMarkersRequest(
        markers=tuple(
            m.WritableTxnMarker(
                producer_id=producer,
                producer_epoch=epoch,
                transaction_result=False,
                topics=(topic,),
                coordinator_epoch=coordinator,
            )
            for producer, epoch, coordinator, _ in transactions
        )
    )
    answer = await connection.call("write_txn_markers", 1, body)
    refused = [
        f"producer {marker.producer_id}: {row.error_code.name}"
        for marker in answer.markers
        for topic_ in marker.topics
        for row in topic_.partitions
        if row.error_code != Error.none
    ]
    if refused:
        raise EnvironmentFailure(
            f"{connection.address} did not abort on {tp[0]}-{tp[1]}: {', '.join(refused)}"
        )


async def _found(
    connection: Connection, here: MetadataSnapshot, partition: Partition
) -> list[tuple[int, str]]:
    """The first ABORT of each journaled transaction after the promotion offset, as (offset, what),
    in offset order."""
    wanted: dict[tuple[int, int], int] = {
        (producer, epoch): -1 for producer, epoch, _, _ in partition.note.open
    }
    at = partition.note.promoted
    while min(wanted.values()) < 0:
        data = await _read(connection, here.topics[partition.topic].id, partition, at)
        if not data:
            break
        for offset, kind, producer, epoch in controls(data):
            if kind == ABORT and wanted.get((producer, epoch)) == -1:
                wanted[producer, epoch] = offset
        at = end_of(data)
    return sorted((offset, what(*producer)) for producer, offset in wanted.items() if offset >= 0)


def what(producer_id: int, producer_epoch: int) -> str:
    """The name of an appended marker in a journal."""
    return f"ABORT of producer {producer_id}, epoch {producer_epoch}"


async def _read(
    connection: Connection, topic_id: Message, partition: Partition, offset: int
) -> bytes:
    """Complete batches from `offset` on, up to the high watermark; empty when there are none
    yet."""
    m = messages.request("fetch", 17)
    row = m.FetchPartition(
        partition=partition.number, fetch_offset=offset, partition_max_bytes=_READ_BYTES
    )
    body = m.FetchRequest(
        max_wait=timedelta(milliseconds=50),
        min_bytes=1,
        max_bytes=_READ_BYTES,
        topics=(m.FetchTopic(topic_id=topic_id, partitions=(row,)),),
        forgotten_topics_data=(),
    )
    answer = await connection.call("fetch", 17, body)
    fetched = answer.responses[0].partitions[0]
    data = bytes(fetched.records or b"") if fetched.error_code == Error.none else b""
    return data if end_of(data) > offset else b""
