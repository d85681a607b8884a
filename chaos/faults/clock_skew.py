"""clock-skew: a broker runs with a clock that is some seconds off until the heal.

Breaks    everything that depends on the time of day: LogAppendTime, retention, timeouts of
          transactions that another broker began, expiry of producers and groups. The fault shuts
          the broker down and starts it twice; its monotonic clock stays right.
Bite      the broker answers, and the times in its own log differ by that much from the file
          system's.
Heal      its process runs with the right time, its listener answers, it is in the ISR of every
          partition that it holds.

The clock is set by libfaketime, which is loaded into the broker's process
(`harness.runtimes.faketime`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final

from linkflap.chaos.faults.broker_parts import BrokerFault
from linkflap.chaos.faults.settings import number
from linkflap.harness.model.errors import FaultError, InputError, LinkflapError
from linkflap.harness.model.protocols import Bite, Broker, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.runtimes import faketime

_OPENED: Final = "["
_LAST: Final = 1 << 16
_LEAST: Final = 2.0
_MOST: Final = 3000.0


class ClockSkew(BrokerFault):
    """Restarts a broker with another time of day; options seconds, clock. Process runtime with
    libfaketime."""

    defaults: ClassVar[Mapping[str, Option]] = {"seconds": 30.0, "clock": "behind|ahead"}
    abouts: ClassVar[Mapping[str, str]] = {
        "seconds": (
            "how far its clock is off, 2 to 3000: an hour ahead, records of today are refused by "
            "default"
        ),
        "clock": "whether it is behind or ahead",
    }

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        seconds = number(self._values, "seconds")
        if not _LEAST <= seconds <= _MOST:
            raise InputError(
                f"option seconds of fault {spec.id!r} is {seconds:g}; it must be {_LEAST:g} to "
                f"{_MOST:g}"
            )
        self._off = seconds if self._values["clock"] == "ahead" else -seconds
        self._world = world
        self.expected = f"a clock {self._off:+g} s off"

    def take_down(self, broker: Broker) -> None:
        self._restart(broker, self._off)

    def _restart(self, broker: Broker, seconds: float) -> None:
        if broker.state == "paused":
            broker.resume()
        if broker.state != "stopped":
            broker.stop()
        self._world.deployment.skew_clock(broker.cluster, broker.id, seconds)
        try:
            broker.start()
        finally:
            faketime.forget(broker.pid)

    def bite(self) -> Bite:
        return self._parts.bite("times in its own log", self.expected, self.measure)

    def measure(self) -> tuple[bool, object]:
        answers = self._parts.answers(within=5.0) is not None
        off = clock_of(self._parts.broker.log)
        return answers and near(off, self._off), {"answers": answers, "seconds_off": off}

    def heal(self) -> Sequence[str]:
        broker = self._parts.broker
        try:
            self._restart(broker, 0.0)
        except LinkflapError as error:
            raise FaultError(
                f"the clock of {broker.cluster}/{broker.id} was not set right: {error}; see "
                f"{broker.log}"
            ) from error
        off = clock_of(broker.log)
        if near(off, self._off):
            raise FaultError(
                f"the clock of {broker.cluster}/{broker.id} is {off:+g} s off after its heal; see "
                f"{broker.log}"
            )
        return [f"its clock is {off} s off", *self._parts.heal()]


def clock_of(log: Path) -> float | None:
    """Seconds by which the time in a log's last line is after the file's modification time. None if
    no line has a time."""
    try:
        with log.open("rb") as file:
            written = log.stat()
            file.seek(max(0, written.st_size - _LAST))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    stamped = (_time(line) for line in reversed(lines))
    last = next((time for time in stamped if time is not None), None)
    return None if last is None else round(last - written.st_mtime, 3)


def _time(line: str) -> float | None:
    try:
        return (
            datetime.fromisoformat(line[1 : line.index("]")]).timestamp()
            if line.startswith(_OPENED)
            else None
        )
    except ValueError:
        return None


def near(off: float | None, wanted: float) -> bool:
    """Whether a clock is off by the requested amount, with a margin for the time that a busy
    machine takes to write a line."""
    return off is not None and abs(off - wanted) <= abs(wanted) / 2
