"""Making workloads: options are checked before anything is started, names and numbers are unique, draws are seeded."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.model.clock import now
from harness.model.errors import InputError
from harness.model.scenario import MirrorSpec, Option, Scenario, WorkloadSpec
from harness.model.topology import ClusterSpec, Topology
from harness.rundir import FORMAT, Run, RunWriter
from harness.workloads import KINDS, Crew, Processes, make
from harness.workloads.client import Tally
from harness.workloads.clients import WorkloadClients
from harness.workloads.crew import WorkloadProgress


@dataclass(frozen=True)
class Somewhere:
    bootstrap: str = "127.0.0.1:1"


@dataclass(frozen=True)
class Nowhere:
    clusters: Mapping[str, Somewhere]
    links: Mapping[str, Somewhere]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RunWriter]:
    topology = Topology(clusters=(ClusterSpec(name="A"),), links=())
    scenario = Scenario(name="x", about="", seed=1, topology=topology, mirror=MirrorSpec(kind="none"), workloads=(), schedule=())
    run = Run(
        format=FORMAT, linkflap="0", command="", runtime="process", status="running", started=now(), ended=0, scenario=scenario
    )
    writer = RunWriter(tmp_path / "run", run)
    yield writer
    writer.close("finished")


def made(writer: RunWriter, kind: str, processes: Processes | None = None, **options: Option) -> Crew:
    return make(
        WorkloadSpec(kind=kind, home="A", clients=2, options=options),
        addresses=Nowhere(clusters={"A": Somewhere(), "B": Somewhere()}, links={"*->A": Somewhere("127.0.0.1:2")}),
        topics={"A.t": 3, "AB.t": 1, "B.t": 2},
        writer=writer,
        seed=5,
        processes=processes or Processes(),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_named_clients_for_its_home_only(writer: RunWriter, kind: str) -> None:
    crew = made(writer, kind)
    assert [client.name for client in crew.clients] == [f"{kind}-1", f"{kind}-2"]
    assert {topic for client in crew.clients for topic in client.context.topics} == {"A.t"}
    assert crew.progress() == WorkloadProgress()


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("transactional", {"abort_share": 1.5}, "abort_share=1.5; give a number from 0 to 1"),
        ("transactional", {"records": "many"}, "records='many'; give a number from 1"),
        ("transactional", {"compression": "rar"}, "compression='rar'; give one of none"),
        ("transactional", {"colour": 1}, "colour=1; it knows abort_share"),
        ("idempotent", {"hold": 1}, "hold=1; it knows"),
        ("readers", {"assign": 1}, "assign=1; give true or false"),
        ("readers", {"isolation": "none"}, "isolation='none'; give one of read_committed"),
        ("readers", {"via": "tunnel"}, "via='tunnel'; give one of direct, proxy"),
        ("zombie", {"rate": True}, "rate=True; give a number"),
        ("writers", {}, "there is no workload 'writers'; there are transactional"),
    ],
)
def test_wrong_options_are_named_with_their_mend(writer: RunWriter, kind: str, options: dict[str, Option], words: str) -> None:
    with pytest.raises(InputError) as error:
        made(writer, kind, **options)
    assert words in str(error.value)


def test_a_home_without_topics_and_no_clients_are_wrong(writer: RunWriter) -> None:
    addresses = Nowhere(clusters={}, links={})
    for spec, words in (
        (WorkloadSpec(kind="idempotent", home="C"), "no topics of home C"),
        (WorkloadSpec(kind="idempotent", home="A", clients=0), "cannot have 0 clients"),
    ):
        with pytest.raises(InputError, match=words):
            make(spec, addresses=addresses, topics={"A.t": 1}, writer=writer, seed=1, processes=Processes())


def test_proxied_clients_use_the_path_of_ordinary_clients(writer: RunWriter) -> None:
    assert made(writer, "idempotent").clients[0].context.bootstrap("A") == "127.0.0.1:1"
    assert made(writer, "idempotent", via="proxy").clients[0].context.bootstrap("A") == "127.0.0.1:2"


def test_plans_come_from_the_seed_and_spread_every_record(writer: RunWriter) -> None:
    plans = [[made(writer, "transactional", records=7, partitions=3).clients[1].plan() for _ in range(5)] for _ in range(2)]
    assert plans[0] == plans[1]
    for plan in plans[0]:
        assert sum(count for _, _, count in plan) == 7
        assert len({partition for _, partition, _ in plan}) == len(plan) == 3


def test_producers_take_a_topic_that_has_grown_in_once_their_own_metadata_have_it(writer: RunWriter) -> None:
    crew = made(writer, "idempotent", records=4, partitions=4)
    client, known = crew.clients[0], {"A.t": 3}
    client.incarnation = SimpleNamespace(partitions=known.__getitem__)

    def used() -> set[int]:
        return {partition for _ in range(20) for _, partition, _ in client.plan()}

    crew.grown("A.t", 5)
    crew.grown("B.t", 9)
    assert used() == {0, 1, 2}
    known["A.t"] = 4
    assert used() == {0, 1, 2, 3}
    known["A.t"] = 7
    assert used() == {0, 1, 2, 3, 4}
    assert set(client.context.topics) == {"A.t"}


def test_numbers_are_unique_over_threads() -> None:
    processes = Processes()
    numbers: list[int] = []
    threads = [threading.Thread(target=lambda: numbers.extend(processes.next() for _ in range(500))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 2001))
    assert [processes.client("a"), processes.client("b"), processes.client("a")] == ["a-1", "b-1", "a-2"]


def test_a_tally_counts_operations_that_returned_after_a_time() -> None:
    tally = Tally()
    tally.acknowledge("A", 3)
    between = now()
    tally.acknowledge("A", 4)
    tally.acknowledge("B", 5)
    assert [tally.acknowledged_since(t, c) for t, c in ((0, "A"), (between, "A"), (0, "B"), (now(), "A"), (0, "C"))] == [
        7,
        4,
        5,
        0,
        0,
    ]
    assert tally.acknowledged == 12


@pytest.mark.parametrize("kind", KINDS)
def test_clients_of_a_cluster_that_never_answers_stop_at_once(writer: RunWriter, kind: str) -> None:
    clients = WorkloadClients([made(writer, kind)], writer)
    clients.start()
    started = now()
    clients.stop()
    clients.stop()
    assert (now() - started) / 1e9 < 10
    assert clients.crashes == []
    assert not [t.name for t in threading.enumerate() if t.name.startswith(kind)]


def test_workloads_that_were_never_started_can_be_stopped(writer: RunWriter) -> None:
    WorkloadClients([made(writer, "readers")], writer).stop()
