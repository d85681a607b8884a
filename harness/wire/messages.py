"""Kafka's messages by API name and version, both sides of a connection, written and read with kio's
schemas.

`request("fetch", 17)` is the module that has the classes of that message. Frames to be decoded are
without their length prefix. kio has no single type for all messages, so they are Any here, and the
caller knows the fields (Kafka protocol guide).

kio copies records out of its input, and joins all of its output. So records of fetch responses are
split off before kio reads the rest: those of a decoded message are views of its frame. Records to
encode stay where they are, as Pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final, Literal

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from linkflap.harness.log.layout import read_unsigned_varint
from linkflap.harness.wire import array_lengths

Error: Final = ErrorCode
"""Kafka's error codes by name: Error.none, Error.not_controller, …"""
REQUEST_HEAD: Final = struct.Struct(">hhi")
"""API key, API version, correlation id: the beginning of every request."""
Buffer = bytes | bytearray | memoryview
Message = Any
"""A message of any API: kio generates the classes, one module for each."""
LENGTH: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_LARGEST_FRAME: Final = 128 << 20
"""Above the limit of brokers (socket.request.max.bytes, 100 MiB)."""
_TLS_HANDSHAKE: Final = b"\x16\x03"
"""How a TLS handshake begins: of a frame it would be a length of more than 352 MiB."""
Side = Literal["request", "response"]


class Pieces:
    """Bytes in several buffers, sent from there. `len` is the total."""

    __slots__ = ("_size", "parts")

    def __init__(self, parts: Iterable[Buffer] = ()) -> None:
        self.parts = tuple(parts)
        self._size = sum(map(len, self.parts))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


class Sink:
    """kio's writers write to it. Joins small writes, keeps pieces where they are, and puts the
    total length first."""

    def __init__(self) -> None:
        self._head = self._small = bytearray(LENGTH.size)
        self._done: list[Buffer] = []

    def write(self, data: bytes | Pieces) -> None:
        if isinstance(data, Pieces):
            self._done += (self._small, *data.parts)
            self._small = bytearray()
        else:
            self._small += data

    def framed(self) -> Pieces:
        """Everything that was written. Nothing may be written after this."""
        parts = [*self._done, self._small]
        LENGTH.pack_into(self._head, 0, sum(map(len, parts)) - LENGTH.size)
        return Pieces(part for part in parts if len(part))


class Malformed(ValueError):
    """Bytes that are not a message of the expected API and version."""


UNREADABLE: Final = (Malformed, TypeError, AttributeError, LookupError, ValueError, OverflowError)
"""The errors that code may raise that knows the fields of a message: kio gives None for an array or
a string that is null, where none should be."""


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
    entity: Any = getattr(module, api_name(api) + side.capitalize())
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


@cache
def newest(api: str) -> int:
    """The newest version of an API that kio has."""
    package = import_module(f"kio.schema.{api}")
    return max(int(found.name.removeprefix("v")) for found in iter_modules(package.__path__))


def api_name(api: str) -> str:
    """The name of an API in Kafka's protocol guide: ListOffsets."""
    return "".join(word.capitalize() for word in api.split("_"))


def frame_length(head: Buffer) -> int:
    """The length that a frame begins with. Raises Malformed."""
    (length,) = LENGTH.unpack(head)
    if bytes(head[:2]) == _TLS_HANDSHAKE:
        raise Malformed("it begins a TLS handshake where plain text is expected")
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


def client_id(frame: Buffer) -> bytes:
    """The client id of a request frame; empty if it has none, or is cut within it. Its place is the
    same in all versions of the header that have one."""
    view = memoryview(frame)[REQUEST_HEAD.size :]
    if len(view) < _SHORT.size:
        return b""
    (length,) = _SHORT.unpack_from(view)
    return bytes(view[_SHORT.size :][: max(0, length)])


def decode_request(api: str, version: int, frame: Buffer) -> Message:
    """Raises Malformed, also for an unknown version, and for arrays longer than a client sends."""
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
        if (api, side) != ("fetch", "response") or version < VIEWED_FROM:
            most = array_lengths.MOST_PARTS if side == "request" else len(view)
            array_lengths.check(known.entity, view, start, most)
            return known.read(readable, start)[0]
        rest, records = _split(view, start)
        array_lengths.check(known.entity, memoryview(rest), 0, len(rest))
        return _put_back(known.read(rest, 0)[0], records)
    except (
        ImportError,
        SerialError,
        ValueError,
        LookupError,
        struct.error,
        OverflowError,
        TypeError,  # of an array that is null
    ) as error:
        raise Malformed(
            f"{api} {side} v{version} of {len(frame)} bytes cannot be read: {type(error).__name__} "
            f"{error}"
        ) from error


VIEWED_FROM: Final = 13
"""The first version of the fetch response with the layout of `_records`: compact fields (KIP-482),
topic ids (KIP-516)."""

_HEAD_SIZE: Final = 4 + 2 + 4
"""Throttle time, error code, session id."""
_ID_SIZE: Final = 16
_ROW_SIZE: Final = 4 + 2 + 3 * 8
"""Partition, error code, high watermark, last stable offset, log start offset."""
_ABORTED_SIZE: Final = 8 + 8 + 1
"""Producer id, first offset, no tagged fields."""
_PREFERRED_SIZE: Final = 4
_EMPTY: Final = b"\1"


def _split(frame: memoryview, start: int) -> tuple[bytes, list[memoryview | None]]:
    """A fetch response from `start` of a frame on, without its records; and the records per
    partition, None where there are none. Raises ValueError or IndexError for other bytes."""
    rest: list[Buffer] = []
    found: list[memoryview | None] = []
    for before, at, end in _records(frame, start):
        if end > len(frame):
            raise ValueError(f"records up to byte {end} in a frame of {len(frame)}")
        found.append(frame[at:end] if end > at else None)
        if end > at:
            rest += [frame[start:before], _EMPTY]
            start = end
    return b"".join([*rest, frame[start:]]), found


def _put_back(answer: Message, records: Sequence[memoryview | None]) -> Message:
    """The response with the records that were split off. Raises ValueError when they belong to
    another response."""
    if sum(len(topic.partitions) for topic in answer.responses) != len(records):
        raise ValueError(f"records of {len(records)} partitions for a response of another number")
    if not any(records):
        return answer
    left = iter(records)
    topics = []
    for topic in answer.responses:
        rows = [
            row if (found := next(left)) is None else replace(row, records=found)
            for row in topic.partitions
        ]
        topics.append(replace(topic, partitions=tuple(rows)))
    return replace(answer, responses=tuple(topics))


def _records(frame: memoryview, at: int) -> Iterator[tuple[int, int, int]]:
    """Per partition of a fetch response: the positions of the length of its records, of their
    start, and of their end."""
    topics, at = read_unsigned_varint(frame, at + _HEAD_SIZE)
    for _ in range(topics - 1):
        rows, at = read_unsigned_varint(frame, at + _ID_SIZE)
        for _ in range(rows - 1):
            aborted, at = read_unsigned_varint(frame, at + _ROW_SIZE)
            before = at + max(0, aborted - 1) * _ABORTED_SIZE + _PREFERRED_SIZE
            size, at = read_unsigned_varint(frame, before)
            end = at + max(0, size - 1)
            yield before, at, end
            at = _after_tags(frame, end)
        at = _after_tags(frame, at)


def _after_tags(frame: memoryview, at: int) -> int:
    count, at = read_unsigned_varint(frame, at)
    for _ in range(count):
        _, at = read_unsigned_varint(frame, at)
        size, at = read_unsigned_varint(frame, at)
        at += size
    return at
