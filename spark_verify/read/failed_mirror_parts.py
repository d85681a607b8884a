"""Failed parts of a mirror: connectors and their tasks, by Kafka Connect's own states.

A failed part is not started again, so its last state counts from its failure on; that of a killed
worker ends with the worker. On a link that failed over only states from before the fault count:
later failures are consequences of the dead source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from linkflap.harness.model.events import Event, Failover, MirrorCrashed, MirrorState, of_kind

_WHAT: Final[Mapping[str, str]] = {
    "FAILED": "failed",
    "NONE": "never had a state",
    "PAUSED": "was paused",
    "STOPPED": "was stopped",
}
"""States of parts that do nothing."""
_BY_HAND: Final = ("PAUSED", "STOPPED")
"""By Connect's REST interface (KIP-875): nothing is wrong with the part, and it carries nothing
until somebody resumes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPart:
    """A connector (`task` is -1) or one of its tasks, on a link, and why it does nothing."""

    link: str
    connector: str
    task: int
    state: str
    trace: str

    def __str__(self) -> str:
        part = f"task {self.task} of {self.connector}" if self.task >= 0 else self.connector
        if self.state in _BY_HAND:
            return f"{part} of the mirror of {self.link} {_WHAT[self.state]}"
        lines = self.trace.strip().splitlines() or ["it gave no reason"]
        line = lines[0] if self.state == "FAILED" else lines[-1]
        return f"{part} of the mirror of {self.link} {_WHAT[self.state]}: {line.strip()}"


def failed_parts(events: Sequence[Event]) -> Sequence[FailedPart]:
    """The parts that were failed, or not running, right before their link failed over or the run
    ended."""
    over = {e.link: e.fault_time for e in of_kind(events, Failover)}
    last: dict[tuple[str, str, int], FailedPart | None] = {}
    for event in events:
        match event:
            case MirrorCrashed():
                last = {key: part for key, part in last.items() if key[0] != event.link}
            case MirrorState() if event.time <= over.get(event.link, event.time) or _never(event):
                # a worker that stops takes its parts away, also those that had failed
                if event.state in (*_WHAT, "RUNNING"):
                    last[event.link, event.connector, event.task] = (
                        None if event.state == "RUNNING" else _part(event)
                    )
    return [part for part in last.values() if part is not None]


def _never(event: MirrorState) -> bool:
    """Parts that Connect has no state of. That is known when the mirror is stopped, and was so
    before the failover too."""
    return event.state == "NONE"


def _part(event: MirrorState) -> FailedPart:
    return FailedPart(
        link=event.link,
        connector=event.connector,
        task=event.task,
        state=event.state,
        trace=event.trace,
    )
