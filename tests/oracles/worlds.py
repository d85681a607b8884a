"""Small random histories of one or two partitions on two or three clusters. They are faithful until
`tests.oracles.changes` changes them.

A world consists of mutable dictionaries and lists; `tests.oracles.views` makes the input of a check
from it. Everything is a function of the random source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

from linkflap.harness.log.coordinators import (
    EMPTY,
    GROUPS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTIONS,
    CoordinatorEntry,
    GroupCommit,
    GroupMembers,
    TransactionState,
)

SECOND = 1_000_000_000
TOPIC = "A.t"
Row = dict[str, Any]
COMMIT, ABORT, DATA, RESET = 1, 0, -1, 2


class World:
    """The history. `logs[cluster, partition]` are batches with their records; the rest are rows.

    `own`: internal topics by (cluster, topic), as batch rows with the coordinator's entry; `highs`:
    their high watermarks where these are not the log end offsets; `own_others`: another broker's
    replicas. `noted`: high watermarks of brokers above their log end offsets, by replica. `torn`:
    replicas (cluster, partition, broker) that end in half a batch. `compacted`: offsets up to which
    a log was compacted. `recorded`: there is more than logs. `repeated`: a mirror may have copied
    records again. `truncated_at_end`: a mirror truncated open transactions when it ended.
    `truncations_made`: (end, truncated to) by link and partition, of mirrors that followed their
    source's truncation.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.time = 10 * SECOND
        self.topology = random.choice(["A->B", "A->B", "A->B->C"])
        self.mirror = random.choice(["shadow", "shadow", "mm2"])
        self.options: Row = (
            {"leader_epochs": random.choice(["keep", "own"])} if self.mirror == "shadow" else {}
        )
        if self.mirror == "shadow":
            self.options["open_transactions"] = random.choice(
                ["abort", "abort", "abort", "truncate-once", "truncate-stable"]
            )
        else:
            self.options["delivery"] = random.choice(["at-least-once", "exactly-once"])
        self.recorded = True
        self.repeated = False
        self.truncated_at_end = False
        self.truncations_made: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self.torn: set[tuple[str, int, int]] = set()
        self.compacted: dict[tuple[str, int], int] = {}
        self.topic_config: dict[str, str] = {}
        self.clusters = self.topology.split("->")
        self.partitions = range(random.choice([1, 2]))
        self.logs: dict[tuple[str, int], list[Row]] = {
            (c, p): [] for c in self.clusters for p in self.partitions
        }
        self.others: dict[tuple[str, int], list[Row]] = {}
        self.own: dict[tuple[str, str], list[Row]] = {}
        self.present: dict[tuple[str, str], bool] = {}
        self.states: dict[tuple[str, int], TransactionState] = {}
        self.own_others: dict[tuple[str, str], list[Row]] = {}
        self.highs: dict[tuple[str, str], int] = {}
        self.noted: dict[tuple[str, int, int], int] = {}
        self.earlier: list[Row] = []
        self.starts: dict[tuple[str, int], int] = {}
        self.stable: dict[tuple[str, int], tuple[int, int]] = {}
        self.sends: list[Row] = []
        self.reads: list[Row] = []
        self.marks: dict[tuple[str, int], list[Row]] = {}
        self.groups: list[Row] = []
        self.promotions: list[Row] = []
        self.truncations: list[Row] = []
        self.stops: list[Row] = []
        self.descriptions: list[Row] = []
        self.disagreements: list[Row] = []
        self.comparisons: list[Row] = []
        self.replica_samples: list[Row] = []
        self.windows: list[Row] = []
        self.refusals: list[Row] = []
        self.deaths: dict[str, int] = {}
        self.budgets = (random.choice([None, 0, 3]), random.choice([None, 0.5, 5.0]))
        self.epochs = dict.fromkeys(self.clusters, 0)
        self.coordinators = {cluster: 3 - number for number, cluster in enumerate(self.clusters)}
        self.producers: dict[str, list[Row]] = {c: [] for c in self.clusters}
        self.readers: list[Row] = []
        self.processes = 0
        self.ended = 0
        self.relays: Row | None = {} if len(self.partitions) > 1 and random.random() < 0.7 else None
        self.crc = 100
        self.positions: dict[tuple[str, str, int], int] = {}
        self.links = list(zip(self.clusters, self.clusters[1:], strict=False))

    @property
    def dead(self) -> dict[str, int]:
        """When each cluster died that was dead at the end: it was lost, or a forced failover from
        it was refused."""
        refused = (r["link"] for r in self.refusals if r["kind"] == "forced")
        return {link.partition("->")[0]: self.time for link in refused} | self.deaths

    def tick(self) -> int:
        self.time += self.random.choice([1, 1, 2, 7]) * SECOND
        return self.time

    def end(self, cluster: str, partition: int) -> int:
        log = self.logs[cluster, partition]
        return log[-1]["base"] + log[-1]["size"] if log else 0

    def append(self, cluster: str, partition: int, **batch: Any) -> int:
        """Appends a native batch with a new CRC; returns its first offset."""
        self.crc += 1
        base = self.end(cluster, partition)
        row: Row = {
            "base": base,
            "crc": self.crc,
            "crc_ok": True,
            "epoch": self.epochs[cluster],
            "written": self.time // 1_000_000,
        }
        row |= {
            "pid": -1,
            "pepoch": -1,
            "seq": -1,
            "txn": False,
            "control": DATA,
            "records": [],
            "length": 70,
        } | batch
        row.setdefault(
            "coordinator", self.coordinators[cluster] if row["control"] in (COMMIT, ABORT) else -1
        )
        row["size"] = len(row["records"]) if row["control"] == DATA else 1
        self.logs[cluster, partition].append(row)
        return base

    def note(self, cluster: str, topic: str, entry: CoordinatorEntry) -> None:
        """A coordinator writes an entry to its topic."""
        log = self.own.setdefault((cluster, topic), [])
        self.crc += 1
        row: Row = {
            "base": len(log),
            "size": 1,
            "crc": self.crc,
            "crc_ok": True,
            "epoch": 0,
            "written": 0,
            "pid": -1,
            "pepoch": -1,
        }
        row |= {
            "seq": -1,
            "txn": False,
            "control": DATA,
            "records": [],
            "count": 1,
            "length": 70,
            "coordinator": -1,
        }
        log.append(row | {"entry": replace(entry, offset=len(log))})

    def begin(self, cluster: str, pid: int, partitions: Iterable[int]) -> None:
        """A transaction coordinator writes that a producer, new or known, has begun a
        transaction."""
        now = self.time // 1_000_000
        known = self.states.get((cluster, pid))
        if known is None:
            known = TransactionState(
                offset=0, transactional_id=f"t{pid}", producer_id=pid, producer_epoch=0,
                state=EMPTY, timeout=60_000, updated=now, written=now, previous_id=pid,
            )  # fmt: skip
            self._state(cluster, known)
        there = tuple((TOPIC, partition) for partition in partitions)
        self._state(
            cluster,
            replace(known, state=ONGOING, partitions=there, started=now, updated=now, written=now),
        )

    def decide(self, cluster: str, pid: int, control: int, partitions: Iterable[int]) -> None:
        """A transaction coordinator ends a transaction, which it may not know yet; the caller
        writes its markers."""
        known = self.states.get((cluster, pid))
        if known is None or known.state != ONGOING:
            self.begin(cluster, pid, partitions)
        prepared = PREPARE_COMMIT if control == COMMIT else PREPARE_ABORT
        now = self.time // 1_000_000
        state = replace(self.states[cluster, pid], state=prepared, updated=now, written=now)
        self._state(cluster, state)
        self._state(cluster, replace(state, state=prepared + 2, partitions=()))

    def _state(self, cluster: str, state: TransactionState) -> None:
        self.states[cluster, state.producer_id] = state
        self.note(cluster, TRANSACTIONS, state)

    def members(self, cluster: str, group: str, *, present: bool) -> None:
        """A group coordinator writes that a group has members, or has become empty."""
        if self.present.get((cluster, group), False) != present:
            self.present[cluster, group] = present
            self.note(
                cluster, GROUPS, GroupMembers(offset=0, group=group, member="", present=present)
            )

    def sync(self, cluster: str, group: str, partition: int, offset: int) -> None:
        """A group coordinator writes a mirror's commit for a group without members."""
        self.members(cluster, group, present=False)
        self.note(
            cluster,
            GROUPS,
            GroupCommit(offset=0, group=group, topic=TOPIC, partition=partition, committed=offset),
        )

    def commit(self, cluster: str, group: str, partition: int, offset: int) -> None:
        """A group coordinator writes a member's commit."""
        self.members(cluster, group, present=True)
        entry = GroupCommit(
            offset=0, group=group, topic=TOPIC, partition=partition, committed=offset
        )
        self.note(cluster, GROUPS, entry)

    def epochs_of(self, cluster: str, partition: int) -> list[tuple[int, int]]:
        """Leader epochs of a log: (epoch, first offset)."""
        found: list[tuple[int, int]] = []
        for batch in self.logs[cluster, partition]:
            if not found or found[-1][0] != batch["epoch"]:
                found.append((batch["epoch"], batch["base"]))
        return found

    def open_first(self, cluster: str, partition: int, *, high: int | None = None) -> int:
        """The LSO: the first offset of the oldest transaction without a marker."""
        begun: dict[int, int] = {}
        limit = self.end(cluster, partition) if high is None else high
        for batch in self.logs[cluster, partition]:
            if batch["base"] < limit and batch["txn"]:
                if batch["control"] == DATA:
                    begun.setdefault(batch["pid"], batch["base"])
                else:
                    begun.pop(batch["pid"], None)
        return min([limit, *begun.values()])

    def seen(self, cluster: str, partition: int, isolation: str) -> list[tuple[int, int]]:
        """(offset, uid) of the records that a consumer gets."""
        log, committed = self.logs[cluster, partition], isolation == "read_committed"
        limit = self.open_first(cluster, partition) if committed else self.end(cluster, partition)
        found = []
        for index, batch in enumerate(log):
            ends = [
                b["control"]
                for b in log[index:]
                if b["control"] in (COMMIT, ABORT) and b["pid"] == batch["pid"]
            ]
            if committed and batch["txn"] and ends[:1] != [COMMIT]:
                continue
            found += [
                (batch["base"] + i, r["uid"])
                for i, r in enumerate(batch["records"])
                if batch["base"] + i < limit
            ]
        return found


def random_row(made: World, rows: list[Row]) -> Row:
    return made.random.choice(rows)
