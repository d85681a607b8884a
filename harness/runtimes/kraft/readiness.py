"""Asks a broker about itself and its cluster, by raw requests on a new connection, without retries.

Metadata in KRaft names only brokers that are registered and unfenced. Only the active controller
answers DescribeQuorum (KIP-595), so an answer proves that there is one.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Final, TypeVar

from kio.schema.api_versions.v3 import ApiVersionsRequest, ApiVersionsResponse
from kio.schema.describe_quorum.v0 import DescribeQuorumRequest, DescribeQuorumResponse
from kio.schema.describe_quorum.v0.request import PartitionData, TopicData
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from linkflap.harness.runtimes import probe
from linkflap.harness.wire.access import access_to

_ANSWER_WITHIN: Final = 2.0
Response = TypeVar("Response", ApiVersionsResponse, DescribeQuorumResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The controllers as the active one reports them; `leader` is -1 while there is none."""

    leader: int
    voters: frozenset[int]


def seen_brokers(address: str) -> frozenset[int]:
    """The unfenced brokers in the metadata of the broker at `address`; empty while it does not
    answer."""
    try:
        return frozenset(
            probe.advertised(probe.parse(address), within=_ANSWER_WITHIN, access=access_to(address))
        )
    except probe.NoAnswer:
        return frozenset()


def quorum(address: str) -> Quorum | None:
    """The quorum, which the broker at `address` asks the active controller for; None while it does
    not answer."""
    topics = (
        TopicData(
            topic_name=TopicName("__cluster_metadata"),
            partitions=(PartitionData(partition_index=i32(0)),),
        ),
    )
    try:
        response = _decode(
            DescribeQuorumResponse, _exchange(address, DescribeQuorumRequest(topics=topics))
        )
    except probe.NoAnswer:
        return None
    for topic in response.topics:
        for partition in topic.partitions:
            voters = frozenset(int(voter.replica_id) for voter in partition.current_voters)
            return Quorum(leader=int(partition.leader_id), voters=voters)
    return None


def finalized_features(address: str) -> dict[str, int] | None:
    """Feature -> level in force in the cluster (KIP-584); None while the broker does not answer."""
    try:
        request = ApiVersionsRequest(client_software_name="linkflap", client_software_version="1")
        response = _decode(ApiVersionsResponse, _exchange(address, request))
    except probe.NoAnswer:
        return None
    return {feature.name: int(feature.max_version_level) for feature in response.finalized_features}


def _exchange(address: str, request: ApiVersionsRequest | DescribeQuorumRequest) -> bytes:
    """The frame of the response, from its correlation id on. Raises probe.NoAnswer."""
    header = request.__header_schema__
    out = io.BytesIO()
    entity_writer(header)(
        out,
        header(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=i32(1),
            client_id=probe.CLIENT,
        ),
    )
    entity_writer(type(request))(out, request)
    content = out.getvalue()
    with probe.Path(probe.parse(address), within=_ANSWER_WITHIN, access=access_to(address)) as path:
        path.send(struct.pack(">i", len(content)) + content)
        return path.receive()


def _decode(kind: type[Response], frame: bytes) -> Response:
    _, start = entity_reader(kind.__header_schema__)(frame, 0)
    entity, _ = entity_reader(kind)(frame, start)
    return entity
