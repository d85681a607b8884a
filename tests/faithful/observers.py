"""Readers, samplers and the rows that they write; the clock that times the story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple
from zlib import crc32

from linkflap.harness.model.history import (
    EventRow,
    Fetched,
    GroupOffset,
    Isolation,
    Operation,
    Poll,
    PollKind,
    SendGroup,
    Watermark,
)
from linkflap.harness.model.payload import Values
from tests.faithful.clusters import Cluster, Entry, Log, Spot
from tests.faithful.coordinators import committed

MS = 1_000_000


SECOND = 1000 * MS


@dataclass(slots=True)
class Clock:
    """The harness' clock, in nanoseconds."""

    rng: Random
    now: int

    def tick(self, low: int = 1, high: int = 9) -> int:
        """Advances by some milliseconds, and returns the time."""
        self.now += self.rng.randint(low * MS, high * MS)
        return self.now

    @property
    def ms(self) -> int:
        return self.now // MS


class Written(NamedTuple):
    """A batch that a client asked to be written, and when."""

    time: int
    spot: Spot
    batch: Entry


@dataclass(slots=True)
class Notes:
    """The rows of the history so far. `values` are the keys and values that clients write. What
    crossed the wire: `written`, and `ended`, when the end of a transaction was asked for by the
    number of its operation."""

    values: Values
    operations: list[Operation] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    marks: list[Watermark] = field(default_factory=list)
    groups: list[GroupOffset] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    processes: int = 0

    def event(self, time: int, kind: str, subject: str, /, **data: object) -> None:
        self.events.append(EventRow(time=time, kind=kind, subject=subject, data=data))


@dataclass(slots=True)
class Writing:
    """An operation that has been invoked: the records to send, and the acknowledgements so far."""

    row: Operation
    left: list[tuple[Spot, int, int]]
    acks: dict[tuple[Spot, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    refused: dict[tuple[Spot, int], list[tuple[int, int]]] = field(default_factory=dict)

    def sends(self) -> tuple[SendGroup, ...]:
        def answered(group: SendGroup) -> SendGroup:
            key = ((group.topic, group.partition), group.first_uid)
            return replace(
                group, acks=tuple(self.acks.get(key, ())), refused=tuple(self.refused.get(key, ()))
            )

        return tuple(map(answered, self.row.sends))


@dataclass(slots=True)
class Reader:
    """A consumer. With a group, it commits after polls, follows failovers, and begins at the
    group's committed offsets."""

    name: str
    isolation: Isolation
    clock: Clock
    notes: Notes
    group: str = ""
    cluster: Cluster | None = None
    process: int = 0
    positions: dict[Spot, int] = field(default_factory=dict)
    held: dict[Spot, int] = field(default_factory=dict)
    """The group's committed offsets on this cluster, or the positions where it began there."""

    def assign(self, cluster: Cluster, positions: Mapping[Spot, int]) -> None:
        """Begins to read a cluster at some positions."""
        if not self.process:
            self.notes.processes += 1
            self.process = self.notes.processes
        if cluster is not self.cluster:
            self.held = dict(positions)
        self.cluster, self.positions = cluster, dict(positions)
        self._write("assign", {spot: () for spot in positions})

    def poll(
        self, rng: Random, *, everything: bool = False, commits: bool = True
    ) -> tuple[Fetched, ...]:
        """One poll of every partition. With a group, it may commit."""
        got: dict[Spot, tuple[tuple[int, int, int], ...]] = {}
        assert self.cluster is not None
        for spot, position in self.positions.items():
            log = self.cluster.logs[spot]
            limit = log.stable if self.isolation == "read_committed" else log.end
            if not everything and rng.random() < 0.5:
                limit = min(limit, position + rng.randint(0, 6))
            got[spot], self.positions[spot] = self._fetched(log, max(position, log.start), limit)
        fetched = self._write("poll", got)
        if self.group and commits and (everything or rng.random() < 0.5):
            self.commit()
        return fetched

    def _fetched(
        self, log: Log, position: int, limit: int
    ) -> tuple[tuple[tuple[int, int, int], ...], int]:
        """Runs (uid, offset, count) of [position, limit), and the position after them."""
        runs: list[tuple[int, int, int]] = []
        for entry in log.entries:
            if entry.end <= position or entry.offset >= limit or entry.ends is not None:
                continue
            if self.isolation == "read_committed" and not log.visible(entry):
                continue
            for record in entry.records:
                offset = entry.offset + record.delta
                if not position <= offset < limit:
                    continue
                last = runs[-1] if runs else (-9, -9, 0)
                if record.uid >= 0 and (last[0] + last[2], last[1] + last[2]) == (
                    record.uid,
                    offset,
                ):
                    runs[-1] = (last[0], last[1], last[2] + 1)
                else:
                    runs.append((record.uid, offset, 1))
        return tuple(runs), max(position, limit)

    def commit(self, spots: Sequence[Spot] = (), *, written: bool = True) -> None:
        """Commits the group's offsets of some partitions, or of all. `written`: also writes the
        row."""
        assert self.cluster is not None
        for spot in spots or self.positions:
            committed(self.cluster, self.group, spot, self.positions[spot], self.clock.ms)
        if written:
            self._write("commit", {spot: () for spot in spots or self.positions})
        self.held.update({spot: self.positions[spot] for spot in spots or self.positions})

    def revoke(self, spots: Sequence[Spot]) -> None:
        """Writes its positions in partitions that are revoked."""
        self._write("revoke", {spot: () for spot in spots})
        for spot in spots:
            del self.positions[spot]

    def take(self, spot: Spot, position: int) -> None:
        """Gets one more partition."""
        self.positions[spot] = position
        self._write("assign", {spot: ()})

    def drained(self) -> None:
        """Writes that it has read to the end."""
        self._write("drained", {spot: () for spot in self.positions})

    def _write(
        self, kind: PollKind, got: Mapping[Spot, tuple[tuple[int, int, int], ...]]
    ) -> tuple[Fetched, ...]:
        assert self.cluster is not None
        fetched = tuple(
            Fetched(
                topic=topic,
                partition=partition,
                runs=runs,
                position=self.positions[topic, partition],
            )
            for (topic, partition), runs in got.items()
        )
        time = self.clock.tick(1, 3)
        self.notes.polls.append(
            Poll(
                time=time,
                returned=self.clock.tick(1, 3),
                reader=self.name,
                process=self.process,
                cluster=self.cluster.name,
                isolation=self.isolation,
                kind=kind,
                group=self.group,
                fetched=fetched,
            )
        )
        return fetched


def _reported(sample: str, **bounds: int) -> dict[str, int]:
    """The bounds of a sample. In one of 20 samples, one of them was not reported (-1)."""
    number = crc32(sample.encode()) % (20 * len(bounds))
    return {name: -1 if index == number else it for index, (name, it) in enumerate(bounds.items())}


@dataclass(slots=True)
class Sampler:
    """Samples one cluster's bounds: the high watermark at the start of a sample, the LSO at its
    end."""

    cluster: Cluster
    clock: Clock
    notes: Notes
    begun: tuple[int, dict[Spot, tuple[int, int, int]]] | None = None

    def begin(self) -> None:
        """Samples the high watermarks. Steps before `finish` happen during the sample."""
        marks = {spot: (log.end, log.epoch, log.leader) for spot, log in self.cluster.logs.items()}
        self.begun = self.clock.tick(1, 2), marks

    def finish(self) -> None:
        """Samples the rest, and writes the sample unless the leader has changed."""
        if self.begun is None:
            return
        time, marks = self.begun
        self.begun = None
        rows = []
        for spot, (high, epoch, leader) in marks.items():
            log = self.cluster.logs[spot]
            if (log.epoch, log.leader) == (epoch, leader) and log.end >= high:
                rows.append((spot, high, epoch, leader, log.stable, log.start))
        returned = self.clock.tick(1, 2)
        self.notes.marks += [
            Watermark(
                time=time,
                returned=returned,
                cluster=self.cluster.name,
                leader=leader,
                topic=spot[0],
                partition=spot[1],
                leader_epoch=epoch,
                **_reported(
                    f"{time} {spot}", log_start=start, last_stable=stable, high_watermark=high
                ),
            )
            for spot, high, epoch, leader, stable, start in rows
        ]

    def sample(self) -> None:
        """A sample during which nothing happens."""
        self.begin()
        self.finish()
