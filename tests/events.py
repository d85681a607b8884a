"""Events as tests write them: kind, subject and data, with defaults for what a test does not need;
and recorders of events."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.model.events import Event, Kind, read, stamped
from linkflap.harness.model.history import EventRow
from linkflap.harness.model.wait import now

_LEAST: Final[Mapping[str, Mapping[str, object]]] = {
    "fault-bite": {"observable": "it", "measured": 1, "expected": 1},
    "fault-heal": {"checked": []},
    "mirror-stopped": {"drained": True},
    "mirror-crashed": {"by": "SIGKILL"},
    "failover": {"kind": "forced", "fault_time": 0, "open_transactions": 0},
    "broker-died": {"status": 1, "out_of_memory": None, "last_words": []},
}
"""The defaults."""


def event(kind: str, subject: str, /, at: int = 0, **data: object) -> Event:
    """An event. If `at` (ns) is 0, the recorder sets the time. Raises ValueError if the data do not
    fit the kind."""
    return read(
        EventRow(time=at, kind=kind, subject=subject, data={**_LEAST.get(kind, {}), **data})
    )


def append_row(root: Path, kind: str, subject: str, /, **data: object) -> EventRow:
    """Adds any line to a run's events, with the current time."""
    row = EventRow(time=now(), kind=kind, subject=subject, data=data)
    with (root / "events.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(row) + b"\n")
    return row


class Rows(list[tuple[str, str, Mapping[str, object]]]):
    """A recorder that keeps kind, subject and data."""

    def write(self, event: Kind, /) -> Kind:
        self.append((event.kind, event.subject, event.row.data))
        return stamped(event)
