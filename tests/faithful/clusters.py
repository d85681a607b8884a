"""Clusters and their logs; what Kafka does to them: append, end transactions, truncate; and
producer ids (KIP-98, KIP-890)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from tests.faithful.entries import ABORT, COMMIT, RESET, Entry, Rec

Spot = tuple[str, int]
"""Topic, partition."""


@dataclass(slots=True)
class Log:
    """One partition on one cluster. `ended` says of every transactional batch, by its offset, how
    it ended.

    Below `cleaned` its cleaner was.
    """

    cluster: Cluster
    start: int = 0
    base: int = 0
    epoch: int = 0
    leader: int = 1
    entries: list[Entry] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[Entry]] = field(default_factory=dict)
    cleaned: int = 0

    @property
    def end(self) -> int:
        """Log end offset; replicas are never behind here, so it is the high watermark too."""
        return self.entries[-1].end if self.entries else self.base

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min((mine[0].offset for mine in self.open.values()), default=self.end)

    def append(self, entry: Entry) -> Entry:
        """Appends at the end, in the leader's epoch."""
        return self.take(replace(entry, offset=self.end, leader_epoch=self.epoch))

    def take(self, entry: Entry) -> Entry:
        """Appends a batch as it is."""
        self.entries.append(entry)
        if entry.ends in (ABORT, COMMIT):
            for one in self.open.pop(entry.pid, ()):
                self.ended[one.offset] = entry.ends
        elif entry.ends == RESET:
            # What is open is of nobody any more: no marker ends it.
            self.open = {-2 - mine[0].offset: mine for mine in self.open.values()}
        elif entry.transactional and entry.pid >= 0:
            self.open.setdefault(entry.pid, []).append(entry)
        return entry

    def visible(self, entry: Entry) -> bool:
        """Whether readers of committed records get it, once it is below the LSO."""
        return entry.ends is None and (
            not entry.transactional or self.ended.get(entry.offset) == COMMIT
        )

    def truncate(self, offset: int) -> None:
        """Truncates, and takes back what markers behind the truncation had ended."""
        kept = [e for e in self.entries if e.end <= offset]
        self.entries, self.ended, self.open = [], {}, {}
        for entry in kept:
            self.take(entry)

    def compact(self, rng: Random) -> None:
        """Takes records away, and batches that have none left but for the last of each producer id
        (KIP-98): offsets stay."""
        self.cleaned = self.stable
        self.entries = compacted(self.entries, self.cleaned, self.aborted, rng)

    @property
    def aborted(self) -> frozenset[int]:
        """The offsets of batches of aborted transactions."""
        return frozenset(offset for offset, ends in self.ended.items() if ends == ABORT)

    def mark(
        self, ends: int, *, pid: int, epoch: int, timestamp: int, coordinator: int | None = None
    ) -> Entry:
        """Appends the marker that ends a transaction, of the cluster's coordinator unless another
        one is given."""
        by = self.cluster.coordinator if coordinator is None else coordinator
        marker = Entry(
            offset=0,
            pid=pid,
            epoch=epoch,
            transactional=True,
            ends=ends,
            timestamp=timestamp,
            coordinator=by,
        )
        return self.append(marker)

    def reset(self) -> Entry:
        """Appends KIP-1279's MIRROR_PID_RESET."""
        return self.append(Entry(offset=0, ends=RESET))


def compacted(
    entries: list[Entry], below: int, aborted: frozenset[int], rng: Random
) -> list[Entry]:
    """What one broker's cleaner leaves: of what it may take (superseded, aborted, without a key,
    tombstones) it takes some, for it is unknown when it was there."""
    done = [e for e in entries if e.end <= below and e.ends is None]
    last = {e.pid: e.offset for e in entries if e.ends is None}
    newest = {r.key: e.offset + r.delta for e in done if e.offset not in aborted for r in e.records}

    def stays(entry: Entry, record: Rec) -> bool:
        superseded = newest.get(record.key, -1) > entry.offset + record.delta
        free = superseded or entry.offset in aborted or record.key is None or record.value is None
        return not free or rng.random() < 0.3

    kept = []
    for entry in entries:
        records = tuple(r for r in entry.records if entry.end > below or stays(entry, r))
        if entry.ends is not None or entry.end > below:
            kept.append(entry)
        elif records or last[entry.pid] == entry.offset:
            kept.append(replace(entry, records=records))
    return kept


def cleaned_again(
    entries: list[Entry], below: int, aborted: frozenset[int], horizon: int, rng: Random
) -> list[Entry]:
    """What a broker's cleaner that was there twice leaves: markers have its delete horizon, and
    more records are gone."""
    return [
        replace(e, horizon=horizon) if e.end <= below and e.ends in (ABORT, COMMIT) else e
        for e in compacted(entries, below, aborted, rng)
    ]


@dataclass(slots=True)
class Cluster:
    """A cluster: its logs by topic and partition, its transaction coordinators and their epoch, the
    producer ids it hands out.

    `own` are the logs of Kafka's own topics, `present` says of groups whether they have members as
    the coordinator wrote last.
    """

    name: str
    brokers: int
    next_pid: int
    logs: dict[Spot, Log] = field(default_factory=dict)
    transactional: dict[str, list[int]] = field(default_factory=dict)
    own: dict[Spot, Log] = field(default_factory=dict)
    present: dict[str, bool] = field(default_factory=dict)
    alive: bool = True
    stopped: bool = False
    coordinator: int = 0

    def new_pid(self) -> int:
        self.next_pid += 1
        return self.next_pid - 1

    def elect(self, spot: Spot, leader: int) -> None:
        """Another broker leads, in a higher epoch."""
        log = self.logs[spot]
        log.epoch += 1
        log.leader = leader
        # A broker that steps down coordinates no more.
        self.coordinator += 1
