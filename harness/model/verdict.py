"""Verdicts, anomalies, and the verdict document. valid < unknown < invalid, merged as in Jepsen;
`not due` does not count.

The judge makes the document, verdict.json is its encoding, and reports read it. An anomaly has two
other forms only: the finding of a kernel (`spark_verify.checks.base.Found`) and the row that
carries it through Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from linkflap.harness.model import errors


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotedPartition:
    """The cost of a failover for one partition. `producer_ids` counts the producer ids of the
    records mirrored below the promotion offset.

    `aborted` counts transactions and `truncated` offsets, as the mirror recorded them; None where
    it recorded nothing. `group_skip` and `group_replay` count the records that groups skipped, and
    read again, on the destination.
    """

    topic: str
    partition: int
    promotion_offset: int
    rpo_records: int | None = None
    rto_seconds: float | None = None
    producer_ids: int | None = None
    aborted: int | None = None
    truncated: int | None = None
    group_skip: int | None = None
    group_replay: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One failover as the bytes show it: `promoted` partitions. `rto_seconds` is None when no write
    succeeded afterwards, or with `rpo_records` when no acknowledgement was recorded.

    It counts the transactions that were open when it began, those that the mirror aborted, and
    those that are visible only in part. `refused` (error -> count) is how often the mirror refused
    the failover before it accepted it, `accepted_after` seconds after the first request; only from
    mirrors that record this.
    """

    link: str
    kind: str = ""
    promoted: int | None = None
    rpo_records: int | None = None
    rto_seconds: float | None = None
    rpo_budget: int | None = None
    rto_budget: float | None = None
    fault_time: int = 0
    open_transactions: int | None = None
    aborted_transactions: int | None = None
    torn_transactions: int | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    accepted_after: float | None = None
    partitions: tuple[PromotedPartition, ...] = ()

    @property
    def costs(self) -> str:
        """RPO and RTO in words, each with its budget if it has one."""
        lost, back = "unknown", "unknown"
        if self.rpo_records is not None:
            lost = f"{self.rpo_records:,} record{'s' if self.rpo_records != 1 else ''}"
            back = "no write succeeded afterwards"
        if self.rto_seconds is not None:
            back = f"{self.rto_seconds:.2f} s"
        if self.rpo_budget is not None:
            lost += f" (budget {self.rpo_budget:,})"
        if self.rto_budget is not None:
            back += f" (budget {self.rto_budget:g} s)"
        return f"RPO {lost}, RTO {back}"

    @property
    def refusals(self) -> str:
        """The error of the refusals of the failover, and their duration, in words; empty if it was
        not refused."""
        if not self.refused:
            return ""
        errors = ", ".join(f"{n} x {error}" for error, n in sorted(self.refused.items()))
        after = (
            "" if self.accepted_after is None else f", accepted after {self.accepted_after:.2f} s"
        )
        return f"refused at first: {errors}{after}"


class Verdict(StrEnum):
    """What is known of a guarantee after looking at what a run left behind.

    Not due: the run has nothing that the guarantee speaks of. It makes a run neither valid nor
    unknown; where nothing at all was due, nothing is known.
    """

    NOT_DUE = "not due"
    VALID = "valid"
    UNKNOWN = "unknown"
    INVALID = "invalid"

    @property
    def exit_code(self) -> int:
        """The exit code of `linkflap run` and `linkflap verify`."""
        return {
            "not due": errors.UNKNOWN,
            "valid": errors.VALID,
            "unknown": errors.UNKNOWN,
            "invalid": errors.INVALID,
        }[self.value]


ORDER: Final = (Verdict.NOT_DUE, Verdict.VALID, Verdict.UNKNOWN, Verdict.INVALID)
"""From `not due`, which does not count, to the worst."""


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of several verdicts. Without any, or if nothing was due, it is unknown: nothing was
    examined."""
    return max(
        (v for v in verdicts if v is not Verdict.NOT_DUE), key=ORDER.index, default=Verdict.UNKNOWN
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One violation, or one departure that a mirror's guarantee allows, at one offset of one log.

    `offset` is -1 where the anomaly has no offset (a record that no log has). `evidence` is plain
    JSON values. `cause` is the number of its cause in the document, 0 if nothing is proven;
    `sentence` tells who did what where.
    """

    check: str
    kind: str
    cluster: str = ""
    topic: str = ""
    partition: int = -1
    offset: int = -1
    allowed: bool = False
    cause: int = 0
    sentence: str = ""
    evidence: Mapping[str, object] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The place of the anomaly: `B A.orders-0 @ 1234`."""
        log = f"{self.cluster} {self.topic}".strip() + (
            f"-{self.partition}" if self.partition >= 0 else ""
        )
        return f"{log} @ {self.offset}" if self.offset >= 0 else log

    @property
    def address(self) -> str:
        """The name of the anomaly on the command line: `check:cluster:topic-partition@offset`."""
        return f"{self.check}:{self.cluster}:{self.topic}-{self.partition}@{self.offset}"

    @property
    def why(self) -> str:
        """Why the anomaly is allowed, in the words of the evidence."""
        return next(
            (str(self.evidence[key]) for key in _WHY if self.evidence.get(key)),
            "the mirror's guarantee permits it here",
        )

    @property
    def shown(self) -> Mapping[str, object]:
        """The evidence without the facts that `why` already has."""
        return {
            key: value
            for key, value in self.evidence.items()
            if not (self.allowed and str(value) == self.why)
        }


_WHY: Final = ("why", "allowed_because", "because", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one check examined and found. `examined` counts per "cluster/origin", origin being
    native or mirrored; `anomalies` counts those that are not allowed, `kinds` all of them by kind.
    """

    name: str
    verdict: Verdict = Verdict.UNKNOWN
    examined: Mapping[str, int] = field(default_factory=dict)
    anomalies: int = 0
    allowed: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDeath:
    """A process of clients that died, by itself or by a fault. `in_flight` are its operations that
    never returned."""

    process: str
    time: int = 0
    by: str = ""
    clients: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    status: int = 0
    signal: str = ""
    in_flight: tuple[Mapping[str, object], ...] = ()
    last_words: tuple[str, ...] = ()
    again: bool = False

    @property
    def done(self) -> bool:
        """Whether the process was a program that runs once and succeeded."""
        return self.by == "itself" and not (self.status or self.again)

    @property
    def how(self) -> str:
        """How the process died, and by which fault if by one: in words."""
        how = self.signal or f"exit status {self.status}"
        return how if self.by == "itself" else f"by fault {self.by}, {how}"

    @property
    def flying(self) -> str:
        """The operations in flight, in words."""
        kinds = [
            f"{op.get('kind')} {op.get('operation')} ({op.get('ending')}) of {op.get('client')}"
            for op in self.in_flight
        ]
        return ", ".join(kinds) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class EraResult:
    """One era of one log: offsets [start, end), written by clients of `owner`, here or (`source`)
    mirrored from there.

    `generation` counts those of the log; `truncated`: it was, when its cluster was made to follow.
    `compared` counts by unit.
    """

    topic: str
    partition: int
    cluster: str
    generation: int = 0
    origin: str = ""
    owner: str = ""
    source: str = ""
    start: int = 0
    end: int | None = None
    truncated: bool = False
    compared: Mapping[str, int] = field(default_factory=dict)
    anomalies: int = 0
    allowed: int = 0
    verdict: Verdict = Verdict.NOT_DUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """The consequences of one kind that follow from a cause. `said` is their sum in words;
    `anomaly` the number of the first, 0: not shown."""

    check: str
    kind: str
    count: int = 0
    said: str = ""
    anomaly: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Anomalies that follow from no other, in one sentence. `anomaly` is the number of the first of
    `count`."""

    sentence: str
    check: str
    kind: str
    cluster: str = ""
    anomaly: int = 0
    count: int = 0
    consequences: tuple[Consequence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The verdict on one run directory: what verdict.json holds, `--json` prints and every report
    shows.

    `by_bytes` says why the verdict rests on bytes (and what readers got) without acknowledgements;
    empty where those were recorded. `allowed` counts, in words, what the guarantee allowed. `cause`
    is the first cause in one sentence. `mostly_failed` names the error that most operations of
    clients failed with; empty unless one did. `forwarded_unread` counts per cluster, by API and
    version, the requests of programs that no check needs. Anomalies and eras are capped, counts
    never.
    """

    verdict: Verdict
    reason: str = ""
    run: str = ""
    seed: int = 0
    scenario: str = ""
    runtime: str = ""
    mirror: str = ""
    checks: tuple[CheckResult, ...] = ()
    failovers: tuple[Failover, ...] = ()
    cause: str = ""
    causes: tuple[Cause, ...] = ()
    anomalies: tuple[Anomaly, ...] = ()
    anomalies_left_out: int = 0
    eras: tuple[EraResult, ...] = ()
    eras_left_out: int = 0
    clients_died: tuple[ClientDeath, ...] = ()
    by_bytes: str = ""
    allowed: str = ""
    mostly_failed: str = ""
    forwarded_unread: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def violations(self) -> list[Anomaly]:
        return [anomaly for anomaly in self.anomalies if not anomaly.allowed]

    @property
    def departures(self) -> list[Anomaly]:
        """Anomalies that the mirror's guarantee allows."""
        return [anomaly for anomaly in self.anomalies if anomaly.allowed]

    @property
    def left_out(self) -> int:
        """Anomalies that were counted and are not in the document, which caps them."""
        return max(0, sum(check.anomalies for check in self.checks) - len(self.violations)) + max(
            0, sum(check.allowed for check in self.checks) - len(self.departures)
        )
