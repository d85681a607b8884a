"""The fault of services that clusters need besides Kafka: killed, and started again."""

from __future__ import annotations

from collections.abc import Sequence

from linkflap.chaos.faults.base import FaultBase, milliseconds
from linkflap.chaos.faults.links import LinkPath
from linkflap.harness.model.errors import FaultError, LinkflapError
from linkflap.harness.model.protocols import Bite, FaultWorld
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import Topology

_ANSWERS_WITHIN = 2.0


def service_reason(target: str, topology: Topology) -> str | None:
    """None if `target` leads to a service of a cluster (`A->postgres`); otherwise the reason."""
    if target in topology.service_links:
        return None
    known = ", ".join(topology.service_links) or "no services of clusters"
    return f"{target!r} leads to no service; this topology has {known}"


class ServiceKill(FaultBase):
    """Kills a service that a cluster needs (SIGKILL), and starts its command again in the same
    folder.

    Breaks    what brokers have asked of it and not heard of; what it had only in memory is lost.
    Bite      its process is gone, and nothing answers over its link.
    Heal      it runs and answers on its port (its command ready is not run again), and a round trip
              over its link is as quick as before.
    """

    reason = staticmethod(service_reason)

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._path = LinkPath(spec, world)
        self._service = world.deployment.cluster_services[spec.target]

    def inject(self) -> None:
        self._path.measure_before()
        self._service.kill()

    def bite(self) -> Bite:
        return self._path.bite("round trip over the link", "no process, no answer", self._measure)

    def _measure(self) -> tuple[bool, object]:
        seconds = self._path.link.round_trip(within=_ANSWERS_WITHIN)
        gone = not self._service.alive
        seen = {"before_ms": milliseconds(self._path.before), "during_ms": milliseconds(seconds)}
        return gone and seconds is None, {**seen, "process": "gone" if gone else "runs"}

    def heal(self) -> Sequence[str]:
        try:
            self._service.start_again()
        except LinkflapError as error:
            raise FaultError(f"{self._spec.target} was not healed: {error}") from error
        return [f"service {self._service.name} runs", *self._path.heal()]
