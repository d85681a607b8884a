"""Clusters with their logs, what Kafka does to the logs, and how a mirror that keeps offsets ends
one (KIP-1279, by generation):

abort              appends an ABORT marker for each open transaction, after the mirrored range
write-txn-markers  the new leaders append these markers, after the promotion offset
truncate-once      truncates the log at its last stable offset; transactions whose markers are
                   removed are then open for ever
truncate-stable    truncates the log until no transaction is open

The bytes of a batch are written by `tests.kafka_log`, which is not `harness.log`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

from tests.kafka_log import Plain, batch, changed, mirror_pid_reset, ours
from tests.kafka_log import record as foreign

ABORT, COMMIT, RESET = 0, 1, 7
WRAP = 2**31
"""Sequence numbers are 0 to 2^31 - 1; the next one is 0 again."""


class Rec(NamedTuple):
    """A record: its index in its batch, its payload id (uid; -1: no client sent it), its timestamp
    (milliseconds) and its content."""

    delta: int
    uid: int
    operation: int
    counter: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    relayed: bytes | None = None

    def plain(self) -> Plain:
        if self.uid < 0:
            return foreign(self.value, key=self.key, timestamp=self.timestamp, delta=self.delta)
        made = ours(
            self.uid,
            self.operation,
            self.counter,
            value=self.value,
            key=self.key,
            timestamp=self.timestamp,
            delta=self.delta,
        )
        if self.value is None:
            made = Plain(**{**_fields(made), "value": None, "headers": made.headers})
        if self.relayed is None:
            return made
        return Plain(
            **{**_fields(made), "headers": (*made.headers, ("linkflap-input", self.relayed))}
        )


def _fields(plain: Plain) -> dict[str, Any]:
    return {
        "value": plain.value,
        "key": plain.key,
        "timestamp": plain.timestamp,
        "delta": plain.delta,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One batch: records of one producer, or a control record (`ends`: ABORT, COMMIT, RESET).

    `span` is the number of offsets that it takes; it is higher than the number of records if the
    log was compacted. `latest` is another maximum timestamp than the records have, `claimed`
    another number of them. `crc_flip` makes its CRC wrong. `horizon` is the delete horizon that a
    cleaner wrote into a marker. `coordinator` is the epoch of the coordinator that wrote a marker.
    """

    offset: int
    records: tuple[Rec, ...] = ()
    span: int = 1
    pid: int = -1
    epoch: int = -1
    sequence: int = -1
    leader_epoch: int = 0
    transactional: bool = False
    ends: int | None = None
    codec: str = "none"
    appended: int | None = None
    timestamp: int = 0
    latest: int | None = None
    claimed: int | None = None
    crc_flip: int = 0
    horizon: int | None = None
    coordinator: int = 0

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.offset + self.span

    @property
    def uids(self) -> list[int]:
        return [r.uid for r in self.records]

    def offset_of(self, uid: int) -> int:
        return self.offset + next(r.delta for r in self.records if r.uid == uid)

    def encoded(self) -> bytes:
        """The batch as bytes. Offset and leader epoch are not covered by the CRC, so a mirrored
        batch is encoded only once."""
        out = bytearray(
            _encoded(
                self.records,
                self.span,
                self.pid,
                self.epoch,
                self.sequence,
                self.transactional,
                self.ends,
                self.codec,
                self.appended,
                self.timestamp,
                self.horizon,
                self.coordinator,
            )
        )
        if self.latest is not None:
            out = bytearray(changed(bytes(out), max_timestamp=self.latest))
        if self.claimed is not None:
            out = bytearray(changed(bytes(out), count=self.claimed))
        struct.pack_into(">q", out, 0, self.offset)
        struct.pack_into(">i", out, 12, self.leader_epoch)
        if self.crc_flip:
            (crc,) = struct.unpack_from(">I", out, 17)
            struct.pack_into(">I", out, 17, crc ^ self.crc_flip)
        return bytes(out)


@lru_cache(maxsize=8192)
def _encoded(
    records: tuple[Rec, ...],
    span: int,
    pid: int,
    epoch: int,
    sequence: int,
    transactional: bool,
    ends: int | None,
    codec: str,
    appended: int | None,
    timestamp: int,
    horizon: int | None,
    coordinator: int,
) -> bytes:
    if ends == RESET:
        return mirror_pid_reset(0)
    if ends is not None:
        control = Plain(
            key=struct.pack(">hh", 0, ends),
            value=struct.pack(">hi", 0, coordinator),
            timestamp=timestamp,
        )
        return batch(
            0, [control], pid=pid, epoch=epoch, transactional=True, control=True, horizon=horizon
        )
    return batch(
        0,
        [r.plain() for r in records],
        pid=pid,
        epoch=epoch,
        seq=sequence,
        transactional=transactional,
        codec=codec,
        last_delta=span - 1,
        log_append_time=appended,
    )


def uids_of(entries: Iterable[Entry]) -> list[int]:
    """Every payload id, in log order."""
    return [uid for entry in entries for uid in entry.uids]


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """The outcome of every batch of a log: plain, committed, aborted, open; and the offset of its
    marker."""

    state: Mapping[int, str]
    marker: Mapping[int, int] = field(default_factory=dict)


def states(entries: Iterable[Entry]) -> States:
    state: dict[int, str] = {}
    marker: dict[int, int] = {}
    waiting: dict[int, list[Entry]] = {}
    for entry in entries:
        if entry.ends in (ABORT, COMMIT):
            for one in waiting.pop(entry.pid, ()):
                state[one.offset] = "committed" if entry.ends == COMMIT else "aborted"
                marker[one.offset] = entry.offset
        elif entry.ends == RESET:
            waiting = {}
        elif entry.ends is None and entry.transactional:
            waiting.setdefault(entry.pid, []).append(entry)
            state[entry.offset] = "open"
        elif entry.ends is None:
            state[entry.offset] = "plain"
    return States(state=state, marker=marker)


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


TRUNCATING_RULES = frozenset({"truncate-once", "truncate-stable"})


def truncated_back(log: Log, rule: str) -> list[list[int]]:
    """Truncates a log by a rule. Returns (end, truncated to) of each truncation."""
    truncations = []
    if rule == "truncate-once":
        truncations.append([log.end, log.stable])
        log.truncate(log.stable)
    while rule == "truncate-stable" and log.stable < log.end:
        truncations.append([log.end, log.stable])
        log.truncate(log.stable)
    return truncations


def ended(log: Log, rule: str, *, reset: bool, ms: int) -> Mapping[str, object]:
    """Ends open transactions in a new leader epoch, after the truncation; brokers that are asked to
    (WriteTxnMarkers) lead in one more. Returns the journal's report about the log."""
    appended = _aborted(log, ms) if rule == "abort" else []
    if reset:
        appended.append((log.reset().offset, "reset"))
    promoted = log.end
    epochs = [[e.leader_epoch, e.offset] for e in log.entries[:1]]
    epochs += [
        [b.leader_epoch, b.offset]
        for a, b in pairwise(log.entries)
        if a.leader_epoch != b.leader_epoch
    ]
    log.epoch += 1
    if rule == "write-txn-markers":
        appended += _aborted(log, ms)
    return {"epochs": epochs, "promoted": promoted, "open": [], "appended": appended}


def _aborted(log: Log, ms: int) -> list[tuple[int, str]]:
    """Appends ABORT markers for open transactions, in the order of their first records."""
    appended = []
    for pid, mine in sorted(log.open.items(), key=lambda item: item[1][0].offset):
        marker = log.mark(ABORT, pid=pid, epoch=mine[-1].epoch, timestamp=ms, coordinator=0)
        appended.append((marker.offset, f"ABORT of producer {pid}, epoch {mine[-1].epoch}"))
    return appended
