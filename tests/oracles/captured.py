"""Writes the captures of a small world into a run directory: the segments of every replica, and the
time of each capture."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

from linkflap.harness.log import reference
from linkflap.harness.model.history import Bounds, EventRow
from linkflap.harness.rundir import RunWriter
from tests.kafka_log import Plain, batch, ours, record, segment
from tests.oracles.views import deletes, key_of
from tests.oracles.worlds import ABORT, COMMIT, DATA, TOPIC, Row, World

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
