"""The verification of a recorded run with one partition: peak memory and time at two sizes, and the
cost of each additional record.

The run is synthetic: cluster A is mirrored to B with offsets kept. Four producers write
transactions of 10 records, each with its two rows of history; a run with default options has as
many records for each partition. Each cluster has a reader with polls of 50, and watermarks are
sampled ten times a second. One transaction in 50 is aborted, and the run is valid. The memory is
the proportional set size of the driver, Spark's JVM and its Python workers, sampled from Spark's
cold start to the verdict.

    python benchmarks/recorded.py [--small 0.5] [--large 2] [--group 10] [--folder DIR]
        sizes in million records

Target: at most TARGET bytes for each additional record.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from measuring import Memory

from linkflap.harness.log.layout import CONTROL, TRANSACTIONAL, batch_of, record
from linkflap.harness.model.events import Captured
from linkflap.harness.model.history import (
    Bounds,
    Fetched,
    Operation,
    Poll,
    PollKind,
    SendGroup,
    Watermark,
)
from linkflap.harness.model.payload import HEADER, LAYOUT, PROCESS_SHIFT
from linkflap.harness.model.scenario import MirrorSpec, Scenario, TopicSpec, WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.rundir import Run, RunWriter, write_whole
from linkflap.spark_verify.spark import session
from linkflap.spark_verify.verify import verify

TOPIC, MOMENT = "A.orders", "2-end"
PRODUCERS, POLLED = 4, 50
EPOCHS = {"A": 1, "B": 7}
RATE = 1600
"""Records per second of all producers together."""
START, SECOND = 1_790_000_000_000_000_000, 1_000_000_000
TARGET = 250
ABORTED = 50
"""One transaction of this many is aborted."""
_VARINT_SHORT = 64
"""Below this number, a zigzag varint takes one byte."""
_MARKERS = [record(0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 7)) for kind in (0, 1)]
"""The records of an ABORT and of a COMMIT marker."""


class Written:
    """One transaction: its number, first payload id, offset, time and outcome."""

    __slots__ = ("aborted", "first", "number", "offset", "producer", "time")

    def __init__(self, number: int, group: int) -> None:
        self.producer, turn = number % PRODUCERS, number // PRODUCERS
        process = (self.producer + 1) << PROCESS_SHIFT
        self.number, self.first = process + turn, process + turn * group
        self.offset = number * (group + 1)
        self.time = START + number * group * SECOND // RATE
        self.aborted = number % ABORTED == ABORTED - 1


def write(root: Path, records: int, group: int) -> Path:
    """Writes the run directory."""
    topology = Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B")),
        links=(LinkSpec(source="A", destination="B"),),
    )
    readers = [WorkloadSpec(kind="readers", home="A", options={"cluster": name}) for name in "AB"]
    scenario = Scenario(
        name="recorded", about="made up", seed=1, topology=topology,
        mirror=MirrorSpec(kind="shadow"),
        workloads=(WorkloadSpec(kind="transactional", home="A", clients=PRODUCERS), *readers),
        schedule=(),
        topics=TopicSpec(partitions=1),
    )  # fmt: skip
    run = replace(Run.begun(scenario, "process"), started=START)
    writer = RunWriter(root, run)
    every = [Written(n, group) for n in range(records // group)]
    end = len(every) * (group + 1)
    for name, epoch in EPOCHS.items():
        into = writer.capture_folder(MOMENT) / name / "1" / f"{TOPIC}-0"
        into.mkdir(parents=True)
        _segments(into, every, group, epoch)
        _marks(writer, name, every, group)
        _polls(writer, name, every, group, end)
    _operations(writer, every, group)
    writer.write_bounds(MOMENT, [_bounds(name, end) for name in "AB"])
    over = every[-1].time + 10 * SECOND
    for name in "AB":
        writer.write(Captured(time=over, cluster=name, moment=MOMENT, replicas=1))
    writer.close("finished")
    write_whole(root / "run.json", msgspec.json.encode(replace(run, status="finished", ended=over)))
    return root


class Batches:
    """Batches of `count` records of one size, in which only the payload ids differ."""

    def __init__(self, count: int) -> None:
        value = bytes(range(48, 120))
        name = HEADER.encode()
        head = bytes([0, 0, 0, 32]) + b"key-" + bytes(12) + bytes([0x90, 0x01]) + value
        tail = bytes([2, 2 * len(name)]) + name + bytes([2 * LAYOUT.size])
        body = len(head) + len(tail) + LAYOUT.size
        length = bytes([(2 * body) & 0x7F | 0x80, (2 * body) >> 7])
        one = length + head + tail + bytes(LAYOUT.size)
        assert count <= _VARINT_SHORT, "offset deltas of one byte"
        self._records = np.tile(np.frombuffer(one, np.uint8), (count, 1))
        self._records[:, len(length) + 2] = 2 * np.arange(count)
        self._at = len(one) - LAYOUT.size
        self.count = count

    def data(self, each: Written, sequence: int) -> bytes:
        """The records of a transaction."""
        ids = np.empty(self.count, [("uid", ">i8"), ("operation", ">i8"), ("counter", ">i4")])
        ids["uid"], ids["operation"] = each.first + np.arange(self.count), each.number
        ids["counter"] = sequence + np.arange(self.count)
        self._records[:, self._at :] = ids.view(np.uint8).reshape(self.count, -1)
        return self._records.tobytes()


def _segments(into: Path, every: Sequence[Written], group: int, epoch: int) -> None:
    batches = Batches(group)
    with (into / f"{0:020d}.log").open("wb", buffering=1 << 20) as out:
        for number, each in enumerate(every):
            sequence = number // PRODUCERS * group & 0x7FFFFFFF
            for body, count, at, first, attributes in (
                (batches.data(each, sequence), group, each.offset, sequence, TRANSACTIONAL),
                (_MARKERS[not each.aborted], 1, each.offset + group, -1, TRANSACTIONAL | CONTROL),
            ):
                batch = batch_of(
                    body,
                    count,
                    offset=at,
                    leader_epoch=epoch,
                    attributes=attributes,
                    time=each.time // 1_000_000,
                    producer=(each.producer, 0),
                    sequence=first,
                )
                out.write(batch)


def _operations(writer: RunWriter, every: Sequence[Written], group: int) -> None:
    out = [writer.operations(f"transactional-{n}") for n in range(PRODUCERS)]
    for each in every:
        asked = SendGroup(topic=TOPIC, partition=0, first_uid=each.first, count=group)
        invoked = Operation(
            number=each.number, phase="invoke", time=each.time,
            client=f"transactional-{each.producer}",
            process=each.producer + 1, cluster="A", kind="transaction",
            ending="abort" if each.aborted else "commit",
            transactional_id=f"t{each.producer}",
            sends=(asked,),
        )  # fmt: skip
        returned = replace(
            invoked, phase="return", time=each.time + 2_000_000, ended_at=each.time + 1_000_000,
            outcome="ok",
            producer_id=each.producer, producer_epoch=0,
            sends=(replace(asked, acks=((0, group, each.offset),)),),
        )  # fmt: skip
        out[each.producer].write(invoked)
        out[each.producer].write(returned)


def _polls(writer: RunWriter, cluster: str, every: Sequence[Written], group: int, end: int) -> None:
    name = f"readers-{1 + 'AB'.index(cluster)}"
    out = writer.polls(name)

    def row(
        time: int, kind: PollKind, runs: tuple[tuple[int, int, int], ...], position: int
    ) -> None:
        poll = Poll(
            time=time, returned=time + 1_000_000, reader=name, process=100 + "AB".index(cluster),
            cluster=cluster,
            isolation="read_committed", kind=kind,
            fetched=(Fetched(topic=TOPIC, partition=0, runs=runs, position=position),),
        )  # fmt: skip
        out.write(poll)

    row(START, "assign", (), 0)
    for some in _together(every, max(1, POLLED // group)):
        last = some[-1]
        row(
            last.time + 4_000_000,
            "poll",
            tuple((t.first, t.offset, group) for t in some if not t.aborted),
            last.offset + group + 1,
        )
    row(every[-1].time + SECOND, "drained", (), end)


def _together(every: Sequence[Written], count: int) -> Iterator[Sequence[Written]]:
    yield from (every[first : first + count] for first in range(0, len(every), count))


def _marks(writer: RunWriter, cluster: str, every: Sequence[Written], group: int) -> None:
    out = writer.watermarks(cluster)
    for some in (*_together(every, max(1, RATE // 10 // group)), [every[-1]]):
        at, time = some[-1].offset + group + 1, some[-1].time + 3_000_000
        sample = Watermark(
            time=time, returned=time + 1_000_000, cluster=cluster, leader=1, topic=TOPIC,
            partition=0, log_start=0,
            last_stable=at, high_watermark=at, leader_epoch=EPOCHS[cluster],
        )  # fmt: skip
        out.write(sample)


def _bounds(cluster: str, end: int) -> Bounds:
    return Bounds(
        cluster=cluster, broker=1, topic=TOPIC, partition=0, leader=True, alive=True, log_start=0,
        high_watermark=end,
        high_watermark_from="sampled",
    )  # fmt: skip


def once(run: Path) -> None:
    """Judges a run, and prints its cost without the start of Spark."""
    session.session()
    began = time.monotonic()
    (judgement,) = verify([run])
    print(json.dumps({"seconds": round(time.monotonic() - began, 1)}), flush=True)
    wrong = {
        c.name: c.reason for c in judgement.checks if c.verdict.value not in ("valid", "not due")
    }
    assert wrong == {}, wrong
    session.close()


def measured(run: Path) -> Mapping[str, float]:
    """Peak memory (MiB, by process) and seconds of one verification in a child process."""
    command = [sys.executable, __file__, "--once", str(run)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        watch = Memory(child.pid)
        watch.start()
        out, _ = child.communicate()
        peak = watch.stop()
    assert child.returncode == 0, f"the measured process ended with {child.returncode}"
    return {**peak, **json.loads(out)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", type=float, default=0.5)
    parser.add_argument("--large", type=float, default=2)
    parser.add_argument("--group", type=int, default=10)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--once", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.once:
        once(asked.once)
        return 0
    found: list[Mapping[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="linkflap-benchmark-") as temporary:
        for size in (asked.small, asked.large):
            run = (asked.folder or Path(temporary)) / f"{size:g}-{asked.group}"
            if not run.exists():
                write(run, int(size * 1e6), asked.group)
            found.append(measured(run))
            print(f"{size:g} million records: {json.dumps(found[-1])}", flush=True)
    more = (asked.large - asked.small) * 1e6
    costs = {
        part: round((found[1][part] - found[0][part]) * 2**20 / more)
        for part in ("all", "driver", "JVM", "workers")
    }
    print(f"bytes for each record more: {json.dumps(costs)} (target {TARGET})")
    return 0 if costs["all"] <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
