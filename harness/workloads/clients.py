"""All workload clients of a run together: the object that faults receive
(harness.model.protocols.Clients), and that a run drives. `make_all` creates the workloads: crews of
linkflap's own clients, distributed among processes of a few each, and programs of the user's.

Order at the end of a run: `stop_producers`, then `drain` of the readers, then `stop`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from linkflap.harness.model.errors import DeadlineExceeded, InputError
from linkflap.harness.model.events import ClientsMoved
from linkflap.harness.model.protocols import Deployment, DiedProcess, Moment, Program, Recorder
from linkflap.harness.model.scenario import (
    COMMAND,
    Library,
    WorkloadSpec,
    libraries,
    through_recorders,
)
from linkflap.harness.model.security import OPEN, Principal, entered_by, security_of
from linkflap.harness.model.wait import patient, until
from linkflap.harness.rundir import RunWriter
from linkflap.harness.workloads import (
    KINDS,
    check,
    command,
    context,
    first_cluster,
    groups,
    jvms,
    share_group,
    topics_for,
)
from linkflap.harness.workloads.client import Numbers
from linkflap.harness.workloads.command import Command
from linkflap.harness.workloads.crew import (
    ClientNames,
    Crew,
    Producers,
    Readers,
    ShareGroup,
    WorkloadProgress,
)
from linkflap.harness.workloads.prefork import Prefork
from linkflap.harness.workloads.protocol import ClientState, Host, Hosted, KillAt
from linkflap.harness.workloads.worker import Worker

_WORDS: Final[Mapping[Moment, str]] = {
    "any": "anything",
    "transaction": "an open transaction",
    "commit": "a commit",
}


def is_at(state: ClientState, moment: Moment) -> bool:
    """Whether a client last reported that it has this in flight."""
    return {
        "any": True,
        "transaction": state.open and not state.committing,
        "commit": state.committing,
    }[moment]


MOVE_WITHIN: Final = 30.0
READY_WITHIN: Final = 180.0


class WorkloadClients:
    """The clients of several workloads. Each call is thread-safe."""

    def __init__(self, workloads: Sequence[Crew], recorder: Recorder) -> None:
        self.workloads = workloads
        self._recorder = recorder

    def prepare(self) -> None:
        """Starts the processes of all clients, which wait for `start`. Raises SetupError."""
        for workload in self.workloads:
            workload.prepare()

    def start(self) -> None:
        """Makes all clients begin at once. Raises DeadlineExceeded when a process does not get
        ready."""
        self.prepare()
        until(
            self._ready,
            within=READY_WITHIN,
            what="the processes of all clients to be ready",
            every=0.05,
        )
        for workload in self.workloads:
            workload.start()

    def start_in(self, fault: str) -> None:
        """Starts the clients that are to start while this fault is under way."""
        for crew in self.workloads:
            crew.start_in(fault)

    def _ready(self) -> bool:
        """Whether every process is ready. Otherwise other clients would write and be failed over
        while a JVM still starts."""
        waiting = [
            worker
            for crew in self.workloads
            for worker in crew.workers
            if not (worker.ready or worker.given_up)
        ]
        for worker in waiting:
            worker.look()
        return not waiting

    @property
    def transactional(self) -> bool:
        """Whether any client of linkflap's own writes in transactions."""
        return any(w.spec.kind in ("transactional", "zombie", "relay") for w in self.workloads)

    def open_transactions(self, cluster: str) -> int:
        """The number of transactions on this cluster that have written records and are open now."""
        return sum(workload.open_transactions(cluster) for workload in self.workloads)

    def commits_in_flight(self, cluster: str) -> int:
        """The number of commits on this cluster that are requested and not answered now."""
        return sum(workload.commits_in_flight(cluster) for workload in self.workloads)

    def transactions_ended(self) -> int:
        """Transactions that were committed or aborted so far, on all clusters."""
        done = self.progress()
        return done.commits + done.aborts

    def acknowledged_since(self, time: int, cluster: str) -> int:
        """Records acknowledged on this cluster by operations that returned after `time`.

        Records of the user's own programs count only in a run without other producers: a run must
        have some records to judge.
        """
        recorded = [
            w for w in self.workloads if isinstance(w, Producers) and not isinstance(w, Command)
        ]
        return sum(w.acknowledged_since(time, cluster) for w in recorded or self.workloads)

    def read_on(self, cluster: str) -> int | None:
        """Records that the readers on this cluster have received, for the kind of readers that
        received least. Leaves out readers of topics without a writer. None where there are no
        readers. A group takes seconds to join while readers with fixed partitions already read, and
        commits nothing until then."""
        here = [
            (workload, read)
            for workload in self.workloads
            if workload.started and (read := workload.read_on(cluster)) is not None
        ]
        written = {w.spec.home for w in self.workloads if w.progress().acknowledged}
        return (
            min((read for workload, read in here if workload.spec.home in written), default=0)
            if here
            else None
        )

    def groups_on(self, cluster: str) -> frozenset[str]:
        """Groups of readers and relays on this cluster that read topics with a writer, so that they
        have to commit offsets there."""
        written = {w.spec.home for w in self.workloads if w.progress().acknowledged}
        here = [
            w.spec
            for w in self.workloads
            if w.started and any(member.state.cluster == cluster for member in w.members)
        ]
        return frozenset(groups([spec for spec in here if spec.home in written]))

    def can_write(self, running: Collection[str]) -> bool:
        """Whether any producer is on a running cluster; True where there are no producers."""
        producing = [crew for crew in self.workloads if isinstance(crew, Producers)]
        return not producing or any(not crew.clusters.isdisjoint(running) for crew in producing)

    @property
    def all_ended(self) -> bool:
        """Whether all that write are programs that run once, and all of them have ended."""
        writing = [crew for crew in self.workloads if isinstance(crew, Producers)]
        return bool(writing) and all(isinstance(c, Command) and c.ended for c in writing)

    def end_programs(self) -> None:
        """Ends the programs that run once: their time is over."""
        for crew in self.workloads:
            if isinstance(crew, Command) and crew.once:
                crew.look()  # it may have ended since, by itself
                crew.stop()

    def grown(self, topic: str, partitions: int) -> None:
        """A topic now has this many partitions. Its clients use them from their next operation or
        metadata lookup on."""
        for workload in self.workloads:
            workload.grown(topic, partitions)

    def pause(self, cluster: str) -> None:
        """Begins no new operations of producers. Returns when none is in flight."""
        for workload in self.workloads:
            workload.pause(cluster)

    def move(self, source: str, destination: str, *, drained: bool) -> None:
        """Moves producers and following readers of `source` to `destination`; returns when all have
        left `source`. drained: operations in flight have a grace period to end; otherwise they are
        info at once. Paused clients continue afterwards."""
        asked = [
            c for w in self.workloads for c in w.ask_to_move(source, destination, drained=drained)
        ]

        def moved() -> bool:
            for workload in self.workloads:
                workload.look()
            return all(client.moved for client in asked)

        until(
            moved,
            within=patient(MOVE_WITHIN),
            what=f"clients of {source} to move to {destination}",
            state=lambda: [client.name for client in asked if not client.moved],
        )
        self._recorder.write(ClientsMoved(cluster=source, to=destination))

    def stop_producers(self) -> None:
        """Stops all writing clients; readers continue."""
        self._stop([workload for workload in self.workloads if isinstance(workload, Producers)])

    def drain(self, ends: Mapping[str, Mapping[tuple[str, int], int]], *, within: float) -> None:
        """Every reader reads on to `ends`: cluster -> (topic, partition) -> offset. Before
        `stop`."""
        for workload in self.workloads:
            if workload.started:
                workload.drain(ends, within=within)

    def stop(self) -> None:
        """Stops every client and waits for its process; safe to call twice, and after a failed
        start."""
        self._stop(self.workloads)

    def _stop(self, workloads: Sequence[Crew]) -> None:
        for workload in workloads:
            workload.ask_to_stop()
        for workload in workloads:
            workload.stop()

    def deaths(self) -> Sequence[DiedProcess]:
        """The deaths of client processes so far, in order; each was also recorded as an event."""
        every = [
            death
            for workload in self.workloads
            for worker in workload.workers
            for death in worker.deaths
        ]
        return sorted(every, key=attrgetter("event.time"))

    def kill(
        self, cluster: str, *, workload: str, moment: Moment, by: str, within: float
    ) -> DiedProcess:
        """Kills (SIGKILL) a process with clients of this kind (or `any`) on a cluster, when one of
        them is at this moment, on behalf of the fault `by`. Returns when it has ended. Raises
        InputError where there is no such client, DeadlineExceeded when the moment does not come."""
        if workload == COMMAND:
            return self._program(cluster).kill(by=by)
        worker = self._victim(cluster, workload, moment)
        known = len(worker.deaths)

        def died() -> DiedProcess | None:
            return next((death for death in worker.deaths[known:] if death.event.by == by), None)

        worker.fall(KillAt(cluster=cluster, moment=moment), by=by)
        try:
            return until(
                died,
                within=within,
                what=f"clients {worker.clients} to be killed with {_WORDS[moment]} in flight",
            )
        except DeadlineExceeded:
            worker.fall(None)
            raise

    def _victim(self, cluster: str, kind: str, moment: Moment) -> Worker:
        """The process that is at such a moment now, else one that can get there. Prefers writers to
        readers."""
        crews = [
            w
            for w in self.workloads
            if w.started
            and kind in ("any", w.spec.kind)
            and (moment == "any" or isinstance(w, Producers))
        ]
        crews.sort(key=lambda crew: not isinstance(crew, Producers))
        there = [
            (worker, member)
            for c in crews
            for worker in c.workers
            for member in worker.members
            if member.cluster == cluster
        ]
        if not there:
            raise InputError(
                f"no client of workload {kind} that can have {_WORDS[moment]} in flight is at "
                f"{cluster}"
            )
        for crew in crews:
            crew.look()
        return next(
            (worker for worker, member in there if is_at(member.state, moment)), there[0][0]
        )

    def _programs(self) -> list[Command]:
        return [workload for workload in self.workloads if isinstance(workload, Command)]

    def _program(self, cluster: str) -> Command:
        """A user's program on a cluster. Raises InputError."""
        for program in self._programs():
            if program.cluster == cluster and program.alive:
                return program
        raise InputError(f"no program of a workload with a command runs at {cluster}")

    def programs(self, cluster: str) -> Sequence[Command]:
        """The users' programs on a cluster."""
        return [program for program in self._programs() if program.cluster == cluster]

    def process(self, cluster: str, *, workload: str) -> Program:
        """A process with clients of this kind (or `any`) on a cluster; prefers writers to readers.
        Raises InputError."""
        if workload == COMMAND:
            return self._program(cluster)
        return self._victim(cluster, workload, "any")

    def done_since_restart(self, process: str) -> int:
        """Records that the clients of a process have acknowledged or read since its last start; 0
        while it does not run."""
        done = sum(
            program.done_since_restart() for program in self._programs() if program.name == process
        )
        for worker in (
            worker
            for crew in self.workloads
            for worker in crew.workers
            if worker.name == process and worker.alive
        ):
            worker.look()
            counts = [member.state.counts for member in worker.members]
            done += sum(sum(each.acknowledged.values()) + each.read for each in counts)
        return done

    @property
    def crashes(self) -> list[str]:
        """Clients that ended with an error in linkflap, and those that died too often; each was
        also recorded as an event."""
        return [crash for workload in self.workloads for crash in workload.crashes]

    def progress(self) -> WorkloadProgress:
        """Counts so far over all clients; cheap, and safe from any thread."""
        return sum((workload.progress() for workload in self.workloads), WorkloadProgress())


PER_PROCESS: Final = 3
"""Clients of one process. A process costs about 20 MB; when it dies, only these clients lose their
work in flight."""


def _shared_out(
    hosted: Sequence[Hosted], every: Sequence[Library]
) -> Iterator[tuple[Library, Sequence[Hosted]]]:
    """The clients of each process. All clients of a process have one library; several libraries
    take turns, client by client."""
    for number, library in enumerate(every):
        own = hosted[number :: len(every)]
        for first in range(0, len(own), PER_PROCESS):
            yield library, own[first : first + PER_PROCESS]


def make(
    spec: WorkloadSpec,
    *,
    deployment: Deployment,
    topics: Mapping[str, int],
    writer: RunWriter,
    seed: int,
    names: ClientNames,
    forks: Prefork,
) -> Crew:
    """A workload, not started. Only bootstrap servers of the deployment are used. `topics` is topic
    -> partitions of all homes; the workload uses those named `<home>.*`. `names` and `forks` are
    shared by the whole run. Raises InputError."""
    listeners = deployment.recorders if through_recorders(spec) else deployment.clusters
    clusters = {name: str(each.bootstrap) for name, each in listeners.items()}
    links = {name: str(link.bootstrap) for name, link in deployment.links.items()}
    root = writer.root.resolve()  # processes of clients work in a folder of their own
    numbers = root / "logs" / "clients" / "numbers"
    shared = context(
        spec,
        clusters=clusters,
        links=links,
        topics=topics,
        writer=writer,
        seed=seed,
        numbers=Numbers(numbers),
    )
    cluster = first_cluster(shared)
    principal: Principal = "reader" if KINDS[spec.kind].reads else "client"
    entries = {
        name: security_of(entered_by(cluster.bootstrap, principal))
        for name, cluster in deployment.clusters.items()
    }
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
        workers.append(
            Worker(name, msgspec.structs.replace(host, clients=tuple(some), jvm=vm), writer, forks)
        )
    if spec.kind == share_group.KIND:
        return ShareGroup(spec, workers, shared)
    if KINDS[spec.kind].reads:
        return Readers(spec, workers, shared)
    return Producers(spec, workers, shared.topics)


def make_all(
    specs: Sequence[WorkloadSpec],
    *,
    deployment: Deployment,
    topics: Mapping[str, int],
    writer: RunWriter,
    seed: int,
) -> list[Crew]:
    """Workloads that are not started yet; `topics` is topic -> partitions of all homes. Raises
    InputError."""
    names, forks = ClientNames(), Prefork()
    return [
        Command(spec, names.next(COMMAND), deployment, writer)
        if spec.kind == COMMAND
        else make(
            spec,
            deployment=deployment,
            topics=topics_for(spec, specs, topics),
            writer=writer,
            seed=seed,
            names=names,
            forks=forks,
        )
        for spec in specs
    ]


def check_all(specs: Sequence[WorkloadSpec]) -> None:
    """Raises InputError for an unknown kind, option or program."""
    for spec in specs:
        if spec.kind == COMMAND:
            command.check(spec)
        else:
            check(spec)
            jvms.check(spec)
