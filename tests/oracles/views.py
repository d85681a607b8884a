"""Makes the input of a check from a small world (`tests.oracles.worlds`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final

import numpy as np

from linkflap.harness.guarantees import declared
from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.payload import PROCESS_SHIFT, Values
from linkflap.harness.model.scenario import Budgets, MirrorSpec
from linkflap.spark_verify.facts.partition_facts import (
    Description,
    LogPromotion,
    LogTruncation,
    MirrorStop,
    PartitionFacts,
    Refusal,
    ReplicaSample,
    RunFacts,
    Window,
)
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import (
    NULL,
    WHOLE,
    Batches,
    PartitionView,
    Parts,
    Records,
    Replica,
    Watermarks,
    digested,
)
from linkflap.topologies import parse
from tests.oracles.worlds import DATA, RESET, SECOND, TOPIC, Row, World


def _arrays(
    rows: list[Row], names: Mapping[str, str], flags: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {
        name: np.array([row[key] for row in rows], np.bool_ if name in flags else np.int64)
        for name, key in names.items()
    }


SEEDED: Final = Values(1, 1, keys=3, tombstones=0.2)
"""Few keys, so that records replace each other."""


def key_of(record: Row) -> bytes | None:
    """The key of a record: as the seed says, but some producers write other keys, or none."""
    process = record["uid"] >> PROCESS_SHIFT
    if record["uid"] >= 0 and process % 4 < 2:
        return SEEDED.key(record["uid"])
    return (b"a", b"b", b"c", None)[record["uid"] % 4]


def deletes(record: Row) -> bool:
    """Whether a record is a tombstone."""
    return bool(record["uid"] >= 0 and SEEDED.value(record["uid"]) is None)


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
    """A log as a replica of a view."""
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
        unread=((end, WHOLE),) if torn else (),
        last_stable=stable[0], stable_above=stable[1],
        batches=Batches(**_arrays(headers, names, ("crc_ok", "transactional"))),
        records=Records(**_arrays(records, {name: name for name in columns})),
        parts=Parts(**parts | {"value": np.array([_value(r) for r in records], np.int64)}),
    )  # fmt: skip


def _value(record: Row) -> int:
    return NULL if deletes(record) else int(record["digest"])


def _torn_from(headers: list[Row]) -> int:
    """The offset after the intact batches: those before the first damaged one, or all of them (half
    a batch follows)."""
    sound = list(takewhile(lambda batch: batch["crc_ok"] and not _unwritten(batch), headers))
    return max((batch["last"] + 1 for batch in sound), default=0)


def _unwritten(batch: Row) -> bool:
    """Whether the reader treats a batch as damaged, because no broker writes it: transactional data
    without a producer id, a marker that is not transactional."""
    if not batch["crc_ok"] or batch["control"] == RESET:
        return False
    return (
        bool(batch["txn"] and batch["pid"] == -1) if batch["control"] == DATA else not batch["txn"]
    )


def _lasts(batch: Row) -> Row:
    """Last offset, last sequence, and the number of records."""
    more = batch["size"] - 1
    return {
        "count": count_of(batch),
        "last": batch["base"] + more,
        "lastseq": -1 if batch["seq"] < 0 else (batch["seq"] + more) % 2**31,
    }


def count_of(batch: Row) -> int:
    """The number of records in a batch's header."""
    count: int = batch.get("count", len(batch["records"]) if batch["control"] == DATA else 1)
    return count


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
        story = PartitionFacts(facts=found[0].partition_facts.facts, topic=topic, partition=0)
        found.append(PartitionView(partition_facts=story, replicas=logs))
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
    ended = world.ended or world.time + 10 * SECOND
    facts = RunFacts(
        run=run,
        topology=parse(world.topology),
        mirror=declared(MirrorSpec(kind=world.mirror, options=world.options)),
        windows=[Window(**row) for row in world.windows],
        refusals=[Refusal(**row) for row in world.refusals],
        deaths=world.dead,
        ended=ended,
        budgets=Budgets(rpo_records=rpo, rto_seconds=rto),
        recorded=world.recorded,
        topic_config=world.topic_config,
        values=[SEEDED],
    )
    story = PartitionFacts(
        facts=facts,
        topic=TOPIC,
        partition=partition,
        promotions=[LogPromotion(**row) for row in mine(world.promotions)],
        truncations=[LogTruncation(**row) for row in mine(world.truncations)],
        stops=[MirrorStop(**row) for row in mine(world.stops)],
        descriptions=[Description(**row) for row in mine(world.descriptions)],
        replica_samples=[ReplicaSample(**row) for row in mine(world.replica_samples)],
        compacted={c: offset for (c, p), offset in world.compacted.items() if p == partition},
    )
    return PartitionView(
        partition_facts=story,
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
