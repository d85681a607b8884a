"""What an anomaly says in one sentence: on which cluster, at which offset, who did what, and what it comes to.

The sentence is a kind's own (`AnomalyKind.sentence`); here are the words for what it names. Payloads and operations are named
by the client that made them: `idempotent-5 #3` is record 3 of idempotent-5, `idempotent-5/2 #0` the first of its second
incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from linkflap.harness.model.payload import PROCESS_SHIFT, process_of
from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks.base import AnomalyKind, Check
from linkflap.spark_verify.verdict.causes import Cause

MOST_CONSEQUENCES: Final = 3
_MANY: Final = frozenset({"transactions", "batches", "samples"})
_WORDS: Final = frozenset({"the", "on", "two", "no", "producer", "outputs", "broker", "brokers"})
"""With which a sentence begins that is to begin with a capital: no names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Who is who in a run: the label of each producer incarnation, and where partitions were promoted."""

    processes: Mapping[int, str] = field(default_factory=dict)
    promotions: Mapping[tuple[str, str, int], int] = field(default_factory=dict)

    def record(self, uid: object) -> str:
        """A payload."""
        if not isinstance(uid, int) or uid < 0:
            return "a record of no known client"
        return f"{self._process(uid)} #{uid & ((1 << PROCESS_SHIFT) - 1)}"

    def operation(self, number: object) -> str:
        """A transaction, by its number."""
        if not isinstance(number, int) or number < 0:
            return "a transaction"
        return f"transaction #{number & ((1 << PROCESS_SHIFT) - 1)} of {self._process(number)}"

    def _process(self, number: int) -> str:
        return self.process(process_of(number))

    def process(self, process: object) -> str:
        """A producer incarnation."""
        return self.processes.get(process, f"producer {process}") if isinstance(process, int) else "a producer"


def labels(incarnations: Iterable[tuple[int, str]]) -> Mapping[int, str]:
    """(process, client) in the order in which they began -> process -> label."""
    counted: dict[str, int] = {}
    found: dict[int, str] = {}
    for process, client in incarnations:
        if process not in found:
            counted[client] = counted.get(client, 0) + 1
            found[process] = client if counted[client] == 1 else f"{client}/{counted[client]}"
    return found


def sentence(anomaly: Anomaly, checks: Mapping[str, Check], names: Names) -> str:
    """One anomaly, without a full stop."""
    kind = kind_of(anomaly.check, anomaly.kind, checks)
    if kind is not None and kind.sentence:
        try:
            return kind.sentence.format_map(_fields(anomaly, names))
        except (KeyError, ValueError, IndexError, AttributeError):
            pass  # evidence of an older linkflap may lack what the sentence names
    meaning = kind.meaning.rstrip(".") if kind else anomaly.kind
    return f"{anomaly.cluster} {_at(anomaly)}: {meaning[:1].lower()}{meaning[1:]}"


def kind_of(check: str, kind: str, checks: Mapping[str, Check]) -> AnomalyKind | None:
    """The declaration of a kind of anomaly."""
    return next((each for each in checks[check].anomalies if each.name == kind), None) if check in checks else None


def first_cause(cause: Cause, anomalies: Sequence[Anomaly], checks: Mapping[str, Check], names: Names) -> str:
    """A cause and what it comes to."""
    kind = kind_of(cause.check, cause.kind, checks)
    parts, said_already = [sentence(anomalies[cause.first], checks, names)], None
    if kind is not None and kind.latent and cause.consequences:
        said_already, numbers = next(iter(cause.consequences.items()))
        parts.append(sentence(anomalies[numbers[0]], checks, names))
    harm = [counted(cause.check, cause.kind, [anomalies[n] for n in cause.members], checks)] if len(cause.members) > 1 else []
    worst = {name: rank for rank, name in enumerate(checks)}  # the registry begins with what is worst for users
    for each, numbers in sorted(cause.consequences.items(), key=lambda item: worst.get(item[0][0], len(worst))):
        if each != said_already:
            harm.append(counted(*each, [anomalies[n] for n in numbers], checks))
    said = [words for words in dict.fromkeys(harm) if words][:MOST_CONSEQUENCES]
    return begin("; ".join([*parts, *([", ".join(said)] if said else [])])) + "."


def begin(text: str) -> str:
    """With a capital, unless the first word is a name."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0] in _WORDS else text


def counted(check: str, kind: str, anomalies: Sequence[Anomaly], checks: Mapping[str, Check]) -> str:
    """What a number of anomalies of one kind comes to; empty where that says nothing by itself."""
    declared = kind_of(check, kind, checks)
    if declared is None or not declared.counted:
        return ""
    number = len(anomalies) if checks[check].unit in _MANY else sum(_records(anomaly) for anomaly in anomalies)
    one, _, many = declared.counted.partition("|")
    return f"{number:,} {one if number == 1 else many}"


def _records(anomaly: Anomaly) -> int:
    records = anomaly.evidence.get("records")
    return records if isinstance(records, int) else 1


def _at(anomaly: Anomaly) -> str:
    log = f"{anomaly.topic}-{anomaly.partition}"
    return f"{log} @ {anomaly.offset}" if anomaly.offset >= 0 else log


def _fields(anomaly: Anomaly, names: Names) -> Mapping[str, str]:
    evidence, records = anomaly.evidence, _records(anomaly)
    name = names.record(evidence.get("uid"))
    said = {key: _said(value) for key, value in evidence.items()}
    for key in ("after_uid", "holds"):
        said |= {key: names.record(evidence[key])} if key in evidence else {}
    promoted = names.promotions.get((anomaly.cluster, anomaly.topic, anomaly.partition))
    if promoted is not None and said.get("why", "").endswith("promotion offset"):
        said["why"] += f" {promoted}"
    return {
        **said,
        "cluster": anomaly.cluster,
        "tp": f"{anomaly.topic}-{anomaly.partition}",
        "at": _at(anomaly),
        "offset": str(anomaly.offset),
        "n": f"{records:,} record{'s' if records != 1 else ''}",
        "who": name if records == 1 else f"{records:,} records from {name} on",
        "operation": names.operation(evidence.get("operation")),
        "users": _users(evidence, names),
    }


def _said(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_said, value))
    return "nothing" if value is None else f"{value:,}" if isinstance(value, float) else str(value)


def _users(evidence: Mapping[str, object], names: Names) -> str:
    """Whose a producer id is."""
    processes = evidence.get("processes")
    two = [names.process(process) for process in processes] if isinstance(processes, list) else []
    by = evidence.get("handed_out_by")
    if len(two) == 2 and isinstance(by, list) and len(by) == 2:
        until = evidence.get("mirrored_offset")
        return f"{two[0]}, by {by[0]}, mirrored up to offset {until}, and {two[1]}, by {by[1]}"
    if len(two) == 2:
        return " and ".join(two)
    return f"{evidence.get('client')}, and one whose batches were mirrored up to offset {evidence.get('mirrored_offset')}"
