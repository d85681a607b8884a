"""A workload: the clients of one spec, started, paused, moved, drained and stopped together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from harness.model.errors import DeadlineExceeded
from harness.model.scenario import WorkloadSpec
from harness.model.wait import until
from harness.workloads.client import GRACE, Client
from harness.workloads.producers import Producing
from harness.workloads.readers import ReaderClient

C = TypeVar("C", bound=Client)
SETTLE_WITHIN = 3 * GRACE
JOIN_WITHIN = 6 * GRACE


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadProgress:
    """Counts so far, over all clients: records acknowledged, records of confirmed aborts, transactions confirmed as committed
    and as aborted, transactions open now, records read per isolation, errors noticed (librdkafka's notices included)."""

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


class Crew(Generic[C]):
    """Some clients with one purpose (harness.model.protocols.Workload). Calls come from one thread, `progress` from any."""

    def __init__(self, spec: WorkloadSpec, clients: Sequence[C]) -> None:
        self._spec = spec
        self.clients = clients

    @property
    def spec(self) -> WorkloadSpec:
        return self._spec

    @property
    def crashes(self) -> list[str]:
        """Clients that died of an error of ours: `name: reason` each."""
        return [f"{client.name}: {client.crash}" for client in self.clients if client.crash]

    def start(self) -> None:
        """Starts one thread per client; operations begin when their cluster answers."""
        for client in self.clients:
            client.start()

    def pause(self, cluster: str) -> None:
        """Lets operations in flight on this cluster end; what did not within the grace is info. Readers read on."""

    def grown(self, topic: str, partitions: int) -> None:
        """Lets the clients that have to do with this topic know that it has so many partitions now."""
        for client in self.clients:
            client.grown(topic, partitions)

    def follows(self, client: C) -> bool:
        """Whether a client goes along when its cluster fails over."""
        return True

    def ask_to_move(self, source: str, destination: str, *, drained: bool) -> Sequence[C]:
        """Asks the clients of `source` to go on at `destination`; those that were asked."""
        asked = [client for client in self.clients if client.cluster == source and self.follows(client)]
        for client in asked:
            client.move(destination, drained=drained)
        return asked

    def ask_to_stop(self) -> None:
        """Asks every client to stop; `stop` waits for it too."""
        for client in self.clients:
            client.stop()

    def stop(self) -> None:
        """No new operations; those in flight end, or are info after the grace. Transactions held open are aborted where the
        cluster still answers. No thread is left; DeadlineExceeded when one is."""
        self.ask_to_stop()
        for client in self.clients:
            client.join(JOIN_WITHIN)

    def drain(self, ends: Mapping[str, Mapping[tuple[str, int], int]], *, within: float) -> None:
        """Producers do nothing."""

    def open_transactions(self, cluster: str) -> int:
        """Transactions that have written something and are not ended, on this cluster, now."""
        return 0

    def acknowledged_since(self, time: int, cluster: str) -> int:
        """Records acknowledged on this cluster by operations that returned after `time`."""
        return sum(client.tally.acknowledged_since(time, cluster) for client in self.clients)

    def progress(self) -> WorkloadProgress:
        """Counts so far; cheap, and safe from any thread."""
        tallies = [client.tally for client in self.clients]
        return WorkloadProgress(
            acknowledged=sum(t.acknowledged for t in tallies),
            aborted=sum(t.aborted for t in tallies),
            commits=sum(t.commits for t in tallies),
            aborts=sum(t.aborts for t in tallies),
            errors=sum(t.errors for t in tallies),
        )


class Producers(Crew[Producing]):
    """Producing clients of one kind."""

    def pause(self, cluster: str) -> None:
        here = [client for client in self.clients if client.cluster == cluster]
        for client in here:
            client.pause()
        until(
            lambda: all(client.settled for client in here),
            within=SETTLE_WITHIN,
            what=f"producers of {cluster} to end what they had in flight",
            state=lambda: [client.name for client in here if not client.settled],
        )

    def open_transactions(self, cluster: str) -> int:
        return sum(client.open_transaction and client.cluster == cluster for client in self.clients)

    def progress(self) -> WorkloadProgress:
        counts = super().progress()
        return counts + WorkloadProgress(open=sum(client.open_transaction for client in self.clients))


class Readers(Crew[ReaderClient]):
    """Readers of one home's topics, in one isolation, on one cluster at a time."""

    def follows(self, client: ReaderClient) -> bool:
        return client.follows

    def progress(self) -> WorkloadProgress:
        counts = super().progress()
        read = sum(client.tally.read for client in self.clients)
        committed = bool(self.clients) and self.clients[0].isolation == "read_committed"
        return counts + WorkloadProgress(read_committed=read * committed, read_uncommitted=read * (not committed))

    def drain(self, ends: Mapping[str, Mapping[tuple[str, int], int]], *, within: float) -> None:
        """Reads on until every partition that `ends` has of the readers' topics and cluster was read to its end: by one
        reader of the group, or by each reader with fixed partitions. Writes a row of kind drained for each reader that got
        there, and one of kind error for what was not reached in time; raises nothing, because the verdict judges that."""
        try:
            until(lambda: not self._missing(ends), within=within, what="readers to reach the ends")
        except DeadlineExceeded:
            for client, missing in self._missing(ends).items():
                client.not_drained(missing)
        for client in self.clients:
            due = self._due(client, ends)
            reached = [place for place, end in due.items() if client.positions.get(place, -1) >= end]
            if reached:
                client.drained(reached)

    def _due(self, client: ReaderClient, ends: Mapping[str, Mapping[tuple[str, int], int]]) -> dict[tuple[str, int], int]:
        topics = client.context.topics
        return {place: end for place, end in ends.get(client.cluster, {}).items() if place[0] in topics}

    def _missing(self, ends: Mapping[str, Mapping[tuple[str, int], int]]) -> dict[ReaderClient, str]:
        """Per reader, what it or its group has not reached."""
        missing: dict[ReaderClient, str] = {}
        for client in self.clients:
            peers = [c for c in self.clients if c.cluster == client.cluster] if client.group else [client]
            short = [
                f"{topic}-{partition} at {at} of {end}"
                for (topic, partition), end in self._due(client, ends).items()
                if (at := max(peer.positions.get((topic, partition), -1) for peer in peers)) < end
            ]
            if short:
                missing[client] = ", ".join(short)
        return missing
