"""mirror-kill: the worker of a mirror is killed (SIGKILL), and started again at the heal.

Breaks    replication between a write to the destination and the commit of the position it came
          from: what was written and not noted is written again.
Bite      the worker was alive before and its process is gone.
Heal      the worker runs and records go through again.

After a reversal (`mirror-reverse`) the mirror is the one of the reverse link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from linkflap.chaos.faults.bites import watch
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.errors import EnvironmentFailure, FaultError, InputError
from linkflap.harness.model.faults import Target
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology


class MirrorKill:
    """Kills a mirror's worker, and starts it again at the end."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {}
    abouts: ClassVar[Mapping[str, str]] = {}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        settings(spec, self.defaults)
        self._world, self._target = world, spec.target
        if spec.target not in world.mirrors:
            known = ", ".join(sorted(world.mirrors)) or "none"
            raise InputError(
                f"fault {spec.id!r} targets the mirror {spec.target!r}, but the mirrors are {known}"
            )
        self._mirror = world.mirrors[spec.target]
        self._alive_before = False

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        links = [link.name for link in topology.links]
        if target in links or Target.parse(target).back in links:
            return None
        return (
            f"{target!r} has no mirror; mirrors run on {', '.join(links) or 'no link'}, and back "
            "once they are reversed"
        )

    def inject(self) -> None:
        self._alive_before = self._mirror.alive
        self._mirror.crash()

    def bite(self) -> Bite:
        return watch(
            self._world,
            "process of the mirror's worker",
            {"before": "alive", "during": "gone"},
            self._measure,
        )

    def _measure(self) -> tuple[bool, object]:
        alive = self._mirror.alive
        return self._alive_before and not alive, {
            "before": _word(self._alive_before),
            "during": _word(alive),
        }

    def heal(self) -> Sequence[str]:
        if not self._mirror.alive:
            try:
                self._mirror.restart()
            except EnvironmentFailure as error:
                raise FaultError(f"mirror {self._target} did not come back: {error}") from error
        if not self._mirror.alive:
            raise FaultError(
                f"mirror {self._target} ended again after its restart: see its worker's log"
            )
        return [f"mirror {self._target} alive, records go through"]


def _word(alive: bool) -> str:
    return "alive" if alive else "gone"
