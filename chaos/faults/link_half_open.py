"""link-half-open: one direction of a link goes silent while connections stay open; the other
direction still passes.

Breaks    the client's view. stalled=responses: requests arrive and take effect, but no answer
          returns (the classic origin of duplicates and of commits of unknown outcome).
          stalled=requests: nothing arrives, and no error shows it.
Bite      a new connection stays open and silent for longer than its first answer took before (an
          ended one would be a cut; of TLS that answer is the server's greeting), and a request sent
          into the path takes effect (stalled=responses) or does not (stalled=requests) as seen from
          behind the proxy.
Heal      no toxic of ours is left, the proxies are enabled, a round trip is as quick as before.
          Toxiproxy drops the bytes that were sent meanwhile, so the heal resets connections and
          never resumes them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import ClassVar

from linkflap.chaos.faults.link_path import ANSWERS_WITHIN, LinkFault
from linkflap.chaos.faults.settings import direction
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.scenario import FaultSpec, Option

SILENT_FOR = 0.7
EFFECT_WITHIN = 5.0
NO_EFFECT_WITHIN = 1.0
SLOWER = 5
"""Nothing happened if it takes this many times longer than before the fault. The factor allows for
a busy machine."""


class LinkHalfOpen(LinkFault):
    """Silences one direction of a link; option stalled (responses or requests)."""

    defaults: ClassVar[Mapping[str, Option]] = {"stalled": "responses|requests"}
    abouts: ClassVar[Mapping[str, str]] = {
        "stalled": "the direction in which nothing passes",
    }

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        self._stalled = direction(self._values, "stalled")
        self._delivered_before = False
        self._answered_in = self._delivered_in = 0.0
        """Before the fault: seconds until the first answer on a new connection, and until a request
        takes effect."""

    def inject(self) -> None:
        self._path.look()
        self._answered_in = self._path.link.first_answer(within=ANSWERS_WITHIN) or 0.0
        # Not the first request: it opens the connection, which is kept if it needs a login.
        self._delivered_before = self._path.link.delivers_requests(within=EFFECT_WITHIN)
        if self._delivered_before:
            began = time.monotonic()
            self._delivered_before = self._path.link.delivers_requests(within=EFFECT_WITHIN)
            self._delivered_in = time.monotonic() - began
        self._path.add("timeout", self._stalled, timeout=0)

    @property
    def _arrives(self) -> bool:
        """Whether a request should still take effect with this fault."""
        return self._stalled == "responses"

    def bite(self) -> Bite:
        expected = {"answered": False, "requests_take_effect": self._arrives}
        return self._path.bite(
            "silence, and the effect of a request seen from behind", expected, self._measure
        )

    def _measure(self) -> tuple[bool, object]:
        silence = max(SILENT_FOR, SLOWER * self._answered_in)
        start = time.monotonic()
        seconds = self._path.link.first_answer(within=silence)
        silent = seconds is None and time.monotonic() - start >= 0.9 * silence
        no_effect = max(NO_EFFECT_WITHIN, SLOWER * self._delivered_in)
        arrives = self._path.link.delivers_requests(
            within=EFFECT_WITHIN if self._arrives else no_effect
        )
        seen = {
            "took_effect_before": self._delivered_before,
            "answered": seconds is not None,
            "silent": silent,
            "requests_take_effect": arrives,
        }
        return silent and self._delivered_before and arrives is self._arrives, seen
