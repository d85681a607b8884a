"""Writes a small world as a run directory: the rows of clients and samplers, events, and the
captured segments of every replica."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from linkflap.harness.log import reference
from linkflap.harness.model.history import (
    Bounds,
    EventRow,
    Fetched,
    GroupOffset,
    Operation,
    Poll,
    SendGroup,
    Watermark,
)
from linkflap.harness.model.scenario import Budgets, MirrorSpec, Scenario, TopicSpec, WorkloadSpec
from linkflap.harness.rundir import Run, RunReader, RunWriter
from linkflap.topologies import parse
from tests.kafka_log import Plain, batch, ours, record, segment
from tests.oracles.views import deletes, key_of
from tests.oracles.worlds import ABORT, COMMIT, DATA, TOPIC, Row, World
from tests.synthetic import append_events

END = "2-end"


_KEY_TYPE = {0: 0, 1: 1, 2: 7}


def captures(made: World, writer: RunWriter) -> Iterator[EventRow]:
    held: dict[tuple[str, str], list[Bounds]] = {}
    for row in made.earlier:
        moment = row["moment"]
        held.setdefault((moment, row["cluster"]), []).append(
            _capture(
                writer,
                moment,
                row["cluster"],
                1,
                row["partition"],
                row["log"],
                torn=row.get("torn", False),
            )
        )
        yield EventRow(
            time=row["captured"],
            kind="captured",
            subject=row["cluster"],
            data={"moment": moment, "replicas": 1},
        )
    for broker, logs in ((1, made.logs), (2, made.others)):
        for (cluster, partition), log in logs.items():
            start = made.starts.get((cluster, partition), 0) if broker == 1 else 0
            torn, compacted = (
                (cluster, partition, broker) in made.torn,
                made.compacted.get((cluster, partition), 0),
            )
            bounds_of = _capture(
                writer,
                END,
                cluster,
                broker,
                partition,
                log,
                start=start,
                torn=torn,
                compacted=compacted,
            )
            noted = made.noted.get((cluster, partition, broker), -1)
            stable, above = (
                made.stable.get((cluster, partition), (-1, -1)) if broker == 1 else (-1, -1)
            )
            high = max(bounds_of.high_watermark, noted)
            bounds_of = replace(
                bounds_of,
                alive=cluster not in made.dead,
                high_watermark=high,
                last_stable=stable,
                stable_above=above,
            )
            held.setdefault((END, cluster), []).append(bounds_of)
    for (moment, cluster), bounds in held.items():
        if moment == END:
            yield EventRow(
                time=made.time + 1,
                kind="captured",
                subject=cluster,
                data={"moment": END, "replicas": len(bounds)},
            )
    for moment in {moment for moment, _ in held}:
        writer.write_bounds(
            moment, [b for (at, _), bounds in held.items() if at == moment for b in bounds]
        )


def _capture(
    writer: RunWriter,
    moment: str,
    cluster: str,
    broker: int,
    partition: int,
    log: list[Row],
    *,
    start: int = 0,
    torn: bool = False,
    compacted: int = 0,
) -> Bounds:
    encoded = [_encoded(one) for one in log]
    tail = (
        batch(log[-1]["base"] + log[-1]["size"] if log else start, [record(b"half of it")])[:50]
        if torn
        else b""
    )
    segment(
        writer.root / "captures" / moment / cluster / str(broker) / f"{TOPIC}-{partition}",
        encoded,
        tail=tail,
    )
    for one, data in zip(log, encoded, strict=True):
        _take_over(one, data)
    end = log[-1]["base"] + log[-1]["size"] if log else start
    return Bounds(
        cluster=cluster, broker=broker, topic=TOPIC, partition=partition, leader=broker == 1,
        alive=True, log_start=start,
        high_watermark=end, high_watermark_from="sampled", compacted=compacted,
    )  # fmt: skip


def _encoded(one: Row) -> bytes:
    common = {
        "pid": one["pid"],
        "epoch": one["pepoch"],
        "seq": one["seq"],
        "transactional": one["txn"],
    }
    if not one["crc_ok"]:
        whole = _encoded(one | {"control": one["was"], "records": one["rotten"], "crc_ok": True})
        return whole[:-1] + bytes([whole[-1] ^ 1])
    if one["control"] == DATA:
        records = [_plain(r, r.get("at", i)) for i, r in enumerate(one["records"])]
        data = batch(
            one["base"], records, leader_epoch=one["epoch"], last_delta=one["size"] - 1, **common
        )
    else:
        key, value = (
            struct.pack(">hh", 0, _KEY_TYPE[one["control"]]),
            struct.pack(">hi", 0, one["coordinator"]),
        )
        plain = Plain(key=key, value=value, timestamp=one["written"])
        data = batch(one["base"], [plain], leader_epoch=one["epoch"], control=True, **common)
    return data


def _plain(row: Row, delta: int) -> Plain:
    value = b"%d" % row["digest"]
    if row["uid"] < 0:
        return record(value, key=key_of(row), timestamp=row["timestamp"], delta=delta)
    written = ours(
        row["uid"],
        row["operation"],
        value=value,
        key=key_of(row),
        timestamp=row["timestamp"],
        delta=delta,
    )
    return replace(written, value=None) if deletes(row) else written


def _take_over(one: Row, data: bytes) -> None:
    (read,) = reference.batches(data)
    one |= {"crc": read.crc, "length": read.length, "crc_ok": read.crc_ok}
    if one["control"] not in (COMMIT, ABORT):
        one["coordinator"] = -1
    if one["control"] == DATA and read.crc_ok:
        for row, found in zip(one["records"], reference.records(read), strict=True):
            row["digest"] = reference.digest(found)


def write(made: World, root: Path) -> Path:
    """Writes a run directory. Sets the world's CRCs, lengths and digests to the written ones, and
    its end to the run's end."""
    for send in made.sends:
        _reported(send)
    scenario = Scenario(
        name="oracle", about="made up", seed=1, topology=parse(made.topology),
        mirror=MirrorSpec(kind=made.mirror, options=made.options), schedule=(),
        topics=TopicSpec(partitions=len(made.partitions), config=made.topic_config),
        workloads=(
            WorkloadSpec(kind="transactional", home="A", options={"keys": 3, "tombstones": 0.2}),
        ),
        budgets=Budgets(rpo_records=made.budgets[0], rto_seconds=made.budgets[1]),
    )  # fmt: skip
    run = replace(
        Run.begun(scenario, "process"),
        started=1,
        recorded=made.recorded,
        homes={} if made.recorded else {TOPIC: "A"},
    )
    writer = RunWriter(root, run)
    if made.recorded:
        _history(made, writer)
    events = [*_events(made), *captures(made, writer)]
    append_events(root, sorted(events, key=lambda e: e.time))
    writer.close("finished")
    made.ended = RunReader(root).run.ended
    return root


def _reported(send: Row) -> None:
    """An operation that never returned reports nothing."""
    if send["returned"] < 0:
        nothing = [-1] * len(send["offsets"])
        send |= {
            "outcome": "info",
            "ended_at": 0,
            "producer_id": -1,
            "producer_epoch": -1,
            "offsets": nothing,
        }
        send["refused"] = [False] * len(nothing)


def _history(made: World, writer: RunWriter) -> None:
    operations, polls = writer.operations("p"), writer.polls("r")
    for number in dict.fromkeys(send["number"] for send in made.sends):
        for row in _operation([send for send in made.sends if send["number"] == number]):
            operations.write(row)
    for read in made.reads:
        runs = tuple(
            (uid, offset, 1) for uid, offset in zip(read["uids"], read["offsets"], strict=True)
        )
        fetched = Fetched(
            topic=TOPIC, partition=read["partition"], runs=runs, position=read["position"]
        )
        names = ("time", "returned", "reader", "process", "cluster", "isolation", "kind", "group")
        polls.write(Poll(**{name: read[name] for name in names}, fetched=(fetched,)))
    marks, groups = writer.watermarks("all"), writer.groups("all")
    for (cluster, partition), rows in made.marks.items():
        for mark in rows:
            marks.write(Watermark(cluster=cluster, topic=TOPIC, partition=partition, **mark))
    for group in made.groups:
        groups.write(GroupOffset(topic=TOPIC, **group))


def _operation(parts: list[Row]) -> Iterator[Operation]:
    """One operation, of which each row is the part of one partition."""
    one = parts[0]
    names = ("number", "client", "process", "cluster", "kind", "ending", "transactional_id")
    common: dict[str, Any] = {name: one[name] for name in names} | {"group": one.get("group", "")}
    sends = tuple(_group(part) for part in parts)
    asked = tuple(replace(group, acks=(), refused=()) for group in sends)
    yield Operation(phase="invoke", time=one["invoked"], sends=asked, **common)
    if one["returned"] >= 0:
        returned = {
            name: one[name] for name in ("outcome", "ended_at", "producer_id", "producer_epoch")
        }
        yield Operation(phase="return", time=one["returned"], sends=sends, **returned, **common)


def _group(part: Row) -> SendGroup:
    inputs = tuple(
        (uid, offset, 1)
        for uid, offset in zip(part.get("input_uids", ()), part.get("inputs", ()), strict=True)
    )
    position = {"topic": part.get("input_topic", ""), "partition": part.get("input_partition", -1)}
    return SendGroup(
        topic=TOPIC,
        partition=part["partition"],
        first_uid=part["first_uid"],
        count=len(part["offsets"]),
        acks=tuple((i, 1, offset) for i, offset in enumerate(part["offsets"]) if offset >= 0),
        refused=tuple((i, 1) for i, refused in enumerate(part["refused"]) if refused),
        made_from=Fetched(runs=inputs, position=part["position"], **position) if inputs else None,
    )


def _sampled(made: World) -> Iterator[EventRow]:
    """What mirrors reported, and the replicas at that time."""
    for row in made.descriptions:
        described = {
            name: row[name] for name in ("partition", "state", "mirrors", "promoted", "lag")
        } | {"topic": TOPIC}
        data = {"asked": row["asked"], "rows": [described]}
        yield EventRow(
            time=row["returned"], kind="mirror-described", subject=row["link"], data=data
        )
    for row in made.replica_samples:
        sampled = {name: row[name] for name in ("partition", "broker", "log_start", "log_end")}
        data = {"asked": row["asked"], "rows": [sampled | {"topic": TOPIC}]}
        yield EventRow(
            time=row["returned"], kind="replicas-sampled", subject=row["cluster"], data=data
        )


def _events(made: World) -> Iterator[EventRow]:
    for window in made.windows:
        data = {"id": window["id"], "fault": window["fault"], "options": {}, "restores": True}
        yield EventRow(
            time=window["start"], kind="fault-start", subject=window["target"], data=data
        )
        yield EventRow(
            time=window["end"],
            kind="fault-end",
            subject=window["target"],
            data={"id": window["id"]},
        )
        if window["fault"] == "mirror-reverse":
            data = {"mirror": made.mirror, "options": {}, "seconds": 1.0}
            yield EventRow(
                time=window["start"] + 1, kind="mirror-started", subject="B->A", data=data
            )
    for row in made.promotions:
        position = {name: row[name] for name in ("cluster", "partition", "offset")} | {
            "topic": TOPIC
        }
        yield EventRow(time=row["time"], kind="promotion", subject=row["link"], data=position)
        data = {"kind": row["kind"], "fault_time": row["fault_time"], "open_transactions": 0}
        yield EventRow(time=row["time"], kind="failover", subject=row["link"], data=data)
    for cluster, died in made.deaths.items():
        data = {"by": "itself", "status": -9, "out_of_memory": None, "last_words": []}
        yield EventRow(time=died, kind="broker-died", subject=f"{cluster}/1", data=data)
    for row in made.refusals:
        data = {name: row[name] for name in ("kind", "error", "code", "seconds")}
        yield EventRow(time=made.time, kind="failover-refused", subject=row["link"], data=data)
    yield from _sampled(made)
    for row in made.truncations:
        position = {name: row[name] for name in ("cluster", "partition", "offset", "end")} | {
            "topic": TOPIC
        }
        yield EventRow(time=row["time"], kind="truncation", subject=row["link"], data=position)
    for row in made.stops:
        returned = {
            name: row[name]
            for name in ("partition", "mirrored", "promoted", "truncated", "appended", "epochs")
        } | {"topic": TOPIC}
        yield EventRow(
            time=row["time"],
            kind="mirror-stopped",
            subject=row["link"],
            data={"drained": True, "partitions": [returned]},
        )
