"""Small random histories of a partition or two on two or three clusters, faithful until
`tests.oracles.changes` is let at them.

A world is dictionaries and lists that anybody may change; `views` makes of it what a check looks
at. Everything is a function of the source of randomness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import takewhile
from random import Random
from typing import Any

import numpy as np

from linkflap.harness.guarantees import declared
from linkflap.harness.log.coordinators import (
    GROUPS,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTIONS,
    CoordinatorEntry,
    GroupCommit,
    GroupMembers,
    TransactionState,
)
from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.scenario import Budgets, MirrorSpec
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.story import (
    Comparison,
    Description,
    Disagreement,
    Promotion,
    Refusal,
    RunFacts,
    Stop,
    Story,
    Truncation,
    Window,
)
from linkflap.spark_verify.facts.view import (
    WHOLE,
    Batches,
    PartitionView,
    Parts,
    Records,
    Replica,
    Watermarks,
)
from linkflap.spark_verify.read.differing_batches import digested
from linkflap.topologies import parse

SECOND = 1_000_000_000
TOPIC = "A.t"
Row = dict[str, Any]
COMMIT, ABORT, DATA, RESET = 1, 0, -1, 2


class World:
    """What happened. `logs[cluster, partition]` are batches, each with its records; all else are
    rows.

    `own` are Kafka's own topics by (cluster, topic): batch rows, each with what its coordinator
    wrote; `highs` high watermarks of those that are not their ends, `own_others` what another
    broker has. `noted` are high watermarks that brokers note, by replica, where they are above the
    ends of their logs. `torn` are replicas (cluster, partition, broker) that end in half a batch;
    `compacted` are offsets below which a cleaner was. Without `recorded` the logs are all there is.
    `repeated`: a mirror began again somewhere. `truncated_at_end`: one truncated what was open at
    its end; `truncations_made` (end, truncated to), by link and partition, are of mirrors that went
    on when their source was truncated.
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
        self.clusters = self.topology.split("->")
        self.partitions = range(random.choice([1, 2]))
        self.logs: dict[tuple[str, int], list[Row]] = {
            (c, p): [] for c in self.clusters for p in self.partitions
        }
        self.others: dict[tuple[str, int], list[Row]] = {}
        self.own: dict[tuple[str, str], list[Row]] = {}
        self.present: dict[tuple[str, str], bool] = {}
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
        self.windows: list[Row] = []
        self.refusals: list[Row] = []
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

    def tick(self) -> int:
        self.time += self.random.choice([1, 1, 2, 7]) * SECOND
        return self.time

    def end(self, cluster: str, partition: int) -> int:
        log = self.logs[cluster, partition]
        return log[-1]["base"] + log[-1]["size"] if log else 0

    def append(self, cluster: str, partition: int, **batch: Any) -> int:
        """A batch of a cluster's own, with bytes of its own; its first offset."""
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
        """A coordinator writes something down."""
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

    def decide(self, cluster: str, pid: int, control: int, partitions: Iterable[int]) -> None:
        """A transaction coordinator ends a transaction; its markers are the caller's to write."""
        state = PREPARE_COMMIT if control == COMMIT else PREPARE_ABORT
        common: Row = {
            "offset": 0,
            "transactional_id": f"t{pid}",
            "producer_id": pid,
            "producer_epoch": 0,
        }
        topic_partitions = tuple((TOPIC, partition) for partition in partitions)
        self.note(
            cluster,
            TRANSACTIONS,
            TransactionState(**common, state=state, partitions=topic_partitions),
        )
        self.note(cluster, TRANSACTIONS, TransactionState(**common, state=state + 2))

    def members(self, cluster: str, group: str, *, present: bool) -> None:
        """A group coordinator writes down that a group has members, or none any more."""
        if self.present.get((cluster, group), False) != present:
            self.present[cluster, group] = present
            self.note(
                cluster, GROUPS, GroupMembers(offset=0, group=group, member="", present=present)
            )

    def sync(self, cluster: str, group: str, partition: int, offset: int) -> None:
        """A group coordinator writes down what a mirror commits for a group that has no members."""
        self.members(cluster, group, present=False)
        self.note(
            cluster,
            GROUPS,
            GroupCommit(offset=0, group=group, topic=TOPIC, partition=partition, committed=offset),
        )

    def commit(self, cluster: str, group: str, partition: int, offset: int) -> None:
        """A group coordinator writes down what a member of a group has committed."""
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
        """The LSO: where the oldest transaction that has no marker begins."""
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
        """(offset, uid) of what a consumer gets."""
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


def _arrays(
    rows: list[Row], names: Mapping[str, str], flags: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {
        name: np.array([row[key] for row in rows], np.bool_ if name in flags else np.int64)
        for name, key in names.items()
    }


def key_of(record: Row) -> bytes | None:
    """The key of a record, by its payload id: few keys, so that one takes another's place, and none
    of some."""
    return (b"a", b"b", b"c", None)[record["uid"] % 4]


def replica(
    cluster: str,
    log: list[Row],
    *,
    broker: int = 1,
    start: int = 0,
    moment: str = "",
    captured: int = 0,
    torn: bool = False,
    stable: tuple[int, int] = (-1, -1),
    noted: int = -1,
) -> Replica:
    """A log as a view has it."""
    headers = [batch | _lasts(batch) for batch in log]
    names = {
        "base_offset": "base", "last_offset": "last", "length": "length", "count": "count",
        "crc": "crc", "crc_ok": "crc_ok",
        "leader_epoch": "epoch", "producer_id": "pid", "producer_epoch": "pepoch",
        "base_sequence": "seq",
        "last_sequence": "lastseq", "transactional": "txn", "control": "control",
        "coordinator_epoch": "coordinator",
    }  # fmt: skip
    records = [
        {"offset": b["base"] + r.get("at", i), "batch": n, "timestamp": b["written"], **r}
        for n, b in enumerate(log)
        for i, r in enumerate(b["records"])
    ]
    columns = ("offset", "uid", "operation", "digest", "timestamp", "batch")
    parts = _arrays(records, {name: name for name in ("offset", "uid", "timestamp")})
    parts |= {
        "key": np.array([digested(key_of(r)) for r in records], np.int64),
        "headers": np.zeros(len(records), np.int64),
    }
    end = headers[-1]["last"] + 1 if headers else start
    damage = (
        ("half a batch at the end",)
        if torn
        else tuple("a header that no broker writes" for b in headers if _unwritten(b))
    )
    return Replica(
        cluster=cluster, broker=broker, leader=broker == 1, canonical=broker == 1, log_start=start,
        high_watermark=max(end, noted), high_watermark_from="sampled", moment=moment,
        captured=captured,
        damage=damage, torn_from=_torn_from(headers) if damage else WHOLE,
        last_stable=stable[0], stable_above=stable[1],
        batches=Batches(**_arrays(headers, names, ("crc_ok", "transactional"))),
        records=Records(**_arrays(records, {name: name for name in columns})),
        parts=Parts(**parts | {"value": np.array([r["digest"] for r in records], np.int64)}),
    )  # fmt: skip


def _torn_from(headers: list[Row]) -> int:
    """Behind the last of the batches before the first that rotted or cannot be, or of all: then
    half a one follows."""
    sound = list(takewhile(lambda batch: batch["crc_ok"] and not _unwritten(batch), headers))
    return max((batch["last"] + 1 for batch in sound), default=0)


def _unwritten(batch: Row) -> bool:
    """What reading takes for damage, because no broker writes it: transactional data of no
    producer, a marker of nothing."""
    if not batch["crc_ok"] or batch["control"] == RESET:
        return False
    return (
        bool(batch["txn"] and batch["pid"] == -1) if batch["control"] == DATA else not batch["txn"]
    )


def _lasts(batch: Row) -> Row:
    """Last offset, last sequence, and how many records are left."""
    more = batch["size"] - 1
    return {
        "count": count_of(batch),
        "last": batch["base"] + more,
        "lastseq": -1 if batch["seq"] < 0 else (batch["seq"] + more) % 2**31,
    }


def count_of(batch: Row) -> int:
    """How many records a batch's header says it has."""
    said: int = batch.get("count", len(batch["records"]) if batch["control"] == DATA else 1)
    return said


def views(world: World, run: str = "run") -> list[PartitionView]:
    """All partitions of the world's run."""
    return [_view(world, partition, run) for partition in world.partitions]


def with_own(world: World) -> list[PartitionView]:
    """The partitions of the world's run, and those of Kafka's own topics."""
    found = views(world)
    for topic in sorted({topic for _, topic in world.own}) if world.recorded else ():
        logs = []
        for (cluster, name), log in sorted(world.own.items()):
            if name == topic:
                entries = tuple(row["entry"] for row in log if row["crc_ok"])
                logs.append(replace(replica(cluster, log), entries=entries))
                if (high := world.highs.get((cluster, topic))) is not None:
                    logs[-1] = replace(logs[-1], high_watermark=high)
                if (other := world.own_others.get((cluster, topic))) is not None:
                    logs.append(replica(cluster, other, broker=2))
        story = Story(facts=found[0].story.facts, topic=topic, partition=0)
        found.append(PartitionView(story=story, replicas=logs))
    return found


def _view(world: World, partition: int, run: str) -> PartitionView:
    def mine(rows: list[Row]) -> list[Row]:
        return [
            {k: v for k, v in row.items() if k != "partition"}
            for row in rows
            if row.get("partition", partition) == partition
        ]

    logs = [
        replica(
            c, log, start=world.starts.get((c, p), 0), torn=(c, p, 1) in world.torn,
            stable=world.stable.get((c, p), (-1, -1)),
            noted=world.noted.get((c, p, 1), -1),
        )
        for (c, p), log in world.logs.items() if p == partition
    ] + [
        replica(c, log, broker=2, torn=(c, p, 2) in world.torn,
        noted=world.noted.get((c, p, 2), -1))
        for (c, p), log in world.others.items()
        if p == partition
    ]  # fmt: skip
    rpo, rto = world.budgets
    facts = RunFacts(
        run=run,
        topology=parse(world.topology),
        mirror=declared(MirrorSpec(kind=world.mirror, options=world.options)),
        windows=[Window(**row) for row in world.windows],
        refusals=[Refusal(**row) for row in world.refusals],
        ended=world.ended or world.time + 10 * SECOND,
        budgets=Budgets(rpo_records=rpo, rto_seconds=rto),
        recorded=world.recorded,
    )
    story = Story(
        facts=facts,
        topic=TOPIC,
        partition=partition,
        promotions=[Promotion(**row) for row in mine(world.promotions)],
        truncations=[Truncation(**row) for row in mine(world.truncations)],
        stops=[Stop(**row) for row in mine(world.stops)],
        descriptions=[Description(**row) for row in mine(world.descriptions)],
        disagreements=[Disagreement(**row) for row in mine(world.disagreements)],
        comparisons=[Comparison(**row) for row in mine(world.comparisons)],
        compacted={c: offset for (c, p), offset in world.compacted.items() if p == partition},
    )
    return PartitionView(
        story=story,
        replicas=logs,
        sends=[_send(row) for row in mine(world.sends)],
        reads=[_read(row) for row in mine(world.reads)],
        watermarks={
            c: _marks(rows) for (c, p), rows in world.marks.items() if p == partition and rows
        },
        groups=[GroupOffset(topic=TOPIC, partition=partition, **row) for row in mine(world.groups)],
        earlier=[replica(**row) for row in mine(world.earlier)],
    )


def _send(row: Row) -> Send:
    numbers = {
        name: np.array(row.get(name, []), np.int64) for name in ("offsets", "inputs", "input_uids")
    }
    return Send(**row | numbers | {"refused": np.array(row["refused"], np.bool_)})


def _read(row: Row) -> Read:
    return Read(
        **row
        | {
            "offsets": np.array(row["offsets"], np.int64),
            "uids": np.array(row["uids"], np.int64),
        }
    )


def _marks(rows: list[Row]) -> Watermarks:
    names = (
        "time",
        "returned",
        "leader",
        "log_start",
        "last_stable",
        "high_watermark",
        "leader_epoch",
    )
    return Watermarks(**_arrays(rows, {name: name for name in names}))
