"""Java clients on real brokers: every workload writes the same history with them, also mixed with
librdkafka's, and is judged; and the bridge to a JVM."""

from __future__ import annotations

import gc
import secrets
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from _pytest.mark import ParameterSet
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from linkflap.api.fixtures import FixtureRun
from linkflap.chaos.cases.wire import TRANSACTION, Wire
from linkflap.chaos.scenarios import SCENARIOS
from linkflap.harness.capture.logs import Captures
from linkflap.harness.jvm import Bridge
from linkflap.harness.machine.java import java_for
from linkflap.harness.model.history import Operation
from linkflap.harness.model.scenario import WorkloadSpec, transactional_id_of
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec, Topology
from linkflap.harness.rundir import Run, RunReader, RunWriter
from linkflap.harness.runtimes.distribution.kafka import kafka
from linkflap.harness.runtimes.process import ProcessDeployment, deploy
from linkflap.harness.workloads import jvms
from linkflap.harness.workloads.clients import WorkloadClients
from linkflap.spark_verify.checks import REGISTRY, finding_rows
from tests.cells import topology
from tests.run_copy import views
from tests.scenarios import scenario_of
from tests.waiting import eventually
from tests.workload_rig import clients_of, topics_made

WRITES = {"rate": 20.0, "records": 10}
EVERY = (
    WorkloadSpec(
        kind="transactional",
        home="A",
        clients=2,
        library="java,librdkafka",
        options={**WRITES, "open_share": 0.05},
    ),
    WorkloadSpec(kind="idempotent", home="A", library="java", options=WRITES),
    WorkloadSpec(kind="zombie", home="A", library="java", options={**WRITES, "rate": 2.0}),
    WorkloadSpec(
        kind="relay",
        home="A",
        library="java",
        options={"rate": 20.0, "batch": 50, "abort_share": 0.2},
    ),
    WorkloadSpec(
        kind="readers",
        home="A",
        clients=2,
        library="java,librdkafka",
        options={"group": "g", "commit_every": 0.2},
    ),
    WorkloadSpec(
        kind="readers",
        home="A",
        library="java",
        options={"assign": True, "isolation": "read_uncommitted"},
    ),
)
ENOUGH = 1500


@dataclass(frozen=True)
class Recording:
    writer: RunWriter
    deployment: ProcessDeployment
    clients: WorkloadClients


@contextmanager
def recording(
    folder: Path,
    workloads: tuple[WorkloadSpec, ...],
    before: Callable[[ProcessDeployment], None] = lambda _: None,
) -> Iterator[Recording]:
    """A broker with these workloads running; captured and closed after the block. `before` is
    called on it first."""
    alone = Topology(clusters=(ClusterSpec(name="A"),), links=())
    workloads = jvms.resolve(workloads, alone)
    scenario = scenario_of(alone, seed=7, workloads=workloads)
    run = Run.begun(scenario, "process")
    writer = RunWriter(folder, run)
    with deploy(alone, folder=folder.parent / "clusters", recorder=writer) as deployment:
        there = topics_made(deployment.clusters["A"], workloads)
        before(deployment)
        clients = clients_of(workloads, deployment, writer, there)
        clients.start()
        try:
            yield Recording(writer, deployment, clients)
            clients.stop_producers()
        finally:
            clients.stop()
        assert clients.crashes == []
        Captures(deployment, writer).take("1-end", "A")
    writer.close("finished")


def at_work(clients: WorkloadClients) -> bool:
    """Whether every client has written or read, and there is enough of everything."""
    done = clients.progress()
    members = [member for crew in clients.workloads for member in crew.members]
    each = all(sum(m.counts.acknowledged.values()) + m.counts.read >= 30 for m in members)
    return (
        each and done.acknowledged >= ENOUGH and done.aborts >= 3 and done.read_committed >= ENOUGH
    )


def found(folder: Path) -> dict[str, set[str]]:
    """The findings of all checks' kernels in a run, by check."""
    every = list(views(folder))
    kinds: dict[str, set[str]] = defaultdict(set)
    for name, check in REGISTRY.items():
        rows = [row for view in every for row in finding_rows.examine(check, view)]
        if check.combine is not None:
            rows += finding_rows.combined(
                check, "run", [row for row in rows if row.finding == "partial"]
            )
        kinds[name] |= {row.kind for row in rows if row.finding == "found"}
    return {name: each for name, each in kinds.items() if each}


def test_every_workload_with_java_clients_and_mixed_ones(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with recording(folder, EVERY) as made:
        eventually(
            "every client to be at work",
            lambda: at_work(made.clients),
            state=made.clients.progress,
            within=240,
        )
    assert found(folder) == {}
    operations, damage = RunReader(folder).operations()
    assert not damage
    ended = [
        o
        for o in operations
        if o.phase == "return" and o.kind == "transaction" and o.outcome == "ok"
    ]
    assert all(o.producer_id >= 0 for o in ended)
    # KIP-890: with Java's clients each transaction has a new epoch, with librdkafka's most have the
    # epoch of the one before.
    assert bumps(ended, "transactional-1") == {True}
    assert False in bumps(ended, "transactional-2")


def bumps(ended: list[Operation], client: str) -> set[bool]:
    """Whether the epoch rose from a transaction to the next."""
    mine = [o for o in ended if o.client == client]
    return {later.producer_epoch > before.producer_epoch for before, later in pairwise(mine)}


LAST_EPOCH = 32_767


def nearly_used_up(deployment: ProcessDeployment) -> None:
    """Each initialisation of a transactional id raises its epoch, until few are left."""
    asked = Wire(deployment.clusters["A"].brokers[1].client_address)
    name = transactional_id_of("transactional-1")
    try:
        asked.coordinator(name, TRANSACTION)  # so that there is one
        while asked.init_producer_id(name).epoch < LAST_EPOCH - 20:
            pass
    finally:
        asked.close()


@pytest.mark.nightly
def test_a_producer_id_whose_epochs_are_used_up_rolls_over_to_a_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with recording(folder, EVERY[:1], nearly_used_up) as made:
        eventually(
            "commits",
            lambda: made.clients.progress().commits >= 150,
            state=made.clients.progress,
            within=300,
        )
    assert found(folder) == {}
    operations, _ = RunReader(folder).operations()
    mine = [
        o
        for o in operations
        if o.client == "transactional-1" and o.phase == "return" and o.outcome == "ok"
    ]
    ids = list(dict.fromkeys(o.producer_id for o in mine if o.producer_id >= 0))
    assert len(ids) == 2
    assert {o.process for o in mine if o.producer_id == ids[0]} == {
        o.process for o in mine if o.producer_id == ids[1]
    }
    assert max(o.producer_epoch for o in mine if o.producer_id == ids[0]) == LAST_EPOCH - 1
    assert min(o.producer_epoch for o in mine if o.producer_id == ids[1]) == 0


@pytest.mark.nightly
def test_clients_whose_jvm_dies_begin_anew(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with recording(folder, EVERY[:1]) as made:
        eventually("commits", lambda: made.clients.progress().commits >= 5, within=240)
        worker = made.clients.workloads[0].workers[0]
        (jvm,) = [
            child
            for child in psutil.Process(worker.pid).children()
            if "GatewayServer" in " ".join(child.cmdline())
        ]
        jvm.kill()
        eventually("the process of its clients to end", made.clients.deaths)
        eventually(
            "its clients to begin anew", lambda: made.clients.done_since_restart(worker.name)
        )
    (died,) = made.clients.deaths()
    assert died.event.status == 4
    assert found(folder) == {}


NIGHTLY = [pytest.mark.nightly, pytest.mark.spark]


def of(scenario: str, clients: str, **more: str) -> ParameterSet:
    """A scenario with these clients, for the fixture."""
    marks = [
        *NIGHTLY,
        pytest.mark.linkflap(scenario=scenario, clients=clients, seed=secrets.randbits(32), **more),
    ]
    return pytest.param("-".join((scenario, clients, *more.values())), marks=marks)


@pytest.mark.parametrize(
    "name",
    [
        *(of(name, "java", topology=topology(name, "")) for name in SCENARIOS),
        of("link-flap", "java,librdkafka"),
        of("relay", "java,librdkafka", topology=topology("relay", "")),
        of("link-flap", "java@3.9.2"),
        of("failover-open-transactions", "java@3.9.2"),
        of("link-flap", "java@4.3.1", topology="A@3.9.2->B@3.9.2"),
        of("link-flap", "java", mirror="mm2"),
    ],
)
def test_scenarios_with_java_clients_are_valid(linkflap_run: FixtureRun, name: str) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


# The bridge to a JVM: which callers get a result, and what is left once that JVM is gone.


def test_objects_that_outlive_their_jvm_are_collected_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bridge = Bridge(java_for(DEFAULT_KAFKA), kafka(DEFAULT_KAFKA).classpath, tmp_path)
    held = bridge.java.java.util.ArrayList()
    bridge.close()
    del held
    gc.collect()
    assert not caplog.records


@pytest.mark.nightly
def test_a_jvm_answers_on_loopback_to_who_has_its_token_and_dies_with_its_owner(
    tmp_path: Path,
) -> None:
    bridge = Bridge(java_for(DEFAULT_KAFKA), "", tmp_path)
    parameters = bridge.gateway.gateway_parameters
    assert len(parameters.auth_token) >= 32
    assert parameters.auth_token not in (tmp_path / "java-clients.log").read_text()
    listening = [
        c
        for c in psutil.Process(bridge.child.pid).net_connections()
        if c.status == psutil.CONN_LISTEN
    ]
    assert {c.laddr.ip.removeprefix("::ffff:") for c in listening} == {"127.0.0.1"}
    for token in (None, "x" * len(parameters.auth_token)):
        stranger = JavaGateway(
            gateway_parameters=GatewayParameters(port=parameters.port, auth_token=token)
        )
        with pytest.raises(Py4JError):
            stranger.jvm.java.lang.System.nanoTime()
    assert bridge.java.java.lang.System.nanoTime()
    bridge.close()
    with pytest.raises(OSError, match=r"refused"):
        socket.create_connection(("127.0.0.1", parameters.port), timeout=5)
