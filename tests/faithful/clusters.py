"""Clusters and their logs. What Kafka does to them: append, end transactions, truncate and assign
producer ids (KIP-98, KIP-890)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from tests.faithful.entries import ABORT, COMMIT, RESET, Entry, Rec

Spot = tuple[str, int]
"""(topic, partition)."""


@dataclass(slots=True)
class Log:
    """One partition on one cluster. `ended` maps the offset of every transactional batch to how it
    ended. The log cleaner has cleaned the log below `cleaned`."""

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
        """The log end offset. It is also the high watermark, because followers are always in sync
        here."""
        return self.entries[-1].end if self.entries else self.base

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min((mine[0].offset for mine in self.open.values()), default=self.end)

    def append(self, entry: Entry) -> Entry:
        """Appends at the end, in the leader's current epoch."""
        return self.take(replace(entry, offset=self.end, leader_epoch=self.epoch))

    def take(self, entry: Entry) -> Entry:
        """Appends a batch unchanged."""
        self.entries.append(entry)
        if entry.ends in (ABORT, COMMIT):
            for one in self.open.pop(entry.pid, ()):
                self.ended[one.offset] = entry.ends
        elif entry.ends == RESET:
            # Open transactions have no producer any more: no marker will end them.
            self.open = {-2 - mine[0].offset: mine for mine in self.open.values()}
        elif entry.transactional and entry.pid >= 0:
            self.open.setdefault(entry.pid, []).append(entry)
        return entry

    def visible(self, entry: Entry) -> bool:
        """Whether a read_committed reader gets the batch, once it is below the LSO."""
        return entry.ends is None and (
            not entry.transactional or self.ended.get(entry.offset) == COMMIT
        )

    def truncate(self, offset: int) -> None:
        """Truncates. Transactions whose markers are removed are open again."""
        kept = [e for e in self.entries if e.end <= offset]
        self.entries, self.ended, self.open = [], {}, {}
        for entry in kept:
            self.take(entry)

    def compact(self, rng: Random) -> None:
        """Removes records, and batches without records, except for the last batch of each producer
        id (KIP-98). Offsets stay the same."""
        self.cleaned = self.stable
        self.entries = compacted(self.entries, self.cleaned, self.aborted, rng)

    @property
    def aborted(self) -> frozenset[int]:
        """The offsets of batches of aborted transactions."""
        return frozenset(offset for offset, ends in self.ended.items() if ends == ABORT)

    def mark(
        self, ends: int, *, pid: int, epoch: int, timestamp: int, coordinator: int | None = None
    ) -> Entry:
        """Appends the marker that ends a transaction, with the epoch of the cluster's coordinator
        unless another one is given."""
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
    """The result of one broker's log cleaner. It removes some of the records that it may remove
    (superseded, aborted, without a key, tombstones), because it is unknown when it ran."""
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
    """The result of a second pass of the cleaner: markers have a delete horizon, and more records
    are removed."""
    return [
        replace(e, horizon=horizon) if e.end <= below and e.ends in (ABORT, COMMIT) else e
        for e in compacted(entries, below, aborted, rng)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of a transactional id, as its coordinator writes it. `started` is when its
    transaction began, in milliseconds, `version` the transaction version of the client (KIP-890),
    `previous` the producer id before."""

    pid: int
    epoch: int
    state: int
    spots: tuple[Spot, ...]
    started: int = -1
    version: int = 0
    previous: int = -1


@dataclass(slots=True)
class Cluster:
    """A cluster: its logs by topic and partition, its transaction coordinators with their epoch,
    and the producer ids that it assigns. `own` are the logs of Kafka's own topics, `states` the
    last state of each transactional id. `present` says for each group whether it had members in the
    coordinator's last record."""

    name: str
    brokers: int
    next_pid: int
    logs: dict[Spot, Log] = field(default_factory=dict)
    transactional: dict[str, list[int]] = field(default_factory=dict)
    own: dict[Spot, Log] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    present: dict[str, bool] = field(default_factory=dict)
    alive: bool = True
    stopped: bool = False
    coordinator: int = 0

    def new_pid(self) -> int:
        self.next_pid += 1
        return self.next_pid - 1

    def elect(self, spot: Spot, leader: int) -> None:
        """Another broker becomes the leader, in a higher epoch."""
        log = self.logs[spot]
        log.epoch += 1
        log.leader = leader
        # A broker that loses leadership is no coordinator any more.
        self.coordinator += 1
