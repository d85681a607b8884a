"""The verdict document (`verdict.json`, and what `--json` prints) as typed values, however little of it there is.

A check that crashed, a run without failovers, a document of an older linkflap: what is missing has an empty value, because a
report must never be the reason why a verdict is not seen. Only a document that is no such document raises InputError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.verdict import Verdict

_WHY: Final = ("why", "allowed_because", "because", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """One check. `examined` counts per "cluster/origin"; `anomalies` are those not allowed; `kinds` counts all by kind."""

    name: str
    verdict: Verdict = Verdict.UNKNOWN
    examined: Mapping[str, int] = field(default_factory=dict)
    anomalies: int = 0
    allowed: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRow:
    """One failover; None where the bytes do not tell. `promoted` counts partitions."""

    link: str
    kind: str = ""
    promoted: int | None = None
    rpo_records: int | None = None
    rto_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDeathRow:
    """A process of clients that died, by itself or by a fault. `in_flight` are the operations that never returned."""

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
    def how(self) -> str:
        """By whom it was ended, and how."""
        return f"{'' if self.by == 'itself' else f'by fault {self.by}, '}{self.signal or f'exit status {self.status}'}"

    @property
    def flying(self) -> str:
        """What never returned, in words."""
        kinds = [f"{op.get('kind')} {op.get('operation')} ({op.get('ending')}) of {op.get('client')}" for op in self.in_flight]
        return ", ".join(kinds) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class EraRow:
    """One era of one log: offsets [start, end), written by clients of `owner`, here or (`source`) mirrored from there.

    `life` counts the log's generations; `cut`: it was truncated when its cluster was made to follow. `compared` counts by unit.
    """

    topic: str
    partition: int
    cluster: str
    life: int = 0
    origin: str = ""
    owner: str = ""
    source: str = ""
    start: int = 0
    end: int | None = None
    cut: bool = False
    compared: Mapping[str, int] = field(default_factory=dict)
    anomalies: int = 0
    allowed: int = 0
    verdict: Verdict = Verdict.NOT_DUE


@dataclass(frozen=True, slots=True, kw_only=True)
class EraLine:
    """One era of a cluster, all partitions together."""

    cluster: str
    what: str
    partitions: int
    offsets: str
    compared: Mapping[str, int]
    anomalies: int
    allowed: int
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyRow:
    """One anomaly with its evidence. `cause` is the number of its cause, 0 where nothing is proven."""

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
    def place(self) -> str:
        """Where it is: `B A.orders-0 @ 1234`."""
        where = f"{self.cluster} {self.topic}".strip() + (f"-{self.partition}" if self.partition >= 0 else "")
        return f"{where} @ {self.offset}" if self.offset >= 0 else where

    @property
    def shown(self) -> Mapping[str, object]:
        """The evidence without what `why` says already."""
        return {key: value for key, value in self.evidence.items() if not (self.allowed and str(value) == self.why)}

    @property
    def why(self) -> str:
        """Why it is allowed, in the words of the evidence."""
        return next((str(self.evidence[key]) for key in _WHY if self.evidence.get(key)), "the mirror's guarantee permits it here")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsequenceRow:
    """What of one kind follows from a cause. `said` is what it comes to; `anomaly` the number of the first, 0: not shown."""

    check: str
    kind: str
    count: int = 0
    said: str = ""
    anomaly: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRow:
    """Anomalies that follow from no other, in one sentence. `anomaly` is the number of the first of `count`."""

    sentence: str
    check: str
    kind: str
    cluster: str = ""
    anomaly: int = 0
    count: int = 0
    consequences: tuple[ConsequenceRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole verdict. `cause` is the first cause in one sentence."""

    verdict: Verdict
    run: str = ""
    seed: int = 0
    scenario: str = ""
    runtime: str = ""
    mirror: str = ""
    reason: str = ""
    cause: str = ""
    causes: tuple[CauseRow, ...] = ()
    checks: tuple[CheckRow, ...] = ()
    failovers: tuple[FailoverRow, ...] = ()
    clients_died: tuple[ClientDeathRow, ...] = ()
    anomalies: tuple[AnomalyRow, ...] = ()
    eras: tuple[EraRow, ...] = ()
    eras_left_out: int = 0

    @property
    def era_lines(self) -> list[EraLine]:
        """The eras, one line per cluster and era: of partitions whose logs began alike, and only what has the same words."""
        groups: dict[tuple[object, ...], list[EraRow]] = {}
        begun: dict[tuple[str, int, str, int], tuple[str, ...]] = {}
        ordinals: dict[tuple[object, ...], int] = {}
        for row in self.eras:
            log, whose = (row.topic, row.partition, row.cluster, row.life), (row.origin, row.source, row.owner)
            # A cluster's own topics are not what it took over, though both are native to it.
            same = begun.setdefault(log, whose), *whose
            ordinals[log, same] = ordinals.get((log, same), -1) + 1
            groups.setdefault((row.cluster, row.life, row.cut, same, ordinals[log, same]), []).append(row)
        # In the order of offsets: what was truncated before what relogd it.
        ordered = sorted(groups.values(), key=lambda rows: (rows[0].cluster, rows[0].start, not rows[0].cut))
        return [_line(rows) for rows in ordered]

    @property
    def violations(self) -> list[AnomalyRow]:
        return [anomaly for anomaly in self.anomalies if not anomaly.allowed]

    @property
    def departures(self) -> list[AnomalyRow]:
        """Anomalies that the mirror's guarantee allows."""
        return [anomaly for anomaly in self.anomalies if anomaly.allowed]

    @property
    def left_out(self) -> int:
        """Anomalies that were counted and are not in the document, which caps them."""
        return max(0, sum(check.anomalies for check in self.checks) - len(self.violations)) + max(
            0, sum(check.allowed for check in self.checks) - len(self.departures)
        )


def _line(rows: list[EraRow]) -> EraLine:
    first = rows[0]
    what = "native" if first.origin == "native" else f"from {first.source}"
    owner = f", written on {first.owner}" if first.source not in ("", first.owner) else ""
    compared: dict[str, int] = {}
    for row in rows:
        for unit, count in row.compared.items():
            compared[unit] = compared.get(unit, 0) + count
    spans = [f"{row.start:,}-{'' if row.end is None else format(row.end, ',')}" for row in rows]
    return EraLine(
        cluster=first.cluster,
        what=f"{what}{owner}{', truncated' if first.cut else ''}",
        partitions=len(rows),
        offsets=f"{spans[0]}" + (f" and {len(spans) - 1} more" if len(spans) > 1 else ""),
        compared=compared,
        anomalies=sum(row.anomalies for row in rows),
        allowed=sum(row.allowed for row in rows),
        verdict=max((row.verdict for row in rows), key=_WORSE.index),
    )


_WORSE: Final = (Verdict.NOT_DUE, Verdict.VALID, Verdict.UNKNOWN, Verdict.INVALID)


def read(document: Mapping[str, object]) -> Document:
    """The typed document. Raises InputError when it is not one."""
    known = {name: value for name, value in document.items() if value is not None}
    try:
        return msgspec.convert(known, Document, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(
            f"the verdict document cannot be read ({error}); judge the run directory again with linkflap verify"
        ) from None


def in_short(value: object, limit: int = 400) -> str:
    """Evidence on one line: strings as they are, all else as JSON."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
