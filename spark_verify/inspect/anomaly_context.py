"""The part of a run's history that concerns one anomaly: operations, polls, samples, committed
offsets of groups, and events of mirrors.

Of each kind it has the rows of the partition and offset, and their neighbours in time: a reader's
records before and after, and the partition's bounds. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Protocol

import msgspec

from linkflap.harness.model.events import (
    Event,
    Failover,
    FailoverRefused,
    MirrorDescribed,
    MirrorStopped,
    MirrorVerb,
    Promotion,
    Truncation,
)
from linkflap.harness.model.history import (
    Fetched,
    GroupOffset,
    Operation,
    Poll,
    SendGroup,
    Watermark,
)
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.rundir import Damage, RunReader

_TIMES: Final = ("time", "returned", "invoked")
_EACH_WAY: Final = 2


class Rows(Protocol):
    """Where rows of a run come from (`harness.rundir.RunReader`)."""

    def operations(self) -> tuple[list[Operation], list[Damage]]: ...
    def polls(self) -> tuple[list[Poll], list[Damage]]: ...
    def watermarks(self) -> tuple[list[Watermark], list[Damage]]: ...
    def groups(self) -> tuple[list[GroupOffset], list[Damage]]: ...
    def events(self) -> tuple[list[Event], list[Damage]]: ...


class Held:
    """The rows of a run, each kind read once and then held."""

    def __init__(self, reader: RunReader) -> None:
        self.operations = cache(reader.operations)
        self.polls = cache(reader.polls)
        self.watermarks = cache(reader.watermarks)
        self.groups = cache(reader.groups)
        self.events = cache(reader.events)


class Unread:
    """No rows: of a run whose history is not gone through."""

    def operations(self) -> tuple[list[Operation], list[Damage]]:
        return [], []

    def polls(self) -> tuple[list[Poll], list[Damage]]:
        return [], []

    def watermarks(self) -> tuple[list[Watermark], list[Damage]]:
        return [], []

    def groups(self) -> tuple[list[GroupOffset], list[Damage]]:
        return [], []

    def events(self) -> tuple[list[Event], list[Damage]]:
        return [], []


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Where to look: a partition of a cluster and an offset (-1: nowhere), payload ids, and what
    the evidence names."""

    cluster: str
    topic: str
    partition: int
    offset: int
    uids: Collection[int] = ()
    evidence: Mapping[str, object] = field(default_factory=dict)

    @property
    def time(self) -> int | None:
        """When it was seen, where the evidence says so."""
        return next((at for name in _TIMES if isinstance(at := self.evidence.get(name), int)), None)

    def of(self, topic: str, partition: int) -> bool:
        """Whether something is of this partition."""
        return (topic, partition) == (self.topic, self.partition)

    def named(self, name: str) -> Collection[object]:
        """What the evidence calls by this name, one or several."""
        one, several = self.evidence.get(name), self.evidence.get(f"{name}s")
        return [
            *([one] if one is not None else ()),
            *(several if isinstance(several, list) else ()),
        ]


def operations(reader: Rows, subject: Subject) -> list[Operation]:
    """Both rows of every operation that sent one of the payloads, was acknowledged the offset, or
    is named by the evidence."""
    rows, _ = reader.operations()
    named = subject.named("operation")
    numbers = {
        row.number
        for row in rows
        if row.number in named or any(_sent(row, group, subject) for group in row.sends)
    }
    return sorted((row for row in rows if row.number in numbers), key=lambda row: row.time)


def _sent(row: Operation, group: SendGroup, subject: Subject) -> bool:
    if any(group.first_uid <= uid < group.first_uid + group.count for uid in subject.uids):
        return True
    here = row.cluster == subject.cluster and subject.of(group.topic, group.partition)
    return here and any(
        offset <= subject.offset < offset + count for _, count, offset in group.acks
    )


def polls(reader: Rows, subject: Subject) -> list[Poll]:
    """Rows that returned one of the payloads or the offset, and of a reader or group that is named
    those next to that time."""
    rows, _ = reader.polls()
    mine = sorted((row for row in rows if _here(row, subject)), key=lambda row: row.returned)
    touching = {
        id(row)
        for row in mine
        if any(_got(row, fetched, subject) for fetched in _here(row, subject))
    }
    who = {*subject.named("reader"), *subject.named("group")} - {""}
    for name in {row.reader for row in mine if {row.reader, row.group} & who}:
        touching |= _next_to([row for row in mine if row.reader == name], touching, subject.time)
    return [row for row in mine if id(row) in touching]


def _next_to(own: Sequence[Poll], touching: Collection[int], time: int | None) -> set[int]:
    """The rows of one reader that concern the subject or its time, and their neighbours; else its
    last row (by id)."""
    near = [n for n, row in enumerate(own) if id(row) in touching or row.returned == time] or [
        len(own) - 1
    ]
    return {id(own[n]) for at in near for n in range(max(0, at - 1), min(len(own), at + 2))}


def _here(row: Poll, subject: Subject) -> list[Fetched]:
    return [fetched for fetched in row.fetched if subject.of(fetched.topic, fetched.partition)]


def _got(row: Poll, fetched: Fetched, subject: Subject) -> bool:
    for first, offset, count in fetched.runs:
        if any(first <= uid < first + count for uid in subject.uids):
            return True
        if row.cluster == subject.cluster and offset <= subject.offset < offset + count:
            return True
    return False


def watermarks(reader: Rows, subject: Subject) -> list[Watermark]:
    """Samples of the anomaly's cluster, and of the other end of a link that the evidence names:
    next to the time that the evidence names, else next to when the partition had got as far; and
    the last."""
    rows, _ = reader.watermarks()
    link = subject.evidence.get("link")
    ends = LinkSpec.parse(link).ends if isinstance(link, str) and "->" in link else ()
    return [
        row
        for cluster in dict.fromkeys((subject.cluster, *ends))
        for row in _watermarks_of(rows, cluster, subject)
    ]


def _watermarks_of(rows: Sequence[Watermark], cluster: str, subject: Subject) -> list[Watermark]:
    mine = sorted(
        (r for r in rows if r.cluster == cluster and subject.of(r.topic, r.partition)),
        key=lambda row: row.time,
    )
    time = subject.time
    after = [
        n
        for n, row in enumerate(mine)
        if (row.time >= time if time is not None else row.high_watermark > subject.offset)
    ]
    at = after[0] if after else len(mine)
    chosen = {
        *range(max(0, at - _EACH_WAY), min(len(mine), at + _EACH_WAY)),
        *([len(mine) - 1] if mine else ()),
    }
    return [mine[n] for n in sorted(chosen)]


def groups(reader: Rows, subject: Subject) -> list[GroupOffset]:
    """Committed offsets of the group that the evidence names, on whatever cluster they were
    sampled; only where they changed."""
    rows, _ = reader.groups()
    wanted = subject.named("group")
    found: list[GroupOffset] = []
    last: dict[tuple[str, str], int] = {}
    for row in sorted(
        (r for r in rows if r.group in wanted and subject.of(r.topic, r.partition)),
        key=lambda row: row.time,
    ):
        if last.get((row.cluster, row.group)) != row.offset:
            found.append(row)
        last[row.cluster, row.group] = row.offset
    return found


def of_mirrors(reader: Rows, subject: Subject) -> list[Event]:
    """The events by which mirrors changed the owner of the partition's offsets, or did not:
    promotions, truncations, ends of mirrors, verbs with their answers, and each state of the
    partition that a mirror reported, once. In time order."""
    rows, _ = reader.events()
    ordered = sorted(rows, key=lambda event: event.time)
    found = (_only(event, subject) for event in _new_states(ordered, subject))
    return [event for event in found if event is not None]


def _new_states(events: Iterable[Event], subject: Subject) -> Iterator[Event]:
    """The events, without descriptions in which the partition's state is the one before."""
    states: dict[str, str] = {}
    for event in events:
        if isinstance(event, MirrorDescribed):
            mine = tuple(one for one in event.rows if subject.of(one.topic, one.partition))
            if not mine or states.get(event.link) == mine[0].state:
                continue
            states[event.link] = mine[0].state
        yield event


def _only(event: Event, subject: Subject) -> Event | None:
    match event:
        case MirrorStopped(partitions=tuple() as partitions):
            mine = tuple(one for one in partitions if subject.of(one.topic, one.partition))
            return msgspec.structs.replace(event, partitions=mine) if mine else None
        case Promotion() | Truncation():
            return event if subject.of(*event.tp) else None
        case MirrorDescribed(rows=rows):
            mine = tuple(one for one in rows if subject.of(one.topic, one.partition))
            return msgspec.structs.replace(event, rows=mine)
        case MirrorStopped() | Failover() | FailoverRefused() | MirrorVerb():
            return event
    return None


def near(rows: Sequence[GroupOffset], time: int | None, *, most: int) -> Sequence[GroupOffset]:
    """The rows next to a time, or the last."""
    if time is None:
        return rows[-most:]
    return sorted(
        sorted(rows, key=lambda row: abs(row.time - time))[:most], key=lambda row: row.time
    )


def uids_of(evidence: Mapping[str, object], there: Iterable[object]) -> set[int]:
    """Our payload ids that an anomaly is about: those that it names, and those at its offset."""
    several = evidence.get("uids")
    found = {*there, evidence.get("uid"), *(several if isinstance(several, list) else ())}
    return {uid for uid in found if isinstance(uid, int) and uid >= 0}
