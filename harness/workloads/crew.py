"""The clients of one workload, in processes of a few each; started, paused, moved, drained and
stopped together. Consumers are in a consumer group, have fixed partitions, or are in a share group;
each kind is drained in its way."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.history import SHARE_LOCK_MS
from linkflap.harness.model.scenario import IN, WorkloadSpec
from linkflap.harness.model.wait import patient, until
from linkflap.harness.workloads.client import GRACE, Context
from linkflap.harness.workloads.readers import follows_in, group_in, isolation_in
from linkflap.harness.workloads.worker import Member, Worker

Ends = Mapping[str, Mapping[tuple[str, int], int]]
"""cluster -> (topic, partition) -> offset."""

SETTLE_WITHIN = 3 * GRACE
JOIN_WITHIN = 6 * GRACE


class ClientNames:
    """Unique names of clients and of processes of clients in a run: `transactional-1`,
    `clients-1`."""

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
        names = [field.name for field in fields(self)]
        return WorkloadProgress(
            **{name: getattr(self, name) + getattr(other, name) for name in names}
        )


class Crew:
    """Some clients with one purpose, in processes of a few each. One thread makes calls; any
    thread may ask questions."""

    def __init__(
        self, spec: WorkloadSpec, workers: Sequence[Worker], topics: Mapping[str, int]
    ) -> None:
        self.spec, self.workers, self.topics = spec, workers, topics
        self.started = False
        """Whether its clients were started: with the run, or with the fault that it names."""
        self.follows = True
        """Whether clients move to the destination when their cluster fails over."""

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
        """Makes the clients begin, unless they start with a fault; their operations begin once
        their cluster answers."""
        if not self.spec.starts:
            self._start()

    def start_in(self, fault: str) -> None:
        """Makes the clients begin that start with this fault, which is under way."""
        if self.spec.starts == f"{IN}{fault}":
            self._start()

    def _start(self) -> None:
        self.started = True
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
        """Waits until readers have reached these ends; a no-op for crews without readers."""

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
            open=sum(member.state.open for member in self.members),
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


QUIET_FOR: Final = SHARE_LOCK_MS / 1000 + 5.0
"""Seconds within which records of a member that has ended are redelivered to others."""


class Readers(Crew):
    """Readers of one home's topics, with one isolation level, on one cluster at a time."""

    def __init__(
        self,
        spec: WorkloadSpec,
        workers: Sequence[Worker],
        context: Context,
    ) -> None:
        super().__init__(spec, workers, context.topics)
        self.follows = follows_in(context)
        self._group, self._isolation = group_in(context), isolation_in(context)

    def progress(self) -> WorkloadProgress:
        counts = super().progress()
        read = sum(member.counts.read for member in self.members)
        committed = self._isolation == "read_committed"
        return counts + WorkloadProgress(
            read_committed=read * committed, read_uncommitted=read * (not committed)
        )

    def read_on(self, cluster: str) -> int | None:
        self.look()
        there = [member.counts.read for member in self.members if member.state.cluster == cluster]
        return sum(there) if there else None

    def drain(self, ends: Ends, *, within: float) -> None:
        """Reads on until the readers have reached every end in `ends` of their topics on their
        cluster: one reader of a group, or each reader with fixed partitions. Each reader at its
        ends writes a row of kind drained; a row of kind error names ends that were not reached in
        time. Raises nothing, because the verdict judges missing rows. If a reader is killed between
        reaching the ends and writing its row, the drain waits for its successor."""
        try:
            until(
                lambda: self._concluded(ends),
                within=within,
                what="readers to reach the ends and to record that",
            )
        except DeadlineExceeded:
            self._conclude(ends, self._missing(ends))

    def _concluded(self, ends: Ends) -> bool:
        """Once all readers are at the ends, makes them record that. Returns whether all have."""
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
        """The readers that share a reader's partitions: the members of its group, or only
        itself."""
        return [m for m in self.members if m.cluster == member.cluster] if self._group else [member]

    def _undrained(self, member: Member, ends: Ends) -> dict[tuple[str, int], int]:
        """The ends that neither this reader nor its group has recorded as reached."""
        peers = self._peers(member)
        due = self._due(member, ends).items()
        return {tp: end for tp, end in due if all(peer.drained.get(tp, -1) < end for peer in peers)}

    def _due(self, member: Member, ends: Ends) -> dict[tuple[str, int], int]:
        return {tp: end for tp, end in ends.get(member.cluster, {}).items() if tp[0] in self.topics}

    def _missing(self, ends: Ends) -> dict[str, str]:
        """Reader -> the ends that it, or its group, has not reached."""
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
        """Reads on until the group is finished with every partition up to its end, or gets no more
        records. Then a member records how far the group's coordinator says that it is finished. A
        group need not finish the markers at the end of a log, so its end is not always reached.
        Waiting proves nothing: for the verdict, records beyond that start offset were not read to
        the end."""
        quiet = _Quiet()
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: self._over(ends, quiet),
                within=within,
                what="share groups to have nothing left",
            )
        for worker in self.workers:
            for member in worker.members:
                if due := self._due(member, ends):
                    worker.drained(member, reached=list(due), missing="")
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: self.look() >= 0 and self._settled(ends),
                within=within,
                what="share groups to record how far they are",
            )

    def _over(self, ends: Ends, quiet: _Quiet) -> bool:
        self.look()
        return (
            not self._missing(ends)
            or quiet.since(sum(member.counts.read for member in self.members)) > QUIET_FOR
        )

    def _settled(self, ends: Ends) -> bool:
        return all(
            member.drained.keys() >= self._due(member, ends).keys() for member in self.members
        )


class _Quiet:
    """Measures how long a number has stayed the same."""

    def __init__(self) -> None:
        self._number, self._changed = -1, time.monotonic()

    def since(self, number: int) -> float:
        """Seconds since it changed."""
        if number != self._number:
            self._number, self._changed = number, time.monotonic()
        return time.monotonic() - self._changed
