"""link-bandwidth: each connection over a link gets no more than `rate` KB/s in one direction.

Breaks    the mirror's throughput: it falls behind, and a fetch may outlast a request timeout.
Bite      pipelined responses over one connection come at no more than 1.3 times the rate, and
          slower than before.
Heal      no toxic of ours is left, the proxies are enabled, a round trip is as quick as before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import ClassVar

from linkflap.chaos.faults.link_path import LinkFault
from linkflap.chaos.faults.settings import number
from linkflap.harness.model.errors import DeadlineExceeded, InputError
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.wait import patient, until

MEASURED_SECONDS = 0.7
LEAST_BYTES = 16_384
TOLERANCE = 1.3
SLOWER = 0.8
WITHIN = 10.0


class LinkBandwidth(LinkFault):
    """Throttles the responses over a link; option rate (KB/s per connection)."""

    defaults: ClassVar[Mapping[str, Option]] = {"rate": 100}
    abouts: ClassVar[Mapping[str, str]] = {
        "rate": "KB/s per connection, at least 1",
    }

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        self._world = world
        self._rate = number(self._values, "rate")
        if self._rate < 1:
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) has rate {self._rate:g}; it must be at least 1 "
                "KB/s"
            )
        self._size = max(LEAST_BYTES, int(self._rate * 1000 * MEASURED_SECONDS))
        self._before: float | None = None

    def inject(self) -> None:
        self._path.look()
        self._before = self._unthrottled()
        self._path.add("bandwidth", "responses", rate=int(self._rate))

    def _unthrottled(self) -> float | None:
        """Bytes per second without the fault: of the first transfer that is so fast that the limit
        will visibly slow it down. If none is within the deadline, of the fastest.

        A busy machine, or a link that recovers from another fault, may transfer less than the
        limit for a moment. Compared with that, the throttled link would not be slower.
        """
        enough = self._rate * 1000 * TOLERANCE / SLOWER
        fastest: float | None = None

        def measured() -> bool:
            nonlocal fastest
            speed = self._path.link.transfer(size=self._size, within=patient(WITHIN))
            if speed is not None:
                fastest = max(speed, fastest or 0.0)
            return fastest is None or fastest > enough or self._world.stopping

        with contextlib.suppress(DeadlineExceeded):
            until(measured, within=patient(WITHIN), what="a transfer faster than the limit")
        return fastest

    def bite(self) -> Bite:
        expected = {"at_most_kb_per_s": round(self._rate * TOLERANCE, 1)}
        return self._path.bite("throughput of responses over the link", expected, self._measure)

    def _measure(self) -> tuple[bool, object]:
        within = patient(WITHIN) + 2 * self._size / (self._rate * 1000)
        speed = self._path.link.transfer(size=self._size, within=within)
        bit = bool(
            speed
            and self._before
            and speed <= self._rate * 1000 * TOLERANCE
            and speed < SLOWER * self._before
        )
        return bit, {
            "before_kb_per_s": _kilobytes(self._before),
            "during_kb_per_s": _kilobytes(speed),
        }


def _kilobytes(speed: float | None) -> float | None:
    return None if speed is None else round(speed / 1000, 1)
