"""A shadow that leads one partition, and its followers' requests, as bytes in both directions."""

from __future__ import annotations

import asyncio
import struct
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from linkflap.harness.mirrors.shadow.batches import stamp
from linkflap.harness.mirrors.shadow.destination.leader import (
    Leader,
)
from linkflap.harness.mirrors.shadow.journal import Journal, TopicNote
from linkflap.harness.mirrors.shadow.partition import MirroredLog
from linkflap.harness.wire import messages
from tests.kafka_log import batch, record
from tests.shadows import config

TOPIC, NUMBER = "A.t", 0
ID = uuid.UUID(int=7)
REAL = {name: {1: "127.0.0.1:1", 2: "127.0.0.1:1"} for name in ("INTERNAL", "CLIENT")}
FETCHES, CLIENT_FETCHES = (15, 16, 17, 18), range(4, 19)
BATCHES = b"".join(batch(offset, [record(b"x" * 20)]) for offset in range(4))


async def nothing_behind(*_: object) -> bytes:
    return b""


def leading(tmp_path: Path) -> Leader:
    """Leads one partition of four records in epoch 3, which began at offset 2."""
    journal = Journal(tmp_path)
    journal.notes.topics[TOPIC] = TopicNote(source_id=str(ID), destination_id=str(ID))
    mirrored = MirroredLog(config(real=REAL), journal)
    mirrored.names[ID], mirrored.brokers = TOPIC, frozenset({1, 2})
    partition = mirrored.add(TOPIC, NUMBER)
    partition.leader_epoch, partition.position, partition.end = 3, 0, 4
    for epoch, start in ((1, 0), (3, 2)):
        partition.epochs.begin(epoch, start)
    partition.keep(
        stamp(
            memoryview(bytearray(BATCHES)),
            position=0,
            below=1 << 62,
            source_epoch=0,
            epoch_at=lambda base, _: 1 if base < 2 else 3,
            ids=None,
        )
    )
    return Leader(mirrored, nothing_behind)


def fetch(version: int, *, broker: int = 1, offset: int = 0, epoch: int = 3, last: int = -1) -> Any:
    m = messages.request("fetch", version)
    named = {"topic_id": ID} if version >= 13 else {"topic": TOPIC}
    row = {"partition": NUMBER, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    row |= {"current_leader_epoch": epoch} if version >= 9 else {}
    row |= {"last_fetched_epoch": last} if version >= 12 else {}
    fields = {"max_wait": timedelta(milliseconds=20), "min_bytes": 1, "max_bytes": 1 << 20}
    fields |= (
        {"replica_state": m.ReplicaState(replica_id=broker)}
        if version >= 15
        else {"replica_id": broker}
    )
    fields |= {"forgotten_topics_data": ()} if version >= 7 else {}
    return m.FetchRequest(
        topics=(m.FetchTopic(partitions=(m.FetchPartition(**row),), **named),), **fields
    )


def ask(leader: Leader, key: int, api: str, version: int, body: object) -> Any:
    """Sends a request and returns the response, both through their bytes."""
    frame = messages.encode_request(api, version, 11, "broker", body)[4:]
    pieces = asyncio.run(leader.answer(key, version, 11, frame))
    assert pieces is not None
    answer = bytes(pieces)
    assert struct.unpack_from(">ii", answer) == (len(answer) - 4, 11)
    return messages.decode_response(api, version, answer[4:])
