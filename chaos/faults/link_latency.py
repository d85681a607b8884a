"""link-latency: all data in one direction of a link are delayed by `latency` ms, plus or minus
`jitter` ms.

Breaks    the speed of acknowledgements and fetches; the order within a connection stays.
Bite      the quickest of three round trips takes at least latency - jitter, and that much of it was
          not there before.
Heal      no toxic of ours is left, the proxies are enabled, a round trip is as quick as before.
          Removing the toxic resets the connections (the proxy is created again for it), which is
          part of the heal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from linkflap.chaos.faults.bites import milliseconds
from linkflap.chaos.faults.link_path import LinkFault
from linkflap.chaos.faults.settings import direction, number
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.scenario import FaultSpec, Option

SAMPLES = 3
ANSWERS_WITHIN = 15.0
"""Seconds for one answer: a busy machine may answer late without a fault. Only a missing answer
counts as silence."""


class LinkLatency(LinkFault):
    """Delays what passes a link; options latency and jitter (ms), delayed (responses or
    requests)."""

    defaults: ClassVar[Mapping[str, Option]] = {
        "latency": 100,
        "jitter": 0,
        "delayed": "responses|requests",
    }
    abouts: ClassVar[Mapping[str, str]] = {
        "latency": "ms by which each chunk is delayed",
        "jitter": "ms by which the delay varies",
        "delayed": "the direction that is delayed",
    }

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        self._latency, self._jitter = (
            number(self._values, "latency"),
            number(self._values, "jitter"),
        )
        if self._jitter >= self._latency:
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) has latency {self._latency:g} and jitter "
                f"{self._jitter:g}; the latency must be more than the jitter"
            )
        self._direction = direction(self._values, "delayed")

    def inject(self) -> None:
        # A slow measurement on a busy machine would hide what the toxic adds.
        self._path.look(quick=self._least / 2)
        self._path.add(
            "latency", self._direction, latency=int(self._latency), jitter=int(self._jitter)
        )

    @property
    def _least(self) -> float:
        """The least that the toxic adds, in seconds: a little less than its latency, because
        Toxiproxy counts from when it read the bytes."""
        return 0.95 * (self._latency - self._jitter) / 1000

    def bite(self) -> Bite:
        return self._path.bite(
            "round trip over the link", {"at_least_ms": milliseconds(self._least)}, self._measure
        )

    def _measure(self) -> tuple[bool, object]:
        before, within = (
            self._path.before or 0.0,
            2 * (self._latency + self._jitter) / 1000 + ANSWERS_WITHIN,
        )
        trips = [self._path.link.round_trip(within=within) for _ in range(SAMPLES)]
        answered = [seconds for seconds in trips if seconds is not None]
        bit = len(answered) == SAMPLES and min(answered) >= max(
            self._least, before + self._least / 2
        )
        return bit, {
            "before_ms": milliseconds(before),
            "during_ms": [milliseconds(seconds) for seconds in trips],
        }
