"""How a failover ends transactions that are open in the mirrored log, with one strategy per option
value.

abort: appends an ABORT marker per open transaction, in a new leader epoch (KIP-1279, code of July
2026).

write-txn-markers: the brokers that lead after the handover append the same markers
(WriteTxnMarkers, KIP-98; `write_abort_markers`).

truncate-once: truncates the log at its last stable offset (February to May 2026). That can remove
the marker of a transaction that had begun before. Such a transaction is open again, for ever.

truncate-stable: truncates repeatedly until no transaction is open.

The open transactions come from a replica, because a promoted broker has the same producer states.
With producer_ids=negate, brokers track no transactions, so none are found.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

from linkflap.harness.mirrors.shadow.batches import (
    ABORT,
    Stamped,
    abort_marker,
    controls,
    end_of,
    reset_marker,
)
from linkflap.harness.mirrors.shadow.destination.client import Destination, MetadataSnapshot
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.partition import MirroredLog, Partition
from linkflap.harness.mirrors.shadow.producer_id_advance import ProducerIdAdvance
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import Connection, Connections
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.requests import fetch, fetched

log = logging.getLogger(__name__)
WITHIN_SECONDS: Final = 60.0
_LOOK: Final = 0.05
_READ_BYTES: Final = 1 << 20
OpenTransaction = tuple[int, int, int, int]
"""A transaction to abort: producer id, producer epoch, coordinator epoch, first offset."""


async def write_abort_markers(mirrored: MirroredLog, destination: Destination) -> None:
    """Returns when every journaled transaction has its ABORT, and the journal has its offset.

    Can be repeated after a kill. Raises DeadlineExceeded.
    """
    deadline = time.monotonic() + WITHIN_SECONDS
    leaders = Connections()
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
        leaders.close()


def _done(partition: Partition) -> bool:
    appended = {what_ for _, what_ in partition.note.appended}
    return all(
        marker_name(producer, epoch) in appended for producer, epoch, _, _ in partition.note.open
    )


async def _try(
    mirrored: MirroredLog,
    destination: Destination,
    waiting: list[Partition],
    leaders: Connections,
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
        connection = leaders.at(address)
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


async def _abort(
    connection: Connection, tp: TopicPartition, transactions: Iterable[OpenTransaction]
) -> None:
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
    return sorted(
        (offset, marker_name(*producer)) for producer, offset in wanted.items() if offset >= 0
    )


def marker_name(producer_id: int, producer_epoch: int) -> str:
    """The name of an appended marker in a journal."""
    return f"ABORT of producer {producer_id}, epoch {producer_epoch}"


async def _read(
    connection: Connection, topic_id: Message, partition: Partition, offset: int
) -> bytes:
    """Complete batches from `offset` on, up to the high watermark; empty when there are none
    yet."""
    body = fetch(17, topic_id, partition.number, offset, most=_READ_BYTES)
    data = fetched(await connection.call("fetch", 17, body))
    return data if end_of(data) > offset else b""


_RESET: Final = "reset"
SOURCE_MARGIN: Final = 10
"""Leader epochs that a source may use between its last mirrored batch and its truncation: its
brokers die, start for the failback, and hold elections. KIP-1279 raises the destination to the
source's epoch + 10 + 1."""


class Settling(Protocol):
    """The part of `Failover` that the strategies use."""

    async def settled(self) -> None: ...
    def live(self, partition: Partition) -> frozenset[int]: ...


Ending = Callable[[Settling, MirroredLog, Destination, Membership], Awaitable[None]]


async def end(
    failover: Settling, mirrored: MirroredLog, destination: Destination, membership: Membership
) -> None:
    """Ends open transactions by the chosen strategy, then applies the one for producer ids. Can be
    repeated after a kill."""
    if mirrored.config.options.leader_epochs == "keep":
        await _pass_source(failover, mirrored)
    await ENDINGS[mirrored.config.options.open_transactions](
        failover, mirrored, destination, membership
    )
    if mirrored.config.options.producer_ids == "reset":
        await _append_resets(failover, mirrored, membership)
    if mirrored.config.options.producer_ids == "jump":
        await ProducerIdAdvance(mirrored, destination, membership).finish()


async def abort(
    failover: Settling, mirrored: MirroredLog, destination: Destination, membership: Membership
) -> None:
    """Appends markers until no replica has an open transaction."""
    # In a loop: a stall of the shadow may have removed markers that no replica had fetched yet.
    while any((opened := await _open(failover, mirrored, destination)).values()):
        await mirrored.steps.reach("before-epoch")
        await _append_aborts(failover, mirrored, membership, opened)


async def _append_aborts(
    failover: Settling,
    mirrored: MirroredLog,
    membership: Membership,
    opened: Mapping[Partition, list[OpenTransaction]],
) -> None:
    # A broker that died may have other bytes at these offsets in the current epoch.
    await _new_epoch(failover, mirrored, membership)
    await mirrored.steps.reach("after-epoch")
    opened = {
        partition: transactions
        for partition, transactions in opened.items()
        if mirrored.has(partition)
    }
    for partition, transactions in opened.items():
        for producer_id, producer_epoch, coordinator_epoch, _ in transactions:
            data = abort_marker(
                partition.end,
                epoch=partition.epochs.latest,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
            )
            _append(partition, data, marker_name(producer_id, producer_epoch))
    mirrored.remember(opened)
    await mirrored.steps.reach("appended")
    mirrored.ring()
    await failover.settled()


async def note_open(
    failover: Settling, mirrored: MirroredLog, destination: Destination, membership: Membership
) -> None:
    """Journals the open transactions. `write_abort_markers` aborts them once real brokers lead."""
    for partition, transactions in (await _open(failover, mirrored, destination)).items():
        partition.note.open = transactions


async def _open(
    failover: Settling, mirrored: MirroredLog, destination: Destination
) -> dict[Partition, list[OpenTransaction]]:
    """Partition -> its open transactions, in the order in which they began."""
    found: dict[Partition, list[OpenTransaction]] = {}
    for tp, partition in list(mirrored.partitions.items()):
        address = mirrored.config.brokers[_live_broker(failover, partition)]
        states = await destination.producers(address, tp)
        opened = sorted(
            (s for s in states if s.current_txn_start_offset >= 0),
            key=lambda s: int(s.current_txn_start_offset),
        )
        found[partition] = [
            (
                int(s.producer_id),
                int(s.producer_epoch),
                max(0, int(s.coordinator_epoch)),
                int(s.current_txn_start_offset),
            )
            for s in opened
        ]
    return found


async def truncate_once(
    failover: Settling, mirrored: MirroredLog, destination: Destination, membership: Membership
) -> None:
    """Truncates every partition at its last stable offset, exactly once, even after a kill."""
    stable = await _stable(failover, mirrored, destination)
    for tp, partition in mirrored.partitions.items():
        if (
            not partition.note.truncated
            or partition.note.truncated[-1][0] != partition.note.mirrored
        ):
            partition.note.truncated.append((partition.note.mirrored, stable[tp]))
    mirrored.journal.save()
    for partition in mirrored.partitions.values():
        _truncate(partition, min(partition.end, partition.note.truncated[-1][1]))
    await failover.settled()


async def truncate_stable(
    failover: Settling, mirrored: MirroredLog, destination: Destination, membership: Membership
) -> None:
    """Truncates at the last stable offset until that equals the log end."""
    while True:
        stable = await _stable(failover, mirrored, destination)
        open_ = {
            partition: stable[tp]
            for tp, partition in mirrored.partitions.items()
            if stable[tp] < partition.end
        }
        if not open_:
            return
        for partition, offset in open_.items():
            partition.note.truncated.append((partition.end, offset))
            _truncate(partition, offset)
        mirrored.journal.save()
        await failover.settled()


async def _stable(
    failover: Settling, mirrored: MirroredLog, destination: Destination
) -> dict[tuple[str, int], int]:
    by_broker: dict[int, dict[tuple[str, int], int]] = {}
    for tp, partition in mirrored.partitions.items():
        by_broker.setdefault(_live_broker(failover, partition), {})[tp] = partition.end
    found: dict[tuple[str, int], int] = {}
    for broker, ends in by_broker.items():
        found |= await destination.stable(mirrored.config.brokers[broker], ends)
    if missing := mirrored.partitions.keys() - found.keys():
        raise EnvironmentFailure(
            f"the last stable offset of {sorted(missing)[:5]} is unknown; are their brokers alive?"
        )
    return found


def _live_broker(failover: Settling, partition: Partition) -> int:
    """A live broker that has the partition. Raises EnvironmentFailure when all are dead."""
    live = failover.live(partition)
    if not live:
        raise EnvironmentFailure(
            f"no broker that has {partition.name} is running; start one of them"
        )
    return min(live)


def _truncate(partition: Partition, offset: int) -> None:
    """Truncates the log to `offset`. Followers truncate at their next fetch; `settled` waits for
    them."""
    if offset < partition.end:
        log.info("%s is truncated at offset %d, from %d", partition.name, offset, partition.end)
        partition.limit = offset
        partition.truncate(offset)
        partition.epochs.begin(partition.leader_epoch, offset)


async def _append_resets(failover: Settling, mirrored: MirroredLog, membership: Membership) -> None:
    while todo := [
        p
        for p in mirrored.partitions.values()
        if not any(what == _RESET for _, what in p.note.appended)
    ]:
        await _new_epoch(failover, mirrored, membership)
        todo = [partition for partition in todo if mirrored.has(partition)]
        for partition in todo:
            data = reset_marker(
                partition.end,
                epoch=partition.epochs.latest,
                source_cluster=mirrored.config.source_cluster_id,
            )
            _append(partition, data, _RESET)
        mirrored.remember(todo)
        mirrored.ring()
        await failover.settled()


async def _pass_source(failover: Settling, mirrored: MirroredLog) -> None:
    """Raises leader epochs above all epochs in which the source can write before it is truncated.

    Otherwise a marker of the source's coordinator and one of the destination could have the same
    offset and epoch, and a follower would not notice that its log diverges.
    """
    for partition in mirrored.partitions.values():
        wanted = partition.source_epochs.latest + SOURCE_MARGIN + 1
        if partition.leader_epoch < wanted:
            partition.raise_to = wanted
    await failover.settled()


async def _new_epoch(failover: Settling, mirrored: MirroredLog, membership: Membership) -> None:
    before = {partition: partition.leader_epoch for partition in mirrored.partitions.values()}
    for partition in before:
        partition.raise_to = partition.leader_epoch + 1
    await failover.settled()
    for partition, epoch in before.items():
        if not mirrored.has(partition):
            continue
        if partition.leader_epoch <= epoch:
            raise EnvironmentFailure(
                f"{partition.name} is still in leader epoch {epoch}; its markers need a new one"
            )
        partition.epochs.begin(partition.leader_epoch, partition.end)


def _append(partition: Partition, data: bytes, what: str) -> None:
    log.info("%s: %s at offset %d", partition.name, what, partition.end)
    partition.note.appended.append((partition.end, what))
    partition.limit = -1
    partition.keep(
        Stamped(
            base=partition.end,
            end=partition.end + 1,
            data=memoryview(data),
            epochs=[],
            top_producer=-1,
        )
    )
    partition.end = partition.position


ENDINGS: Final[Mapping[str, Ending]] = {
    "abort": abort,
    "write-txn-markers": note_open,
    "truncate-once": truncate_once,
    "truncate-stable": truncate_stable,
}
