"""Failpoints: a test pauses a shadow exactly at a step, to kill, stall or isolate it there. Off by
default.

The environment variable LINKFLAP_SHADOW_PAUSE_AT names the step. A shadow that reaches it reports
it in its status (`control.Status.step`) and waits for the command {"do": "go-on"}. Everything else
continues, including heartbeats and the followers' fetches. Each step comes after its journal entry
and before the next action.
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
    "planned",  # the journal has the plan of a takeover; nothing is changed yet
    "registered",  # registered and unfenced; no topic is mirrored yet
    "joined",  # the shadow is a replica of all partitions it takes over
    "claimed",  # the shadow is in their ISRs, together with real brokers
    "elected",  # the shadow leads them; real brokers are still in the ISRs
    "alone",  # the shadow alone is in the ISRs; nothing is truncated yet
    "truncating",  # the journal has the truncation offsets; followers receive them
    "truncated",  # all live replicas end at the truncation offset
    "noted",  # the journal has a new topic; it is not created yet
    "created",  # the topic is created, with the shadow as its only replica
    "grown",  # added partitions are created: real brokers are in their ISRs
    "narrowed",  # the shadow alone is in every ISR; reassignments are requested
    "settling",  # the source is no longer fetched from
    "settled",  # all live replicas are equal; nothing is truncated or aborted yet
    "ending",  # the journal has the offsets at which the logs end
    "before-epoch",  # the open transactions are known
    "after-epoch",  # the partitions have a new leader epoch for the markers
    "appended",  # markers are appended and in the journal; followers fetch them
    "ended",  # no transaction is open; every live replica has the markers
    "handing-over",  # the journal has the promotion offsets
    "reassigned",  # partitions are reassigned to live brokers
    "in-sync",  # real brokers are in the ISRs and can lead
    "handed",  # real brokers lead all partitions; configs are not restored yet
    "handed-over",  # the journal has the end of the failover; still registered
]
"""In the order in which a shadow reaches them."""
STEPS: Final[tuple[Step, ...]] = get_args(Step)


class Steps:
    """The failpoint of one shadow. `at` is the step at which it is paused, or empty."""

    def __init__(self, pause_at: str) -> None:
        if pause_at and pause_at not in STEPS:
            raise InputError(
                f"{PAUSE_AT} is {pause_at!r}, which is not a step of a shadow; set it to one of "
                f"{', '.join(STEPS)}, or unset it"
            )
        self._pause_at = pause_at
        self._resumed = asyncio.Event()
        self.at = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Steps:
        """Reads LINKFLAP_SHADOW_PAUSE_AT. Raises InputError for an unknown step."""
        return cls(environment.get(PAUSE_AT, ""))

    async def reach(self, step: Step) -> None:
        """Waits here when `step` is the failpoint, otherwise returns at once. Every task that
        reaches it waits; after the first `go_on` none does."""
        if step == self._pause_at and not self._resumed.is_set():
            if not self.at:
                log.info("paused at %s", step)
            self.at = step
            await self._resumed.wait()
            self.at = ""

    def go_on(self) -> None:
        self._resumed.set()
