"""The cost of recording a history: transactions with the history on, compared with the same
transactions with it off.

With the history on, it is the workload client as runs use it (harness.workloads.producers). It
writes two rows per transaction into a run directory, has one delivery callback per record, collects
ranges of acknowledged offsets, and gets the producer id from statistics every 100 ms. With the
history off, it is a plain loop of produce and commit, without callbacks or rows. The librdkafka
configuration (except statistics), keys, values, headers, transaction sizes and partitions are the
same. Both run alternately on one real broker; each figure is a median over the rounds.

    python benchmarks/history.py [--rounds 7] [--seconds 4] [--clients 1]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.model.payload import HEADER, LAYOUT, PROCESS_SHIFT, Values
from linkflap.harness.model.scenario import MirrorSpec, Option, Scenario, WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.model.wait import now, pause, until
from linkflap.harness.rundir import Run, RunWriter
from linkflap.harness.runtimes.process import ProcessDeployment, deploy
from linkflap.harness.workloads.clients import make
from linkflap.harness.workloads.crew import ClientNames
from linkflap.harness.workloads.library import producer_config
from linkflap.harness.workloads.prefork import Prefork

TOPIC, PARTITIONS, RECORDS, PER_TRANSACTION, SIZE, SEED = "A.history", 4, 100, 2, 1024, 7
OPTIONS: Mapping[str, Option] = {
    "rate": 0.0,
    "records": RECORDS,
    "partitions": PER_TRANSACTION,
    "value_size": SIZE,
    "abort_share": 0.0,
    "open_share": 0.0,
}
TARGET = 0.8


def with_history(
    deployment: ProcessDeployment,
    writer: RunWriter,
    names: ClientNames,
    clients: int,
    seconds: float,
) -> float:
    """Records per second that the workload's clients got acknowledged."""
    workload = make(
        WorkloadSpec(kind="transactional", home="A", clients=clients, options=OPTIONS),
        deployment=deployment,
        topics={TOPIC: PARTITIONS},
        writer=writer,
        seed=SEED,
        names=names,
        forks=Prefork(),
    )
    workload.start()
    until(
        lambda: workload.look() >= 0 and all(m.counts.acknowledged for m in workload.members),
        within=60,
        what="every client's first transaction",
    )
    before, started = workload.progress().acknowledged, now()
    pause(seconds, lambda: False)
    records, took = workload.progress().acknowledged - before, (now() - started) / 1e9
    workload.stop()
    return records / took


class Plain(threading.Thread):
    """Produces and commits, and keeps only a count."""

    def __init__(self, bootstrap: str, number: int) -> None:
        super().__init__(name=f"plain-{number}")
        config = producer_config(bootstrap, f"plain-{number}", timeout=10.0, compression="none")
        self._producer = Producer({**config, "statistics.interval.ms": 0})
        self._base = number << PROCESS_SHIFT
        self._values = Values(SEED, SIZE)
        self.stopping = threading.Event()
        self.records = 0

    def run(self) -> None:
        self._producer.init_transactions(60)
        uid, share = self._base, RECORDS // PER_TRANSACTION
        while not self.stopping.is_set():
            self._producer.begin_transaction()
            for part in range(PER_TRANSACTION):
                partition = (uid + part) % PARTITIONS
                for counter in range(share):
                    headers: list[tuple[str, str | bytes | None]] = [
                        (HEADER, LAYOUT.pack(uid, self._base, counter))
                    ]
                    self._producer.produce(
                        TOPIC,
                        self._values.value(uid),
                        self._values.key(uid),
                        partition,
                        headers=headers,
                    )
                    uid += 1
            self._producer.commit_transaction(60)
            self.records += RECORDS


def without_history(
    deployment: ProcessDeployment, first: int, clients: int, seconds: float
) -> float:
    """Records per second that plain loops committed."""
    threads = [Plain(deployment.clusters["A"].bootstrap, first + n) for n in range(clients)]
    for thread in threads:
        thread.start()
    until(
        lambda: all(t.records for t in threads),
        within=60,
        what="every plain producer's first transaction",
    )
    before, started = sum(t.records for t in threads), now()
    pause(seconds, lambda: False)
    records, took = sum(t.records for t in threads) - before, (now() - started) / 1e9
    for thread in threads:
        thread.stopping.set()
    for thread in threads:
        thread.join(60)
    return records / took


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--clients", type=int, default=1)
    asked = parser.parse_args()
    topology = Topology(clusters=(ClusterSpec(name="A"),), links=())
    scenario = Scenario(
        name="history",
        about="",
        seed=SEED,
        topology=topology,
        mirror=MirrorSpec(kind="none"),
        workloads=(),
        schedule=(),
    )
    run = Run.begun(scenario, "process")
    on: list[float] = []
    off: list[float] = []
    with tempfile.TemporaryDirectory(prefix="linkflap-history-") as folder:
        writer = RunWriter(Path(folder) / "run", run)
        names = ClientNames()
        with deploy(topology, folder=Path(folder) / "clusters", recorder=writer) as deployment:
            admin = AdminClient({"bootstrap.servers": deployment.clusters["A"].bootstrap})
            admin.create_topics(
                [
                    NewTopic(
                        TOPIC,
                        PARTITIONS,
                        1,
                        config={"retention.bytes": "67108864", "segment.bytes": "33554432"},
                    )
                ]
            )[TOPIC].result(timeout=60)
            # warms up the JIT compiler of the broker
            with_history(deployment, writer, names, asked.clients, 1.0)
            for number in range(asked.rounds):
                first = 1000 + number * asked.clients
                # alternates which of the two runs first
                for recorded in (True, False) if number % 2 else (False, True):
                    if recorded:
                        on.append(
                            with_history(deployment, writer, names, asked.clients, asked.seconds)
                        )
                    else:
                        off.append(without_history(deployment, first, asked.clients, asked.seconds))
        writer.close("finished")
    report(on, off, asked.clients)


def report(on: list[float], off: list[float], clients: int) -> None:
    """Prints one JSON document: the medians, their ratio, and the spread of the ratios of
    neighbouring rounds."""
    ratios = sorted(a / b for a, b in zip(on, off, strict=True))
    ratio = statistics.median(on) / statistics.median(off)
    figures = {
        "benchmark": "history",
        "clients": clients,
        "rounds": len(on),
        "records_per_second": {
            "on": round(statistics.median(on)),
            "off": round(statistics.median(off)),
        },
        "transactions_per_second": {
            "on": round(statistics.median(on) / RECORDS, 1),
            "off": round(statistics.median(off) / RECORDS, 1),
        },
        "ratio": round(ratio, 3),
        "ratio_of_rounds": {
            "lowest": round(ratios[0], 3),
            "median": round(statistics.median(ratios), 3),
            "highest": round(ratios[-1], 3),
        },
        "target": TARGET,
        "met": ratio >= TARGET,
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
