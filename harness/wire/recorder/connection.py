"""One connection of a program to a broker: its requests and answers, matched, for the history.

Requests are read by the schemas of `harness.wire.messages`. What is not needed passes; what is
needed and cannot be read passes too, and is counted by API and version.

Cuts one direction of a connection into Kafka's frames, while its bytes pass.

Only frames that somebody wants are kept, in memory of their own; of all others the beginning alone
is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from linkflap.harness.model.wait import now
from linkflap.harness.wire.messages import (
    LENGTH,
    REQUEST_HEAD,
    Error,
    Malformed,
    Message,
    decode_request,
    decode_response,
    frame_length,
)
from linkflap.harness.wire.recorder.history import AskedBatch, WireHistory, WireProducer
from linkflap.harness.wire.recorder.reads import WireReader
from linkflap.harness.wire.recorder.settings import Drops, Report

REQUEST_BEGINS: Final = REQUEST_HEAD.size
RESPONSE_BEGINS: Final = LENGTH.size
"""A correlation id."""


class AnswerDropped(Exception):
    """An answer must not reach its client. `before`: how many of the bytes that came with it
    precede it."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.before = before


class Frames:
    """`wanted` gets the first `begins` bytes of each frame, without its length, and says whether
    `ended` is to get all of it. `began`: where in the bytes that are fed now the latest frame
    begins, 0 if before them."""

    def __init__(
        self, begins: int, wanted: Callable[[bytes], bool], ended: Callable[[memoryview], None]
    ) -> None:
        self._begins, self._wanted, self._ended = begins, wanted, ended
        self._head = bytearray()
        self._frame = bytearray()
        self._got = self._left = self.began = 0

    def feed(self, data: memoryview) -> None:
        """The next bytes. Raises Malformed where no frame of Kafka's can begin, and what `wanted`
        raises."""
        at = self.began = 0
        while at < len(data):
            if self._left:
                at += self._take(data[at : at + self._left])
            else:
                self.began = at if not self._head else self.began
                missing = LENGTH.size + self._begins - len(self._head)
                self._head += data[at : at + missing]
                at += min(missing, len(data) - at)
                if len(self._head) == LENGTH.size + self._begins:
                    self._begin()

    def _take(self, some: memoryview) -> int:
        size = len(some)
        if self._frame:
            self._frame[self._got : self._got + size] = some
            self._got += size
        self._left -= size
        if not self._left:
            self._end()
        return size

    def _begin(self) -> None:
        length = frame_length(self._head[: LENGTH.size])
        if length < self._begins:
            raise Malformed(f"it announces a frame of {length} bytes")
        head = bytes(self._head[LENGTH.size :])
        self._head.clear()
        self._left = length - self._begins
        if self._wanted(head):
            self._frame = bytearray(length)
            self._frame[: self._begins] = head
            self._got = self._begins
        if not self._left:
            self._end()

    def _end(self) -> None:
        frame, self._frame = self._frame, bytearray()
        if frame:
            self._ended(memoryview(frame))


_PRODUCE: Final = 0
_METADATA: Final = 3
_WRITES: Final[Mapping[int, str]] = {
    _PRODUCE: "produce",
    _METADATA: "metadata",
    22: "init_producer_id",
    26: "end_txn",
}
_READS: Final[Mapping[int, str]] = {
    1: "fetch",
    8: "offset_commit",
    14: "sync_group",
    28: "txn_offset_commit",
    68: "consumer_group_heartbeat",
}
_METADATA_IDS_FROM: Final = 10
Answered = Callable[[Message], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Awaited:
    """A request whose answer matters: how it is read, and who gets it."""

    api: str
    version: int
    answered: Answered
    batches: Sequence[AskedBatch] = ()


class WireConnection:
    """Reads along on one connection: `requests` and `responses` take its bytes, in their order, and
    raise Malformed where they are not Kafka's. `responses` raises AnswerDropped."""

    def __init__(self, history: WireHistory, drops: Drops) -> None:
        self._history, self._drops = history, drops
        self._unanswered: set[int] = set()
        self._apis = {**_WRITES, **(_READS if history.reads.topics else {})}
        self._reader: WireReader | None = None
        self._report: Report = history.report
        self._awaited: dict[int, _Awaited] = {}
        self._unnamed: WireProducer | None = None
        self._asked_now: Sequence[AskedBatch] = ()
        self.requests = Frames(REQUEST_BEGINS, self._wants_request, self._requested)
        self.responses = Frames(RESPONSE_BEGINS, self._wants_response, self._responded)

    def _wants_request(self, head: bytes) -> bool:
        self._report.requests += 1
        api, _, correlation = REQUEST_HEAD.unpack(head)
        if self._drops.takes(api):
            self._unanswered.add(correlation)
        return api in self._apis

    def _wants_response(self, head: bytes) -> bool:
        correlation = int.from_bytes(head, "big", signed=True)
        if correlation in self._unanswered:
            self._drops.done += 1
            self._report.dropped += 1
            raise AnswerDropped(self.responses.began)
        return correlation in self._awaited

    def _requested(self, frame: memoryview) -> None:
        key, version, correlation = REQUEST_HEAD.unpack_from(frame)
        api = self._apis[key]
        self._asked_now = ()
        try:
            answered = self._asked(key, version, frame)
        except Malformed:
            self._report.unreadable(f"{api} v{version}")
            return
        if answered is not None:
            self._awaited[correlation] = _Awaited(
                api=api, version=version, answered=answered, batches=self._asked_now
            )

    def ended(self) -> None:
        """The connection has ended, and with it the wait for answers."""
        for awaited in self._awaited.values():
            self._history.unanswered(awaited.batches)
        self._awaited.clear()

    def _responded(self, frame: memoryview) -> None:
        asked = self._awaited.pop(int.from_bytes(frame[:RESPONSE_BEGINS], "big", signed=True))
        try:
            asked.answered(decode_response(asked.api, asked.version, frame))
        except Malformed:
            self._report.unreadable(f"answer to {asked.api} v{asked.version}")

    def _asked(self, key: int, version: int, frame: memoryview) -> Answered | None:
        """Writes down a request. Returns what is to be done with its answer; None: nothing. Raises
        Malformed."""
        if key == _METADATA:
            return self._named if version >= _METADATA_IDS_FROM else None
        client, api = _client_of(frame), self._apis[key]
        body = decode_request(api, version, frame)
        if key == _PRODUCE:
            return self._produce(body, client)
        if api == "init_producer_id":
            return self._identify(body, client)
        return (
            self._end(body, client)
            if api == "end_txn"
            else self._reads(client).asked(api, version, body)
        )

    def _reads(self, client: str) -> WireReader:
        """What this connection reads."""
        if self._reader is None:
            self._reader = WireReader(self._history.reads, self._history.topic, client)
        return self._reader

    def _named(self, body: Message) -> None:
        for topic in body.topics:
            if topic.topic_id is not None and topic.name is not None:
                self._history.names[topic.topic_id] = topic.name

    def _produce(self, body: Message, client: str) -> Answered | None:
        batches: dict[tuple[str, int], list[AskedBatch]] = {}
        for topic in body.topic_data:
            name = self._history.topic(topic)
            for each in topic.partition_data if self._history.records(name) else ():
                batches[name, each.index] = list(
                    self._history.write(
                        name, each.index, each.records or b"", client, partial(self._own, client)
                    )
                )
        if not batches:
            return None
        self._asked_now = [batch for some in batches.values() for batch in some]
        if not body.acks:
            self._report.unpromised += sum(map(len, batches.values()))
            return None

        def answered(answer: Message) -> None:
            for topic in answer.responses:
                name = self._history.topic(topic)
                for each in topic.partition_responses:
                    self._written(batches.get((name, each.index), ()), body.acks, each)

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

    def _end(self, body: Message, client: str) -> Answered:
        producer, asked = (body.producer_id, body.producer_epoch), now()
        transaction = self._history.end(*producer, commit=body.committed)

        def answered(answer: Message) -> None:
            if transaction is not None:
                self._history.ended(transaction, answer.error_code)
            if answer.error_code is Error.none:
                self._reads(client).ended(producer, asked, commit=body.committed)

        return answered


def _client_of(frame: memoryview) -> str:
    """The client id of a request's header."""
    at = REQUEST_HEAD.size
    size = int.from_bytes(frame[at : at + 2], "big", signed=True)
    return bytes(frame[at + 2 : at + 2 + max(size, 0)]).decode(errors="replace")
