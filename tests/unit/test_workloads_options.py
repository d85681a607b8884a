"""Making workloads: options are checked before anything starts, names and numbers are unique,
random draws are seeded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.harness import workloads
from linkflap.harness.model.clock import now
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import MirrorSpec, Option, Scenario, WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.rundir import Run, RunWriter
from linkflap.harness.workloads import KINDS, context, first_cluster, relay
from linkflap.harness.workloads.client import Client, Tally
from linkflap.harness.workloads.clients import WorkloadClients
from linkflap.harness.workloads.context import Numbers
from linkflap.harness.workloads.crew import ClientNames, Crew, WorkloadProgress
from linkflap.harness.workloads.incarnation import Incarnation
from linkflap.harness.workloads.make_crew import make
from linkflap.harness.workloads.prefork import Prefork
from linkflap.harness.workloads.producers import Producing, TransactionalClient


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
    scenario = Scenario(
        name="x",
        about="",
        seed=1,
        topology=topology,
        mirror=MirrorSpec(kind="none"),
        workloads=(),
        schedule=(),
    )
    run = Run.begun(scenario, "process")
    writer = RunWriter(tmp_path / "run", run)
    yield writer
    writer.close("finished")


TOPICS = {"A.t": 3, "AB.t": 1, "B.t": 2}


def made(writer: RunWriter, kind: str, names: ClientNames | None = None, **options: Option) -> Crew:
    return make(
        WorkloadSpec(kind=kind, home="A", clients=4, options=options),
        addresses=Nowhere(
            clusters={"A": Somewhere(), "B": Somewhere()}, links={"*->A": Somewhere("127.0.0.1:2")}
        ),
        topics=TOPICS,
        writer=writer,
        seed=5,
        names=names or ClientNames(),
        forks=Prefork(),
    )


def hosted(
    writer: RunWriter, kind: str, name: str = "one", deaths: int = 0, **options: Option
) -> Client:
    """A client as its process creates it."""
    shared = context(
        WorkloadSpec(kind=kind, home="A", options=options),
        clusters={"A": "127.0.0.1:1", "B": "127.0.0.1:1"},
        links={"*->A": "127.0.0.1:2"},
        topics=TOPICS,
        writer=writer,
        seed=5,
        numbers=Numbers(writer.root / "numbers"),
        deaths=deaths,
    )
    return KINDS[kind].client(shared, name, first_cluster(shared))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_named_clients_for_its_home_only(writer: RunWriter, kind: str) -> None:
    names = ClientNames()
    crew, another = made(writer, kind, names), made(writer, kind, names)
    assert [[member.name for member in worker.members] for worker in crew.workers] == [
        [f"{kind}-1", f"{kind}-2", f"{kind}-3"],
        [f"{kind}-4"],
    ]
    assert [worker.name for worker in (*crew.workers, *another.workers)] == [
        f"clients-{n}" for n in range(1, 5)
    ]
    assert another.members[0].name == f"{kind}-5"
    assert set(crew.topics) == {"A.t"}
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
        ("writers", {}, "there is no workload 'writers'; known: transactional"),
    ],
)
def test_wrong_options_are_named_with_their_fix(
    writer: RunWriter, kind: str, options: dict[str, Option], words: str
) -> None:
    with pytest.raises(InputError) as error:
        made(writer, kind, **cast(dict[str, Any], options))
    assert words in str(error.value)


def test_a_home_without_topics_and_no_clients_are_wrong(writer: RunWriter) -> None:
    addresses = Nowhere(clusters={}, links={})
    for spec, words in (
        (WorkloadSpec(kind="idempotent", home="C"), "no topics of home C"),
        (WorkloadSpec(kind="idempotent", home="A", clients=0), "cannot have 0 clients"),
    ):
        with pytest.raises(InputError, match=words):
            make(
                spec,
                addresses=addresses,
                topics={"A.t": 1},
                writer=writer,
                seed=1,
                names=ClientNames(),
                forks=Prefork(),
            )


def test_proxied_clients_use_the_path_of_ordinary_clients(writer: RunWriter) -> None:
    assert hosted(writer, "idempotent").context.bootstrap("A") == "127.0.0.1:1"
    assert hosted(writer, "idempotent", via="proxy").context.bootstrap("A") == "127.0.0.1:2"


def test_plans_come_from_the_seed_and_spread_every_record(writer: RunWriter) -> None:
    plans = [
        drawn(writer, name, deaths)
        for name, deaths in (("one", 0), ("one", 0), ("two", 0), ("one", 1))
    ]
    assert plans[0] == plans[1]
    assert plans[0] not in plans[2:], (
        "another client draws others, and so does who comes after a dead one"
    )
    for plan in plans[0]:
        assert sum(count for _, _, count in plan) == 7
        assert len({partition for _, partition, _ in plan}) == len(plan) == 3


def test_producers_take_a_topic_that_has_grown_in_once_their_own_metadata_have_it(
    writer: RunWriter,
) -> None:
    client, known = hosted(writer, "idempotent", records=4, partitions=4), {"A.t": 3}
    assert isinstance(client, Producing)
    client.incarnation = cast(Incarnation, SimpleNamespace(partitions=known.__getitem__))

    def used() -> set[int]:
        return {partition for _ in range(20) for _, partition, _ in client.plan()}

    client.grown("A.t", 5)
    client.grown("B.t", 9)
    assert used() == {0, 1, 2}
    known["A.t"] = 4
    assert used() == {0, 1, 2, 3}
    known["A.t"] = 7
    assert used() == {0, 1, 2, 3, 4}
    assert set(client.context.topics) == {"A.t"}


def drawn(writer: RunWriter, name: str, deaths: int) -> list[Sequence[tuple[str, int, int]]]:
    client = hosted(writer, "transactional", name, deaths, records=7, partitions=3)
    assert isinstance(client, TransactionalClient)
    return [client.plan() for _ in range(5)]


def test_a_tally_counts_operations_that_returned_after_a_time() -> None:
    tally = Tally()
    tally.acknowledge("A", 3)
    between = now()
    tally.acknowledge("A", 4)
    tally.acknowledge("B", 5)
    assert [
        tally.acknowledged_since(t, c)
        for t, c in ((0, "A"), (between, "A"), (0, "B"), (now(), "A"), (0, "C"))
    ] == [
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
    assert clients.deaths() == []
    assert not [
        worker.name for crew in clients.workloads for worker in crew.workers if worker.alive
    ]


def test_producers_at_dead_clusters_alone_can_write_no_more(writer: RunWriter) -> None:
    both = WorkloadClients([made(writer, "readers"), made(writer, "transactional")], writer)
    assert both.can_write(["A", "B"])
    assert not both.can_write(["B"])
    assert not both.can_write([])
    assert WorkloadClients([made(writer, "readers")], writer).can_write([]), "nobody writes"


def test_workloads_that_were_never_started_can_be_stopped(writer: RunWriter) -> None:
    WorkloadClients([made(writer, "readers")], writer).stop()


def test_every_group_is_known_whether_its_workload_names_it_or_not() -> None:
    specs = [
        WorkloadSpec(kind="readers", home="A"),
        WorkloadSpec(kind="readers", home="A", options={"isolation": "read_uncommitted"}),
        WorkloadSpec(kind="readers", home="A", options={"assign": True}),
        WorkloadSpec(kind="readers", home="B", options={"group": "mine"}),
        WorkloadSpec(kind="relay", home="A"),
        WorkloadSpec(kind="transactional", home="A"),
    ]
    assert workloads.groups(specs) == [
        "linkflap.A.read_committed",
        "linkflap.A.read_uncommitted",
        relay.GROUP,
        "mine",
    ]
