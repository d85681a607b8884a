"""The clients of one workload, in processes of a few each; started, paused, moved, drained and
stopped together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.model.wait import patient, until
from linkflap.harness.workloads.client import GRACE
from linkflap.harness.workloads.members import Member
from linkflap.harness.workloads.worker import Worker

Ends = Mapping[str, Mapping[tuple[str, int], int]]
"""cluster -> (topic, partition) -> offset."""

SETTLE_WITHIN = 3 * GRACE
JOIN_WITHIN = 6 * GRACE


class Bootstrap(Protocol):
    """Something with bootstrap servers: a Cluster, or a Link."""

    @property
    def bootstrap(self) -> str: ...


class Addresses(Protocol):
    """The part of a Deployment that clients need."""

    @property
    def clusters(self) -> Mapping[str, Bootstrap]: ...
    @property
    def links(self) -> Mapping[str, Bootstrap]: ...


class ClientNames:
    """Names that no other client, and no other process of clients, of the run has:
    `transactional-1`, `clients-1`."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def next(self, kind: str) -> str:
        """The next name of this kind."""
        number = self._given[kind] = self._given.get(kind, 0) + 1
        return f"{kind}-{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadProgress:
    """Counts so far, over all clients: records acknowledged, records of confirmed aborts,
    transactions confirmed as committed and as aborted, transactions open now, records read per
    isolation, errors noticed (librdkafka's notices included)."""

    acknowledged: int = 0
    aborted: int = 0
    commits: int = 0
    aborts: int = 0
    open: int = 0
    read_committed: int = 0
    read_uncommitted: int = 0
    errors: int = 0

    def __add__(self, other: WorkloadProgress) -> WorkloadProgress:
        return WorkloadProgress(
            acknowledged=self.acknowledged + other.acknowledged,
            aborted=self.aborted + other.aborted,
            commits=self.commits + other.commits,
            aborts=self.aborts + other.aborts,
            open=self.open + other.open,
            read_committed=self.read_committed + other.read_committed,
            read_uncommitted=self.read_uncommitted + other.read_uncommitted,
            errors=self.errors + other.errors,
        )


class Crew:
    """Some clients with one purpose (harness.model.protocols.Workload). One thread makes calls; any
    thread may ask questions."""

    def __init__(
        self, spec: WorkloadSpec, workers: Sequence[Worker], topics: Mapping[str, int]
    ) -> None:
        self.workers = workers
        self.topics = topics
        self._spec = spec

    @property
    def spec(self) -> WorkloadSpec:
        return self._spec

    @property
    def members(self) -> Sequence[Member]:
        """The clients, by their last report."""
        return [member for worker in self.workers for member in worker.members]

    @property
    def crashes(self) -> list[str]:
        """Clients that ended with an error in linkflap, `name: reason` each; and processes that
        died too often to be restarted."""
        crashed = [
            f"{member.name}: {member.state.crash}" for member in self.members if member.state.crash
        ]
        return [*crashed, *(worker.given_up for worker in self.workers if worker.given_up)]

    def prepare(self) -> None:
        """Starts the processes, whose clients wait for `start`. Raises SetupError."""
        for worker in self.workers:
            worker.prepare()

    def start(self) -> None:
        """Makes the clients begin; their operations begin once their cluster answers."""
        for worker in self.workers:
            worker.start()

    def look(self, *, cluster: str = "", since: int = 0) -> int:
        """Asks every process for the state of its clients; returns what they acknowledged on a
        cluster since a time."""
        return sum([worker.look(cluster=cluster, since=since) for worker in self.workers])

    def pause(self, cluster: str) -> None:
        """Lets operations in flight on this cluster end; after the grace period they are info.
        Readers continue."""

    def grown(self, topic: str, partitions: int) -> None:
        """Reports a topic's new partition count to the clients."""
        for worker in self.workers:
            worker.grown(topic, partitions)

    @property
    def follows(self) -> bool:
        """Whether clients move to the destination when their cluster fails over."""
        return True

    def ask_to_move(self, source: str, destination: str, *, drained: bool) -> Sequence[Member]:
        """Asks the clients of `source` to move to `destination`; returns the clients that it
        asked."""
        asked: list[Member] = []
        for worker in self.workers:
            here = [
                member for member in worker.members if member.cluster == source and self.follows
            ]
            if here:
                worker.move(here, destination, drained=drained)
            asked += here
        return asked

    def ask_to_stop(self) -> None:
        """Asks every client to stop; `stop` waits for it too."""
        for worker in self.workers:
            worker.stop()

    def stop(self) -> None:
        """Begins no new operations. Those in flight end, or are info after the grace period. Open
        transactions are aborted where the cluster still answers. All processes have ended when it
        returns; raises DeadlineExceeded when one had to be killed."""
        self.ask_to_stop()
        for worker in self.workers:
            worker.join(JOIN_WITHIN)

    def drain(self, ends: Ends, *, within: float) -> None:
        """Producers do nothing."""

    def open_transactions(self, cluster: str) -> int:
        """The number of transactions on this cluster that have written records and are open now."""
        return 0

    def commits_in_flight(self, cluster: str) -> int:
        """The number of commits on this cluster that are requested and not answered now."""
        return 0

    def acknowledged_since(self, time: int, cluster: str) -> int:
        """Records acknowledged on this cluster by operations that returned after `time`."""
        return self.look(cluster=cluster, since=time)

    def progress(self) -> WorkloadProgress:
        """Counts so far; safe from any thread."""
        self.look()
        counts = [member.counts for member in self.members]
        return WorkloadProgress(
            acknowledged=sum(sum(c.acknowledged.values()) for c in counts),
            aborted=sum(c.aborted for c in counts),
            commits=sum(c.commits for c in counts),
            aborts=sum(c.aborts for c in counts),
            errors=sum(c.errors for c in counts),
        )

    def read_on(self, cluster: str) -> int | None:
        """Records that its readers on a cluster have received; None where it has none there."""
        return None


class Producers(Crew):
    """Producing clients of one kind."""

    @property
    def clusters(self) -> frozenset[str]:
        """The clusters on which they are."""
        return frozenset(member.cluster for member in self.members)

    def pause(self, cluster: str) -> None:
        here: list[Member] = []
        for worker in self.workers:
            mine = [member for member in worker.members if member.cluster == cluster]
            worker.pause(mine)
            here += mine
        until(
            lambda: self.look() >= 0 and all(member.settled for member in here),
            within=patient(SETTLE_WITHIN),
            what=f"producers of {cluster} to end what they had in flight",
            state=lambda: [member.name for member in here if not member.settled],
        )

    def open_transactions(self, cluster: str) -> int:
        self.look()
        return sum(member.state.open and member.state.cluster == cluster for member in self.members)

    def commits_in_flight(self, cluster: str) -> int:
        self.look()
        return sum(
            member.state.committing and member.state.cluster == cluster for member in self.members
        )

    def progress(self) -> WorkloadProgress:
        counts = super().progress()
        return counts + WorkloadProgress(open=sum(member.state.open for member in self.members))
