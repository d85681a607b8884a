"""The result of a run: its verdict, what each check examined and found, and its run directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.failover_cost import Failover
from linkflap.harness.model.verdict import Anomaly, CheckResult, Verdict

if TYPE_CHECKING:
    from linkflap.harness.judging.verifier import Judgement


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Judged:
    """A run and what was found in it.

    `anomalies` are all that was found, also what the mirror's guarantee allows (`Anomaly.allowed`);
    `document` is what `linkflap run --json` prints and verdict.json holds.
    """

    folder: Path
    verdict: Verdict
    checks: Mapping[str, CheckResult]
    anomalies: tuple[Anomaly, ...]
    failovers: tuple[Failover, ...]
    document: Mapping[str, Any]

    @property
    def valid(self) -> bool:
        """Whether every guarantee held and enough was examined to prove it."""
        return self.verdict is Verdict.VALID

    @property
    def violations(self) -> tuple[Anomaly, ...]:
        """The anomalies that no guarantee allows."""
        return tuple(anomaly for anomaly in self.anomalies if not anomaly.allowed)

    @property
    def why(self) -> str:
        """The first cause and how to see it, one line per check that is invalid or unknown, and
        where the run directory is."""
        cause = self.document.get("cause")
        first = [cause, f"see it: linkflap explain {quote(str(self.folder))} 1"] if cause else []
        wrong = [
            check
            for check in self.checks.values()
            if check.verdict in (Verdict.INVALID, Verdict.UNKNOWN)
        ]
        lines = [f"{check.name}: {check.verdict}: {check.reason}" for check in wrong]
        return "\n".join([*first, *lines, f"run directory: {self.folder}"])

    def __repr__(self) -> str:
        """In one line: what a failed `assert judged.valid` shows."""
        lines = self.why.splitlines()
        return (
            f"<{type(self).__name__} {self.verdict}: "
            f"{'; '.join(dict.fromkeys((lines[0], lines[-1])))}>"
        )

    def found(self, kind: str) -> tuple[Anomaly, ...]:
        """The anomalies of a kind, such as `lost-write`. Raises InputError for a kind that no check
        has."""
        from linkflap.spark_verify.checks import REGISTRY

        known = sorted({each.name for check in REGISTRY.values() for each in check.anomalies})
        if kind not in known:
            raise InputError(f"there is no anomaly {kind!r}; there is {', '.join(known)}")
        return tuple(anomaly for anomaly in self.anomalies if anomaly.kind == kind)


def judged(judgement: Judgement) -> Judged:
    """The verifier's judgement as users of the API have it."""
    return Judged(
        folder=judgement.folder,
        verdict=judgement.document.verdict,
        checks={check.name: check for check in judgement.document.checks},
        anomalies=judgement.anomalies,
        failovers=tuple(judgement.document.failovers),
        document=judgement.values,
    )
