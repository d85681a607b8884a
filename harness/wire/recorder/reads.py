"""The history of what programs fetched from a cluster and what their groups committed there, from
the requests and answers on the wire. Its rows are those of linkflap's own readers.

A row `poll` has the records that the answer to a Fetch delivers: those of complete batches at or
above the requested offset, without control records and, with read_committed, without the
transactions that the answer lists as aborted. The client library may not have passed all of them on
to the program. The values are not decoded: each run is what was delivered of one batch, and the CRC
of the batch identifies it in a log. The position is where the next Fetch is expected. A Fetch at
another offset means that the client has moved: a row `assign` without the new position says so,
because a program may seek anywhere. Each connection is a reader of its own, as its fetch sessions
are (KIP-227).

A Fetch names no group. The group for which a client reads a partition is known from the assignments
that coordinators hand out, and from the client id. Only groups that workloads name are recorded.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Final

from kio.schema.consumer_protocol_assignment.v1.data import ConsumerProtocolAssignment
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from linkflap.harness.log import reference
from linkflap.harness.log.codecs import CannotInflate
from linkflap.harness.log.layout import CONTROL, HEADER_SIZE, LENGTH_ENDS, MAGIC, TRANSACTIONAL
from linkflap.harness.model.history import Fetched, Isolation, Poll, PollKind
from linkflap.harness.model.topology import TopicPartition, is_among
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import Appender
from linkflap.harness.wire import array_lengths
from linkflap.harness.wire.messages import Error, Malformed, Message
from linkflap.harness.wire.recorder.settings import Report, Settings

BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_SESSIONS_FROM: Final = 7
_MOST_SESSIONS: Final = 10_000
"""Of all brokers of a cluster: each keeps 1,000 (max.incremental.fetch.session.cache.slots)."""
_ASSIGNMENT: Final = entity_reader(ConsumerProtocolAssignment)
_VERSION_ENDS: Final = 2
Names = Callable[[Message], str]
"""The name of a topic in a message, which may have its id alone."""
Offsets = Mapping[tuple[str, TopicPartition], int]
"""Offsets that groups commit."""


@dataclass(slots=True, kw_only=True)
class FetchedRecords:
    """What one answer delivers of one partition: runs of offsets, each with the CRC of its batch,
    and the position after them."""

    runs: list[tuple[int, int, int]] = field(default_factory=list)
    crcs: list[int] = field(default_factory=list)
    position: int

    def add(self, first: int, size: int, crc: int) -> None:
        self.runs.append((-1, first, size))
        self.crcs.append(crc)


def delivered(
    records: memoryview, start: int, aborted: Iterable[tuple[int, int]]
) -> FetchedRecords:
    """The records of these batches that are delivered, from offset `start` on; the last batch may
    be incomplete. `aborted`: first offset and producer id of each listed transaction. Raises
    Malformed."""
    found = FetchedRecords(position=start)
    listed, hidden = sorted(aborted, reverse=True), set[int]()
    for batch, base, crc, attributes, delta, producer, size in _whole(records):
        last = base + delta
        while listed and listed[-1][0] <= last:
            hidden.add(listed.pop()[1])
        if attributes & CONTROL:
            hidden.discard(producer)
        elif last >= start and not (attributes & TRANSACTIONAL and producer in hidden):
            if size == delta + 1:
                first = max(base, start)
                found.add(first, last - first + 1, crc)
            else:
                for offset in _left_by_a_cleaner(bytes(batch), start):
                    found.add(offset, 1, crc)
        found.position = max(found.position, last + 1)
    return found


def _whole(records: memoryview) -> Iterator[tuple[memoryview, int, int, int, int, int, int]]:
    """Each whole batch, with its base offset, CRC, attributes, last offset delta, producer id and
    number of records. Raises Malformed."""
    at = 0
    while len(records) - at >= HEADER_SIZE:
        (
            base, length, _, magic, crc, attributes, delta, _, _, producer, _, _, size,
        ) = BATCH_HEADER.unpack_from(records, at)  # fmt: skip
        begins, at = at, at + LENGTH_ENDS + length
        if magic != MAGIC or length < HEADER_SIZE - LENGTH_ENDS or delta < 0:
            raise Malformed(f"a batch of format {magic} with {length} bytes")
        if at <= len(records):
            yield records[begins:at], base, crc, attributes, delta, producer, size


def _left_by_a_cleaner(batch: bytes, start: int) -> Iterator[int]:
    """The offsets, from one on, of the records that a log cleaner has left in a batch."""
    try:
        for each in reference.batches(batch):
            yield from (r.offset for r in reference.records(each) if r.offset >= start)
    except (reference.MalformedBatch, CannotInflate) as error:
        raise Malformed(f"a compacted batch: {error}") from error


@dataclass(slots=True, kw_only=True)
class Session:
    """What a connection, or a fetch session, asks for: the offset of each recorded partition."""

    isolation: Isolation = "read_uncommitted"
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


class WireReads:
    """The reads of one cluster's programs, over all of their connections."""

    def __init__(self, settings: Settings, rows: Appender[Poll], report: Report) -> None:
        self._cluster, self._rows, self.report = settings.cluster, rows, report
        self.topics, self.groups = settings.reads, settings.groups
        self.numbers = count(1)
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._held: dict[tuple[str, TopicPartition], set[str]] = defaultdict(set)
        self.unnamed: list[Callable[[], None]] = []
        """Holds of topics whose names are not known yet."""
        self._pending: dict[tuple[int, int], dict[tuple[str, TopicPartition], int]] = {}

    def row(
        self,
        reader: tuple[str, int],
        kind: PollKind,
        parts: Iterable[Fetched],
        *,
        isolation: Isolation = "read_uncommitted",
        group: str = "",
        asked: int,
        returned: int,
        lock_ms: int = 0,
    ) -> None:
        """Writes a row of a reader: its client id, and its number here."""
        self._rows.write(
            Poll(
                time=asked,
                returned=returned,
                reader=f"{reader[0]} (wire)",
                process=reader[1],
                cluster=self._cluster,
                isolation=isolation,
                kind=kind,
                group=group,
                fetched=tuple(parts),
                lock_ms=lock_ms,
            )
        )

    # Fetch sessions.

    def session(self, number: int) -> Session:
        """Raises Malformed for one that is not known."""
        if number not in self._sessions:
            raise Malformed(f"no fetch session {number} is known")
        self._sessions.move_to_end(number)
        return self._sessions[number]

    def remember(self, number: int, session: Session) -> None:
        self._sessions[number] = session
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)

    # Groups.

    def hold(self, client: str, group: str, partitions: Iterable[TopicPartition]) -> None:
        """A coordinator assigned partitions to a member with this client id."""
        for tp in partitions:
            if not is_among(tp[0], self.topics):
                continue
            groups = self._held[client, tp]
            groups.add(group)
            if len(groups) > 1 and groups & self.groups:
                names = " and ".join(sorted(groups))
                self.report.unreadable(
                    f"for which of the groups {names} a client fetches, as all have the client id "
                    f"{client!r} (client.id can tell them apart)"
                )

    def group_of(self, client: str, tp: TopicPartition) -> str:
        """The group, of those that are recorded, for which a client fetches a partition."""
        waiting, self.unnamed = self.unnamed, []
        for hold in waiting:
            try:
                hold()
            except Malformed:
                self.unnamed.append(hold)
        groups = self._held.get((client, tp), set())
        (group,) = groups if len(groups) == 1 else ("",)
        return group if group in self.groups else ""

    def committing(self, body: Message, name: Names) -> Offsets:
        """The offsets that a request is to commit, of recorded groups and topics."""
        return {
            (body.group_id, tp): each.committed_offset
            for topic in (body.topics if body.group_id in self.groups else ())
            for each in topic.partitions
            if is_among((tp := (name(topic), each.partition_index))[0], self.topics)
            and each.committed_offset >= 0
        }

    def commit(
        self,
        reader: tuple[str, int],
        offsets: Offsets,
        asked: int,
    ) -> None:
        """Offsets whose commit a coordinator has acknowledged."""
        by_group: dict[str, list[Fetched]] = defaultdict(list)
        for (group, (topic, partition)), offset in offsets.items():
            by_group[group].append(Fetched(topic=topic, partition=partition, position=offset))
        self.report.committed += len(offsets)
        for group, parts in by_group.items():
            self.row(reader, "commit", parts, group=group, asked=asked, returned=now())

    def pend(self, producer: tuple[int, int], offsets: Offsets) -> None:
        """Offsets that are committed if their transaction is: of a producer id and epoch."""
        self._pending.setdefault(producer, {}).update(offsets)

    def end(
        self, producer: tuple[int, int], reader: tuple[str, int], asked: int, *, commit: bool
    ) -> None:
        """A transaction has ended."""
        offsets = self._pending.pop(producer, {})
        if commit:
            self.commit(reader, offsets, asked)


class WireReader:
    """What one connection fetches, and commits."""

    def __init__(self, reads: WireReads, name: Names, client: str) -> None:
        self._reads, self._name, self._client = reads, name, client
        self._report = reads.report
        self._fetches = client, next(reads.numbers)
        self._commits = client, next(reads.numbers)
        self._positions: dict[TopicPartition, int] = {}

    def asked(self, api: str, version: int, body: Message) -> Callable[[Message], None] | None:
        """Records a request. Returns what takes its answer; None if nothing does. Raises
        Malformed."""
        if api == "fetch":
            return self._fetch(version, body)
        if api == "sync_group":
            return partial(self._synced, body.group_id)
        if api == "consumer_group_heartbeat":
            return partial(self._assigned, body.group_id)
        asked, offsets = now(), self._reads.committing(body, self._name)
        return partial(self._committed, api, body, offsets, asked) if offsets else None

    def ended(self, producer: tuple[int, int], asked: int, *, commit: bool) -> None:
        """A transaction has ended, with the offsets that it commits."""
        self._reads.end(producer, self._commits, asked, commit=commit)

    def _synced(self, group: str, answer: Message) -> None:
        if answer.error_code is not Error.none or not answer.assignment:
            return
        try:
            partitions = list(assigned(answer.assignment))
        except Malformed:
            if group in self._reads.groups:
                raise
            return  # its members are no consumers (Kafka Connect's workers, for instance)
        self._reads.hold(self._client, group, partitions)

    def _assigned(self, group: str, answer: Message) -> None:
        """With KIP-848 a member gets ids of topics, perhaps before it asks for their names."""

        def named(topic: Message) -> None:
            name = self._name(topic)
            self._reads.hold(self._client, group, [(name, p) for p in topic.partitions])

        for topic in answer.assignment.topic_partitions if answer.assignment else ():
            self._reads.unnamed.append(partial(named, topic))

    def _committed(
        self, api: str, body: Message, offsets: Offsets, asked: int, answer: Message
    ) -> None:
        done = {
            (self._name(topic), each.partition_index)
            for topic in answer.topics
            for each in topic.partitions
            if each.error_code is Error.none
        }
        acknowledged = {key: offset for key, offset in offsets.items() if key[1] in done}
        if api == "txn_offset_commit":
            self._reads.pend((body.producer_id, body.producer_epoch), acknowledged)
        else:
            self._reads.commit(self._commits, acknowledged, asked)

    def _fetch(self, version: int, body: Message) -> Callable[[Message], None]:
        session, asked = self._session(version, body), now()

        def answered(answer: Message) -> None:
            if version >= _SESSIONS_FROM:
                if answer.error_code is not Error.none:
                    return
                if answer.session_id and body.session_epoch == 0:
                    self._reads.remember(answer.session_id, session)
            self._answered(answer, session, asked)

        return answered

    def _session(self, version: int, body: Message) -> Session:
        """The fetch session with the changes of this request. With an epoch below 1 the request
        names all of its partitions."""
        session = Session()
        if version >= _SESSIONS_FROM and body.session_epoch > 0:
            session = self._reads.session(body.session_id)
            for topic in body.forgotten_topics_data:
                for partition in topic.partitions:
                    session.offsets.pop((self._name(topic), partition), None)
        session.isolation = "read_committed" if body.isolation_level else "read_uncommitted"
        for topic in body.topics:
            if is_among(name := self._name(topic), self._reads.topics):
                for each in topic.partitions:
                    session.offsets[name, each.partition] = each.fetch_offset
        return session

    def _answered(self, answer: Message, session: Session, asked: int) -> None:
        """Records what an answer delivers, and before it the positions to which the client
        moved."""
        moved: dict[str, list[Fetched]] = defaultdict(list)
        got: dict[str, list[Fetched]] = defaultdict(list)
        for topic in answer.responses if session.offsets else ():
            name = self._name(topic)
            for each in topic.partitions:
                tp = name, each.partition_index
                start = session.offsets.get(tp, -1)
                what = _of_partition(each, start, session.isolation)
                if start < 0 or what.position <= start:
                    continue
                group = self._reads.group_of(self._client, tp)
                if self._positions.get(tp) != start:
                    moved[group].append(Fetched(topic=name, partition=tp[1], position=start))
                self._positions[tp] = what.position
                self._report.delivered += sum(size for _, _, size in what.runs)
                got[group].append(
                    Fetched(
                        topic=name,
                        partition=tp[1],
                        runs=tuple(what.runs),
                        crcs=tuple(what.crcs),
                        position=what.position,
                    )
                )
        for group, parts in got.items():
            row = partial(self._reads.row, self._fetches, isolation=session.isolation, group=group)
            if moved[group]:
                nowhere = [replace(at, position=-1) for at in moved[group]]
                row("assign", nowhere, asked=asked, returned=asked)
                row("poll", moved[group], asked=asked + 1, returned=asked + 1)
            row("poll", parts, asked=asked + 2, returned=max(now(), asked + 2))


def _of_partition(answer: Message, start: int, isolation: Isolation) -> FetchedRecords:
    """What an answer delivers of one partition, which was asked for from an offset on."""
    if start < 0 or answer.error_code is not Error.none or not answer.records:
        return FetchedRecords(position=start)
    listed = answer.aborted_transactions or () if isolation == "read_committed" else ()
    return delivered(
        memoryview(answer.records), start, [(a.first_offset, a.producer_id) for a in listed]
    )


def assigned(assignment: bytes) -> Iterator[TopicPartition]:
    """The partitions of a member's assignment in the classic protocol. Raises Malformed."""
    try:
        array_lengths.check(ConsumerProtocolAssignment, memoryview(assignment), _VERSION_ENDS)
        body = _ASSIGNMENT(memoryview(assignment), _VERSION_ENDS)[0]
    except (SerialError, ValueError, LookupError, struct.error) as error:
        raise Malformed(f"an assignment: {error}") from error
    for topic in body.assigned_partitions:
        yield from ((topic.topic, partition) for partition in topic.partitions)
