"""Frames of Kafka's protocol: requests and responses, as bytes."""

from __future__ import annotations

import io
import struct
from typing import Final, TypeVar

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse
from kio.schema.metadata.v4.request import MetadataRequest
from kio.schema.metadata.v4.response import MetadataResponse
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32

Request = (
    ApiVersionsRequest | MetadataRequest | AlterClientQuotasRequest | DescribeClientQuotasRequest
)


Response = TypeVar("Response", MetadataResponse, DescribeClientQuotasResponse)


CLIENT: Final = "linkflap-probe"


SIZE: Final = struct.Struct(">i")


class NoAnswer(Exception):
    """No complete answer within the deadline: the connection was refused, reset or closed, or was
    silent, or it is not Kafka."""


def encode(request: Request, correlation: int) -> bytes:
    """A request with its header, preceded by its length."""
    header = request.__header_schema__
    out = io.BytesIO()
    entity_writer(header)(
        out,
        header(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=i32(correlation),
            client_id=CLIENT,
        ),
    )
    entity_writer(type(request))(out, request)
    content = out.getvalue()
    return SIZE.pack(len(content)) + content


API_VERSIONS: Final = encode(ApiVersionsRequest(), 1)


def decode(kind: type[Response], frame: bytes) -> Response:
    """A response of this kind, without its header. Raises NoAnswer for anything else."""
    try:
        _, start = entity_reader(kind.__header_schema__)(frame, 0)
        entity, _ = entity_reader(kind)(frame, start)
    except SerialError as error:
        raise NoAnswer(f"the answer is not a {kind.__name__}: {error}") from error
    return entity
