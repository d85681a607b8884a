"""link-flap: a link is cut and restored repeatedly until the window ends: down, up, down, up.

Breaks    repeated reconnecting: back-off, metadata refresh, and fetch sessions that never last.
Bite      new connections go from answered to refused or ended twice in the window with an answer
          between (once, if the window is too short for two). An answer is the answer to the first
          bytes that a client sends: those of TLS, if there is TLS.
Heal      the flapping has stopped, the proxies are enabled and without toxics of ours, a round trip
          is as quick as before.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from typing import ClassVar

from linkflap.chaos.faults.link_path import ENDED_WITHIN, LinkFault
from linkflap.chaos.faults.settings import number
from linkflap.harness.model.errors import FaultError, InputError, LinkflapError
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.wait import patient

STOPS_WITHIN = 60.0


class LinkFlap(LinkFault):
    """Cuts and restores a link repeatedly; options down and up (seconds), jitter (0 to 1, share of
    each), seed."""

    defaults: ClassVar[Mapping[str, Option]] = {"down": 0.5, "up": 0.5, "jitter": 0.0, "seed": 0}
    abouts: ClassVar[Mapping[str, str]] = {
        "down": "seconds of each interruption, above 0",
        "up": "seconds between two interruptions, above 0",
        "jitter": "share by which each of them varies, from 0 to below 1",
        "seed": "of what jitter rolls",
    }

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        self._down, self._up, self._jitter = (
            number(self._values, name) for name in ("down", "up", "jitter")
        )
        if not self._down or not self._up or self._jitter >= 1:
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) needs down and up above 0, and jitter below 1"
            )
        # The run's seed is in the options of a seeded schedule; the id keeps two flaps of one
        # schedule apart.
        self._rng = random.Random(f"{self._values['seed']}/{spec.id}")
        self._times = 2 if spec.duration >= 2 * self._down + self._up else 1
        self._healing = threading.Event()
        self._thread = threading.Thread(target=self._flap, name=f"flap {spec.id}", daemon=True)
        self._failure: LinkflapError | None = None

    def inject(self) -> None:
        self._path.look()
        self._thread.start()

    def _flap(self) -> None:
        try:
            while not self._healing.is_set():
                self._path.cut()
                self._healing.wait(self._rolled(self._down))
                self._path.restore()
                self._healing.wait(self._rolled(self._up))
        except LinkflapError as failure:
            self._failure = failure

    def _rolled(self, seconds: float) -> float:
        return seconds * (1 + self._jitter * self._rng.uniform(-1, 1))

    def bite(self) -> Bite:
        watched = _Interruptions()

        def measure() -> tuple[bool, object]:
            watched.see(answered=self._path.answers(within=ENDED_WITHIN))
            return watched.count >= self._times, {"interruptions": watched.count}

        expected = {"interruptions": self._times}
        within = 5 * (self._times + 1) * (self._down + self._up) + 5.0
        return self._path.bite(
            "answered and ended connections", expected, measure, within=patient(within)
        )

    def heal(self) -> Sequence[str]:
        self._healing.set()
        if self._thread.ident is not None:
            self._thread.join(STOPS_WITHIN)
        if self._thread.is_alive():
            raise FaultError(
                f"{self._thread.name} did not stop within {STOPS_WITHIN:g} s: its toxiproxy-server "
                "hangs; end the run"
            )
        if self._failure is not None:
            self._path.heal()
            raise FaultError(f"{self._thread.name} ended early: {self._failure}")
        return ["flapping stopped", *self._path.heal()]


class _Interruptions:
    """Counts how often answered turned to unanswered; the path answered before."""

    def __init__(self) -> None:
        self.count, self._answered = 0, True

    def see(self, *, answered: bool | None) -> None:
        """None is neither: no answer and no end of the connection was seen."""
        if self._answered and answered is False:
            self.count += 1
        self._answered = self._answered if answered is None else answered
