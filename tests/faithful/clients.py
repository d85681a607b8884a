"""Producers of every kind, and the rows of their history.

A producer writes an operation when it invokes it, before its first record is sent, and again when
it returns. Every step takes time of one clock, and its effect is between the start and the end of
the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from linkflap.harness.model.history import Operation, OperationKind, OutcomeName, SendGroup
from linkflap.harness.model.payload import PROCESS_SHIFT
from tests.faithful.clusters import ABORT, COMMIT, WRAP, Cluster, Entry, Log, Rec, Spot
from tests.faithful.coordinators import began, decided, done, fence, goes_on, ongoing
from tests.faithful.observers import MS, Clock, Notes, Writing, Written
from tests.kafka_log import WITHOUT_ID


@dataclass(slots=True)
class Producer:
    """A producer with all its incarnations. `version` is the version of its transactions (KIP-890);
    0: not transactional, -1: no producer id either."""

    name: str
    version: int
    clock: Clock
    notes: Notes
    codecs: tuple[str, ...]
    cluster: Cluster | None = None
    process: int = 0
    pid: int = -1
    epoch: int = -1
    first_sequence: int = 0
    sequences: dict[Spot, int] = field(default_factory=dict)
    counters: dict[Spot, int] = field(default_factory=dict)
    uids: int = 0
    numbers: int = 0
    writing: Writing | None = None
    touched: set[Spot] = field(default_factory=set)

    @property
    def transactional(self) -> bool:
        return self.version > 0

    @property
    def transactional_id(self) -> str:
        return self.name if self.transactional else ""

    def start(self, cluster: Cluster) -> None:
        """Starts a new incarnation on a cluster. A successor with the same transactional id fences
        its predecessor, and aborts its open transaction."""
        self.notes.processes += 1
        self.cluster, self.process, self.uids, self.numbers = cluster, self.notes.processes, 0, 0
        self.counters, self.sequences, self.writing = {}, {}, None
        if self.pid >= 0:
            self.first_sequence = 0
        row = self._row("init", self.clock.tick())
        self.notes.operations.append(row)
        self.clock.tick()
        if self.transactional:
            self.pid, self.epoch = self._initialised(cluster)
        elif self.version == 0:
            self.pid, self.epoch = cluster.new_pid(), 0
        else:
            self.pid, self.epoch = -1, -1
        self.notes.operations.append(self._returned(row, "ok"))

    def _initialised(self, cluster: Cluster) -> tuple[int, int]:
        known = cluster.transactional.get(self.name)
        if known is None:
            known = cluster.transactional[self.name] = [cluster.new_pid(), -1]
        elif ongoing(cluster, self.name):
            fence(cluster, self.name, self.clock.ms)
        known[1] += 1
        began(cluster, self.name, known[0], known[1], self.clock.ms)
        return known[0], known[1]

    def begin(
        self,
        spots: Iterable[Spot],
        rng: Random,
        *,
        counts: Mapping[Spot, int] | None = None,
        ending: str = "",
    ) -> None:
        """Plans an operation and writes its invoke row. `counts` has the number of records for each
        partition; if it is missing, a few are drawn."""
        groups, left = [], []
        for topic, partition in spots:
            count = counts[topic, partition] if counts else rng.randint(1, 4)
            first = (self.process << PROCESS_SHIFT) + self.uids
            self.uids += count
            groups.append(SendGroup(topic=topic, partition=partition, first_uid=first, count=count))
            position = 0
            while position < count:
                size = rng.randint(1, count - position)
                left.append(((topic, partition), first, size))
                position += size
        ending = (
            "none"
            if not self.transactional
            else ending or rng.choices(("commit", "abort"), (4, 1))[0]
        )
        row = self._row(
            "transaction" if self.transactional else "send",
            self.clock.tick(),
            sends=tuple(groups),
            ending=ending,
        )
        self.notes.operations.append(row)
        self.writing = Writing(row=row, left=left)
        if self.transactional:
            goes_on(self._cluster(), self.name, self.pid, self.epoch, spots_of(row), self.clock.ms)

    def _content(self, uid: int, rng: Random) -> tuple[bytes, bytes | None]:
        """Key and value, as the seed of the run gives them."""
        # As many draws as random contents took: the story of each seed stays what it is.
        if rng.random() >= 0.3:
            rng.randint(0, 9)
        rng.getrandbits(32)
        return self.notes.values.key(uid), self.notes.values.value(uid)

    def write(self, rng: Random, *, appended: bool = False) -> bool:
        """Sends the next batch. Returns False if nothing is left to send."""
        writing = self.writing
        if writing is None or not writing.left:
            return False
        spot, first, size = writing.left.pop(0)
        log = self._log(spot)
        acks = writing.acks.setdefault((spot, first), [])
        index = acks[-1][0] + acks[-1][1] if acks else 0
        now = self.clock.tick(1, 3) // MS
        counter = self.counters.get(spot, 0)
        self.counters[spot] = counter + size
        records = tuple(
            Rec(
                i,
                first + index + i,
                writing.row.number,
                counter + i,
                now - rng.randint(0, 2),
                *self._content(first + index + i, rng),
            )
            for i in range(size)
        )
        epoch, sequence = self.epoch, self._sequence(spot, size)
        if self.pid == -1:
            epoch, sequence = WITHOUT_ID[writing.row.number % len(WITHOUT_ID)]
        entry = Entry(
            offset=0,
            records=records,
            span=size,
            pid=self.pid,
            epoch=epoch,
            sequence=sequence,
            codec=rng.choice(self.codecs),
            transactional=self.transactional,
            appended=now if appended else None,
        )
        self.notes.written.append(Written(self.clock.now, spot, entry))
        offset = log.append(entry).offset
        if acks and acks[-1][2] + acks[-1][1] == offset:
            acks[-1] = (acks[-1][0], acks[-1][1] + size, acks[-1][2])
        else:
            acks.append((index, size, offset))
        self.touched.add(spot)
        return True

    def end(self, *, outcome: OutcomeName = "ok", really: int | None = None) -> None:
        """Ends the operation: writes the markers and the client's result. `really` is what the
        cluster did, if it differs from the request."""
        writing = self.writing
        if writing is None:
            return
        asked = self.clock.tick(1, 3)
        if self.transactional:
            self._mark(
                (COMMIT if writing.row.ending == "commit" else ABORT) if really is None else really
            )
        self.clock.tick(1, 3)
        answered = self._returned(
            writing.row, outcome, sends=writing.sends(), ended_at=asked if self.transactional else 0
        )
        self.notes.operations.append(
            replace(answered, producer_epoch=writing_epoch(self, answered))
        )
        self.writing = None

    def _mark(self, ends: int) -> None:
        """The cluster's steps at a request to end the transaction."""
        assert self.writing is not None
        self.notes.ended[self.writing.row.number] = self.clock.now
        marker_epoch = self.epoch + (1 if self.version == 2 else 0)
        spots = spots_of(self.writing.row)
        decided(self._cluster(), self.name, self.pid, marker_epoch, ends, spots, self.clock.ms)
        for spot in spots:
            self._log(spot).mark(ends, pid=self.pid, epoch=marker_epoch, timestamp=self.clock.ms)
        done(self._cluster(), self.name, self.pid, marker_epoch, ends, self.clock.ms)
        if self.version == 2:
            self.epoch = marker_epoch
            # Sequences start again at 0 in every epoch.
            self.sequences, self.first_sequence = {}, 0
            self._cluster().transactional[self.name][1] = marker_epoch

    def killed(self, *, asked: bool) -> None:
        """The client's process is killed and writes no more rows. `asked`: a commit was requested,
        and the cluster carries it out."""
        if asked:
            self.clock.tick(1, 3)
            self._mark(COMMIT)
        self.clock.tick(1, 3)
        self.writing = None

    def give_up(self, rng: Random) -> None:
        """The client has died, or cannot reach its cluster: its operation in flight has an unknown
        outcome."""
        writing, self.writing = self.writing, None
        if writing is None or rng.random() < 0.3:
            return
        row = replace(
            writing.row, ending=writing.row.ending if writing.row.ending != "abort" else "open"
        )
        asked = self.clock.tick() if row.ending == "commit" else 0
        self.clock.tick()
        self.notes.operations.append(
            self._returned(row, "info", sends=writing.sends(), ended_at=asked)
        )

    def refused(self) -> None:
        """The records that are not sent yet are refused for certain, and the transaction is aborted
        for this reason."""
        writing = self.writing
        if writing is None:
            return
        for spot, first, size in writing.left:
            done = writing.acks.get((spot, first), [])
            index = done[-1][0] + done[-1][1] if done else 0
            runs = writing.refused.setdefault((spot, first), [])
            runs.append((runs[-1][0] + runs[-1][1] if runs else index, size))
        writing.left = []

    def _cluster(self) -> Cluster:
        assert self.cluster is not None
        return self.cluster

    def _log(self, spot: Spot) -> Log:
        return self._cluster().logs[spot]

    def _sequence(self, spot: Spot, size: int) -> int:
        if self.pid < 0:
            return -1
        first = self.sequences.get(spot, self.first_sequence)
        self.sequences[spot] = (first + size) % WRAP
        return first

    def _row(self, kind: OperationKind, time: int, **rest: object) -> Operation:
        number = (self.process << PROCESS_SHIFT) + self.numbers
        self.numbers += 1
        assert self.cluster is not None
        return Operation(
            number=number,
            phase="invoke",
            time=time,
            client=self.name,
            process=self.process,
            cluster=self.cluster.name,
            kind=kind,
            transactional_id=self.transactional_id,
            **rest,  # type: ignore[arg-type]
        )

    def _returned(self, row: Operation, outcome: OutcomeName, **rest: object) -> Operation:
        return replace(
            row,
            phase="return",
            time=self.clock.tick(1, 3),
            outcome=outcome,
            producer_id=self.pid,
            producer_epoch=self.epoch,
            **rest,  # type: ignore[arg-type]
        )


def writing_epoch(producer: Producer, row: Operation) -> int:
    """librdkafka reports the epoch in which it wrote. With transactions v2, the broker has raised
    the epoch since."""
    return (
        producer.epoch - 1
        if producer.version == 2 and row.kind == "transaction"
        else producer.epoch
    )


def spots_of(row: Operation) -> list[Spot]:
    """The partitions of an operation's sends."""
    return sorted({(g.topic, g.partition) for g in row.sends})
