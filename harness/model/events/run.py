"""The run itself, its machine, and notes of other programs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from linkflap.harness.model.events.base import Event


class Phase(Event, frozen=True, kw_only=True):
    """A part of the run begins (`harness.recording.run`)."""

    name: str = msgspec.field(name="subject")


class HostStall(Event, frozen=True, kw_only=True):
    """The machine did not wake a thread for so many seconds (`harness.capture.watermarks`)."""

    host: str = msgspec.field(name="subject", default="host")
    seconds: float


class Interrupted(Event, frozen=True, kw_only=True):
    """The run was interrupted (`harness.recording.run`)."""

    what: str = msgspec.field(name="subject", default="run")
    by: str


class NotEnded(Event, frozen=True, kw_only=True):
    """Faults, clients, watermarks or the deployment did not end in time, when the run broke off
    (`harness.recording.run`)."""

    what: str = msgspec.field(name="subject")
    reason: str


class Note(Event, frozen=True, kw_only=True):
    """An event of a user's own fault, mirror or scenario: a name and any data. No check reads
    it."""

    about: str = msgspec.field(name="subject")
    name: str
    data: Mapping[str, object]
