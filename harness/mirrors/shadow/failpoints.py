"""Failpoints: stops a shadow exactly at a step, so that a test can kill, stall or isolate it there.
Off unless asked for.

The environment variable LINKFLAP_SHADOW_PAUSE_AT names the step. A shadow that reaches it for the
first time says so in its status (`control.Status.step`) and goes on at the command {"do": "go-on"};
everything beside the step continues, heartbeats and followers' fetches among it. Each step comes
after its journal entry and before the next action.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Literal, get_args

from linkflap.harness.model.errors import InputError

log = logging.getLogger(__name__)
PAUSE_AT: Final = "LINKFLAP_SHADOW_PAUSE_AT"

Step = Literal[
    "planned",  # a takeover is written down, nothing is touched
    "registered",  # unfenced, nothing followed yet
    "joined",  # what is taken over has the shadow among its replicas
    "claimed",  # the shadow is in its ISRs, beside real brokers
    "elected",  # the shadow leads it, real brokers are in its ISRs still
    "alone",  # the shadow alone is in its ISRs, nothing is truncated
    "truncating",  # where logs are truncated is recorded, and sent to followers
    "truncated",  # all live replicas end there
    "noted",  # a topic is written down, nothing is made
    "created",  # a topic is made, on the shadow alone
    "grown",  # added partitions are made: real brokers are in their ISR
    "narrowed",  # the shadow alone is in every ISR, reassignments are asked for
    "settling",  # the source is read no more
    "settled",  # every live replica has the same, nothing is ended yet
    "ending",  # where logs end is written down
    "before-epoch",  # it is known what is open
    "after-epoch",  # a new leader epoch for markers
    "appended",  # markers are appended and written down, followers fetch them
    "ended",  # nothing is open, every live replica has it
    "handing-over",  # promotion offsets are written down
    "reassigned",  # reassignments to those that live
    "in-sync",  # real brokers are in the ISR: they lead
    "handed",  # all partitions are led, configs are not restored
    "handed-over",  # done and written down, still registered
]
"""In the order in which a shadow comes by them."""
STEPS: Final[tuple[Step, ...]] = get_args(Step)


class Steps:
    """Where one shadow is to stop. `at` is the step that it stands at, or empty."""

    def __init__(self, pause_at: str) -> None:
        if pause_at and pause_at not in STEPS:
            raise InputError(
                f"{PAUSE_AT} is {pause_at!r}, no step of a shadow; it must be one of "
                f"{', '.join(STEPS)}, or not be set"
            )
        self._pause_at = pause_at
        self._resumed = asyncio.Event()
        self.at = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Steps:
        """Raises InputError for a step that there is not."""
        return cls(environment.get(PAUSE_AT, ""))

    async def reach(self, step: Step) -> None:
        """Returns at once unless this is where to stop. Whoever comes there stops; after one resume
        nobody stops any more."""
        if step == self._pause_at and not self._resumed.is_set():
            if not self.at:
                log.info("stands at %s", step)
            self.at = step
            await self._resumed.wait()
            self.at = ""

    def go_on(self) -> None:
        self._resumed.set()
