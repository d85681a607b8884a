"""Our decoders' results, in the words of Kafka's dump-log tool (`tests.oracles.dump_log`) and of a
consumer."""

from __future__ import annotations

import struct

from confluent_kafka import Message

from linkflap.harness.log import codecs, layout, reference
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.log.batches import ReplicaLog
from tests.oracles.dump_log import Fields

LAST_BATCH = ("firstSequence", "lastSequence", "lastOffset", "offsetDelta")
"""The last batch of a producer according to a snapshot."""


def as_dumped(h: Headers, row: int) -> Fields:
    """One of our batch headers in the tool's words."""
    horizon = (
        f"OptionalLong[{h.base_timestamp[row]}]"
        if h.attributes[row] & 0x40
        else "OptionalLong.empty"
    )
    return {
        "baseOffset": str(h.base_offset[row]),
        "lastOffset": str(h.last_offset[row]),
        "count": str(h.count[row]),
        "baseSequence": str(h.base_sequence[row]),
        "lastSequence": str(h.last_sequence[row]),
        "producerId": str(h.producer_id[row]),
        "producerEpoch": str(h.producer_epoch[row]),
        "partitionLeaderEpoch": str(h.leader_epoch[row]),
        "isTransactional": str(bool(h.transactional[row])).lower(),
        "isControl": str(bool(h.control[row] != layout.DATA)).lower(),
        "deleteHorizonMs": horizon,
        "position": str(h.position[row]),
        "LogAppendTime" if h.log_append_time[row] else "CreateTime": str(h.max_timestamp[row]),
        "size": str(h.length[row]),
        "magic": "2",
        "compresscodec": codecs.NAMES[int(h.codec[row])],
        "crc": str(h.crc[row]),
        "isvalid": str(bool(h.crc_ok[row])).lower(),
    }


def slowly_decoded(batch: reference.ReferenceBatch) -> Fields:
    """The same from the slow decoder, which does not know a batch's position in the file."""
    horizon = (
        f"OptionalLong[{batch.base_timestamp}]" if batch.attributes & 0x40 else "OptionalLong.empty"
    )
    return {
        "baseOffset": str(batch.base_offset),
        "lastOffset": str(batch.last_offset),
        "count": str(batch.count),
        "baseSequence": str(batch.base_sequence),
        "lastSequence": str(batch.last_sequence),
        "producerId": str(batch.producer_id),
        "producerEpoch": str(batch.producer_epoch),
        "partitionLeaderEpoch": str(batch.leader_epoch),
        "isTransactional": str(batch.transactional).lower(),
        "isControl": str(batch.is_control).lower(),
        "deleteHorizonMs": horizon,
        time_type(batch): str(batch.max_timestamp),
        "size": str(batch.length),
        "magic": str(batch.magic),
        "compresscodec": codecs.NAMES[batch.codec],
        "crc": str(batch.crc),
        "isvalid": str(batch.crc_ok).lower(),
    }


def without_position(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if name != "position"}


def time_type(batch: reference.ReferenceBatch) -> str:
    return "LogAppendTime" if batch.attributes & layout.LOG_APPEND_TIME else "CreateTime"


def record_dumped(batch: reference.ReferenceBatch, record: reference.Record) -> Fields:
    """One of our records in the tool's words."""
    sequence = (
        -1
        if batch.base_sequence < 0
        else (batch.base_sequence + record.offset - batch.base_offset) % 2**31
    )
    return {
        "offset": str(record.offset),
        "type": time_type(batch),
        "timestamp": str(record.timestamp),
        "key_size": str(-1 if record.key is None else len(record.key)),
        "value_size": str(-1 if record.value is None else len(record.value)),
        "sequence": str(sequence),
        "headers": ",".join(name.decode() for name, _ in record.headers),
        "rest": _marker(record) if batch.is_control else _content(record),
    }


def _content(record: reference.Record) -> str:
    key = "" if record.key is None else f" key: {record.key.decode()}"
    return key if record.value is None else f"{key} payload: {record.value.decode()}"


def _marker(record: reference.Record) -> str:
    """KIP-98: key = version i16, type i16; the value of an end marker = version i16, coordinator
    epoch i32."""
    assert record.key is not None
    _, kind = struct.unpack(">hh", record.key)
    if kind not in (layout.ABORT, layout.COMMIT):
        return f" controlType: UNKNOWN({kind})"
    assert record.value is not None
    _, coordinator_epoch = struct.unpack(">hi", record.value[:6])
    return (
        f" endTxnMarker: {'COMMIT' if kind == layout.COMMIT else 'ABORT'} coordinatorEpoch: "
        f"{coordinator_epoch}"
    )


def data_of(batch: reference.ReferenceBatch) -> list[reference.Record]:
    return [] if batch.is_control else reference.records(batch)


def got(batch: reference.ReferenceBatch, record: reference.Record) -> tuple[object, ...]:
    kind = 2 if batch.attributes & layout.LOG_APPEND_TIME else 1
    headers = [(name.decode(), value) for name, value in record.headers]
    return (
        record.offset,
        (kind, record.timestamp),
        record.key,
        record.value,
        headers,
        batch.leader_epoch,
    )


def consumed_as(message: Message) -> tuple[object, ...]:
    headers = list(message.headers() or ())
    return (
        message.offset(),
        message.timestamp(),
        message.key(),
        message.value(),
        headers,
        message.leader_epoch(),
    )


def states(log: ReplicaLog, end: int) -> dict[str, Fields]:
    """A broker's state of each producer if its log ends at an offset, in the tool's words
    (ProducerStateManager)."""
    h = log.headers
    found: dict[int, Fields] = {}
    for row in range(len(h)):
        pid, epoch = int(h.producer_id[row]), int(h.producer_epoch[row])
        if pid < 0 or h.last_offset[row] >= end:
            continue
        empty = {
            "producerId": str(pid),
            "coordinatorEpoch": "-1",
            "currentTxnFirstOffset": "OptionalLong.empty",
        }
        state = found.setdefault(pid, empty)
        if state.get("producerEpoch") != str(epoch):
            for name in LAST_BATCH:
                state.pop(name, None)
        state |= {"producerEpoch": str(epoch), "lastTimestamp": str(h.max_timestamp[row])}
        if h.control[row] != layout.DATA:
            state |= {"currentTxnFirstOffset": "OptionalLong.empty", "coordinatorEpoch": "0"}
            continue
        if h.transactional[row] and state["currentTxnFirstOffset"] == "OptionalLong.empty":
            state["currentTxnFirstOffset"] = f"OptionalLong[{h.base_offset[row]}]"
        last = (h.base_sequence, h.last_sequence, h.last_offset, h.last_offset - h.base_offset)
        state |= {name: str(column[row]) for name, column in zip(LAST_BATCH, last, strict=True)}
    # The file has one timestamp for both.
    return {str(pid): state | {"timestamp": state["lastTimestamp"]} for pid, state in found.items()}
