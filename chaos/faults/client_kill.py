"""client-kill: a process with clients of a cluster is killed (SIGKILL) with work in flight, and
started again.

Breaks    the clients' work in flight: the end of an open transaction is never requested, and the
          answer to a requested commit is never read. The clients start again under new process
          numbers: a producer with the transactional id of the dead one, which aborts its open
          transaction (KIP-98); a reader like any new one.
Bite      its process ended by SIGKILL, and its history has the operation that was in flight,
          without a return.
Heal      the clients that were started again have acknowledged or read something.

`workload` is the kind of clients, `moment` what one of them must have in flight: an open
transaction that has written, or a commit. Readers have neither, so they are killed at any moment.
So are programs of the user's (command), whose work in flight is unknown; they have worked again
once their topics have more records.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, cast

from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.errors import FaultError
from linkflap.harness.model.protocols import Bite, ClientDeath, Moment, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import patient, until

COMES_WITHIN: Final = 30.0
WORKS_WITHIN: Final = 60.0
OBSERVABLE: Final = "end of a process of clients, and the operation that was in flight"


class ClientKill:
    """Kills a process of clients with work in flight; it is started again."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {
        "workload": "any|transactional|idempotent|zombie|relay|readers|command",
        "moment": "any|transaction|commit",
    }
    abouts: ClassVar[Mapping[str, str]] = {
        "workload": "whose process is killed",
        "moment": "what it has in flight: an open transaction, a commit, or whatever it does",
    }

    def __init__(self, spec: FaultSpec, world: World) -> None:
        values = settings(spec, self.defaults)
        self._world, self._spec = world, spec
        self._workload, self._moment = str(values["workload"]), cast(Moment, values["moment"])
        self._death: ClientDeath | None = None

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        known = [cluster.name for cluster in topology.clusters]
        return (
            None
            if target in known
            else f"{target!r} is not a cluster with clients; this topology has {', '.join(known)}"
        )

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
            flying.operation for flying in death.in_flight
        ]
        measured = {
            "process": death.process,
            "status": death.status,
            "seen": death.expected,
            "in_flight": list(death.in_flight),
        }
        return Bite(
            bit=death.status == -signal.SIGKILL and there,
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
            done = clients.done_since_restart(death.process)
            return done > 0 or self._world.stopping

        names = ", ".join(death.clients)
        until(works, within=WORKS_WITHIN, every=0.05, what=f"clients {names} to work again")
        if not done:
            raise FaultError(
                f"clients {names} had made no progress since the kill when the run ended"
            )
        return [f"clients {names} started again", f"{done} records acknowledged or read by them"]
