"""A workload: the clients of one spec, in processes of a few each; started, paused, moved, drained and stopped together."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from linkflap.harness.model.clients import Library, libraries
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.events import Event
from linkflap.harness.model.history import Operation, Poll
from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.model.security import OPEN, Principal, entered_by, security_of
from linkflap.harness.model.wait import patient, until
from linkflap.harness.rundir import Appender, RunWriter
from linkflap.harness.workloads import KINDS, context, first_cluster, jvms
from linkflap.harness.workloads.client import GRACE
from linkflap.harness.workloads.members import Member
from linkflap.harness.workloads.numbers import Numbers
from linkflap.harness.workloads.protocol import Host, Hosted
from linkflap.harness.workloads.readers import ReaderClient
from linkflap.harness.workloads.share_group import LOCK_MS, ShareClient
from linkflap.harness.workloads.worker import Worker

SETTLE_WITHIN = 3 * GRACE
JOIN_WITHIN = 6 * GRACE
PER_PROCESS: Final = 3
"""Clients of one process. It costs about 20 MB and 0.2 CPU seconds; what dies with it is what these had in flight."""
Ends = Mapping[str, Mapping[tuple[str, int], int]]
"""cluster -> (topic, partition) -> offset."""
QUIET_FOR: Final = LOCK_MS / 1000 + 5.0
"""Seconds: what a member that is gone had acquired is given to others within that time."""


class Address(Protocol):
    """Something with bootstrap servers: a Cluster, or a Link."""

    @property
    def bootstrap(self) -> str: ...


class Addresses(Protocol):
    """The part of a Deployment that clients need."""

    @property
    def clusters(self) -> Mapping[str, Address]: ...
    @property
    def links(self) -> Mapping[str, Address]: ...


class Names:
    """Names that no other client, and no other process of clients, of the run has: `transactional-1`, `clients-1`."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def next(self, kind: str) -> str:
        """Of this kind, the next."""
        number = self._given[kind] = self._given.get(kind, 0) + 1
        return f"{kind}-{number}"


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


class Crew:
    """Some clients with one purpose (harness.model.protocols.Workload). Calls come from one thread, questions from any."""

    def __init__(self, spec: WorkloadSpec, workers: Sequence[Worker], topics: Mapping[str, int]) -> None:
        self.workers = workers
        self.topics = topics
        self._spec = spec

    @property
    def spec(self) -> WorkloadSpec:
        return self._spec

    @property
    def members(self) -> Sequence[Member]:
        """The clients, as they said last."""
        return [member for worker in self.workers for member in worker.members]

    @property
    def crashes(self) -> list[str]:
        """Clients that ended by an error of ours, `name: reason` each; and processes that died too often to be started again."""
        crashed = [f"{member.name}: {member.state.crash}" for member in self.members if member.state.crash]
        return [*crashed, *(worker.given_up for worker in self.workers if worker.given_up)]

    def prepare(self) -> None:
        """Starts the processes, whose clients wait for `start`. Raises SetupError."""
        for worker in self.workers:
            worker.prepare()

    def start(self) -> None:
        """Has the clients begin; operations do when their cluster answers."""
        for worker in self.workers:
            worker.start()

    def look(self, *, cluster: str = "", since: int = 0) -> int:
        """Asks every process how its clients are; what they acknowledged on a cluster since a time."""
        return sum([worker.look(cluster=cluster, since=since) for worker in self.workers])

    def pause(self, cluster: str) -> None:
        """Lets operations in flight on this cluster end; what did not within the grace is info. Readers read on."""

    def grown(self, topic: str, partitions: int) -> None:
        """Lets the clients know that a topic has so many partitions now."""
        for worker in self.workers:
            worker.grown(topic, partitions)

    @property
    def follows(self) -> bool:
        """Whether clients go along when their cluster fails over."""
        return True

    def ask_to_move(self, source: str, destination: str, *, drained: bool) -> Sequence[Member]:
        """Asks the clients of `source` to go on at `destination`; those that were asked."""
        asked: list[Member] = []
        for worker in self.workers:
            here = [member for member in worker.members if member.cluster == source and self.follows]
            if here:
                worker.move(here, destination, drained=drained)
            asked += here
        return asked

    def ask_to_stop(self) -> None:
        """Asks every client to stop; `stop` waits for it too."""
        for worker in self.workers:
            worker.stop()

    def stop(self) -> None:
        """No new operations; those in flight end, or are info after the grace. Transactions held open are aborted where the
        cluster still answers. No process is left; DeadlineExceeded when one had to be killed."""
        self.ask_to_stop()
        for worker in self.workers:
            worker.join(JOIN_WITHIN)

    def drain(self, ends: Ends, *, within: float) -> None:
        """Producers do nothing."""

    def open_transactions(self, cluster: str) -> int:
        """Transactions that have written something and are not ended, on this cluster, now."""
        return 0

    def commits_in_flight(self, cluster: str) -> int:
        """Commits that were asked for and not answered, on this cluster, now."""
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
        """Records that its readers on a cluster were given; None where it has none there."""
        return None


class Producers(Crew):
    """Producing clients of one kind."""

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
        return sum(member.state.committing and member.state.cluster == cluster for member in self.members)

    def progress(self) -> WorkloadProgress:
        counts = super().progress()
        return counts + WorkloadProgress(open=sum(member.state.open for member in self.members))


class Readers(Crew):
    """Readers of one home's topics, in one isolation, on one cluster at a time."""

    def __init__(
        self, spec: WorkloadSpec, workers: Sequence[Worker], topics: Mapping[str, int], pattern: ReaderClient | ShareClient
    ) -> None:
        super().__init__(spec, workers, topics)
        self._follows, self._group, self._isolation = pattern.follows, pattern.group, pattern.isolation

    @property
    def follows(self) -> bool:
        return self._follows

    def progress(self) -> WorkloadProgress:
        counts = super().progress()
        read = sum(member.counts.read for member in self.members)
        committed = self._isolation == "read_committed"
        return counts + WorkloadProgress(read_committed=read * committed, read_uncommitted=read * (not committed))

    def read_on(self, cluster: str) -> int | None:
        self.look()
        there = [member.counts.read for member in self.members if member.state.cluster == cluster]
        return sum(there) if there else None

    def drain(self, ends: Ends, *, within: float) -> None:
        """Reads on until every partition that `ends` has of the readers' topics and cluster was read to its end: by one
        reader of the group, or by each reader with fixed partitions. Writes a row of kind drained for each reader that got
        there, and one of kind error for what was not reached in time; raises nothing, because the verdict judges that. A
        reader that is killed after it got there and before it wrote that is waited for again, as the one after it."""
        try:
            until(lambda: self._concluded(ends), within=within, what="readers to reach the ends and to write that")
        except DeadlineExceeded:
            self._conclude(ends, self._missing(ends))

    def _concluded(self, ends: Ends) -> bool:
        """Has readers write that they are at the ends, once all are; whether all have."""
        self.look()
        if not self._missing(ends):
            self._conclude(ends, {})
        return not any(self._undrained(member, ends) for member in self.members)

    def _conclude(self, ends: Ends, missing: Mapping[str, str]) -> None:
        for worker in self.workers:
            for member in worker.members:
                due = self._undrained(member, ends) if member.obeyed else {}
                reached = [tp for tp, end in due.items() if member.positions.get(tp, -1) >= end]
                if reached or member.name in missing:
                    worker.drained(member, reached=reached, missing=missing.get(member.name, ""))

    def _peers(self, member: Member) -> Sequence[Member]:
        """Who reads the partitions of a reader with it: its group's members, or nobody else."""
        return [m for m in self.members if m.cluster == member.cluster] if self._group else [member]

    def _undrained(self, member: Member, ends: Ends) -> dict[tuple[str, int], int]:
        """What is due of it, and neither it nor its group has written yet to have read to the end."""
        peers = self._peers(member)
        due = self._due(member, ends).items()
        return {tp: end for tp, end in due if all(peer.drained.get(tp, -1) < end for peer in peers)}

    def _due(self, member: Member, ends: Ends) -> dict[tuple[str, int], int]:
        return {tp: end for tp, end in ends.get(member.cluster, {}).items() if tp[0] in self.topics}

    def _missing(self, ends: Ends) -> dict[str, str]:
        """Per reader, what it or its group has not reached."""
        missing: dict[str, str] = {}
        for member in self.members:
            positions = [peer.positions for peer in self._peers(member)]
            short = [
                f"{topic}-{partition} at {at} of {end}"
                for (topic, partition), end in self._undrained(member, ends).items()
                if (at := max(mine.get((topic, partition), -1) for mine in positions)) < end
            ]
            if short:
                missing[member.name] = ", ".join(short)
        return missing


class ShareGroup(Readers):
    """Members of a share group."""

    def drain(self, ends: Ends, *, within: float) -> None:
        """Reads on until the group is done with every partition up to its end, or is given nothing more; then a member writes
        how far the group's coordinator holds it to be done.

        A group need not be done with the markers at the end of a log, so that its end is not always reached. Nothing is claimed
        by having waited: what lies behind that start offset was not read to the end for the verdict either.
        """
        quiet = _Quiet()
        with contextlib.suppress(DeadlineExceeded):
            until(lambda: self._over(ends, quiet), within=within, what="share groups to have nothing left")
        for worker in self.workers:
            for member in worker.members:
                if due := self._due(member, ends):
                    worker.drained(member, reached=list(due), missing="")
        with contextlib.suppress(DeadlineExceeded):
            until(lambda: self.look() >= 0 and self._settled(ends), within=within, what="share groups to say how far they are")

    def _over(self, ends: Ends, quiet: _Quiet) -> bool:
        self.look()
        return not self._missing(ends) or quiet.since(sum(member.counts.read for member in self.members)) > QUIET_FOR

    def _settled(self, ends: Ends) -> bool:
        return all(member.drained.keys() >= self._due(member, ends).keys() for member in self.members)


class _Quiet:
    """How long a number has stayed the same."""

    def __init__(self) -> None:
        self._number, self._changed = -1, time.monotonic()

    def since(self, number: int) -> float:
        """Seconds since it changed."""
        if number != self._number:
            self._number, self._changed = number, time.monotonic()
        return time.monotonic() - self._changed


class _Nowhere:
    """Where a client writes that is made only to see whether its options are right."""

    def __init__(self) -> None:
        self._opened: list[Appender[Operation] | Appender[Poll]] = []

    def operations(self, client: str) -> Appender[Operation]:
        appender: Appender[Operation] = Appender(Path(os.devnull))
        self._opened.append(appender)
        return appender

    def polls(self, reader: str) -> Appender[Poll]:
        appender: Appender[Poll] = Appender(Path(os.devnull))
        self._opened.append(appender)
        return appender

    def write(self, event: Event, /) -> None: ...

    def close(self) -> None:
        for appender in self._opened:
            appender.close()


def _shared_out(hosted: Sequence[Hosted], every: Sequence[Library]) -> Iterator[tuple[Library, Sequence[Hosted]]]:
    """The clients of each process, which are of one library; several libraries take turns, client by client."""
    for number, library in enumerate(every):
        own = hosted[number :: len(every)]
        for first in range(0, len(own), PER_PROCESS):
            yield library, own[first : first + PER_PROCESS]


def make(
    spec: WorkloadSpec, *, addresses: Addresses, topics: Mapping[str, int], writer: RunWriter, seed: int, names: Names
) -> Crew:
    """A workload that is not started yet.

    `addresses` is the Deployment (only bootstrap servers are taken from it); `topics` is topic -> partitions of all homes,
    of which those named `<home>.*` are used; `names` is one object for the whole run. Raises InputError.
    """
    clusters = {name: str(cluster.bootstrap) for name, cluster in addresses.clusters.items()}
    links = {name: str(link.bootstrap) for name, link in addresses.links.items()}
    root = writer.root.resolve()  # processes of clients work in a folder of their own
    nowhere, numbers = _Nowhere(), root / "logs" / "clients" / "numbers"
    try:
        shared = context(spec, clusters=clusters, links=links, topics=topics, writer=nowhere, seed=seed, numbers=Numbers(numbers))
        cluster = first_cluster(shared)
        pattern = KINDS[spec.kind].client(shared, "", cluster)
    finally:
        nowhere.close()
    principal: Principal = "reader" if KINDS[spec.kind].reads else "client"
    entries = {name: security_of(entered_by(cluster.bootstrap, principal)) for name, cluster in addresses.clusters.items()}
    hosted = [Hosted(name=names.next(spec.kind), cluster=cluster) for _ in range(spec.clients)]
    host = Host(
        spec=spec,
        topics=topics,
        seed=seed,
        clusters=clusters,
        links=links,
        root=str(root),
        numbers=str(numbers),
        clients=(),
        entries={name: entry for name, entry in entries.items() if entry != OPEN},
    )
    workers = []
    for library, some in _shared_out(hosted, libraries(spec.library)):
        name = names.next("clients")
        vm = jvms.jvm(library, root / "logs" / "clients" / f"{name}-jvm.log")
        workers.append(Worker(name, msgspec.structs.replace(host, clients=tuple(some), jvm=vm), writer))
    if isinstance(pattern, ReaderClient):
        return Readers(spec, workers, shared.topics, pattern)
    if isinstance(pattern, ShareClient):
        return ShareGroup(spec, workers, shared.topics, pattern)
    return Producers(spec, workers, shared.topics)
