"""Writes a small world as a run directory, and copies the CRCs, lengths and digests of the written
bytes into the world."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from linkflap.harness.model.history import (
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
from tests.oracles.captured import captures
from tests.oracles.worlds import TOPIC, Row, World
from tests.synthetic import append_events


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
    for row in made.disagreements:
        data = {"seed": "1", "steps": ["pause"], "wrong": row["said"], "topic": TOPIC}
        yield EventRow(time=row["time"], kind="verbs-played", subject=row["link"], data=data)
    for row in made.comparisons:
        differing = {name: [there, here] for name, there, here in row["differing"]}
        found = {
            "topic": TOPIC,
            "there": row["there"],
            "here": row["here"],
            "compared": 2,
            "differing": differing,
            "acls": 3,
            "missing": row["missing"],
            "beside": row["beside"],
            "recorded": row["recorded"],
        }
        yield EventRow(
            time=row["time"],
            kind="topics-compared",
            subject=row["link"],
            data={"rows": [found], "seconds": 20.0},
        )
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
