"""A log of batches, intact or damaged, that is planned and read in pieces."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from linkflap.harness.guarantees import declared
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.spark_verify.facts.partition_facts import RunFacts
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read import assemble, pieces
from linkflap.spark_verify.read.captures import CapturedReplica
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.plan import RunPlan
from tests.kafka_log import (
    ABORT,
    COMMIT,
    HEADER_SIZE,
    Plain,
    batch,
    changed,
    marker,
    ours,
    record,
    segment,
)

TOPIC = "A.t"


Batch = Mapping[str, object]


def made(batch_spec: Batch, offset: int) -> bytes:
    """One batch at an offset, intact or damaged."""
    wrong, count = batch_spec["wrong"], int(str(batch_spec["records"]))
    if batch_spec["what"] == "marker":
        data = marker(offset, COMMIT if count > 1 else ABORT, pid=1, epoch=0)
        return (
            data[: HEADER_SIZE + 4] + b"\x7f" + data[HEADER_SIZE + 5 :]
            if wrong == "corrupt"
            else data
        )
    one: Callable[[int], Plain] = (
        ours if batch_spec["what"] == "ours" else lambda uid: record(b"value of %d" % uid)
    )
    data = batch(offset, [one(offset + n) for n in range(count)], codec=str(batch_spec["codec"]))
    match wrong:
        case "corrupt":
            return data[:-1] + bytes([data[-1] ^ 1])
        case "unreadable":
            return changed(data, count=count + 1)
        case "codec":
            return changed(data, attributes=6)
        case "reversed":
            return changed(data, last_delta=-2)
        case "control":
            return changed(data, attributes=0x20)
        case "none inside":
            return batch(offset, [], last_delta=0)
    return data


def written(folder: Path, segments: Sequence[Mapping[str, object]]) -> list[Path]:
    """The segments' files, ordered by name."""
    paths, offset, name = [], 10, -1
    for batch_spec in segments:
        data: list[bytes] = []
        begin = offset
        for each in batch_spec["batches"]:  # type: ignore[attr-defined]
            offset = max(0, offset + each["skip"])
            begin = begin if data else max(0, offset)
            data.append(made(each, offset))
            offset += 1 if each["what"] == "marker" else each["records"]
        name = max(name + 1, begin + int(str(batch_spec["name"])))
        paths.append(segment(folder, data, base_offset=name, tail=batch_spec["tail"]))  # type: ignore[arg-type]
    return paths


def captured(paths: Sequence[Path], broker: int, **rest: object) -> CapturedReplica:
    bounds = Bounds(
        cluster="A", broker=broker, topic=TOPIC, partition=0, leader=broker == 1, alive=True,
        log_start=0, high_watermark=9,
        high_watermark_from="sampled",
    )  # fmt: skip
    size = sum(path.stat().st_size for path in paths)
    values = {
        "moment": "2-end",
        "canonical": broker == 1,
        "damage": (f"what {broker} lacks",),
        **rest,
    }
    files = tuple(map(str, paths))
    return CapturedReplica(run="r", bounds=bounds, paths=files, size=size, **values)  # type: ignore[arg-type]


def planned(
    replicas: Sequence[CapturedReplica], earlier: Sequence[CapturedReplica] = ()
) -> RunPlan:
    alone = Topology(clusters=(ClusterSpec(name="A"),), links=())
    facts = RunFacts(run="r", topology=alone, mirror=declared(MirrorSpec(kind="none")))
    return RunPlan(facts=facts, replicas=replicas, earlier=earlier)


def whole(run: RunPlan) -> PartitionView:
    return assemble.view(run, TOPIC, 0, batch_rows([*run.replicas, *run.earlier]))


def tasks(run: RunPlan) -> list[list[CapturedReplica]]:
    return [list(task.replicas) for task in pieces.pieces([run]) if task.replicas]


def in_pieces(run: RunPlan, order: random.Random) -> PartitionView:
    rows = [batch for task in tasks(run) for batch in batch_rows(task)]
    order.shuffle(rows)
    return assemble.view(run, TOPIC, 0, rows)


def sound(folder: Path, segments: int, **how: object) -> list[Path]:
    batch_spec = {"what": "ours", "codec": "none", "records": 2, "skip": 0, "wrong": ""} | how
    return written(
        folder / "A.t-0", [{"batches": [batch_spec] * 3, "name": 0, "tail": b""}] * segments
    )
