"""Faults of the processes of clients: killed or suspended."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, cast

from linkflap.chaos.faults.base import FaultBase, wait, watch
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.protocols import Bite, DiedProcess, FaultWorld, Moment, Program
from linkflap.harness.model.scenario import (
    COMMAND,
    WITH_TRANSACTIONS,
    FaultSpec,
    Scenario,
    WorkloadSpec,
    clusters_of,
)
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import patient, until

COMES_WITHIN: Final = 30.0
WORKS_WITHIN: Final = 60.0
OBSERVABLE: Final = "end of a process of clients, and the operation that was in flight"


def clients_there(target: str, topology: Topology) -> str | None:
    """None if `target` is a cluster of the topology; otherwise the reason."""
    known = [cluster.name for cluster in topology.clusters]
    return (
        None
        if target in known
        else f"{target!r} is not a cluster with clients; this topology has {', '.join(known)}"
    )


_MOMENTS: Final = (*WITH_TRANSACTIONS, COMMAND)
"""The workloads that can be in the chosen moment of a kill; a user's program counts for every
moment."""


def _workloads_there(spec: FaultSpec, scenario: Scenario) -> list[WorkloadSpec]:
    """The workloads of the kind that a fault names whose clients may be on its target."""
    kind = spec.options.get("workload", "any")
    return [
        workload
        for workload in scenario.workloads
        if spec.target in clusters_of(workload, scenario)
        and (workload.kind == kind or (kind == "any" and workload.kind != COMMAND))
    ]


def _no_clients(spec: FaultSpec, scenario: Scenario) -> str | None:
    """None if there are clients of the kind that a fault names; otherwise the reason."""
    kind = spec.options.get("workload", "any")
    return (
        None if _workloads_there(spec, scenario) else f"no client of workload {kind} connects to it"
    )


_WORKLOADS: Final = (
    "any", "transactional", "idempotent", "zombie", "relay", "readers", "command",
)  # fmt: skip


class ClientKill(FaultBase):
    """Kills a process of clients with work in flight; it is started again.

    Breaks    the clients' work in flight: the end of an open transaction is never requested, and
              the answer to a requested commit is never read. The clients start again under new
              process numbers: a producer with the transactional id of the dead one, which aborts
              its open transaction (KIP-98); a reader like any new one.
    Bite      its process ended by SIGKILL, and its history has the operation that was in flight,
              without a return.
    Heal      the clients that were started again have acknowledged or read something.

    `workload` is the kind of clients, `moment` what one of them must have in flight: an open
    transaction that has written, or a commit. Readers have neither, so they are killed at any
    moment. So are users' programs (command), whose work in flight is unknown; these work again once
    their topics have more records.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "workload": OptionAbout.one_of(*_WORKLOADS, about="whose process is killed"),
        "moment": OptionAbout.one_of(
            "any",
            "transaction",
            "commit",
            about="what it has in flight: an open transaction, a commit, or anything",
        ),
    }

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._workload = str(self._values["workload"])
        self._moment = cast(Moment, self._values["moment"])
        self._death: DiedProcess | None = None

    reason = staticmethod(clients_there)

    @classmethod
    def lacks(cls, spec: FaultSpec, scenario: Scenario) -> str | None:
        moment = spec.options.get("moment", "any")
        kinds = {workload.kind for workload in _workloads_there(spec, scenario)}
        if kinds and moment != "any" and kinds.isdisjoint(_MOMENTS):
            return f"no clients there have transactions, so none can be killed at moment {moment}"
        return _no_clients(spec, scenario)

    def inject(self) -> None:
        self._death = self._world.clients.kill(
            self._spec.target,
            workload=self._workload,
            moment=self._moment,
            by=self._spec.id,
            within=patient(COMES_WITHIN),
        )

    def bite(self) -> Bite:
        expected = {"signal": "SIGKILL", "in_flight": self._moment}
        death = self._death
        if death is None:
            return Bite(
                bit=False,
                observable=OBSERVABLE,
                measured="no process was killed",
                expected=expected,
            )
        there = death.expected == 0 or death.expected in [
            flying.operation for flying in death.event.in_flight
        ]
        measured = {
            "process": death.event.process,
            "status": death.event.status,
            "seen": death.expected,
            "in_flight": list(death.event.in_flight),
        }
        return Bite(
            bit=death.event.status == -signal.SIGKILL and there,
            observable=OBSERVABLE,
            measured=measured,
            expected=expected,
        )

    def heal(self) -> Sequence[str]:
        death, clients = self._death, self._world.clients
        if death is None:
            return ["no process was killed"]
        done = 0

        def works() -> bool:
            nonlocal done
            done = clients.done_since_restart(death.event.process)
            return done > 0 or self._world.stopping

        names = ", ".join(death.event.clients)
        until(works, within=WORKS_WITHIN, every=0.05, what=f"clients {names} to work again")
        if not done:
            raise FaultError(
                f"clients {names} had made no progress since the kill when the run ended"
            )
        return [f"clients {names} started again", f"{done} records acknowledged or read by them"]


class ClientPause(FaultBase):
    """Suspends a process of clients with SIGSTOP, and resumes it at the end.

    Breaks    the clients' work in flight: answers wait unread, transactions stay open, heartbeats
              are not sent. After their timeouts the coordinator aborts the transactions and assigns
              the partitions to other members, and the clients do not know it.
    Bite      its process is suspended: none of its threads runs.
    Heal      it runs, and its clients have acknowledged or read something more than they had
              before.

    `workload` is the kind of clients. A trigger chooses the moment: `open-transactions`,
    `commit-in-flight`.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "workload": OptionAbout.one_of(*_WORKLOADS, about="whose process is suspended"),
    }

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._workload = str(self._values["workload"])
        self._process: Program | None = None
        self._before = 0

    reason = staticmethod(clients_there)
    lacks = staticmethod(_no_clients)

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
            # A process that died meanwhile was started again, and its counts begin at 0.
            return (done > 0 and done != self._before) or self._world.stopping

        wait(
            works,
            within=patient(WORKS_WITHIN),
            every=0.05,
            what=f"{process.name} to work again",
        )
        if process.frozen:
            raise FaultError(f"{process.name} is still suspended after fault {self._spec.id}")
        return [
            f"{process.name} runs",
            f"its clients have acknowledged or read {done} records, {self._before} before",
        ]


GOES_ON_WITHIN: Final = 30.0


class ProgramPause(FaultBase):
    """Suspends the programs of workloads `command` with SIGSTOP, and resumes them at the end.

    Breaks    heartbeats, transactions and polls of a program that does not notice the pause, as in
              a long garbage collection.
    Bite      every process group is suspended: none of its processes runs.
    Heal      they run again (the workload has restarted those that exited meanwhile).
    """

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._programs: Sequence[Program] = ()

    reason = staticmethod(clients_there)

    @classmethod
    def lacks(cls, spec: FaultSpec, scenario: Scenario) -> str | None:
        there = any(
            workload.kind == COMMAND and spec.target in clusters_of(workload, scenario)
            for workload in scenario.workloads
        )
        return None if there else "no program of a [[workload]] with a command connects to it"

    def inject(self) -> None:
        self._programs = [
            program for program in self._world.clients.programs(self._spec.target) if program.alive
        ]
        if not self._programs:
            raise InputError(
                f"fault {self._spec.id!r}: no program of a workload by command runs at "
                f"{self._spec.target}"
            )
        for program in self._programs:
            program.freeze()

    def bite(self) -> Bite:
        expected = {program.name: "stopped" for program in self._programs}
        return watch(self._world, "state of the programs' processes", expected, self._measure)

    def _measure(self) -> tuple[bool, object]:
        seen = {
            program.name: "stopped" if program.frozen else "running" for program in self._programs
        }
        return bool(seen) and all(state == "stopped" for state in seen.values()), seen

    def heal(self) -> Sequence[str]:
        for program in self._programs:
            program.thaw()
        names = ", ".join(program.name for program in self._programs)
        until(
            lambda: (
                self._world.stopping
                or all(program.alive and not program.frozen for program in self._programs)
            ),
            within=GOES_ON_WITHIN,
            what=f"{names} to go on",
        )
        still = [program.name for program in self._programs if program.frozen]
        if still:
            raise FaultError(f"{', '.join(still)} did not go on after fault {self._spec.id}")
        return [f"{names} run"] if names else ["nothing was stopped"]
