"""Workloads, and all clients of a run together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from linkflap.harness.model.events import InFlight
from linkflap.harness.model.scenario import WorkloadSpec


class DiedProcess(Protocol):
    """A process of clients that died."""

    @property
    def process(self) -> str:
        """Its name, which the process that takes its place has too."""

    @property
    def by(self) -> str:
        """Itself, or the id of the fault that ended it."""

    @property
    def clients(self) -> Sequence[str]: ...
    @property
    def status(self) -> int:
        """Exit status, negative for a signal."""

    @property
    def in_flight(self) -> Sequence[InFlight]:
        """The operations that it had begun and that never returned, as its history shows."""

    @property
    def expected(self) -> int | None:
        """The operation that it reported in flight right before it was killed; 0 for a reader, None
        if it reported nothing."""


Moment = Literal["any", "transaction", "commit"]
"""What a client has in flight: anything; a transaction that has written and has not requested its
end; or a commit."""


class Program(Protocol):
    """A process of clients, or a program of the user's that is a workload: all of its process group
    together."""

    @property
    def name(self) -> str: ...
    @property
    def alive(self) -> bool: ...
    @property
    def frozen(self) -> bool:
        """Whether it is suspended (SIGSTOP)."""

    @property
    def any_suspended(self) -> bool:
        """Whether one of its processes is, by linkflap or by itself at one of its own
        failpoints."""

    def freeze(self) -> None:
        """Returns when it is suspended. Raises InputError if it does not run."""

    def thaw(self) -> None:
        """Safe to call again, and on a program that has ended."""


class Clients(Protocol):
    """All workload clients of a run."""

    def transactions_ended(self) -> int:
        """Transactions that were committed or aborted so far, on all clusters."""

    def commits_in_flight(self, cluster: str) -> int:
        """The number of commits that were requested and are not answered, on this cluster, now."""

    def kill(
        self, cluster: str, *, workload: str, moment: Moment, by: str, within: float
    ) -> DiedProcess:
        """SIGKILLs a process with clients of this kind (or `any`) at a cluster, at such a moment of
        one of them, `by` a fault.

        Returns when it is gone. Raises InputError where no such client is there, DeadlineExceeded
        when the moment does not come.
        """

    def programs(self, cluster: str) -> Sequence[Program]:
        """The programs of the user's that are at a cluster."""

    def process(self, cluster: str, *, workload: str) -> Program:
        """A process with clients of this kind (or `any`) at a cluster, those that write before
        readers. Raises InputError."""

    def done_since_restart(self, process: str) -> int:
        """Records that the clients of a process have acknowledged or read since it was started
        last; 0 while it does not run."""

    def open_transactions(self, cluster: str) -> int:
        """Transactions that have written something and are not ended, on this cluster, now."""

    def move(self, source: str, destination: str, *, drained: bool) -> None:
        """Fails all clients of `source` over to `destination`; drained: in-flight operations end
        first."""

    def pause(self, cluster: str) -> None:
        """Lets operations in flight end and begins no new ones (planned failover)."""

    def acknowledged_since(self, time: int, cluster: str) -> int:
        """Records acknowledged on this cluster by operations that returned after `time`."""

    def read_on(self, cluster: str) -> int | None:
        """Records that readers on this cluster have been given, of the workload that was given
        least; None without readers."""

    def groups_on(self, cluster: str) -> frozenset[str]:
        """Consumer groups that are to commit offsets on this cluster: of topics that have a
        writer."""

    def grown(self, topic: str, partitions: int) -> None:
        """A topic has so many partitions now: clients of its home write to the new ones too, and
        read them."""


class Workload(Protocol):
    """Some clients with one purpose, in processes of a few each. A kind is one class and one line
    in harness.workloads."""

    @property
    def spec(self) -> WorkloadSpec: ...
    def start(self) -> None: ...
    def stop(self) -> None:
        """No new operations; those in flight end or become info. Open transactions stay open."""

    def drain(self, ends: Mapping[str, Mapping[tuple[str, int], int]], *, within: float) -> None:
        """Readers read on to `ends` (cluster -> (topic, partition) -> offset); producers do
        nothing."""
