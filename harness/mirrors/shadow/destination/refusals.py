"""Answers of the shadow's client listeners: redirects to followers, refusals, and changed
answers."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Final

from linkflap.harness.mirrors.shadow.log.partition import Partition
from linkflap.harness.wire import messages
from linkflap.harness.wire.bulk import Pieces
from linkflap.harness.wire.messages import Error, Message

NOTHING: Final = timedelta()


_VERSIONS_V0: Final = 0


NO_OFFSET: Final = {"error_code": Error.leader_not_available, "timestamp": -1, "offset": -1}


def pass_on(
    m: Message, version: int, asked: Message, partition: Partition | None, follower: int
) -> Message:
    """Redirects a fetch to a follower. A fetch from a deleted offset is refused here.

    A client that a follower refuses returns to the leader (KIP-392). Redirected again, it would
    alternate between the two for ever.
    """
    if partition is not None and 0 <= int(asked.fetch_offset) < min(
        partition.start, partition.high_watermark
    ):
        return m.PartitionData(
            partition_index=asked.partition,
            error_code=Error.offset_out_of_range,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
    if partition is None or follower < 0 or version < 11:
        return m.PartitionData(
            partition_index=asked.partition,
            error_code=Error.not_leader_or_follower,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
    return m.PartitionData(
        partition_index=asked.partition,
        error_code=Error.none,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.start,
        aborted_transactions=None,
        preferred_read_replica=follower,
        records=b"",
    )


def ended_of(
    r: Message, version: int, asked: Message, partition: Partition, end: int | None
) -> Message:
    """The log end that a follower reported, with the shadow's leader epoch. Without an offset, the
    client retries.

    There is no offset when `end` is None, or when the follower has more than the mirrored log. It
    has then become the leader, in a higher epoch, and its own records would get the shadow's epoch.
    Only before a takeover has truncated it may a follower have more.
    """
    handed_over = end is not None and 0 <= partition.end < end and not partition.taking
    if end is None or handed_over:
        return r.ListOffsetsPartitionResponse(**NO_OFFSET, partition_index=asked.partition_index)
    epoch = {"leader_epoch": partition.leader_epoch} if version >= 4 else {}
    return r.ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=Error.none,
        timestamp=-1,
        offset=end,
        **epoch,
    )


def refuse_produce(version: int, correlation: int, frame: memoryview) -> Pieces:
    """Refuses with POLICY_VIOLATION, which clients report and do not retry. A request with acks=0
    gets no answer."""
    request = messages.decode_request("produce", version, frame)
    if request.acks == 0:
        return Pieces()
    m = messages.response("produce", version)
    topics = tuple(
        m.TopicProduceResponse(
            **({"topic_id": t.topic_id} if version >= 13 else {"name": t.name}),
            partition_responses=tuple(
                m.PartitionProduceResponse(
                    index=p.index,
                    error_code=Error.policy_violation,
                    base_offset=-1,
                    **why_refused(version),
                )
                for p in t.partition_data
            ),
        )
        for t in request.topic_data
    )
    body = m.ProduceResponse(responses=topics, throttle_time=NOTHING)
    return messages.encode_response("produce", version, correlation, body)


def why_refused(version: int) -> dict[str, Message]:
    return (
        {"record_errors": (), "error_message": "a mirror topic is read-only until its failover"}
        if version >= 8
        else {}
    )


def without_api(frame: memoryview, version: int, key: int) -> Pieces:
    """An ApiVersions answer without one API. Without OffsetForLeaderEpoch, clients do not validate
    positions by leader epoch.

    A broker answers a version that it does not know in version 0 (KIP-511).
    """
    correlation = int.from_bytes(frame[:4], "big", signed=True)
    if int.from_bytes(frame[4:6], "big", signed=True) != Error.none.value:
        version = _VERSIONS_V0
    body = messages.decode_response("api_versions", version, frame)
    left = tuple(api for api in body.api_keys if api.api_key != key)
    made = dataclasses.replace(body, api_keys=left)
    return messages.encode_response("api_versions", version, correlation, made)
