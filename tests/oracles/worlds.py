"""Small random histories of one or two partitions on two or three clusters, and their readers. They
are faithful until `tests.oracles.changes` changes them.

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


def look_at(made: World, cluster: str) -> None:
    """Readers and samplers of one cluster may act."""
    for reader in made.readers:
        if reader["cluster"] == cluster and made.random.random() < 0.5:
            for partition in made.partitions:
                _poll(made, reader, partition, made.random.choice([1, 2, 5]))
    if made.random.random() < 0.6:
        take_sample(made, cluster)


def fetched_by(made: World, cluster: str) -> list[tuple[Row, int, list[tuple[int, int]]]]:
    """The records that readers of a cluster have fetched, and return later."""
    found = []
    for reader in made.readers:
        if reader["cluster"] == cluster and made.random.random() < 0.3:
            for partition in made.partitions:
                seen = made.seen(cluster, partition, reader["isolation"])
                found.append(
                    (
                        reader,
                        partition,
                        [p for p in seen if p[0] >= reader["at"].get(partition, 0)][:3],
                    )
                )
    return found


def read_on(made: World) -> None:
    """A reader continues on some cluster."""
    random = made.random
    if len(made.readers) < 4 and (not made.readers or random.random() < 0.5):
        cluster, number = random.choice(made.clusters), len(made.readers)
        group = random.choice(["", "g"])
        isolation = (
            "read_committed"
            if group
            else random.choice(["read_committed", "read_committed", "read_uncommitted"])
        )
        made.readers.append(
            {
                "reader": f"r{number}",
                "cluster": cluster,
                "isolation": isolation,
                "group": group,
                "at": {},
            }
        )
        for partition in made.partitions:
            add_read(made, made.readers[-1], partition, "assign", [], position=0)
    reader = random.choice(made.readers)
    for partition in made.partitions:
        if random.random() < 0.15:
            _move(made, reader, partition)
        _poll(made, reader, partition, random.choice([1, 2, 5]))


def _move(made: World, reader: Row, partition: int) -> None:
    """A rebalance or a reset: a member of a group continues at the group's committed offset, any
    other reader at the start."""
    if made.random.random() < 0.7:
        add_read(made, reader, partition, "revoke", [], position=reader["at"].get(partition, -1))
    here = (partition, "commit", reader["reader"], reader["cluster"])
    mine = [r for r in made.reads if (r["partition"], r["kind"], r["reader"], r["cluster"]) == here]
    reader["at"][partition] = mine[-1]["position"] if reader["group"] and mine else 0
    add_read(made, reader, partition, "assign", [], position=reader["at"][partition])


def _poll(made: World, reader: Row, partition: int, most: int) -> None:
    seen = made.seen(reader["cluster"], partition, reader["isolation"])
    hand_over(
        made,
        reader,
        partition,
        [pair for pair in seen if pair[0] >= reader["at"].get(partition, 0)][:most],
    )


def hand_over(made: World, reader: Row, partition: int, fresh: list[tuple[int, int]]) -> None:
    if fresh:
        reader["at"][partition] = fresh[-1][0] + 1
        add_read(made, reader, partition, "poll", fresh, position=fresh[-1][0] + 1)
        if reader["group"] and made.random.random() < 0.6:
            add_read(made, reader, partition, "commit", [], position=fresh[-1][0] + 1)


def add_read(
    made: World,
    reader: Row,
    partition: int,
    kind: str,
    pairs: list[tuple[int, int]],
    *,
    position: int,
) -> None:
    returned = made.tick()
    if kind == "commit":
        made.commit(reader["cluster"], reader["group"], partition, position)
    made.reads.append(
        {
            "partition": partition, "reader": reader["reader"], "process": 90,
            "cluster": reader["cluster"],
            "isolation": reader["isolation"], "kind": kind, "group": reader["group"],
            "time": returned - SECOND // 2,
            "returned": returned, "position": position, "uids": [uid for _, uid in pairs],
            "offsets": [o for o, _ in pairs],
        }
    )  # fmt: skip


def read_to_the_end(made: World) -> None:
    made.tick()
    for reader in made.readers:
        if made.random.random() < 0.6:
            for partition in made.partitions:
                _poll(made, reader, partition, 1000)
                add_read(
                    made, reader, partition, "drained", [], position=reader["at"].get(partition, 0)
                )


def _described(made: World, cluster: str, partition: int, sample: Row) -> list[Row]:
    """The report of the mirror into a cluster about a partition, at a sample."""
    source = next((a for a, b in made.links if b == cluster), "")
    if not source:
        return []
    over = any(p["link"] == f"{source}->{cluster}" for p in made.promotions)
    lag = -1 if over else max(0, made.end(source, partition) - made.end(cluster, partition))
    row = {
        "link": f"{source}->{cluster}",
        "partition": partition,
        "state": "STOPPED" if over else "MIRRORING",
    }
    return [
        row
        | {
            "mirrors": not over,
            "promoted": over,
            "lag": lag,
            "asked": sample["time"],
            "returned": sample["returned"],
        }
    ]


def take_sample(made: World, only: str = "") -> None:
    """Bounds and committed offsets, as an admin client gets them."""
    for cluster in [only] if only else made.clusters:
        for partition in made.partitions:
            time, high = made.tick(), made.end(cluster, partition)
            known = made.epochs[cluster] if made.random.random() < 0.9 else -1
            row: dict[str, Any] = {
                "time": time,
                "returned": time + SECOND // 10,
                "leader": 1,
                "log_start": 0,
                "leader_epoch": known,
            }
            row |= {"last_stable": made.open_first(cluster, partition), "high_watermark": high}
            made.marks.setdefault((cluster, partition), []).append(row)
            made.descriptions += _described(made, cluster, partition, row)
            made.replica_samples += _replicas(made, cluster, partition, row)
            if cluster != "A" and made.random.random() < 0.3:
                offset = _synced(made, cluster, partition)
                made.groups.append(
                    {
                        "partition": partition,
                        "time": time,
                        "cluster": cluster,
                        "group": "g",
                        "offset": offset,
                    }
                )


def _replicas(made: World, cluster: str, partition: int, sample: Row) -> list[Row]:
    """The leader's replica, and a follower that has as much or lags behind. It uses its own random
    numbers, so that the rest of a seed's world stays the same."""
    rng = Random(made.time)
    ends = (sample["high_watermark"], max(0, sample["high_watermark"] - rng.choice([0, 0, 1, 2])))
    return [
        {
            "partition": partition,
            "cluster": cluster,
            "broker": broker,
            "log_start": 0,
            "log_end": end,
            "asked": sample["time"],
            "returned": sample["returned"],
        }
        for broker, end in enumerate(ends, start=1)
    ]


def _synced(made: World, cluster: str, partition: int) -> int:
    """The offset that the mirror into a cluster commits for the group "g", which reads only on its
    home cluster. It is 0 before the group's first commit. If offsets are kept, it is the group's
    commit on the source, or the destination's end."""
    source = next((a for a, b in made.links if b == cluster), "")
    mine = [
        r
        for r in made.reads
        if (r["cluster"], r["partition"], r["group"], r["kind"])
        == (source, partition, "g", "commit")
    ]
    kept = (
        made.mirror != "mm2"
        and mine
        and not any(r["cluster"] == cluster and r["group"] == "g" for r in made.reads)
    )
    offset = (
        min(mine[-1]["position"], made.end(cluster, partition))
        if kept and made.random.random() < 0.8
        else 0
    )
    if not made.present.get((cluster, "g")):
        before = [
            g["offset"]
            for g in made.groups
            if (g["cluster"], g["partition"], g["group"]) == (cluster, partition, "g")
        ]
        offset = max([offset, *before])
        made.sync(cluster, "g", partition, offset)
        return int(offset)
    made.commit(cluster, "g", partition, 0)
    return 0
