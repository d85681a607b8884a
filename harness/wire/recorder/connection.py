"""One connection of a program to a broker: its requests and answers, matched, for the history.

Requests are read by the schemas of `harness.wire.messages`. What is not needed passes; what is
needed and cannot be read passes too, and is counted by API and version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from linkflap.harness.wire.messages import (
    REQUEST_HEAD,
    Error,
    Malformed,
    Message,
    decode_request,
    decode_response,
)
from linkflap.harness.wire.recorder.frames import REQUEST_BEGINS, RESPONSE_BEGINS, Frames
from linkflap.harness.wire.recorder.history import AskedBatch, WireHistory, WireProducer
from linkflap.harness.wire.recorder.settings import Report

_PRODUCE: Final = 0
_METADATA: Final = 3
_APIS: Final[Mapping[int, str]] = {
    _PRODUCE: "produce",
    _METADATA: "metadata",
    22: "init_producer_id",
    26: "end_txn",
}
_TOPIC_IDS_FROM: Final = 13
"""The first version of Produce with ids instead of names."""
_METADATA_IDS_FROM: Final = 10
Answered = Callable[[Message], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Awaited:
    """A request whose answer matters: how it is read, and who gets it."""

    api: str
    version: int
    answered: Answered


class WireConnection:
    """Reads along on one connection: `requests` and `responses` take its bytes, in their order, and
    raise Malformed where they are not Kafka's."""

    def __init__(self, history: WireHistory) -> None:
        self._history = history
        self._report: Report = history.report
        self._awaited: dict[int, _Awaited] = {}
        self._unnamed: WireProducer | None = None
        self.requests = Frames(REQUEST_BEGINS, self._wants_request, self._requested)
        self.responses = Frames(RESPONSE_BEGINS, self._wants_response, self._responded)

    def _wants_request(self, head: bytes) -> bool:
        self._report.requests += 1
        return REQUEST_HEAD.unpack(head)[0] in _APIS

    def _wants_response(self, head: bytes) -> bool:
        return int.from_bytes(head, "big", signed=True) in self._awaited

    def _requested(self, frame: memoryview) -> None:
        key, version, correlation = REQUEST_HEAD.unpack_from(frame)
        api = _APIS[key]
        try:
            answered = self._asked(key, version, frame)
        except Malformed:
            name = f"{api} v{version}"
            self._report.unread[name] = self._report.unread.get(name, 0) + 1
            return
        if answered is not None:
            self._awaited[correlation] = _Awaited(api=api, version=version, answered=answered)

    def _responded(self, frame: memoryview) -> None:
        asked = self._awaited.pop(int.from_bytes(frame[:RESPONSE_BEGINS], "big", signed=True))
        try:
            asked.answered(decode_response(asked.api, asked.version, frame))
        except Malformed:
            name = f"answer to {asked.api} v{asked.version}"
            self._report.unread[name] = self._report.unread.get(name, 0) + 1

    def _asked(self, key: int, version: int, frame: memoryview) -> Answered | None:
        """Writes down a request. Returns what is to be done with its answer; None: nothing. Raises
        Malformed."""
        if key == _METADATA:
            return self._named if version >= _METADATA_IDS_FROM else None
        client = _client_of(frame)
        body = decode_request(_APIS[key], version, frame)
        if key == _PRODUCE:
            return self._produce(version, body, client)
        if _APIS[key] == "init_producer_id":
            return self._identify(body, client)
        return self._end(body)

    def _named(self, body: Message) -> None:
        for topic in body.topics:
            if topic.topic_id is not None and topic.name is not None:
                self._history.names[topic.topic_id] = topic.name

    def _produce(self, version: int, body: Message, client: str) -> Answered | None:
        by_id = version >= _TOPIC_IDS_FROM
        batches: dict[tuple[object, int], list[AskedBatch]] = {}
        for topic in body.topic_data:
            key = topic.topic_id if by_id else topic.name
            name = self._history.name_of(key) if by_id else key
            for each in topic.partition_data if self._history.records(name) else ():
                batches[key, each.index] = list(
                    self._history.write(
                        name, each.index, each.records or b"", client, partial(self._own, client)
                    )
                )
        if not batches:
            return None
        if not body.acks:
            self._report.unpromised += sum(map(len, batches.values()))
            return None

        def answered(answer: Message) -> None:
            for topic in answer.responses:
                key = topic.topic_id if by_id else topic.name
                for each in topic.partition_responses:
                    self._written(batches.get((key, each.index), ()), body.acks, each)

        return answered

    def _own(self, client: str) -> WireProducer:
        """The producer of this connection, for batches without an id."""
        if self._unnamed is None:
            self._unnamed = self._history.producer(-1, client)
        return self._unnamed

    def _written(self, batches: Sequence[AskedBatch], acks: int, answer: Message) -> None:
        offset = answer.base_offset
        for batch in batches:
            self._history.written(batch, acks, answer.error_code, offset)
            offset += batch.count if offset >= 0 else 0

    def _identify(self, body: Message, client: str) -> Answered | None:
        if not body.transactional_id:
            return None

        def answered(answer: Message) -> None:
            if answer.error_code is Error.none:
                self._history.identified(body.transactional_id, answer.producer_id, client)

        return answered

    def _end(self, body: Message) -> Answered | None:
        transaction = self._history.end(
            body.producer_id, body.producer_epoch, commit=body.committed
        )
        if transaction is None:
            return None
        return lambda answer: self._history.ended(transaction, answer.error_code)


def _client_of(frame: memoryview) -> str:
    """The client id of a request's header."""
    at = REQUEST_HEAD.size
    size = int.from_bytes(frame[at : at + 2], "big", signed=True)
    return bytes(frame[at + 2 : at + 2 + max(size, 0)]).decode(errors="replace")
