"""broker-memory-limit: a broker's container gets hardly more memory than it uses now; the heal
removes the limit.

Breaks    the page cache of its logs first, so that reads and writes wait for the disk; when its
          heap grows, it is killed (OOM).
Bite      the container has reached the limit since, or the kernel has killed the broker for it.
Heal      the limit is gone, its process runs, its listener answers, it is in the ISR of every
          partition that it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from linkflap.chaos.faults.confined import ConfinedFault
from linkflap.chaos.faults.settings import number
from linkflap.harness.model.errors import EnvironmentFailure, FaultError
from linkflap.harness.model.protocols import Bite, Broker, World
from linkflap.harness.model.scenario import FaultSpec, Option

_MEGABYTE: Final = 1 << 20
_MET_WITHIN: Final = 60.0
_ATTEMPTS: Final = 10


class BrokerMemoryLimit(ConfinedFault):
    """Limits the memory of a broker's container to what it uses; option spare (MB more than
    that)."""

    defaults: ClassVar[Mapping[str, Option]] = {"spare": 4.0}
    abouts: ClassVar[Mapping[str, str]] = {
        "spare": "MB above what the container uses when it is limited",
    }
    expected = "the limit met, or the broker killed for it"

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        self._spare = int(number(self._values, "spare") * _MEGABYTE)
        self._hits_before = 0

    def take_down(self, broker: Broker) -> None:
        before = self.confines.memory()
        self._hits_before = before.hits or 0
        # the kernel's part of this memory cannot be reclaimed, and is not known beforehand
        for more in range(1, _ATTEMPTS + 1):
            try:
                self.confines.limit_memory(before.used + more * self._spare)
                return
            except EnvironmentFailure:
                if more == _ATTEMPTS:
                    raise

    def measure(self) -> tuple[bool, object]:
        use = self.confines.memory()
        met = 0 if use.hits is None else use.hits - self._hits_before
        seen = {
            "limit_mb": (use.limit or 0) // _MEGABYTE,
            "used_mb": use.used // _MEGABYTE,
            "met": met,
            "killed": use.killed,
        }
        return use.limit is not None and (met > 0 or use.killed), seen

    def bite(self) -> Bite:
        return self._parts.bite(
            "memory of its control group", self.expected, self.measure, within=_MET_WITHIN
        )

    def let_go(self) -> Sequence[str]:
        self.confines.limit_memory(None)
        if limit := self.confines.memory().limit:
            raise FaultError(f"it still has a memory limit of {limit >> 20} MB; see docker inspect")
        return ["no memory limit"]
