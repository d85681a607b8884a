"""broker-disk-slow: a broker's writes to its log directory are slow, as on a failing disk.

Breaks    every append waits: producers with acks=all wait for the slowest in-sync replica, until it
          leaves the ISR. Fetches, segment rolls and the controller's own log wait behind the
          appends. The broker still answers.
Bite      a process with the broker's limit takes the time for a write that follows from the rate,
          and one without takes a fraction of it.
Heal      its logs are back on their own disk, its process runs, its listener answers, it is in the
          ISR of every partition.

The log directory is on a small disk of its own for the window, which is mounted so that every write
waits, and the kernel limits the broker's write rate (`harness.runtimes.slow_disk`). For that the
broker is shut down and started twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from linkflap.chaos.faults.broker_parts import BrokerFault
from linkflap.chaos.faults.settings import number
from linkflap.harness.model.errors import FaultError, InputError, LinkflapError
from linkflap.harness.model.protocols import Bite, Broker, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.runtimes.slow_disk import SlowDisk

_KILOBYTE: Final = 1 << 10
_SPARE: Final = 256 << 20
_LEAST: Final = 16.0
_BITES_WITHIN: Final = 60.0


class BrokerDiskSlow(BrokerFault):
    """Slows down the disk of a broker's log directory; option rate (KB/s). Needs root."""

    defaults: ClassVar[Mapping[str, Option]] = {"rate": 256.0}
    abouts: ClassVar[Mapping[str, str]] = {"rate": "KB that it writes in a second, at least 16"}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        rate = number(self._values, "rate")
        if rate < _LEAST:
            raise InputError(
                f"option rate of fault {spec.id!r} is {rate:g}; it must be {_LEAST:g} KB/s or more"
            )
        self._rate = int(rate * _KILOBYTE)
        broker = self._parts.broker
        self._disk = SlowDisk(broker.log_dir, f"{broker.cluster}-{broker.id}")
        self.expected = f"{self._rate // _KILOBYTE} KB/s"

    def take_down(self, broker: Broker) -> None:
        if broker.state == "paused":
            broker.resume()
        if broker.state != "stopped":
            broker.stop()
        try:
            self._disk.put(spare=_SPARE)
        finally:
            broker.start()
        self._parts.heal()  # the bite must be the slow disk's, not the restart's
        pid = broker.pid
        if pid is None:
            raise FaultError(
                f"broker {broker.cluster}/{broker.id} ended before its disk was slow; see "
                f"{broker.log}"
            )
        self._disk.slow(pid, rate=self._rate)

    def bite(self) -> Bite:
        return self._parts.bite(
            "writes to the disk of its log directory",
            self.expected,
            self.measure,
            within=_BITES_WITHIN,
        )

    def measure(self) -> tuple[bool, object]:
        size = self._rate  # of a second
        try:
            free, limited = self._disk.unlimited(size), self._disk.seconds(size)
        except OSError as error:
            return False, str(error)
        answers = self._parts.answers(within=10.0) is not None
        seen = {
            "bytes": size,
            "seconds_limited": round(limited, 3),
            "seconds_without": round(free, 3),
            "answers": answers,
        }
        return bitten(limited, free) and answers, seen

    def heal(self) -> Sequence[str]:
        broker = self._parts.broker
        try:
            self._disk.fast()
            if self._disk.mounted:
                if broker.state == "paused":
                    broker.resume()
                if broker.state != "stopped":
                    broker.stop()
                self._disk.take_back()
        except (LinkflapError, OSError) as error:
            raise FaultError(
                f"the logs of {broker.cluster}/{broker.id} are not back on their own disk: {error}"
            ) from error
        return ["its logs are back on their own disk", *self._parts.heal()]


def bitten(limited: float, free: float) -> bool:
    """Whether a write of one second's worth of data was slow because of its limit: the same write
    without the limit must be at least twice as fast."""
    return limited >= 0.5 and limited >= 2 * free
