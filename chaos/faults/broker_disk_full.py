"""broker-disk-full: a broker's log directory is on a small disk for the window, and the disk is
full, also for its next start.

Breaks    every append and every roll of a segment: the broker marks its only log directory as
          offline and exits; started again, it exits again. When it recovers its logs after the
          heal, it truncates incomplete batches.
Bite      no byte is free; the broker answered before, exited by itself, and exited again when it
          was started in the window.
Heal      its logs are back on the large disk, its process runs, its listener answers, it is in the
          ISR of every partition that it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from linkflap.chaos.faults.broker_parts import BrokerFault
from linkflap.chaos.faults.settings import number
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, LinkflapError, SetupError
from linkflap.harness.model.protocols import Bite, Broker, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.small_disk import SmallDisk

_MEGABYTE: Final = 1 << 20
_ENDS_WITHIN: Final = 60.0


class BrokerDiskFull(BrokerFault):
    """Fills the disk of a broker's log directory; option spare (MB it has for the start before
    that). Needs root."""

    defaults: ClassVar[Mapping[str, Option]] = {"spare": 64.0}
    abouts: ClassVar[Mapping[str, str]] = {
        "spare": "MB that stay free while the broker starts; then none do",
    }
    expected = "no byte free, and ended at every start"

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        self._spare = int(number(self._values, "spare") * _MEGABYTE)
        self._disk = SmallDisk(self._parts.broker.log_dir)
        self._ended_again: bool | None = None

    def take_down(self, broker: Broker) -> None:
        if broker.state != "stopped":
            broker.stop()
        try:
            self._disk.put(spare=self._spare)
        finally:
            broker.start()
        self._disk.fill()

    def bite(self) -> Bite:
        return self._parts.bite(
            "room on the disk of its log directory",
            self.expected,
            self.measure,
            within=_ENDS_WITHIN,
        )

    def measure(self) -> tuple[bool, object]:
        broker = self._parts.broker
        ended = self._disk.mounted and broker.state == "stopped"
        if ended and self._ended_again is None:
            self._ended_again = _ends(broker)
        free = self._disk.free if self._disk.mounted else None
        return free == 0 and bool(self._ended_again), {
            "free_bytes": free,
            "ended": ended,
            "ended_again": self._ended_again,
        }

    def heal(self) -> Sequence[str]:
        broker = self._parts.broker
        try:
            if self._disk.mounted:
                if broker.state == "paused":
                    broker.resume()
                broker.kill()
                self._disk.take_back()
        except (LinkflapError, OSError) as error:
            raise FaultError(
                f"the logs of {broker.cluster}/{broker.id} are not back on their own disk: {error}"
            ) from error
        return ["its logs are back on their own disk", *self._parts.heal()]


def _ends(broker: Broker) -> bool:
    """Whether the broker exits by itself after a start."""
    try:
        broker.start()
        until(lambda: broker.state == "stopped", within=_ENDS_WITHIN / 2, what="it to end")
    except DeadlineExceeded:
        return False
    except SetupError:
        return broker.state == "stopped"
    return True
