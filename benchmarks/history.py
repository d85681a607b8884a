"""The cost of recording a history: transactions that the client records, and transactions that a
recorder on the wire records, compared with the same transactions that nobody records.

*client*: the workload client as runs use it (harness.workloads.producers). It writes two rows per
transaction into a run directory, has one delivery callback per record, collects ranges of
acknowledged offsets, and gets the producer id from statistics every 100 ms. *off*: a plain loop of
produce and commit, without callbacks or rows. *wire*: that loop, whose connections pass the
recorder of `record = "wire"`. The librdkafka configuration (except statistics), keys, values,
headers, transaction sizes and partitions are the same. All run in turn on one real broker; each
figure is a median over the rounds. CPU seconds are those of clients and recorder, without the
broker's.

    python benchmarks/history.py [--rounds 7] [--seconds 4] [--clients 1]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.model.payload import HEADER, LAYOUT, PROCESS_SHIFT, Values
from linkflap.harness.model.protocols import WireRecording
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
Figure = tuple[float, float]
"""Records per second, and CPU seconds for each million records."""
HOW = ("client", "wire", "off")


def with_history(
    deployment: ProcessDeployment,
    writer: RunWriter,
    names: ClientNames,
    clients: int,
    seconds: float,
) -> Figure:
    """Of the workload's clients, by the records that they got acknowledged."""
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
    figure = measured(lambda: workload.progress().acknowledged, seconds)
    workload.stop()
    return figure


def measured(acknowledged: Callable[[], int], seconds: float) -> Figure:
    before, used, started = acknowledged(), cpu_seconds(), now()
    pause(seconds, lambda: False)
    records, took = acknowledged() - before, (now() - started) / 1e9
    return records / took, (cpu_seconds() - used) / records * 1e6


def cpu_seconds() -> float:
    """Of this process and those that it started, but for the broker."""
    every = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(each.cpu_times()[:2]) for each in every if each.name() != "java")


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


def plain(bootstrap: str, first: int, clients: int, seconds: float) -> Figure:
    """Of plain loops, by the records that they committed."""
    threads = [Plain(bootstrap, first + n) for n in range(clients)]
    for thread in threads:
        thread.start()
    until(
        lambda: all(t.records for t in threads),
        within=60,
        what="every plain producer's first transaction",
    )
    figure = measured(lambda: sum(t.records for t in threads), seconds)
    for thread in threads:
        thread.stopping.set()
    for thread in threads:
        thread.join(60)
    return figure


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
    figures: dict[str, list[Figure]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="linkflap-history-") as folder:
        writer = RunWriter(Path(folder) / "run", run)
        names = ClientNames()
        wire = WireRecording(root=Path(folder) / "wire", topics=frozenset({TOPIC}))
        with deploy(
            topology, folder=Path(folder) / "clusters", recorder=writer, wire=wire
        ) as deployment:
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
            paths = {
                "off": deployment.clusters["A"].bootstrap,
                "wire": deployment.recorders["A"].bootstrap,
            }
            # warms up the JIT compiler of the broker
            with_history(deployment, writer, names, asked.clients, 1.0)
            for number in range(asked.rounds * len(HOW)):
                at, turn = divmod(number, len(HOW))
                how = HOW[(at + turn) % len(HOW)]  # another one is first in each round
                first = 1000 + number * asked.clients
                figures[how].append(
                    with_history(deployment, writer, names, asked.clients, asked.seconds)
                    if how == "client"
                    else plain(paths[how], first, asked.clients, asked.seconds)
                )
        writer.close("finished")
    report(figures, asked.clients)


def report(figures: Mapping[str, Sequence[Figure]], clients: int) -> None:
    """Prints one JSON document: the medians, their ratios, and the spread of the ratios of
    neighbouring rounds."""
    rates, costs = (
        {how: statistics.median(each[n] for each in figures[how]) for how in HOW} for n in (0, 1)
    )
    print(
        json.dumps(
            {
                "benchmark": "history",
                "clients": clients,
                "rounds": len(figures["off"]),
                "records_per_second": {how: round(rate) for how, rate in rates.items()},
                "transactions_per_second": {
                    how: round(rate / RECORDS, 1) for how, rate in rates.items()
                },
                "cpu_seconds_per_million_records": {
                    how: round(cost, 1) for how, cost in costs.items()
                },
                "ratios": [
                    ratio(figures, *pair)
                    for pair in (("client", "off"), ("wire", "off"), ("wire", "client"))
                ],
                "target": TARGET,
                "met": rates["client"] / rates["off"] >= TARGET,
            },
            indent=1,
        )
    )


def ratio(figures: Mapping[str, Sequence[Figure]], one: str, other: str) -> Mapping[str, object]:
    """Of the rates, and of the CPU seconds: lowest, median and highest of the rounds."""
    pairs = list(zip(figures[one], figures[other], strict=True))
    found = {
        name: sorted(mine[n] / theirs[n] for mine, theirs in pairs)
        for n, name in enumerate(("records_per_second", "cpu_seconds"))
    }
    return {
        "of": f"{one} to {other}",
        **{
            name: [round(each, 3) for each in (of[0], statistics.median(of), of[-1])]
            for name, of in found.items()
        },
    }


if __name__ == "__main__":
    main()
