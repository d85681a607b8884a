"""The mirrors of links: they fetch, sync group offsets and end partitions.

The shadow (KIP-1279) copies the source's batches byte for byte, except for the leader epoch and, by
option, producer ids. MirrorMaker 2 (KIP-382, KIP-618) copies the records that a read_committed
consumer gets, in batches of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

from linkflap.harness.model.history import GroupOffset
from tests.faithful import coordinators
from tests.faithful.clusters import COMMIT, Cluster, Entry, Log, Rec, Spot, ended, truncated_back
from tests.faithful.coordinators import began, decided, done, goes_on
from tests.faithful.observers import Clock, Notes

LONGEST = 2**63 - 1


class Link(Protocol):
    """A mirror on one link. `synced` are the group offsets that it has committed on the
    destination."""

    source: Cluster
    destination: Cluster
    synced: dict[tuple[str, Spot], int]

    def fetch(self, spot: Spot, rng: Random, *, everything: bool = False) -> None:
        """Copies some records, or all of them."""

    def translated(self, spot: Spot, offset: int) -> int:
        """The offset on the destination at which a group resumes that committed an offset on the
        source."""


@dataclass(slots=True)
class Shadow:
    """A mirror that keeps offsets.

    `ids` maps producer ids. `stable`: it fetches only up to the LSO. `keeps`: it keeps leader
    epochs. `rule` is how it ends open transactions. `truncations` are (end, truncated to) of its
    destination's logs.
    """

    source: Cluster
    destination: Cluster
    ids: str = "jump"
    stable: bool = False
    keeps: bool = False
    rule: str = "abort"
    synced: dict[tuple[str, Spot], int] = field(default_factory=dict)
    truncations: dict[Spot, list[list[int]]] = field(default_factory=dict)

    def fetch(self, spot: Spot, rng: Random, *, everything: bool = False) -> None:
        theirs, ours = self.source.logs[spot], self.destination.logs[spot]
        limit = theirs.stable if self.stable else theirs.end
        batches = [e for e in theirs.entries if e.offset >= ours.end and e.end <= limit]
        if not ours.entries and batches:
            ours.base = ours.start = max(theirs.start, ours.start)
        for entry in batches if everything else batches[: rng.randint(0, 3)]:
            if self.keeps:
                ours.epoch = max(ours.epoch, entry.leader_epoch)
            epoch = entry.leader_epoch if self.keeps else ours.epoch
            ours.take(replace(entry, leader_epoch=epoch, pid=self.mapped(entry.pid)))

    def diverged(self, spot: Spot) -> None:
        """If its source's log was truncated, its destination's log is truncated too, in a new
        leader epoch."""
        theirs, ours = self.source.logs[spot], self.destination.logs[spot]
        if ours.end > theirs.end:
            self.truncations.setdefault(spot, []).append([ours.end, theirs.end])
            ours.truncate(theirs.end)
            ours.epoch += 1

    def end(self, spot: Spot, ms: int, behind: Sequence[Link]) -> tuple[int, dict[str, object]]:
        """Ends a partition; the mirrors `behind` follow its destination. Returns the end of the
        mirrored range, and the journal."""
        log, truncations = self.destination.logs[spot], self.truncations.setdefault(spot, [])
        mirrored = log.end
        truncations += truncated_back(log, self.rule)
        kept = log.end
        for link in behind:
            if isinstance(link, Shadow):
                link.diverged(spot)
        log.epoch = max(log.epoch, self.source.logs[spot].epoch if self.keeps else 0) + 1
        # Commits beyond the end are moved back to it.
        self.synced |= {
            key: min(offset, log.end) for key, offset in self.synced.items() if key[1] == spot
        }
        reported = ended(log, self.rule, reset=self.ids == "reset", ms=ms)
        return kept, {
            "topic": spot[0],
            "partition": spot[1],
            "mirrored": mirrored,
            "truncated": truncations,
            **reported,
        }

    def mapped(self, pid: int) -> int:
        return LONGEST - pid - 1 if self.ids == "complement" and pid >= 0 else pid

    def translated(self, spot: Spot, offset: int) -> int:
        return min(offset, self.destination.logs[spot].end)


@dataclass(slots=True)
class Connector:
    """A mirror that does not keep offsets. It reads with read_committed and writes with a producer
    of its own, in transactions if `exactly_once`. `where` maps, for each partition, the source
    offset of each mirrored record to its offset on the destination."""

    source: Cluster
    destination: Cluster
    clock: Clock
    exactly_once: bool = False
    pid: int = -1
    epoch: int = 0
    sequences: dict[Spot, int] = field(default_factory=dict)
    positions: dict[Spot, int] = field(default_factory=dict)
    where: dict[Spot, list[tuple[int, int]]] = field(default_factory=dict)
    synced: dict[tuple[str, Spot], int] = field(default_factory=dict)

    def fetch(self, spot: Spot, rng: Random, *, everything: bool = False) -> None:
        if self.pid < 0:
            self.pid = self.destination.new_pid()
        theirs = self.source.logs[spot]
        position = self.positions.get(spot, theirs.start)
        found = self._readable(theirs, position)
        if not everything:
            found = found[: rng.randint(0, 6)]
        while found:
            size = rng.randint(1, min(len(found), 5))
            self._write(spot, found[:size], rng)
            self.positions[spot] = found[size - 1][0] + 1
            found = found[size:]

    def rewind(self, spot: Spot, records: int) -> int:
        """Goes back to its last committed offsets: it mirrors later records again. Returns how
        many."""
        done = [offset for offset, _ in self.where.get(spot, ())][-records:]
        if done:
            self.positions[spot] = done[0]
        return len(done)

    def _readable(self, log: Log, position: int) -> list[tuple[int, Rec, Entry]]:
        entries = [
            e for e in log.entries if e.end > position and e.offset < log.stable and log.visible(e)
        ]
        found = [(e.offset + r.delta, r, e) for e in entries for r in e.records]
        return [row for row in found if row[0] >= max(position, log.start)]

    def _write(self, spot: Spot, rows: list[tuple[int, Rec, Entry]], rng: Random) -> None:
        log = self.destination.logs[spot]
        first = self.sequences.get(spot, 0)
        self.sequences[spot] = first + len(rows)
        # With message.timestamp.type=LogAppendTime, the timestamp of a record is that of its batch.
        records = tuple(
            r._replace(delta=i, timestamp=r.timestamp if e.appended is None else e.appended)
            for i, (_, r, e) in enumerate(rows)
        )
        entry = Entry(
            offset=0,
            records=records,
            span=len(rows),
            pid=self.pid,
            epoch=self.epoch,
            sequence=first,
            transactional=self.exactly_once,
            codec=rng.choice(("none", "gzip")),
        )
        transaction = f"connector-{self.source.name}", self.pid, self.epoch
        if self.exactly_once:
            if transaction[0] not in self.destination.states:
                began(self.destination, *transaction, self.clock.ms)
            goes_on(self.destination, *transaction, [spot], self.clock.ms)
            decided(self.destination, *transaction, COMMIT, [spot], self.clock.ms)
        offset = log.append(entry).offset
        self.where.setdefault(spot, []).extend(
            (source, offset + i) for i, (source, _, _) in enumerate(rows)
        )
        if self.exactly_once:
            log.mark(COMMIT, pid=self.pid, epoch=self.epoch, timestamp=self.clock.ms)
            done(self.destination, *transaction, COMMIT, self.clock.ms)

    def translated(self, spot: Spot, offset: int) -> int:
        below = [there for source, there in self.where.get(spot, ()) if source < offset]
        return max(below) + 1 if below else 0


def sync_groups(link: Link, notes: Notes, clock: Clock, group: str) -> None:
    """The offsets that the mirror has committed for the group on the destination, with those of the
    group on the source, as a sampler gets them."""
    time = clock.tick(1, 2)
    for spot, position in committed(notes, link.source.name, group).items():
        # A translated offset never goes back.
        there = link.synced[group, spot] = max(
            link.translated(spot, position), link.synced.get((group, spot), 0)
        )
        coordinators.committed(link.destination, group, spot, there, clock.ms, member=False)
        offsets = ((link.source.name, position), (link.destination.name, there))
        notes.groups += [
            GroupOffset(
                time=time,
                cluster=cluster,
                group=group,
                topic=spot[0],
                partition=spot[1],
                offset=offset,
            )
            for cluster, offset in offsets
        ]


def sample_groups(cluster: Cluster, notes: Notes, clock: Clock, groups: Sequence[str]) -> None:
    """Group offsets on a cluster where no mirror commits for the groups, as a sampler gets them."""
    notes.groups += [
        GroupOffset(
            time=clock.now,
            cluster=cluster.name,
            group=group,
            topic=spot[0],
            partition=spot[1],
            offset=offset,
        )
        for group in groups
        for spot, offset in committed(notes, cluster.name, group).items()
    ]


def committed(notes: Notes, cluster: str, group: str) -> dict[Spot, int]:
    """The group's own committed offsets on a cluster."""
    found: dict[Spot, int] = {}
    for poll in notes.polls:
        if (poll.kind, poll.cluster, poll.group) == ("commit", cluster, group):
            found |= {(f.topic, f.partition): f.position for f in poll.fetched}
    return found
