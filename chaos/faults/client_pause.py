"""client-pause: a process with clients of a cluster is suspended (SIGSTOP), and continues with an
old view of the cluster.

Breaks    the clients' work in flight: answers wait unread, transactions stay open, heartbeats are
          not sent. Past their timeouts the coordinator aborts the transactions and gives the
          partitions to others, without the clients' knowledge.
Bite      its process is suspended: none of its threads runs.
Heal      it runs, and its clients have acknowledged or read something more than they had before.

`workload` is the kind of clients. A trigger chooses the moment: `open-transactions`,
`commit-in-flight`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from linkflap.chaos.faults.bites import watch
from linkflap.chaos.faults.client_kill import ClientKill
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.errors import DeadlineExceeded, FaultError
from linkflap.harness.model.protocols import Bite, Program, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import patient, until

WORKS_WITHIN: Final = 60.0


class ClientPause:
    """Suspends a process of clients with SIGSTOP, and resumes it at the end."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {
        "workload": "any|transactional|idempotent|zombie|relay|readers|command"
    }
    abouts: ClassVar[Mapping[str, str]] = {"workload": "whose process is suspended"}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        self._workload = str(settings(spec, self.defaults)["workload"])
        self._world, self._spec = world, spec
        self._process: Program | None = None
        self._before = 0

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return ClientKill.applies_to(target, topology)

    def inject(self) -> None:
        clients = self._world.clients
        process = clients.process(self._spec.target, workload=self._workload)
        self._before = clients.done_since_restart(process.name)
        self._process = process
        process.freeze()

    def bite(self) -> Bite:
        name = "nobody" if self._process is None else self._process.name
        return watch(
            self._world, "state of the process of clients", {name: "stopped"}, self._measure
        )

    def _measure(self) -> tuple[bool, object]:
        process = self._process
        if process is None:
            return False, "no process was stopped"
        return process.frozen, {process.name: "stopped" if process.frozen else "running"}

    def heal(self) -> Sequence[str]:
        process = self._process
        if process is None:
            return ["nothing was stopped"]
        process.thaw()
        done = 0

        def works() -> bool:
            nonlocal done
            done = self._world.clients.done_since_restart(process.name)
            # A process that has died since was started again, and counts from 0.
            return (done > 0 and done != self._before) or self._world.stopping

        try:
            until(
                works,
                within=patient(WORKS_WITHIN),
                every=0.05,
                what=f"{process.name} to work again",
            )
        except DeadlineExceeded as error:
            raise FaultError(str(error)) from error
        if process.frozen:
            raise FaultError(f"{process.name} is still suspended after fault {self._spec.id}")
        return [
            f"{process.name} runs",
            f"its clients have acknowledged or read {done} records, {self._before} before",
        ]
