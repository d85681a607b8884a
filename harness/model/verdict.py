"""Verdicts, anomalies and what a check says of a run. valid < unknown < invalid, as Jepsen merges them; not due is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from linkflap.harness.model import errors


class Verdict(StrEnum):
    """What is known of a guarantee after looking at what a run left behind.

    Not due: the run has nothing that the guarantee speaks of. It makes a run neither valid nor unknown; where nothing at all
    was due, nothing is known.
    """

    NOT_DUE = "not due"
    VALID = "valid"
    UNKNOWN = "unknown"
    INVALID = "invalid"

    @property
    def exit_code(self) -> int:
        """The exit code of `linkflap run` and `linkflap verify`."""
        return {"not due": errors.UNKNOWN, "valid": errors.VALID, "unknown": errors.UNKNOWN, "invalid": errors.INVALID}[
            self.value
        ]


_ORDER = (Verdict.VALID, Verdict.UNKNOWN, Verdict.INVALID)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of several verdicts; of none at all, or where nothing was due, it is unknown: nothing was looked at."""
    return max((v for v in verdicts if v is not Verdict.NOT_DUE), key=_ORDER.index, default=Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One violation, or one departure that a mirror's guarantee allows, at one place in one log.

    `offset` is -1 where the anomaly has no offset (a record that is nowhere). `evidence` is plain JSON values.
    """

    check: str
    kind: str
    cluster: str
    topic: str
    partition: int
    offset: int
    evidence: Mapping[str, object] = field(default_factory=dict)
    allowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one check examined and found. `examined` counts per "cluster/origin", origin being native or mirrored."""

    name: str
    verdict: Verdict
    examined: Mapping[str, int]
    anomalies: int
    allowed: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One failover as the bytes show it. `rto_seconds` is None when no write succeeded afterwards."""

    link: str
    kind: str
    promoted: int
    rpo_records: int
    rto_seconds: float | None
