"""Kafka's messages by API name and version, both sides of a connection, written and read with kio's
schemas.

`request("fetch", 17)` is the module that has the classes of that message. Frames to be decoded are
without their length prefix. kio has no single type for all messages, so they are Any here, and the
caller knows the fields (Kafka protocol guide). Records of fetch responses are not copied (`bulk`):
a message to encode may have Pieces, and a decoded one has views of its frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, Literal

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from linkflap.harness.wire import bulk
from linkflap.harness.wire.bulk import Buffer, Pieces, Sink

Error: Final = ErrorCode
"""Kafka's error codes by name: Error.none, Error.not_controller, …"""
REQUEST_HEAD: Final = struct.Struct(">hhi")
"""API key, API version, correlation id: the beginning of every request."""
Message = Any
"""A message of any API: kio generates the classes, one module for each."""
LENGTH: Final = struct.Struct(">i")
_LARGEST_FRAME: Final = 128 << 20
"""Above the limit of brokers (socket.request.max.bytes, 100 MiB)."""
Side = Literal["request", "response"]


class Malformed(ValueError):
    """Bytes that are not a message of the expected API and version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """One message: the module with its classes, and the readers and writers of it and its
    header."""

    module: Any
    entity: Any
    header: Any
    read: Callable[[Buffer, int], tuple[Message, int]]
    write: Callable[[Any, Message], None]
    read_header: Callable[[Buffer, int], tuple[Message, int]]
    write_header: Callable[[Any, Message], None]


@cache
def schema(api: str, version: int, side: Side) -> Schema:
    """The schema of an API (by kio's name: fetch, list_offsets, …). Raises ImportError for a
    version that kio does not have."""
    module = import_module(f"kio.schema.{api}.v{version}.{side}")
    entity: Any = getattr(
        module, "".join(word.capitalize() for word in api.split("_")) + side.capitalize()
    )
    header: Any = entity.__header_schema__
    return Schema(
        module=module,
        entity=entity,
        header=header,
        read=entity_reader(entity),
        write=entity_writer(entity),
        read_header=entity_reader(header),
        write_header=entity_writer(header),
    )


def frame_length(head: Buffer) -> int:
    """The length that a frame begins with. Raises Malformed."""
    (length,) = LENGTH.unpack(head)
    if not 0 <= length <= _LARGEST_FRAME:
        raise Malformed(f"it announces a frame of {length} bytes")
    return int(length)


def request(api: str, version: int) -> Message:
    """The module with the classes of a request."""
    return schema(api, version, "request").module


def response(api: str, version: int) -> Message:
    """The module with the classes of a response."""
    return schema(api, version, "response").module


def encode_request(api: str, version: int, correlation: int, client: str, body: Message) -> bytes:
    """A framed request, length first."""
    known = schema(api, version, "request")
    out = Sink()
    header = known.header(
        request_api_key=known.entity.__api_key__,
        request_api_version=version,
        correlation_id=correlation,
        client_id=client,
    )
    known.write_header(out, header)
    known.write(out, body)
    return bytes(out.framed())


def request_head(frame: Buffer) -> tuple[int, int, int]:
    """API key, API version, correlation id of a request frame. Raises Malformed."""
    if len(frame) < REQUEST_HEAD.size:
        raise Malformed(f"a request of {len(frame)} bytes")
    key, version, correlation = REQUEST_HEAD.unpack_from(frame)
    return key, version, correlation


def decode_request(api: str, version: int, frame: Buffer) -> Message:
    """Raises Malformed, also for an unknown version."""
    return _decoded(api, version, "request", frame)


def encode_response(api: str, version: int, correlation: int, body: Message) -> Pieces:
    """A framed response, length first."""
    known = schema(api, version, "response")
    out = Sink()
    known.write_header(out, known.header(correlation_id=correlation))
    known.write(out, body)
    return out.framed()


def decode_response(api: str, version: int, frame: Buffer) -> Message:
    """Raises Malformed, also for an unknown version."""
    return _decoded(api, version, "response", frame)


def _decoded(api: str, version: int, side: Side, frame: Buffer) -> Message:
    try:
        known = schema(api, version, side)
        view = memoryview(frame)
        readable = view.toreadonly()  # kio accepts nothing else
        _, start = known.read_header(readable, 0)
        if (api, side) != ("fetch", "response") or version < bulk.VIEWED_FROM:
            return known.read(readable, start)[0]
        rest, records = bulk.split(view, start)
        return bulk.put_back(known.read(rest, 0)[0], records)
    except (
        ImportError,
        SerialError,
        ValueError,
        LookupError,
        struct.error,
        OverflowError,
    ) as error:
        raise Malformed(
            f"{api} {side} v{version} of {len(frame)} bytes cannot be read: {type(error).__name__} "
            f"{error}"
        ) from error
