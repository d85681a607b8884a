"""Which parts of a mirror had failed: MirrorMaker 2's connectors and their tasks, as Kafka Connect keeps their states.

A failed part is not started again, so its last state counts from when it failed on; that of a worker that was killed ends with
it. Of a link that failed over only what was so before the fault counts: what a dead source does to the rest is no failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from linkflap.harness.model.history import Event

CARRIES_GROUPS: Final = "MirrorCheckpointConnector"
"""The connector that carries committed offsets of groups."""
_WHAT: Final[Mapping[str, str]] = {
    "FAILED": "failed",
    "NONE": "never had a state",
    "PAUSED": "was paused",
    "STOPPED": "was stopped",
}
"""States of parts that do nothing."""
_BY_HAND: Final = ("PAUSED", "STOPPED")
"""By Connect's REST interface (KIP-875): nothing is wrong with the part, and it carries nothing until somebody resumes it."""


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
        lines = self.trace.strip().splitlines() or ["nobody said why"]
        said = lines[0] if self.state == "FAILED" else lines[-1]
        return f"{part} of the mirror of {self.link} {_WHAT[self.state]}: {said.strip()}"


def failed_parts(events: Sequence[Event]) -> Sequence[FailedPart]:
    """The parts whose last state before their link failed over, or before the run ended, is that they do nothing."""
    over = {e.subject: time for e in events if e.kind == "failover" and isinstance(time := e.data.get("fault_time"), int)}
    last: dict[tuple[str, str, int], FailedPart | None] = {}
    for event in events:
        if event.kind == "mirror-crashed":
            last = {key: part for key, part in last.items() if key[0] != event.subject}
        elif event.kind == "mirror-state" and (event.time <= over.get(event.subject, event.time) or _never(event)):
            part = _part(event)
            if part.state in (*_WHAT, "RUNNING"):  # a worker that stops takes its parts away, also those that had failed
                last[part.link, part.connector, part.task] = None if part.state == "RUNNING" else part
    return [part for part in last.values() if part is not None]


def _never(event: Event) -> bool:
    """A part that never had a state had none before the failover either: it is looked for when the mirror is stopped."""
    return event.data.get("state") == "NONE"


def _part(event: Event) -> FailedPart:
    task = event.data.get("task")
    return FailedPart(
        link=event.subject,
        connector=str(event.data.get("connector")),
        task=task if isinstance(task, int) else -1,
        state=str(event.data.get("state")),
        trace=str(event.data.get("trace") or ""),
    )
