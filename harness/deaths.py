"""Who died without being asked: brokers and mirrors that are gone although no fault of the schedule has ended them.

A run goes on then, because what is left behind is worth judging; but it cannot count as finished.
"""

from __future__ import annotations

from collections.abc import Sequence

from chaos.schedule import Player
from harness.model.protocols import World
from harness.model.scenario import FaultSpec


class Deaths:
    """Looked at again and again by the run's own thread. `found` gets one sentence for each."""

    def __init__(self, world: World, player: Player, found: list[str]) -> None:
        self._world, self._player, self._found = world, player, found
        self._seen: set[str] = set()
        self._lived: set[str] = set()

    def all_started(self) -> None:
        """From now on every mirror is expected to live."""
        self._lived = set(self._world.mirrors)

    def look(self) -> Sequence[str]:
        """The deaths that are new since the last look; each is also an event."""
        # A fault that began or ended while we looked may be why: what was under way before and what is now both count.
        before = self._player.under_way()
        brokers = [b for cluster in self._world.deployment.clusters.values() for b in cluster.brokers.values()]
        gone = [(b, f"{b.cluster}/{b.id}") for b in brokers if b.state == "stopped" and f"{b.cluster}/{b.id}" not in self._seen]
        alive = {name for name, mirror in self._world.mirrors.items() if mirror.alive}
        ended = sorted(self._lived - alive - self._seen)
        self._lived |= alive
        faults = [*before, *self._player.under_way()]
        told: list[str] = []
        for broker, name in gone:
            if not any(ends_broker(fault, name) for fault in faults):
                self._world.recorder.event("broker-died", name, by="itself")
                told.append(f"broker {name} died by itself; see {broker.log}")
                self._seen.add(name)
        for link in ended:
            if any(ends_mirror(fault, link) for fault in faults):
                self._lived.discard(link)  # it may be dead when nothing is left of the fault, its failover reversed
            else:
                self._world.recorder.event("mirror-crashed", link, by="itself")
                told.append(f"the mirror of {link} died by itself; see its log among the run's logs")
                self._seen.add(link)
        self._found.extend(told)
        return told


def ends_broker(fault: FaultSpec, broker: str) -> bool:
    """Whether a fault of this kind may have stopped the broker `A/1`."""
    source = fault.target.partition("->")[0]
    return fault.target in (broker, broker.partition("/")[0]) or (
        # One that is reversed finds brokers dead, and starts them.
        fault.fault.startswith(("failover-", "mirror-reverse")) and source == broker.partition("/")[0]
    )


def ends_mirror(fault: FaultSpec, link: str) -> bool:
    """Whether a fault of this kind may have stopped the mirror of a link."""
    return fault.target == link and fault.fault.startswith(("failover-", "mirror-"))
