"""The history of what members of share groups (KIP-932) acquired from a cluster and how they
acknowledged it, from the requests and answers on the wire. Its rows are those of linkflap's own
share consumer.

A row `acquire` has the records of an answer to ShareFetch that its acquired ranges cover, without
control records, by delivery count; the duration of the acquisition lock is in the answer. An
acknowledgement is recorded when it is requested, with ShareFetch or ShareAcknowledge (accept,
release, reject, renew), and again once the answer has no error for its partition (accepted, …).
Acknowledgements of gaps are left out: there is no record.

A member is one member id of a group, on whatever connections. When a member closes its share
session, leaves its group (ShareGroupHeartbeat) or loses its connection, brokers take back what it
holds: it is recorded as its request to release. Of a lost connection the time is that of its last
request or answer, because a broker may notice the loss before the recorder does.

The isolation level is a config of the group and not on the wire: rows say read_uncommitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, repeat
from typing import Final

from linkflap.harness.model.history import Fetched, PollKind
from linkflap.harness.model.topology import TopicPartition, is_among
from linkflap.harness.model.wait import now
from linkflap.harness.wire.messages import Error, Malformed, Message
from linkflap.harness.wire.recorder.reads import Names, WireReads, delivered
from linkflap.harness.wire.recorder.settings import Settings

RESETS: Final[Mapping[int, str]] = {
    42: "delete_groups",
    91: "alter_share_group_offsets",
    92: "delete_share_group_offsets",
}
"""What moves the start offset of a group without its members."""
SHARES: Final[Mapping[int, str]] = {
    76: "share_group_heartbeat",
    78: "share_fetch",
    79: "share_acknowledge",
    **RESETS,
}
_TYPES: Final[Mapping[int, tuple[PollKind, PollKind]]] = {
    1: ("accept", "accepted"),
    2: ("release", "released"),
    3: ("reject", "rejected"),
    4: ("renew", "renewed"),
}
"""Types of acknowledgement, with the kinds of row of the request and of its confirmation."""
_RENEW: Final = 4
_MOST_OFFSETS: Final = 1 << 20
_ENDS: Final = -1
"""The epoch with which a share session is closed, or a group is left."""
Acknowledged = Mapping[int, Mapping[TopicPartition, list[int]]]
"""Offsets that one request acknowledges, by type and partition."""


@dataclass(slots=True, kw_only=True)
class _Held:
    """Until when a member holds an offset, and whether there is a record."""

    until: int
    record: bool


@dataclass(slots=True, kw_only=True)
class _Member:
    """A member of a share group, with what it acquired over one connection and still holds, in the
    order in which the locks expire."""

    group: str
    reader: tuple[str, int]
    held: dict[tuple[TopicPartition, int], _Held] = field(default_factory=dict)

    def hold(self, key: tuple[TopicPartition, int], *, record: bool, until: int) -> None:
        self.held.pop(key, None)
        self.held[key] = _Held(until=until, record=record)

    def expire(self, time: int) -> None:
        """Forgets what it held whose locks have expired."""
        while self.held and (first := next(iter(self.held.items())))[1].until <= time:
            del self.held[first[0]]


class WireShares:
    """The share groups of one cluster's programs, over all of their connections."""

    def __init__(self, settings: Settings, reads: WireReads) -> None:
        self.groups, self.topics, self.reads = settings.share_groups, settings.reads, reads
        self.sharers: set[WireSharer] = set()
        self._numbers: dict[tuple[str, str], int] = {}

    def number(self, group: str, member: str) -> int:
        """The number of a member."""
        if (group, member) not in self._numbers:
            self._numbers[group, member] = next(self.reads.numbers)
        return self._numbers[group, member]


class WireSharer:
    """The members of recorded share groups that use one connection."""

    def __init__(self, shares: WireShares, name: Names, client: str) -> None:
        self._shares, self._name, self._client = shares, name, client
        self._members: dict[tuple[str, str], _Member] = {}
        self._last = self._lock_ns = 0
        shares.sharers.add(self)

    def asked(self, api: str, body: Message) -> Callable[[Message], None] | None:
        """Records a request. Returns what takes its answer; None if nothing does. Raises
        Malformed."""
        if api in RESETS.values():
            groups = body.groups_names if api == "delete_groups" else (body.group_id,)
            for group in sorted(self._shares.groups.intersection(groups)):
                self._shares.reads.report.unreadable(f"share group {group} as it was reset ({api})")
            return None
        key = group, member_id = body.group_id or "", body.member_id or ""
        if group not in self._shares.groups:
            return None
        asked = self._last = now()
        if api == "share_group_heartbeat":
            for sharer in self._shares.sharers if body.member_epoch == _ENDS else ():
                sharer.left(key, asked)
            return None
        if key not in self._members:
            reader = self._client, self._shares.number(group, member_id)
            self._members[key] = _Member(group=group, reader=reader)
        member = self._members[key]
        acknowledged = self._acknowledges(member, body, asked)
        if body.share_session_epoch == _ENDS:
            self._gives_back(member, asked)
        return partial(self._answered, api, member, acknowledged, asked)

    def left(self, key: tuple[str, str], asked: int) -> None:
        """A member has left its group."""
        if (member := self._members.get(key)) is not None:
            self._gives_back(member, asked)

    def ended(self) -> None:
        """The connection has ended."""
        self._shares.sharers.discard(self)
        for member in self._members.values():
            self._gives_back(member, self._last)

    def _acknowledges(self, member: _Member, body: Message, asked: int) -> Acknowledged:
        """Records the acknowledgements of a request."""
        chosen: dict[int, dict[TopicPartition, list[int]]] = defaultdict(lambda: defaultdict(list))
        for topic in body.topics:
            if not any(each.acknowledgement_batches for each in topic.partitions):
                continue
            if not is_among(name := self._name(topic), self._shares.topics):
                continue
            for each in topic.partitions:
                tp = name, each.partition_index
                for offset, how in _each(each.acknowledgement_batches):
                    held = member.held.pop((tp, offset), None)
                    if how in _TYPES and (held is None or held.record):
                        chosen[how][tp].append(offset)
        for how, offsets in chosen.items():
            self._row(member, _TYPES[how][0], offsets, asked, asked)
        return chosen

    def _gives_back(self, member: _Member, asked: int) -> None:
        member.expire(asked)
        offsets: dict[TopicPartition, list[int]] = defaultdict(list)
        for (tp, offset), held in member.held.items():
            if held.record:
                offsets[tp].append(offset)
        member.held.clear()
        if offsets:
            self._row(member, "release", offsets, asked, asked)

    def _answered(
        self, api: str, member: _Member, acknowledged: Acknowledged, asked: int, answer: Message
    ) -> None:
        self._last = returned = now()
        if answer.error_code is not Error.none:
            return
        if fetches := api == "share_fetch":
            self._lock_ns = int(answer.acquisition_lock_timeout.total_seconds() * 1e9)
        parts = [
            ((self._name(topic), each.partition_index), each)
            for topic in answer.responses
            for each in topic.partitions
        ]
        done = {
            tp
            for tp, each in parts
            if (each.acknowledge_error_code if fetches else each.error_code) in (0, Error.none)
        }
        self._confirmed(member, acknowledged, done, asked, returned)
        if fetches:
            self._acquired(member, parts, asked, returned)

    def _confirmed(
        self,
        member: _Member,
        acknowledged: Acknowledged,
        done: set[TopicPartition],
        asked: int,
        returned: int,
    ) -> None:
        for how, offsets in acknowledged.items():
            if theirs := {tp: some for tp, some in offsets.items() if tp in done}:
                self._row(member, _TYPES[how][1], theirs, asked, returned)
            for tp, some in theirs.items() if how == _RENEW else ():
                for offset in some:
                    member.hold((tp, offset), record=True, until=returned + self._lock_ns)

    def _acquired(
        self,
        member: _Member,
        parts: Iterable[tuple[TopicPartition, Message]],
        asked: int,
        returned: int,
    ) -> None:
        """Records what an answer to ShareFetch gives to a member."""
        member.expire(returned)
        rows: list[Fetched] = []
        for tp, each in parts:
            if is_among(tp[0], self._shares.topics) and each.error_code is Error.none:
                rows += self._of_partition(member, tp, each, returned + self._lock_ns)
        if rows:
            size = sum(size for row in rows for _, _, size in row.runs)
            self._shares.reads.report.delivered += size
            self._shares.reads.row(
                member.reader,
                "acquire",
                rows,
                group=member.group,
                asked=asked,
                returned=returned,
                lock_ms=self._lock_ns // 10**6,
            )

    def _of_partition(
        self, member: _Member, tp: TopicPartition, answer: Message, until: int
    ) -> Iterator[Fetched]:
        """What an answer gives of one partition, one part for each acquired range that has
        records."""
        if not answer.acquired_records:
            return
        got = delivered(memoryview(answer.records or b""), 0, ())
        for acquired in answer.acquired_records:
            offsets = _range(acquired)
            first, end = offsets.start, offsets.stop
            runs, crcs = [], []
            for (_, start, size), crc in zip(got.runs, got.crcs, strict=True):
                if (low := max(start, first)) < (high := min(start + size, end)):
                    runs.append((-1, low, high - low))
                    crcs.append(crc)
            there = {n for _, low, size in runs for n in range(low, low + size)}
            for offset in offsets:
                member.hold((tp, offset), record=offset in there, until=until)
            if runs:
                yield Fetched(
                    topic=tp[0],
                    partition=tp[1],
                    runs=tuple(runs),
                    crcs=tuple(crcs),
                    position=acquired.delivery_count,
                )

    def _row(
        self,
        member: _Member,
        kind: PollKind,
        offsets: Mapping[TopicPartition, list[int]],
        asked: int,
        returned: int,
    ) -> None:
        parts = [
            Fetched(topic=topic, partition=number, runs=tuple(_runs(some)))
            for (topic, number), some in sorted(offsets.items())
        ]
        self._shares.reads.row(
            member.reader, kind, parts, group=member.group, asked=asked, returned=returned
        )


def _range(some: Message) -> range:
    """The offsets of a range in a message. Raises Malformed for more than any broker gives."""
    if not 0 <= some.last_offset - some.first_offset < _MOST_OFFSETS:
        raise Malformed(f"a range of offsets from {some.first_offset} to {some.last_offset}")
    return range(some.first_offset, some.last_offset + 1)


def _each(batches: Iterable[Message]) -> Iterator[tuple[int, int]]:
    """Each offset that batches acknowledge, with its type. One type counts for all of a batch.
    Raises Malformed."""
    for batch in batches:
        types = batch.acknowledge_types
        yield from zip(_range(batch), repeat(types[0]) if len(types) == 1 else types, strict=False)


def _runs(offsets: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Runs of consecutive offsets, without payload ids."""
    pairs = enumerate(sorted(offsets))
    for _, run in groupby(pairs, lambda pair: pair[1] - pair[0]):
        first, *rest = (offset for _, offset in run)
        yield -1, first, 1 + len(rest)
