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
    from linkflap.harness.judging.verifier import VerifierAnswer


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Judged:
    """A run and its verdict.

    `anomalies` includes those that the mirror's guarantee allows (`Anomaly.allowed`). `document` is
    the content of verdict.json, which `linkflap run --json` prints.
    """

    folder: Path
    verdict: Verdict
    checks: Mapping[str, CheckResult]
    anomalies: tuple[Anomaly, ...]
    failovers: tuple[Failover, ...]
    document: Mapping[str, Any]

    @property
    def valid(self) -> bool:
        """Whether every guarantee held, and enough was examined to prove it."""
        return self.verdict is Verdict.VALID

    @property
    def violations(self) -> tuple[Anomaly, ...]:
        """The anomalies that no guarantee allows."""
        return tuple(anomaly for anomaly in self.anomalies if not anomaly.allowed)

    @property
    def why(self) -> str:
        """The first cause with the command that explains it, one line for each check that is
        invalid or unknown, and the run directory."""
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
        """One line, which a failed `assert judged.valid` shows."""
        lines = self.why.splitlines()
        return (
            f"<{type(self).__name__} {self.verdict}: "
            f"{'; '.join(dict.fromkeys((lines[0], lines[-1])))}>"
        )

    def found(self, kind: str) -> tuple[Anomaly, ...]:
        """The anomalies of a kind, such as `lost-write`. Raises InputError for an unknown kind."""
        from linkflap.spark_verify.checks import REGISTRY

        known = sorted({each.name for check in REGISTRY.values() for each in check.anomalies})
        if kind not in known:
            raise InputError(f"there is no anomaly {kind!r}; known: {', '.join(known)}")
        return tuple(anomaly for anomaly in self.anomalies if anomaly.kind == kind)


def judged(judgement: VerifierAnswer) -> Judged:
    """Converts the verifier's judgement for users of the API."""
    return Judged(
        folder=judgement.folder,
        verdict=judgement.document.verdict,
        checks={check.name: check for check in judgement.document.checks},
        anomalies=judgement.anomalies,
        failovers=tuple(judgement.document.failovers),
        document=judgement.values,
    )
