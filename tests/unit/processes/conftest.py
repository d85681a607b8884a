"""Clients in processes, of clusters that do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from linkflap.harness.model.scenario import MirrorSpec, Scenario, WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.rundir import Run, RunWriter
from linkflap.harness.workloads.clients import WorkloadClients
from linkflap.harness.workloads.crew import ClientNames
from linkflap.harness.workloads.make_crew import make
from linkflap.harness.workloads.prefork import Prefork


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunWriter]:
    """A run directory as a user may name it: relative to the directory in which the harness
    started."""
    monkeypatch.chdir(tmp_path)
    topology = Topology(clusters=(ClusterSpec(name="A"), ClusterSpec(name="B")), links=())
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
    writer = RunWriter(Path("run"), run)
    yield writer
    writer.close("finished")


@pytest.fixture
def clients(writer: RunWriter) -> Iterator[WorkloadClients]:
    """Two producers in one process and a reader in another, of clusters that do not answer."""
    names, forks = ClientNames(), Prefork()
    addresses = SimpleNamespace(
        clusters={n: SimpleNamespace(bootstrap="127.0.0.1:1") for n in "AB"}, links={}
    )
    specs = (
        WorkloadSpec(kind="transactional", home="A", clients=2),
        WorkloadSpec(kind="readers", home="A", options={"group": "g"}),
    )
    crews = [
        make(
            spec,
            addresses=addresses,
            topics={"A.t": 2},
            writer=writer,
            seed=1,
            names=names,
            forks=forks,
        )
        for spec in specs
    ]
    clients = WorkloadClients(crews, writer)
    yield clients
    clients.stop()
    assert not [
        worker.name for crew in clients.workloads for worker in crew.workers if worker.alive
    ]
