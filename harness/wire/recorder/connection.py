"""One connection of a program to a broker: matches its requests with their answers, for the
history.

Requests are decoded with the schemas of `harness.wire.messages`. What the history does not need is
forwarded unread. What it needs and cannot decode is forwarded too. Each is counted by API and
version.

The history has what the client asked and the answer that the client got. While a fault changes
messages (`harness.model.interference`), requests that it may choose are held back until they are
complete.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

from linkflap.harness.model.interference import Interference
from linkflap.harness.model.wait import now
from linkflap.harness.wire.forwarding import Frames, Passage, Wanted, framed
from linkflap.harness.wire.messages import (
    LENGTH,
    REQUEST_HEAD,
    UNREADABLE,
    Error,
    Message,
    decode_request,
    decode_response,
)
from linkflap.harness.wire.recorder.history import AskedBatch, WireHistory, WireProducer
from linkflap.harness.wire.recorder.interferences import (
    CHANGED,
    NAMES,
    InFlight,
    Interferences,
    capped,
    nothing,
    refusal,
    throttled,
)
from linkflap.harness.wire.recorder.reads import WireReader
from linkflap.harness.wire.recorder.settings import Report
from linkflap.harness.wire.recorder.shares import SHARES, WireSharer

log = logging.getLogger("recorder")
REQUEST_BEGINS: Final = REQUEST_HEAD.size
RESPONSE_BEGINS: Final = LENGTH.size
"""A correlation id."""


_PRODUCE: Final = 0
_METADATA: Final = 3
_DELETE_TOPICS: Final = 20
_WRITES: Final[Mapping[int, str]] = {
    _PRODUCE: "produce",
    _METADATA: "metadata",
    _DELETE_TOPICS: "delete_topics",
    22: "init_producer_id",
    26: "end_txn",
}
_NAMES_OF_TOPICS: Final = {_METADATA: "metadata"}
_READS: Final[Mapping[int, str]] = {
    1: "fetch",
    8: "offset_commit",
    14: "sync_group",
    28: "txn_offset_commit",
    68: "consumer_group_heartbeat",
}
_METADATA_IDS_FROM: Final = 10
Answered = Callable[[Message], None]
Fate = Callable[[memoryview], Passage]
"""Returns what the client gets in place of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Awaited:
    """A request whose answer the history needs: how to decode it, and what takes it."""

    api: str
    version: int
    answered: Answered
    batches: Sequence[AskedBatch] = ()


class WireConnection:
    """The observer of one connection: `requests` and `responses` take its bytes in order, and raise
    Malformed where these are not Kafka's protocol."""

    def __init__(self, history: WireHistory, interferences: Interferences) -> None:
        self._history, self._interferences = history, interferences
        self.peer = ""
        self._fates: dict[int, deque[Fate]] = defaultdict(deque)
        self._muted_until = 0
        self._apis = {
            **(_WRITES if history.records_writes else _NAMES_OF_TOPICS),
            **(_READS if history.reads.topics else {}),
            **(SHARES if history.shares.groups else {}),
        }
        self._in_flight: dict[int, Sequence[InFlight]] = {}
        self._reader: WireReader | None = None
        self._sharer: WireSharer | None = None
        self._report: Report = history.report
        self._report.connections += 1
        self._awaited: dict[int, deque[_Awaited]] = defaultdict(deque)
        """By correlation id. Requests with the same one are answered in their order."""
        self._unnamed: WireProducer | None = None
        self._asked_now: Sequence[AskedBatch] = ()
        self.requests = Frames(
            REQUEST_BEGINS, self._wants_request, self._requested, self._kept_request
        )
        self.responses = Frames(
            RESPONSE_BEGINS, self._wants_response, self._responded, self._kept_response
        )

    def _wants_request(self, head: bytes) -> Wanted:
        self._report.requests += 1
        api, version, _ = REQUEST_HEAD.unpack(head)
        self._interferences.saw(api)
        if api not in self._apis:
            self._report.forwards_unread(api, version)
        if self._interferences.may(api) or self._interferences.counts(api) or self._muted:
            return "keep"
        return "read" if api in self._apis else "pass"

    def _wants_response(self, head: bytes) -> Wanted:
        correlation = int.from_bytes(head, "big", signed=True)
        if correlation in self._fates:
            return "keep"
        read = correlation in self._awaited or correlation in self._in_flight
        return "read" if read else "pass"

    @property
    def _muted(self) -> float:
        """For how many seconds the broker does not read from this connection: it mutes a client
        that it has throttled (KIP-219)."""
        return max(0, self._muted_until - now()) / 1e9

    def _kept_request(self, frame: memoryview) -> Passage:
        """A request that a fault may choose, or that comes while its client is throttled."""
        passage = self._chosen(frame)
        return replace(passage, seconds=max(passage.seconds, self._muted))

    def _chosen(self, frame: memoryview) -> Passage:
        """What a fault makes of a request. It is recorded like any other."""
        key, version, correlation = REQUEST_HEAD.unpack_from(frame)
        if key in self._apis:
            self._requested(frame)
        self._count(frame)
        whole, client = framed(frame), _client_of(frame)
        refused = b""
        try:
            chosen = self._interferences.chosen(frame, client, self._history.topic)
            if chosen is not None and chosen[1].does == "refused" and key not in CHANGED:
                refused = refusal(frame, chosen[2], chosen[1].error)
        except UNREADABLE:
            self._unreadable(f"{NAMES[key]} v{version} that a fault may choose")
            chosen = None
        if chosen is None:
            return Passage(instead=[whole])
        name, fault, _ = chosen
        if fault.does in ("unanswered", "delayed") and not fault.carried_out:
            self._did(name, fault)
            ends = fault.does == "unanswered"
            return Passage(instead=[] if ends else [whole], seconds=fault.seconds, ends=ends)
        fates = self._fates[correlation]
        if fault.does == "repeated":
            fates.append(self._as_it_is)
            fates.append(partial(self._swallowed, name, fault))
            return Passage(instead=[whole, whole])
        if refused:
            instead = partial(self._instead, name, fault, refused)
            fates.append(partial(self._if_asked, name, instead) if fault.carried_out else instead)
            return Passage(instead=[whole if fault.carried_out else nothing(correlation)])
        changed = {
            "unanswered": self._unanswered,
            "delayed": self._delayed,
            "refused": self._refused,
            "downgraded": self._downgraded,
            "throttled": self._throttled,
        }[fault.does]
        fates.append(partial(self._if_asked, name, partial(changed, name, fault, version)))
        return Passage(instead=[whole])

    def _kept_response(self, frame: memoryview) -> Passage:
        correlation = int.from_bytes(frame[:RESPONSE_BEGINS], "big", signed=True)
        fates = self._fates[correlation]
        fate = fates.popleft()
        if not fates:
            del self._fates[correlation]
        return fate(frame)

    def _count(self, frame: memoryview) -> None:
        """Counts a request for faults that wait for it."""
        key, version, correlation = REQUEST_HEAD.unpack_from(frame)
        if self._interferences.counts(key):
            try:
                begun = self._interferences.count(frame, self._history.topic)
            except UNREADABLE:
                self._unreadable(f"{NAMES[key]} v{version} that a fault may wait for")
                return
            if begun:
                self._in_flight[correlation] = (*self._in_flight.get(correlation, ()), *begun)

    def _did(self, name: str, fault: Interference) -> None:
        did = self._report.interfered
        did[fault.does] = did.get(fault.does, 0) + 1
        self._interferences.did(name)

    # What becomes of an answer.

    def _if_asked(self, name: str, fate: Fate, frame: memoryview) -> Passage:
        """Applies the fault, unless it has ended since the request."""
        return fate(frame) if self._interferences.asked(name) else self._as_it_is(frame)

    def _as_it_is(self, frame: memoryview) -> Passage:
        self._responded(frame)
        return Passage(instead=[framed(frame)])

    def _swallowed(self, name: str, fault: Interference, frame: memoryview) -> Passage:
        del frame
        self._did(name, fault)
        return Passage()

    def _instead(self, name: str, fault: Interference, answer: bytes, frame: memoryview) -> Passage:
        """The client gets another answer, which its history then has too."""
        del frame
        self._did(name, fault)
        self._responded(memoryview(answer)[LENGTH.size :])
        return Passage(instead=[answer])

    def _unanswered(
        self, name: str, fault: Interference, version: int, frame: memoryview
    ) -> Passage:
        del version, frame
        self._did(name, fault)
        return Passage(ends=True)

    def _delayed(self, name: str, fault: Interference, version: int, frame: memoryview) -> Passage:
        """The client gets the answer when the delay is over."""
        del version
        self._did(name, fault)
        return Passage(
            instead=[framed(frame)],
            seconds=fault.seconds,
            before=partial(self._responded, frame),
        )

    def _refused(self, name: str, fault: Interference, version: int, frame: memoryview) -> Passage:
        try:
            answer = CHANGED[fault.api](frame, version, fault.error)
        except UNREADABLE:
            self._unreadable(f"answer to {NAMES[fault.api]} v{version} that a fault has chosen")
            answer = None
        if answer is None:
            self._interferences.returned(name)
            return self._as_it_is(frame)
        return self._instead(name, fault, answer, frame)

    def _throttled(
        self, name: str, fault: Interference, version: int, frame: memoryview
    ) -> Passage:
        """The client gets the answer at once, and the broker nothing more of it meanwhile."""
        try:
            answer = throttled(frame, fault.api, version, fault.seconds)
        except UNREADABLE:
            self._unreadable(f"answer to {NAMES[fault.api]} v{version} that is throttled")
            answer = None
        if answer is None:
            self._interferences.returned(name)
            return self._as_it_is(frame)
        self._muted_until = now() + round(fault.seconds * 1e9)
        return self._instead(name, fault, answer, frame)

    def _downgraded(
        self, name: str, fault: Interference, version: int, frame: memoryview
    ) -> Passage:
        try:
            offers = capped(frame, version, fault)
        except UNREADABLE:
            self._unreadable(f"answer to ApiVersions v{version} that a fault has chosen")
            return self._as_it_is(frame)
        if offers != framed(frame):  # the broker offers higher ones
            self._did(name, fault)
        return Passage(instead=[offers])

    def _requested(self, frame: memoryview) -> None:
        key, version, correlation = REQUEST_HEAD.unpack_from(frame)
        api = self._apis[key]
        self._asked_now = ()
        try:
            answered = self._asked(key, version, frame)
        except UNREADABLE:
            self._unreadable(f"{api} v{version}")
            return
        if answered is not None:
            self._awaited[correlation].append(
                _Awaited(api=api, version=version, answered=answered, batches=self._asked_now)
            )

    def _unreadable(self, what: str) -> None:
        """Counts what matters and could not be read, and logs the first of each kind."""
        if self._report.unreadable(what):
            log.info("%s of %s could not be read, so it is not in the history", what, self.peer)

    def passes_unread(self, sentence: str) -> bool:
        """Counts what is not Kafka's protocol, and forwards it: the program may expect it."""
        self._report.passes(sentence)
        log.info("%s; the rest of the connection of %s passes unread", sentence, self.peer)
        return True

    def ended(self) -> None:
        """The connection has ended, so its open requests get no answers."""
        for awaited in chain.from_iterable(self._awaited.values()):
            self._history.unanswered(awaited.batches)
        self._awaited.clear()
        if self._sharer is not None:
            self._sharer.ended()
        for begun in self._in_flight.values():
            self._interferences.answered(begun)
        self._in_flight.clear()

    def _responded(self, frame: memoryview) -> None:
        correlation = int.from_bytes(frame[:RESPONSE_BEGINS], "big", signed=True)
        self._interferences.answered(self._in_flight.pop(correlation, ()))
        if correlation not in self._awaited:
            return
        asked = self._awaited[correlation].popleft()
        if not self._awaited[correlation]:
            del self._awaited[correlation]
        try:
            asked.answered(decode_response(asked.api, asked.version, frame))
        except UNREADABLE:
            self._unreadable(f"answer to {asked.api} v{asked.version}")

    def _asked(self, key: int, version: int, frame: memoryview) -> Answered | None:
        """Records a request. Returns what takes its answer; None if nothing does. Raises
        Malformed."""
        if key == _METADATA:
            return self._named if version >= _METADATA_IDS_FROM else None
        client, api = _client_of(frame), self._apis[key]
        body = decode_request(api, version, frame)
        if key == _PRODUCE:
            return self._produce(body, client)
        if key == _DELETE_TOPICS:
            return self._delete(body)
        if api == "init_producer_id":
            return self._identify(body, client)
        if api == "end_txn":
            return self._end(body, client)
        if key in SHARES:
            return self._shares(client).asked(api, body)
        return self._reads(client).asked(api, version, body)

    def _reads(self, client: str) -> WireReader:
        """What this connection reads."""
        if self._reader is None:
            self._reader = WireReader(self._history.reads, self._history.topic, client)
        return self._reader

    def _shares(self, client: str) -> WireSharer:
        """The members of share groups on this connection."""
        if self._sharer is None:
            self._sharer = WireSharer(self._history.shares, self._history.topic, client)
        return self._sharer

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
        acks = body.acks  # not the body, which has all records
        if not acks:
            self._report.unpromised += sum(map(len, batches.values()))
            return None

        def answered(answer: Message) -> None:
            for topic in answer.responses:
                name = self._history.topic(topic)
                for each in topic.partition_responses:
                    self._written(batches.get((name, each.index), ()), acks, each)

        return answered

    def _delete(self, body: Message) -> Answered:
        named = getattr(body, "topic_names", None)
        for topic in named if named is not None else map(self._history.topic, body.topics):
            self._history.deleting(topic)

        def answered(answer: Message) -> None:
            for each in answer.responses:
                self._history.deleted(self._history.topic(each), each.error_code)

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
                self._history.ended(transaction, answer.error_code, commit=body.committed)
            if answer.error_code is Error.none:
                self._reads(client).ended(producer, asked, commit=body.committed)

        return answered


def _client_of(frame: memoryview) -> str:
    """The client id of a request's header."""
    at = REQUEST_HEAD.size
    size = int.from_bytes(frame[at : at + 2], "big", signed=True)
    return bytes(frame[at + 2 : at + 2 + max(size, 0)]).decode(errors="replace")
