"""A broker in a container as a target: code of the faults that need containers."""

from __future__ import annotations

from collections.abc import Sequence

from linkflap.chaos.faults.broker_parts import BrokerFault
from linkflap.harness.model.errors import FaultError, InputError, LinkflapError
from linkflap.harness.model.protocols import Broker, Confines, World
from linkflap.harness.model.scenario import FaultSpec


def confines_of(broker: Broker, spec: FaultSpec) -> Confines:
    """Raises InputError if the broker is not in a container."""
    if broker.confines is None:
        raise InputError(
            f"fault {spec.id!r} ({spec.fault}) is done to containers, and brokers here are in none;"
            " run it with --runtime docker"
        )
    return broker.confines


class ConfinedFault(BrokerFault):
    """A fault of one broker's container. `let_go` undoes it, and returns what it has checked."""

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        self.confines, self._id = confines_of(self._parts.broker, spec), spec.id

    def cut_by_others(self) -> list[str]:
        """Other partition faults of the cluster that are in effect now."""
        every = [
            broker.confines.blocks
            for broker in self._parts.cluster.brokers.values()
            if broker.confines
        ]
        return sorted({owner for blocks in every for owner in blocks} - {self._id})

    def let_go(self) -> Sequence[str]:
        """Undoes the fault; may be called again. Raises LinkflapError."""
        raise AssertionError("each fault says how")

    def heal(self) -> Sequence[str]:
        try:
            undone = self.let_go()
        except LinkflapError as error:
            broker = self._parts.broker
            raise FaultError(
                f"the container of {broker.cluster}/{broker.id} was not healed: {error}; see "
                f"{broker.log}"
            ) from error
        return [*undone, *self._parts.heal(still_cut_by=self.cut_by_others())]
