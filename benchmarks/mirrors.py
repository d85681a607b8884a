"""The cost of the shadow mirror compared with MirrorMaker 2: the same topic, the same kind of link,
the same Kafka release.

Each mirror is measured for each record size, on its own pair of one-broker clusters. The mirror is
started and warmed up with some data. Then the link is cut, records are written to the source, and
the link is restored. Measured are the time until this lag is copied, the CPU time of the mirror and
of the destination's broker, and the mirror's largest resident memory. Then records are written at a
steady rate, the link is cut for ten seconds, and the time until the lag is gone is measured. The
cost of the shadow for 200 idle partitions is measured last.

    python benchmarks/mirrors.py [--megabytes 256] [--sizes 100,1024,10240] [--partitions 4]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.mirrors import make_mirror
from linkflap.harness.model.events import Kind, stamped
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.wait import now, pause, until
from linkflap.harness.runtimes.process import deploy
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection
from linkflap.harness.wire.librdkafka import quiet
from linkflap.topologies import parse

TOPIC = "A.records"
WARM_BYTES = 16 << 20
STEADY_BYTES = 1 << 20
"""Bytes per second that are written during the cut of ten seconds."""
CUT_SECONDS = 10.0
IDLE_PARTITIONS, IDLE_SECONDS, IDLE_CORES = 200, 20.0, 0.04
TIMES_PER_CPU_SECOND = 5.0
MEMORY_BYTES = 200_000_000
WITHIN = 900.0
MARKS = {
    "shadow": "linkflap.harness.mirrors.shadow",
    "mm2": "org.apache.kafka.connect.mirror.MirrorMaker",
}
"""A text in the command line of each mirror's process, by which the process is found."""


class Events:
    """Ignores all events."""

    def write(self, event: Kind, /) -> Kind:
        return stamped(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One mirror copying a lag: bytes of records as written, seconds of wall and CPU time, resident
    bytes."""

    size: int
    seconds: float
    mirror_cpu: float
    destination_cpu: float
    memory: int
    after_cut: float

    def figures(self) -> dict[str, float]:
        """The figures as they are printed."""
        megabytes = self.size / 1e6
        return {
            "MB/s": round(megabytes / self.seconds, 1),
            "mirror: CPU s/GB": round(1000 * self.mirror_cpu / megabytes, 2),
            "destination: CPU s/GB": round(1000 * self.destination_cpu / megabytes, 2),
            "mirror: MB per CPU s": round(megabytes / self.mirror_cpu, 1),
            "memory, MB": round(self.memory / 1e6),
            "seconds behind after a 10 s cut": round(self.after_cut, 2),
        }


class Watched:
    """The CPU time and the largest memory of one process."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self.largest = 0

    @property
    def cpu(self) -> float:
        """CPU seconds so far. Also samples the memory."""
        self.largest = max(self.largest, self._process.memory_info().rss)
        times = self._process.cpu_times()
        return float(times.user + times.system)


def child(holds: str) -> Watched:
    """The child process whose command line contains the text."""
    (found,) = [
        p for p in psutil.Process().children(recursive=True) if holds in " ".join(p.cmdline())
    ]
    return Watched(found)


class Writer:
    """Fills the topic with plain records of one size, evenly over its partitions."""

    def __init__(self, bootstrap: str, partitions: int, size: int) -> None:
        self._producer = Producer(
            quiet(bootstrap)
            | {"linger.ms": 20, "batch.size": 1 << 20, "queue.buffering.max.messages": 1_000_000}
        )
        self._partitions, self._value = partitions, b"v" * size
        self.written = 0

    def write(self, size: int) -> None:
        """Writes about `size` bytes, and waits until they are acknowledged."""
        for _ in range(max(1, size // len(self._value))):
            while True:
                try:
                    self._producer.produce(
                        TOPIC, self._value, partition=self.written % self._partitions
                    )
                    break
                except BufferError:
                    self._producer.poll(0.05)
            self.written += 1
        until(
            lambda: self._producer.flush(1) == 0, within=WITHIN, what="records to be acknowledged"
        )


@contextmanager
def mirrored(kind: str, partitions: int) -> Iterator[tuple[Deployment, Callable[[], int]]]:
    """A pair with a running mirror, and a function that counts the topic's records on the
    destination."""
    with (
        tempfile.TemporaryDirectory(prefix="linkflap-mirrors-") as folder,
        deploy(parse("A->B"), folder=Path(folder), recorder=Events()) as deployment,
    ):
        source = AdminClient(quiet(deployment.clusters["A"].bootstrap))
        source.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(60)
        make_mirror(
            MirrorSpec(kind=kind), deployment.topology.links[0], deployment, Events()
        ).start()
        with asyncio.Runner() as runner:
            broker = Connection(deployment.clusters["B"].brokers[1].client_address)
            yield deployment, lambda: runner.run(held_by(broker, partitions))
            broker.close()


async def held_by(broker: Connection, partitions: int) -> int:
    """The number of the topic's records on this broker, as leader or follower. The broker answers
    it to a debugging consumer, so the mirror is not involved."""
    m = messages.request("list_offsets", 7)
    rows = tuple(
        m.ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(partitions)
    )
    body = m.ListOffsetsRequest(
        replica_id=-2, isolation_level=0, topics=(m.ListOffsetsTopic(name=TOPIC, partitions=rows),)
    )
    (topic,) = (await broker.call("list_offsets", 7, body, within=20)).topics
    return sum(max(0, int(row.offset)) for row in topic.partitions)


def cost(kind: str, size: int, megabytes: int, partitions: int) -> Cost:
    """Measures one mirror with one record size."""
    with mirrored(kind, partitions) as (deployment, arrived):
        mirror, broker = (
            child(MARKS[kind]),
            child(str(deployment.clusters["B"].brokers[1].log.parent / "server.properties")),
        )
        link = deployment.links["A->B"]
        writer = Writer(deployment.clusters["A"].bootstrap, partitions, size)

        def level() -> bool:
            _ = mirror.cpu, broker.cpu  # samples the memory
            return arrived() >= writer.written

        writer.write(WARM_BYTES)
        until(level, within=WITHIN, every=0.05, what="the first records to be mirrored")
        link.cut()
        before = writer.written
        writer.write(megabytes << 20)
        started, mirror_cpu, broker_cpu = now(), mirror.cpu, broker.cpu
        link.restore()
        until(level, within=WITHIN, every=0.05, what="the lag to be mirrored", state=arrived)
        return Cost(
            size=(writer.written - before) * size,
            seconds=(now() - started) / 1e9,
            mirror_cpu=mirror.cpu - mirror_cpu,
            destination_cpu=broker.cpu - broker_cpu,
            memory=mirror.largest,
            after_cut=after_cut(deployment, writer, level),
        )


def after_cut(deployment: Deployment, writer: Writer, level: Callable[[], bool]) -> float:
    """Seconds from the end of a cut of ten seconds until the mirror has caught up, with a steady
    write rate."""
    link, stop = deployment.links["A->B"], threading.Event()

    def arrive() -> None:
        while not stop.is_set():
            writer.write(STEADY_BYTES // 10)
            stop.wait(0.1)

    arriving = threading.Thread(target=arrive)
    arriving.start()
    pause(2.0, lambda: False)
    link.cut()
    pause(CUT_SECONDS, lambda: False)
    stop.set()
    arriving.join()
    restored = now()
    link.restore()
    until(level, within=WITHIN, every=0.02, what="what was written during the cut to be mirrored")
    return (now() - restored) / 1e9


def idle() -> float:
    """Cores that the shadow uses for 200 partitions without writes."""
    with mirrored("shadow", IDLE_PARTITIONS):
        shadow = child(MARKS["shadow"])
        pause(5.0, lambda: False)
        before, started = shadow.cpu, now()
        pause(IDLE_SECONDS, lambda: False)
        return (shadow.cpu - before) / ((now() - started) / 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--sizes", default="100,1024,10240")
    parser.add_argument("--partitions", type=int, default=4)
    asked = parser.parse_args()
    rows = {}
    met = True
    for size in map(int, asked.sizes.split(",")):
        of = {
            kind: cost(kind, size, asked.megabytes, asked.partitions) for kind in ("mm2", "shadow")
        }
        ratio = (of["shadow"].size / of["shadow"].mirror_cpu) / (
            of["mm2"].size / of["mm2"].mirror_cpu
        )
        met &= ratio >= TIMES_PER_CPU_SECOND and of["shadow"].memory < MEMORY_BYTES
        rows[f"{size} B"] = {
            **{kind: each.figures() for kind, each in of.items()},
            "ratio per CPU second": round(ratio, 1),
        }
    cores = idle()
    met &= cores < IDLE_CORES
    figures = {
        "benchmark": "mirrors",
        "baseline": "mm2",
        "megabytes of lag": asked.megabytes,
        "records": rows,
        f"shadow: cores for {IDLE_PARTITIONS} idle partitions": round(cores, 3),
        "target": {
            "ratio per CPU second": TIMES_PER_CPU_SECOND,
            "memory, MB": round(MEMORY_BYTES / 1e6),
            "idle cores": IDLE_CORES,
        },
        "met": met,
    }
    print(json.dumps(figures, indent=1))
    raise SystemExit(not met)


if __name__ == "__main__":
    main()
