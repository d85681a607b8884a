"""Scenarios without a failover: an undisturbed run, lost brokers, killed clients."""

from __future__ import annotations

from linkflap.chaos.scenarios.base import (
    GROUP,
    ScenarioRequest,
    default_workloads,
    default_workloads_at_every_home,
)
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import FaultSpec, Scenario, WorkloadSpec
from linkflap.topologies import parse


def baseline(request: ScenarioRequest) -> Scenario:
    """A->B with no fault."""
    topology = request.topology or parse("A->B")
    return request.scenario(
        topology,
        name="baseline",
        about=f"{', '.join(link.name for link in topology.links)} with nothing broken",
        workloads=default_workloads_at_every_home(topology),
        schedule=(),
        duration=6.0,
    )


_LEAST = 3


def broker_loss(request: ScenarioRequest) -> Scenario:
    """A:3->B:3: one broker of A is killed, one of B paused, one of A restarted.

    Guarantee at stake: replication in a cluster (acks=all, min.insync.replicas 2) and transactions
    survive the loss of one broker (KIP-98, KIP-966). Afterwards replicas agree below the high
    watermark.
    """
    rng = request.rng
    topology = request.topology or parse("A:3->B:3")
    link = topology.links[0]
    for name in (link.source, link.destination):
        if (brokers := topology.cluster(name).brokers) < _LEAST:
            raise InputError(
                f"broker-loss takes brokers of both clusters away while the others go on: {name} "
                f"needs {_LEAST} or more and has {brokers}; write --topology "
                f"'{link.source}:{_LEAST}->{link.destination}:{_LEAST}'"
            )
    killed = rng.choice([1, 2, 3])
    return request.scenario(
        topology,
        name="broker-loss",
        about=(
            f"{link.name}; a broker of {link.source} is killed, one of {link.destination} paused, "
            f"another of {link.source} restarted"
        ),
        workloads=default_workloads(topology, link.source),
        schedule=(
            FaultSpec(
                id="kill",
                fault="broker-kill",
                target=f"{link.source}/{killed}",
                at=2.0,
                duration=5.0,
            ),
            FaultSpec(
                id="pause",
                fault="broker-pause",
                target=f"{link.destination}/{rng.choice([1, 2, 3])}",
                at=14.0,
                duration=5.0,
            ),
            FaultSpec(
                id="restart",
                fault="broker-restart",
                target=f"{link.source}/{killed % 3 + 1}",
                at=26.0,
                duration=1.0,
            ),
        ),
        duration=32.0,
    )


RELAY = "linkflap.relay"


def client_kill(request: ScenarioRequest) -> Scenario:
    """A->B: producers, relays and readers are killed during commits and transactions. Then A is
    killed, and clients are killed on B too.

    Guarantee at stake: a transaction in flight is committed or aborted on all its partitions, and
    no acknowledged record is lost (KIP-98, KIP-447). The dead client's successor uses the same
    transactional id, which fences the dead client and aborts its open transaction. A relay
    continues at the group's last commit. A violation is a torn transaction, an input with two
    outputs, or a transaction that stays open and blocks every read_committed reader.
    """
    rng = request.rng
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    home, there = link.source, link.destination

    def reader(cluster: str, isolation: str) -> WorkloadSpec:
        return WorkloadSpec(
            kind="readers",
            home=home,
            options={"cluster": cluster, "isolation": isolation, "assign": True},
        )

    def kill(
        id: str, target: str, workload: str, moment: str, when: str, at: float = 0.5
    ) -> FaultSpec:
        options = {"workload": workload, "moment": moment}
        return FaultSpec(
            id=id,
            fault="client-kill",
            target=target,
            at=at,
            duration=0.0,
            when=when,
            options=options,
        )

    start = round(rng.uniform(0.5, 1.5), 2)
    return request.scenario(
        topology,
        name="client-kill",
        about=(
            f"{link.name}; clients are killed with commits, transactions and reads in flight, on "
            f"{home} and, after a failover, on {there}"
        ),
        workloads=(
            WorkloadSpec(
                kind="transactional",
                home=home,
                clients=2,
                options={"rate": 12.0, "open_share": 0.1, "hold": 1.0},
            ),
            WorkloadSpec(kind="idempotent", home=home, options={"rate": 10.0}),
            WorkloadSpec(
                kind="relay",
                home=home,
                clients=2,
                options={"rate": 10.0, "group": RELAY, "abort_share": 0.1},
            ),
            WorkloadSpec(kind="readers", home=home, options={"group": GROUP}),
            *(
                reader(cluster, isolation)
                for cluster in (home, there)
                for isolation in ("read_committed", "read_uncommitted")
            ),
        ),
        schedule=(
            kill("commit", home, "transactional", "commit", "under-way", start),
            kill(
                "open", home, "transactional", "transaction", "after:commit and open-transactions"
            ),
            kill("relay", home, "relay", "commit", "after:commit and commit-in-flight"),
            kill("send", home, "idempotent", "any", "after:relay"),
            kill("reader", home, "readers", "any", "after:relay"),
            FaultSpec(
                id="failover",
                fault="failover-forced",
                target=link.name,
                at=round(rng.uniform(0.5, 1.5), 2),
                duration=0.0,
                when="after:open,relay,send,reader and seen-on-both-sides and open-transactions",
            ),
            kill(
                "commit-there",
                there,
                "transactional",
                "commit",
                "after:failover and commit-in-flight",
                1.0,
            ),
            kill("relay-there", there, "relay", "commit", "after:commit-there"),
        ),
        duration=14.0,
    )
