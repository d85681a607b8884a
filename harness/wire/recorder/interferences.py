"""How faults change requests and answers on the wire (`harness.model.interference`): which requests
they choose, and which answers the client gets instead of the broker's.

A request that the broker must not execute is replaced by one without effect. So the broker still
sends an answer at that position of the connection, and the client's answer takes its place.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from datetime import timedelta
from typing import Final, get_args, get_origin, get_type_hints

from kio.schema.errors import ErrorCode

from linkflap.harness.log.layout import read_unsigned_varint
from linkflap.harness.model.interference import API_VERSIONS, APIS, Interference, Requests
from linkflap.harness.wire.messages import (
    LENGTH,
    REQUEST_HEAD,
    Malformed,
    Message,
    decode_request,
    decode_response,
    encode_response,
    schema,
)
from linkflap.harness.wire.recorder.settings import (
    SEEN_APIS,
    SEEN_EACH,
    Asked,
    InterferencesDone,
    seen_size,
)

PRODUCE: Final = 0
FETCH: Final = 1
_INIT_PRODUCER_ID: Final = 22
_OFFSET_FETCH: Final = 9
_FIND_COORDINATOR: Final = 10
_TRANSACTIONAL: Final = 1
"""The type of a key of FindCoordinator that is a transactional id."""
_METADATA: Final = 3
NAMES: Final[Mapping[int, str]] = {
    key: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name, key in APIS.items()
}
"""kio's names of the APIs that a fault can choose."""
_PARTITIONS: Final[Mapping[int, tuple[str, str]]] = {
    PRODUCE: ("topic_data", "partition_data"),
    FETCH: ("topics", "partitions"),
    2: ("topics", "partitions"),
    8: ("topics", "partitions"),
    23: ("topics", "partitions"),
    24: ("v3_and_below_topics", "partitions"),
    28: ("topics", "partitions"),
}
"""Where a request has its topics, and each of them its partitions."""
_GROUPS_FROM: Final = 8
_ERROR_FROM: Final = 2
"""The first version of OffsetFetch with groups, and the first one with one error for all."""
_THROTTLE: Final = "throttle_time"
_INDICES: Final = ("index", "partition_index", "partition")
_FROM_REQUEST: Final = ("name", "topic", "topic_id", "group_id", "key", *_INDICES)
_TRANSACTIONAL_IDS: Final = ("transactional_id", "v3_and_below_transactional_id")


InFlight = tuple[int, Hashable]
"""The number that counts it, and what is in flight."""


class Interferences:
    """The present faults, and how often each was applied. `seen` counts the requests of each API,
    and what is `counted` besides; `changed` is called after each application."""

    def __init__(
        self,
        seen: memoryview | None = None,
        changed: Callable[[], None] = lambda: None,
        counted: Sequence[Requests] = (),
    ) -> None:
        self._seen = memoryview(bytearray(seen_size(len(counted)))) if seen is None else seen
        self._changed = changed
        self._counted: dict[int, list[tuple[int, Requests]]] = {}
        for slot, each in enumerate(counted, SEEN_APIS):
            self._counted.setdefault(APIS[each.api], []).append((slot, each))
        self._in_flight: Counter[InFlight] = Counter()
        self._faults: dict[str, Interference] = {}
        self._came: Counter[str] = Counter()
        self._number = 0
        self._done: Counter[str] = Counter()

    @property
    def done(self) -> InterferencesDone:
        """What is reported to the harness."""
        return InterferencesDone(number=self._number, done=dict(self._done))

    def ask(self, asked: Asked) -> bool:
        """A fault has begun or ended. Returns whether brokers now offer other versions."""
        before = _downgraded(self._faults)
        self._faults, self._number = asked.faults, asked.number
        return _downgraded(self._faults) != before

    def asked(self, name: str) -> bool:
        """Whether a fault still lasts."""
        return name in self._faults

    def saw(self, api: int) -> None:
        """A request has come."""
        self._add(api & 0xFF, 1)

    def _add(self, slot: int, more: int) -> None:
        at = slot * SEEN_EACH.size
        SEEN_EACH.pack_into(self._seen, at, SEEN_EACH.unpack_from(self._seen, at)[0] + more)

    def counts(self, api: int) -> bool:
        """Whether requests of this API are counted by what they name."""
        return api in self._counted

    def count(self, frame: memoryview, topic: Callable[[Message], str]) -> Sequence[InFlight]:
        """Counts a request. Returns what is in flight until it is `answered`. Raises Malformed."""
        api, version, _ = REQUEST_HEAD.unpack_from(frame)
        body = decode_request(NAMES[api], version, frame)
        begun: list[InFlight] = []
        for slot, each in self._counted[api]:
            if not _names(each, api, body, topic):
                continue
            if not each.in_flight:
                self._add(slot, 1)
            elif api != PRODUCE or body.acks:  # acks=0 has no answer
                named = _parts_of(each, api, body, topic) if api in _PARTITIONS else [object()]
                begun += [(slot, part) for part in named]
        for one in begun:
            self._in_flight[one] += 1
            self._add(one[0], int(self._in_flight[one] == 1))
        return begun

    def answered(self, begun: Sequence[InFlight]) -> None:
        """The answer to a request has come, or never will."""
        for one in begun:
            self._in_flight[one] -= 1
            if not self._in_flight[one]:
                del self._in_flight[one]
                self._add(one[0], -1)

    def may(self, api: int) -> bool:
        """Whether a request of this API may be chosen."""
        return any(
            fault.api == api and self._left(name, fault) for name, fault in self._faults.items()
        )

    def _left(self, name: str, fault: Interference) -> bool:
        return self._came[name] < fault.first - 1 + fault.count

    def chosen(
        self, frame: memoryview, client: str, topic: Callable[[Message], str]
    ) -> tuple[str, Interference, Message] | None:
        """The fault that chooses a request, its id first, and the decoded request (None if nothing
        needs it). Raises Malformed."""
        api, version, _ = REQUEST_HEAD.unpack_from(frame)
        body: Message = None
        for name, fault in self._faults.items():
            if fault.api != api or not self._left(name, fault):
                continue
            if fault.client not in ("", client):
                continue
            if body is None and api in NAMES:
                body = decode_request(NAMES[api], version, frame)
            if not (_can(fault, api, body) and _names(fault, api, body, topic)):
                continue
            self._came[name] += 1
            if self._came[name] >= fault.first:
                return name, fault, body
        return None

    def returned(self, name: str) -> None:
        """The fault could not be applied to the request that it chose, so it chooses another."""
        self._came[name] -= 1

    def did(self, name: str) -> None:
        """A fault was applied to a request or its answer."""
        self._done[name] += 1
        self._changed()


def _downgraded(faults: Mapping[str, Interference]) -> Sequence[Interference]:
    return [fault for fault in faults.values() if fault.does == "downgraded"]


def _can(fault: Interference, api: int, body: Message) -> bool:
    """Whether a fault can be applied to a request. A Produce with acks=0 has no answer. A repeated
    Produce without a producer id would be written twice. No coordinator answers an InitProducerId
    without a transactional id."""
    if api == PRODUCE:
        return bool(body.acks) and (fault.does != "repeated" or all(map(_identified, _data(body))))
    return api != _INIT_PRODUCER_ID or fault.does != "refused" or bool(body.transactional_id)


def _data(body: Message) -> Iterator[bytes]:
    for topic in body.topic_data:
        yield from (each.records or b"" for each in topic.partition_data)


_PRODUCER_ID: Final = struct.Struct(">43xq")


def _identified(records: bytes) -> bool:
    """Whether the first batch has a producer id: all batches of a producer have one, or none."""
    return len(records) >= _PRODUCER_ID.size and _PRODUCER_ID.unpack_from(records)[0] >= 0


def _names(
    fault: Interference | Requests, api: int, body: Message, topic: Callable[[Message], str]
) -> bool:
    """Whether a request names the transactional id, topic and partition that a fault asks for."""
    if fault.transactional_id and fault.transactional_id not in _transactional_ids(api, body):
        return False
    return not fault.topic or bool(_parts_of(fault, api, body, topic))


def _parts_of(
    fault: Interference | Requests, api: int, body: Message, topic: Callable[[Message], str]
) -> Sequence[tuple[str, int]]:
    """The partitions that a request names, of those that a fault asks for."""
    topics, partitions = _PARTITIONS[api]
    named = [
        (topic(each), _index(part))
        for each in getattr(body, topics)
        for part in getattr(each, partitions)
    ]
    return [
        (name, number)
        for name, number in named
        if fault.topic in ("", name) and fault.partition in (-1, number)
    ]


def _transactional_ids(api: int, body: Message) -> Sequence[str | None]:
    """The transactional ids in a request. FindCoordinator has keys of one type."""
    if api == _FIND_COORDINATOR:
        keys = getattr(body, "coordinator_keys", None) or (getattr(body, "key", None),)
        return keys if getattr(body, "key_type", 0) == _TRANSACTIONAL else ()
    return [getattr(body, name) for name in _TRANSACTIONAL_IDS if hasattr(body, name)]


def _index(partition: Message) -> int:
    """The number of a partition in a request, which may have it alone."""
    return int(next((getattr(partition, n) for n in _INDICES if hasattr(partition, n)), partition))


def nothing(correlation: int) -> bytes:
    """A framed request that asks for nothing: ApiVersions v0, without a client id."""
    return LENGTH.pack(REQUEST_HEAD.size + 2) + REQUEST_HEAD.pack(
        API_VERSIONS, 0, correlation
    ) + b"\xff\xff"  # fmt: skip


def refusal(frame: memoryview, body: Message, error: str) -> bytes:
    """A framed answer to a request, as a broker makes it that answers with an error."""
    api, version, correlation = REQUEST_HEAD.unpack_from(frame)
    entity = schema(NAMES[api], version, "response").entity
    answer = _answer(entity, ErrorCode[error.lower()], body, _parts(api, version))
    return bytes(encode_response(NAMES[api], version, correlation, answer))


def _parts(api: int, version: int) -> Sequence[str]:
    """Where a request has the parts of which each gets an error in the answer."""
    if api == _OFFSET_FETCH:
        if version >= _GROUPS_FROM:
            return ("groups",)
        return () if version >= _ERROR_FROM else ("topics", "partition_indexes")
    if api == _FIND_COORDINATOR:
        return ("coordinator_keys",)
    return _PARTITIONS.get(api, ())


def _answer(entity: type, error: ErrorCode, asked: Message, path: Sequence[str]) -> Message:
    """An answer, or a part of it, to what was `asked`; `path`: where that has its parts."""
    hints = get_type_hints(entity)
    values: dict[str, object] = {}
    for each in fields(entity):
        hint = hints[each.name]
        if hint is ErrorCode:
            values[each.name] = error
        elif each.default is not MISSING:
            continue
        elif get_origin(hint) is tuple and path:
            (inner, _) = get_args(hint)
            parts = getattr(asked, path[0])
            values[each.name] = tuple(_answer(inner, error, part, path[1:]) for part in parts)
        elif each.name in _FROM_REQUEST:
            values[each.name] = getattr(asked, each.name, asked)
        else:
            values[each.name] = _empty(hint)
    return entity(**values)


def _empty(hint: object) -> object:
    """The value of a field of which an error says nothing."""
    for kind, value in ((timedelta, timedelta(0)), (int, -1), (str, ""), (bytes, b"")):
        if isinstance(hint, type) and issubclass(hint, kind):
            return value
    return () if get_origin(hint) is tuple else None


def refused_fetch(frame: memoryview, version: int, error: str) -> bytes | None:
    """The framed answer to a Fetch with an error for each of its partitions, in place of their
    records; None where it has no partition: sessions leave those out that have nothing new."""
    answer = decode_response("fetch", version, frame)
    topics = tuple(
        replace(topic, partitions=tuple(_without_records(each, error) for each in topic.partitions))
        for topic in answer.responses
    )
    if not any(topic.partitions for topic in topics):
        return None
    correlation = int.from_bytes(frame[: LENGTH.size], "big", signed=True)
    return bytes(encode_response("fetch", version, correlation, replace(answer, responses=topics)))


def refused_metadata(frame: memoryview, version: int, error: str) -> bytes | None:
    """The framed answer to a Metadata request with an error for each of its topics, in place of
    their partitions; None where it has no topic."""
    answer = decode_response("metadata", version, frame)
    failed = {"error_code": ErrorCode[error.lower()], "partitions": ()}
    topics = tuple(replace(topic, **failed) for topic in answer.topics)
    if not topics:
        return None
    correlation = int.from_bytes(frame[: LENGTH.size], "big", signed=True)
    return bytes(encode_response("metadata", version, correlation, replace(answer, topics=topics)))


CHANGED: Final[Mapping[int, Callable[[memoryview, int, str], bytes | None]]] = {
    FETCH: refused_fetch,
    _METADATA: refused_metadata,
}
"""APIs of which a fault changes the broker's own answer: it has what a client needs besides."""


def _without_records(partition: Message, error: str) -> Message:
    return replace(
        partition, error_code=ErrorCode[error.lower()], high_watermark=-1, records=b"",
        **{name: -1 for name in ("last_stable_offset",) if hasattr(partition, name)},
    )  # fmt: skip


def throttled(frame: memoryview, api: int, version: int, seconds: float) -> bytes | None:
    """The framed answer that asks its client to send nothing for so long (KIP-219), or for longer
    if the broker asks for that; None where this version has no such field. Raises Malformed."""
    known = schema(NAMES[api], version, "response")
    if _THROTTLE not in known.entity.__dataclass_fields__:
        return None
    if api == PRODUCE:  # the field comes behind the answers for its partitions
        answer = decode_response(NAMES[api], version, frame)
        longer = max(answer.throttle_time, timedelta(seconds=seconds))
        correlation = int.from_bytes(frame[: LENGTH.size], "big", signed=True)
        changed = replace(answer, throttle_time=longer)
        return bytes(encode_response(NAMES[api], version, correlation, changed))
    _, at = known.read_header(frame.toreadonly(), 0)
    if at + LENGTH.size > len(frame):
        raise Malformed("an answer ends before its throttle time")
    answered = bytearray(frame)
    (before,) = LENGTH.unpack_from(frame, at)
    LENGTH.pack_into(answered, at, max(before, round(seconds * 1000)))
    return LENGTH.pack(len(answered)) + bytes(answered)


_OFFERED: Final = struct.Struct(">hhh")
_ERROR: Final = 2
_COMPACT_FROM: Final = 3


def capped(frame: memoryview, version: int, fault: Interference) -> bytes:
    """The framed answer to ApiVersions that offers no higher version of an API. The bytes are
    changed where they are, so that what kio does not know stays. Raises Malformed."""
    changed = bytearray(frame)
    at = LENGTH.size + _ERROR
    refused = any(frame[LENGTH.size : at])  # in the format of version 0
    if version >= _COMPACT_FROM and not refused:
        size, at = read_unsigned_varint(frame, at)
        count, each = size - 1, _OFFERED.size + 1
    else:
        (count,) = LENGTH.unpack_from(frame, at)
        at, each = at + LENGTH.size, _OFFERED.size
    for begins in range(at, at + max(count, 0) * each, each):
        if begins + each > len(frame):
            raise Malformed("an answer to ApiVersions ends within its list")
        api, lowest, highest = _OFFERED.unpack_from(frame, begins)
        if api == fault.offers:
            _OFFERED.pack_into(
                changed, begins, api, lowest, max(lowest, min(highest, fault.version))
            )
    return LENGTH.pack(len(changed)) + bytes(changed)
