"""The content of run.json, the kinds of rows of a run directory, and damage to it.

Files of older versions of linkflap have former names of kinds of anomalies. Everything that was
stored goes through a converter to the present names: guarantees in run.json, verdicts, results of
suites and of cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self, TypeVar

from linkflap.harness.model.history import EventRow, GroupOffset, Operation, Poll, Watermark
from linkflap.harness.model.scenario import SCHEMA_VERSION, Scenario
from linkflap.harness.model.wait import now
from linkflap.harness.version import VERSION

RENAMED: Final[Mapping[bytes, bytes]] = {
    b"skipped-by-cut": b"skipped-by-truncation",
    b"tail-not-cut": b"tail-not-truncated",
    b"cut-not-made": b"truncation-not-made",
}
_OLD: Final = re.compile(rb"(?<![\w-])(?:" + b"|".join(RENAMED) + rb")(?![\w-])")


def with_current_kinds(content: bytes) -> bytes:
    """A stored JSON document, or a line of one, with the present name of every kind of anomaly."""
    return _OLD.sub(lambda found: RENAMED[found[0]], content)


FORMAT: Final = SCHEMA_VERSION
Status = Literal["running", "finished", "interrupted", "failed"]
Row = TypeVar("Row", Operation, Poll, Watermark, GroupOffset, EventRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The content of run.json.

    `recorded`: clients' histories were recorded; else there are only logs
    (`harness.capture.folders`). `homes` are the home clusters of topics whose names do not begin
    with them. `leaders_only`: only one replica of every partition could be read, so whether the
    others agree is unknown. `environment`: the machine and software of the recording, for people
    (`linkflap.recording.surroundings`); empty in runs of older versions. `digests`: its manifest
    has the size and digest of every file; false in runs of older versions.
    """

    format: int
    linkflap: str
    command: str
    runtime: str
    status: Status
    started: int
    ended: int
    scenario: Scenario
    error: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    recorded: bool = True
    homes: Mapping[str, str] = field(default_factory=dict)
    leaders_only: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    digests: bool = False

    @classmethod
    def begun(cls, scenario: Scenario, runtime: str, command: str = "") -> Self:
        """A run of this linkflap that starts now, in the current format."""
        return cls(
            format=FORMAT,
            linkflap=VERSION,
            command=command,
            runtime=runtime,
            status="running",
            started=now(),
            ended=0,
            scenario=scenario,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A part of a run directory that cannot be trusted, and why."""

    path: str
    reason: str
