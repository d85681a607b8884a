"""The clients of a world: linkflap's own clients, in their processes, and those that the caller
makes in this process.

`linkflap.Producer` and `linkflap.Consumer` find their world by its bootstrap addresses. Every port
is leased, so no two worlds share one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import OWN_PRODUCER, WorkloadSpec
from linkflap.harness.model.security import Principal, entered_by, security_of
from linkflap.harness.rundir import RunWriter
from linkflap.harness.workloads.client import Numbers
from linkflap.harness.workloads.clients import WorkloadClients
from linkflap.harness.workloads.crew import Crew

CONSUMER: Final = "own-consumer"


class OwnClient(Protocol):
    """A client in this process that writes its history."""

    @property
    def cluster(self) -> str: ...
    @property
    def homes(self) -> frozenset[str]:
        """The home clusters of the topics that it wrote, from their names."""

    @property
    def transactional(self) -> bool: ...
    @property
    def open_transaction(self) -> bool: ...
    @property
    def committing(self) -> bool: ...
    def acknowledged_since(self, time: int) -> int: ...
    def let_go(self) -> None:
        """Called at the end of the run. Operations in flight get the outcome info, and nothing more
        is recorded."""


class OwnClients(WorkloadClients):
    """Both kinds of clients together, for faults and for the run. In a failover the caller moves
    its own clients itself."""

    def __init__(
        self,
        workloads: Sequence[Crew],
        writer: RunWriter,
        deployment: Deployment,
        *,
        groups: list[str],
        topics: Mapping[str, int],
        recorded: bool,
    ) -> None:
        """`topics` are the existing topics with their numbers of partitions, so that no client has
        to ask for them over a link that is cut. `recorded`: whether the writes to them are recorded
        on the wire."""
        super().__init__(workloads, writer)
        self.writer, self.topics = writer, topics
        self._deployment, self._groups, self._recorded = deployment, groups, recorded
        # shared with the client processes (`crew.make`)
        numbers = writer.root.resolve() / "logs" / "clients" / "numbers"
        numbers.parent.mkdir(parents=True, exist_ok=True)
        self.numbers = Numbers(Path(numbers))
        self._own: list[OwnClient] = []
        self._given: dict[str, int] = {}
        self._over = False
        self._lock = threading.Lock()
        _living.append(self)

    def cluster_at(self, bootstrap: str) -> str | None:
        """The cluster that an address leads to, directly or over a link; None if it belongs to
        another world."""
        asked = {address.strip() for address in bootstrap.split(",")}
        for name, cluster in self._deployment.clusters.items():
            if asked & set(cluster.bootstrap.split(",")):
                return name
        for link in self._deployment.links.values():
            if asked & set(link.bootstrap.split(",")):
                return link.source
        return None

    def entry(self, cluster: str, principal: Principal) -> Mapping[str, str | int | float | bool]:
        """librdkafka's security settings for a cluster."""
        return security_of(
            entered_by(self._deployment.clusters[cluster].bootstrap, principal)
        ).librdkafka()

    def take_in(self, client: OwnClient, kind: str) -> str:
        """Adds a new client; returns its name."""
        with self._lock:
            if self._over:
                raise InputError(
                    "the run is over: its clusters are stopping, and no new client can be made"
                )
            if kind != CONSUMER and self._recorded:
                raise InputError(
                    'record="wire" is for other clients, and the history of this one would be a '
                    "second one of the same records; write with another client at "
                    "world.recorded(…), or leave record out"
                )
            self._given[kind] = self._given.get(kind, 0) + 1
            self._own.append(client)
            return f"{kind}-{self._given[kind]}"

    def sample(self, group: str) -> None:
        """Samples the committed offsets of a group from now on."""
        with self._lock:
            if group and group not in self._groups:
                self._groups.append(group)

    def let_go(self) -> None:
        """Stops recording the caller's clients. Safe to call twice."""
        with self._lock:
            self._over = True
        if self in _living:
            _living.remove(self)
        for client in self._own:
            client.let_go()

    def stop(self) -> None:
        self.let_go()
        super().stop()

    @property
    def transactional(self) -> bool:
        """Whether any client writes in transactions."""
        return any(client.transactional for client in self._own) or super().transactional

    def workloads_of_own(self) -> list[WorkloadSpec]:
        """The workloads of the caller's producers for run.json: one for each home of the topics
        that they wrote."""
        homes = sorted({home for client in self._own for home in client.homes})
        return [WorkloadSpec(kind=OWN_PRODUCER, home=home) for home in homes]

    def open_transactions(self, cluster: str) -> int:
        own = sum(client.open_transaction for client in self._own if client.cluster == cluster)
        return own + super().open_transactions(cluster)

    def commits_in_flight(self, cluster: str) -> int:
        return sum(
            client.committing for client in self._own if client.cluster == cluster
        ) + super().commits_in_flight(cluster)

    def acknowledged_since(self, time: int, cluster: str) -> int:
        own = sum(
            client.acknowledged_since(time) for client in self._own if client.cluster == cluster
        )
        return own + super().acknowledged_since(time, cluster)


_living: Final[list[OwnClients]] = []


def at(bootstrap: object) -> tuple[OwnClients, str]:
    """The clients of the world that an address belongs to, and its cluster. Raises InputError if
    there is none."""
    for clients in list(_living):
        if isinstance(bootstrap, str) and (cluster := clients.cluster_at(bootstrap)):
            return clients, cluster
    raise InputError(
        f"bootstrap.servers {bootstrap!r} leads to no cluster of this process; give"
        ' world.cluster("A").bootstrap or world.link("A->B").bootstrap'
    )
