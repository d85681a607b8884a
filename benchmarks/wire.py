"""The cost of a recorder before a broker, for one client, against the same client without it.

    python benchmarks/wire.py [rounds] [seconds]

Four loads, each as fast as it goes: records of 1 KB in large batches, written (MB/s) and read
(MB/s read), single records in small requests (requests/s), and one record at a time (median
milliseconds until it is acknowledged). Baseline *direct*: the same client at the broker's own
listener; rounds are interleaved, and medians compared: the ratio of rates, the milliseconds that
are added, and the CPU time of the recorder's process for each GB or million requests. Exits 1 if it
needs more than one core for 50 MB/s either way, or for 5,000 requests a second.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from linkflap.harness.model.protocols import WireRecording
from linkflap.harness.rundir.files import EventLog
from linkflap.harness.runtimes.process import deploy
from linkflap.topologies import parse

TOPIC = "A.t"
LARGE, SMALL = b"x" * 1024, b"x" * 100
Load = Callable[[str, float], tuple[float, float]]
"""Runs at an address for some seconds; returns the result, and how much went by the wire: MB or
requests."""


def throughput(bootstrap: str, seconds: float) -> tuple[float, float]:
    config = {"linger.ms": 20, "batch.size": 900_000, "queue.buffering.max.kbytes": 65536}
    sent, took = _flood(bootstrap, seconds, LARGE, config)
    return sent * len(LARGE) / 1e6 / took, sent * len(LARGE) / 1e6


def requests(bootstrap: str, seconds: float) -> tuple[float, float]:
    config = {"linger.ms": 0, "batch.num.messages": 1, "queue.buffering.max.messages": 500}
    sent, took = _flood(bootstrap, seconds, SMALL, config)
    return sent / took, sent


def reading(bootstrap: str, seconds: float) -> tuple[float, float]:
    """From the beginning, which `throughput` has written."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    consumer.consume(1, 30)
    size, began = 0, time.monotonic()
    while time.monotonic() < began + seconds:
        size += sum(len(each.value() or b"") for each in consumer.consume(5000, 1))
    took = time.monotonic() - began
    consumer.close()
    return size / 1e6 / took, size / 1e6


def latency(bootstrap: str, seconds: float) -> tuple[float, float]:
    producer = _producer(bootstrap, {"linger.ms": 0})
    producer.produce(TOPIC, SMALL)
    producer.flush(30)
    taken, ends = [], time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.monotonic()
        producer.produce(TOPIC, SMALL)
        producer.flush(30)
        taken.append((time.monotonic() - began) * 1000)
    return statistics.median(taken), len(taken)


def _flood(
    bootstrap: str, seconds: float, value: bytes, config: Mapping[str, object]
) -> tuple[int, float]:
    producer, sent = _producer(bootstrap, config), 0
    producer.produce(TOPIC, value)
    producer.flush(30)
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        try:
            producer.produce(TOPIC, value)
            sent += 1
        except BufferError:
            producer.poll(0.01)
    producer.flush(60)
    return sent, time.monotonic() - began


def _producer(bootstrap: str, config: Mapping[str, object]) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **config})


LOADS: Mapping[str, Load] = {
    "MB/s": throughput,
    "MB/s read": reading,
    "requests/s": requests,
    "ms": latency,
}
AT_MOST = {"MB/s": 50.0, "MB/s read": 50.0, "requests/s": 5000.0}


def main(rounds: int, seconds: float) -> int:
    results: dict[tuple[str, str], list[float]] = defaultdict(list)
    used: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        events = EventLog(root / "events.jsonl")
        wire = WireRecording(root=root, topics=frozenset({TOPIC}), reads=frozenset({TOPIC}))
        with deploy(parse("A->B"), folder=root / "logs", recorder=events, wire=wire) as deployment:
            deployment.clusters["A"].create_topic(TOPIC, partitions=1)
            recorder = deployment.recorders["A"]
            assert recorder.pid is not None
            process = psutil.Process(recorder.pid)
            paths = {"direct": deployment.clusters["A"].bootstrap, "recorded": recorder.bootstrap}
            for _ in range(rounds):
                for unit, load in LOADS.items():
                    for name, bootstrap in paths.items():
                        before = sum(process.cpu_times()[:2])
                        result, done = load(bootstrap, seconds)
                        results[unit, name].append(result)
                        if name == "recorded":
                            used[unit].append((sum(process.cpu_times()[:2]) - before) / done)
        events.close()
    failed = False
    for unit in LOADS:
        direct, recorded = (statistics.median(results[unit, name]) for name in paths)
        print(f"{unit}: direct {direct:.2f}, recorded {recorded:.2f}", end=", ")
        if unit not in AT_MOST:
            print(f"{recorded - direct:.2f} {unit} added")
            continue
        seconds = statistics.median(used[unit])
        cores = seconds * AT_MOST[unit]
        failed |= cores > 1
        each = (
            f"GB: {seconds * 1e3:.1f}" if "MB" in unit else f"million requests: {seconds * 1e6:.0f}"
        )
        print(
            f"ratio {recorded / direct:.2f}, CPU seconds for each {each}, "
            f"{cores:.2f} cores at {AT_MOST[unit]:g} {unit}"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*(int(each) for each in (*sys.argv[1:], "3", "5")[:2])))
