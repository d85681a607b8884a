"""Synthetic run directories for tests: cluster A, mirrored to B, a forced failover, and clients
that continue on B.

They can be read without damage, but are not meant to be judged valid. Everything in them is a
function of the arguments; times are small whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from linkflap.harness.model.history import (
    Bounds,
    EventRow,
    Fetched,
    Operation,
    Poll,
    SendGroup,
    Watermark,
)
from linkflap.harness.model.payload import Values
from linkflap.harness.model.scenario import MirrorSpec, Scenario, TopicSpec, WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.rundir import Run, RunWriter
from tests.kafka_log import ABORT, COMMIT, Plain, batch, marker, ours, segment
from tests.run_copy import seal

TOPIC = "A.t"
TOPOLOGY = Topology(
    clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=2)),
    links=(LinkSpec(source="A", destination="B"),),
)
DIED, ENDED = "1-failover", "2-end"
PROMOTED, HEALED = 5_000, 9_000


_SEED: Final = 1
VALUES: Final = Values(_SEED, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a run: transactions of `records` records in each partition; every fifth is
    aborted."""

    partitions: int = 2
    transactions: int = 10
    records: int = 3
    codec: str = "none"


def write_run(root: Path, shape: Shape = Shape()) -> Path:
    """Writes an undamaged run directory: A captured at its failover, and B at the end, with a
    replica on each of its brokers."""
    scenario = Scenario(
        name="synthetic", about="made up", seed=_SEED, topology=TOPOLOGY,
        mirror=MirrorSpec(kind="mm2"),
        workloads=(WorkloadSpec(kind="transactional", home="A", options={"value_size": 9}),),
        schedule=(),
        topics=TopicSpec(partitions=shape.partitions),
    )  # fmt: skip
    run = replace(Run.begun(scenario, "process"), started=0)
    writer = RunWriter(root, run)
    bounds: dict[str, list[Bounds]] = {DIED: [], ENDED: []}
    events: list[EventRow] = [_event(100, "fault-start", "A->B", id="f1", fault="flap")]
    operations, polls, marks = (
        writer.operations("transactional-1"),
        writer.polls("r1"),
        writer.watermarks("B"),
    )
    for partition in range(shape.partitions):
        log, sends, reads = _partition(partition, shape)
        for row in sends:
            operations.write(row)
        for poll in reads:
            polls.write(poll)
        end = shape.transactions * (shape.records + 1)
        for number in range(3):
            marks.write(_mark(1000 * number, partition, min(end, 10 * number)))
        for moment, cluster, broker in ((DIED, "A", 1), (ENDED, "B", 1), (ENDED, "B", 2)):
            segment(
                root / "captures" / moment / cluster / str(broker) / f"{TOPIC}-{partition}", log
            )
            bounds[moment].append(_bounds(cluster, broker, partition, end))
        promotion = {"cluster": "B", "topic": TOPIC, "partition": partition, "offset": end // 2}
        events.append(_event(PROMOTED, "promotion", "A->B", **promotion))
    events += [
        _event(
            PROMOTED + 1, "failover", "A->B", kind="forced", fault_time=4_000, open_transactions=0
        ),
        _event(HEALED, "fault-end", "A->B", id="f1"),
        _event(8_000, "fault-start", "B/1", id="f2", fault="kill"),
        _event(8_500, "fault-heal", "B/1", id="f2", healed=True, checked=[]),
        _event(9_000, "fault-end", "B/1", id="f2"),
    ]
    for moment, rows in bounds.items():
        writer.write_bounds(moment, rows)
    append_events(root, events)
    writer.close("finished")
    seal(root)
    return root


def append_events(root: Path, events: Sequence[EventRow]) -> None:
    """Adds events with times of the caller's choice, which RunWriter.event does not allow."""
    with (root / "events.jsonl").open("ab") as file:
        for event in events:
            file.write(msgspec.json.encode(event) + b"\n")


def as_sent(uid: int, operation: int, counter: int, **other: Any) -> Plain:
    """A record as the run's clients write it, but for what is `other`."""
    content = {"key": VALUES.key(uid), "value": VALUES.value(uid)}
    return ours(uid, operation, counter, **content | other)


def _event(time: int, kind: str, subject: str, /, **data: object) -> EventRow:
    return EventRow(time=time, kind=kind, subject=subject, data=data)


def _partition(partition: int, shape: Shape) -> tuple[list[bytes], list[Operation], list[Poll]]:
    log: list[bytes] = []
    sends: list[Operation] = []
    reads: list[Poll] = []
    offset = 0
    for number in range(shape.transactions):
        operation = ((partition + 1) << 40) + number
        first = ((partition + 1) << 40) + number * shape.records
        ends = COMMIT if number % 5 else ABORT
        values = [
            as_sent(first + i, operation, number * shape.records + i) for i in range(shape.records)
        ]
        sequence = number * shape.records
        made = batch(
            offset,
            values,
            pid=partition,
            epoch=0,
            seq=sequence,
            transactional=True,
            codec=shape.codec,
            leader_epoch=1,
        )
        log.append(made)
        log.append(marker(offset + shape.records, ends, pid=partition, epoch=0, leader_epoch=1))
        sends += _operation(
            operation,
            partition,
            first,
            shape.records,
            offset,
            "commit" if ends == COMMIT else "abort",
        )
        if ends == COMMIT:
            fetched = Fetched(
                topic=TOPIC,
                partition=partition,
                runs=((first, offset, shape.records),),
                position=offset + shape.records,
            )
            reads.append(_poll(10 * offset + 20, (fetched,)))
        offset += shape.records + 1
    return log, sends, reads


def _operation(
    number: int, partition: int, first: int, count: int, offset: int, ending: str
) -> list[Operation]:
    common: Mapping[str, object] = {
        "number": number, "client": "transactional-1", "process": partition + 1, "cluster": "A",
        "kind": "transaction", "ending": ending,
        "transactional_id": f"t{partition}",
    }  # fmt: skip
    asked = SendGroup(topic=TOPIC, partition=partition, first_uid=first, count=count)
    group = SendGroup(
        topic=TOPIC, partition=partition, first_uid=first, count=count, acks=((0, count, offset),)
    )
    invoked = Operation(phase="invoke", time=10 * offset, sends=(asked,), **common)  # type: ignore[arg-type]
    returned = Operation(
        phase="return", time=10 * offset + 9, ended_at=10 * offset + 5, outcome="ok",
        producer_id=partition, producer_epoch=0,
        sends=(group,), **common,  # type: ignore[arg-type]
    )  # fmt: skip
    return [invoked, returned]


def _poll(time: int, fetched: tuple[Fetched, ...]) -> Poll:
    return Poll(
        time=time,
        returned=time + 5,
        reader="r1",
        process=9,
        cluster="A",
        isolation="read_committed",
        kind="poll",
        fetched=fetched,
    )


def _mark(time: int, partition: int, offset: int) -> Watermark:
    return Watermark(
        time=time, returned=time + 1, cluster="B", leader=1, topic=TOPIC, partition=partition,
        log_start=0,
        last_stable=offset, high_watermark=offset, leader_epoch=1,
    )  # fmt: skip


def _bounds(cluster: str, broker: int, partition: int, end: int) -> Bounds:
    return Bounds(
        cluster=cluster, broker=broker, topic=TOPIC, partition=partition, leader=broker == 1,
        alive=cluster == "B",
        log_start=0, high_watermark=end, high_watermark_from="sampled",
    )  # fmt: skip


def same(one: object, other: object) -> bool:
    """Equality of values that contain numpy arrays."""
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and bool(np.array_equal(one, other))
        )
    if is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one)
        )
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and one.keys() == other.keys()
            and all(same(one[k], other[k]) for k in one)
        )
    if isinstance(one, Sequence) and not isinstance(one, (str, bytes)):
        return isinstance(other, Sequence) and len(one) == len(other) and all(map(same, one, other))
    return one == other
