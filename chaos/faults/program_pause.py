"""program-pause: the user's programs (workload command) at a cluster are suspended (SIGSTOP), and
continue at the heal.

Breaks    heartbeats, transactions and polls of a program that does not notice, as in a long garbage
          collection.
Bite      every process group is suspended: none of its processes runs.
Heal      they run again (the workload has restarted any that ended meanwhile).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from linkflap.chaos.faults.bites import watch
from linkflap.chaos.faults.client_kill import ClientKill
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.protocols import Bite, Program, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import until

GOES_ON_WITHIN: Final = 30.0


class ProgramPause:
    """Suspends the programs of workloads `command` with SIGSTOP, and resumes them at the end."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {}
    abouts: ClassVar[Mapping[str, str]] = {}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        settings(spec, self.defaults)
        self._world, self._spec = world, spec
        self._programs: Sequence[Program] = ()

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return ClientKill.applies_to(target, topology)

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
