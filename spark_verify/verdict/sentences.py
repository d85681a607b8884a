"""Anomalies as sentences: the cluster and offset, who did what, and the consequence.

The sentence is a kind's own (`AnomalyKind.sentence`); this module fills in its words. Payloads and
operations are named by the client that made them: `idempotent-5 #3` is record 3 of idempotent-5,
`idempotent-5/2 #0` the first of its second incarnation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from linkflap.harness.model.payload import PROCESS_SHIFT, process_of
from linkflap.harness.model.texts import counted as things
from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks.base import AnomalyKind, Check
from linkflap.spark_verify.checks.log_model.batch_differences import ABSENT
from linkflap.spark_verify.verdict.causes import CauseGroup, Kind

MOST_CONSEQUENCES: Final = 3
_MANY: Final = frozenset({"transactions", "samples", "promotions"})
BUDGET: Final = "allowed_at_most"
"""The name in the evidence of the budget: the anomaly would be allowed if the cluster had no more
than this."""
IN_ALL: Final = "in_all"
_OF_RECORDS: Final = ("partition", "beginning")
"""Things that hold records: they are counted, and their records are not."""
_WORDS: Final = frozenset(
    {"the", "on", "two", "no", "producer", "outputs", "broker", "brokers", "observers"}
)
"""Words that take a capital at the beginning of a sentence, because they are no names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceNames:
    """The names in a run's sentences: a label for each producer incarnation, and where partitions
    were promoted."""

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
        return (
            self.processes.get(process, f"producer {process}")
            if isinstance(process, int)
            else "a producer"
        )


def labels(incarnations: Iterable[tuple[int, str]]) -> Mapping[int, str]:
    """(process, client) in the order in which they began -> process -> label."""
    counted: dict[str, int] = {}
    found: dict[int, str] = {}
    for process, client in incarnations:
        if process not in found:
            counted[client] = counted.get(client, 0) + 1
            found[process] = client if counted[client] == 1 else f"{client}/{counted[client]}"
    return found


def sentence(anomaly: Anomaly, checks: Mapping[str, Check], names: SentenceNames) -> str:
    """One anomaly, without a full stop."""
    said = _sentence(anomaly, checks, names)
    if BUDGET not in anomaly.evidence:
        return said
    there, most = (_said(anomaly.evidence.get(name)) for name in (IN_ALL, BUDGET))
    return f"{said}; {anomaly.cluster} has {there} of this kind, and the budget is {most}"


def _sentence(anomaly: Anomaly, checks: Mapping[str, Check], names: SentenceNames) -> str:
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
    return (
        next((each for each in checks[check].anomalies if each.name == kind), None)
        if check in checks
        else None
    )


def first_cause(
    cause: CauseGroup,
    anomalies: Sequence[Anomaly],
    checks: Mapping[str, Check],
    names: SentenceNames,
) -> str:
    """A cause and its consequences; where no client was harmed, what it could have led to."""
    kind, own = kind_of(cause.check, cause.kind, checks), (cause.check, cause.kind)
    parts, said_already = [sentence(anomalies[cause.first], checks, names)], own
    if (
        kind is not None
        and kind.latent
        and (led_to := [each for each in cause.consequences if each != own])
    ):
        said_already = led_to[0]
        parts.append(sentence(anomalies[cause.consequences[said_already][0]], checks, names))
    several = [*cause.members, *cause.consequences.get(own, ())]
    harm = [counted(*own, [anomalies[n] for n in several], checks)] if len(several) > 1 else []
    harm += _harm(cause, anomalies, checks, but=said_already)
    if words_of_harm := [words for words in dict.fromkeys(harm) if words]:
        parts.append(", ".join(words_of_harm))
    if all(_alone(each, checks) for each in (own, *cause.consequences)):
        parts.append(
            "no client was seen to be harmed, but "
            f"{_alone(own, checks).format_map(_named(anomalies[cause.first]))}"
        )
    return begin("; ".join(parts)) + "."


def _harm(
    cause: CauseGroup, anomalies: Sequence[Anomaly], checks: Mapping[str, Check], *, but: Kind
) -> Sequence[str]:
    """The consequences, counted, one kind of each check: those that harm clients first, checks in
    the registry's order."""
    worst = {name: rank for rank, name in enumerate(checks)}
    found: dict[str, str] = {}
    for each in sorted(
        cause.consequences,
        key=lambda each: (bool(_alone(each, checks)), worst.get(each[0], len(worst))),
    ):
        words = counted(*each, [anomalies[n] for n in cause.consequences[each]], checks)
        if words and each not in (but, (cause.check, cause.kind)):
            found.setdefault(each[0], words)
    return list(found.values())[:MOST_CONSEQUENCES]


def _alone(kind: Kind, checks: Mapping[str, Check]) -> str:
    """The possible harm of a kind by itself; empty if it is harm itself."""
    declared = kind_of(*kind, checks)
    return declared.alone if declared else ""


def begin(text: str) -> str:
    """The text with a capital first letter, unless the first word is a name."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0] in _WORDS else text


def counted(
    check: str, kind: str, anomalies: Sequence[Anomaly], checks: Mapping[str, Check]
) -> str:
    """A number of anomalies of one kind in words; empty where the kind has none for it."""
    declared = kind_of(check, kind, checks)
    if declared is None or not declared.counted:
        return ""
    one, _, many = declared.counted.partition("|")
    number = number_of(checks[check], declared, anomalies)
    return f"{number:,} {one if number == 1 else many}"


def number_of(check: Check, kind: AnomalyKind, anomalies: Sequence[Anomaly]) -> int:
    """The number of anomalies of one kind; the records in them are counted if they have any."""
    if check.unit == "batches":  # a record that is compared with several sources counts once
        return len({(each.cluster, each.topic, each.partition, each.offset) for each in anomalies})
    if kind.one_per:
        return _things(kind.one_per, anomalies)
    if check.unit in _MANY or kind.counted.startswith(_OF_RECORDS):
        return len(anomalies)
    return sum(_records(anomaly) for anomaly in anomalies)


def _things(one_per: Sequence[str], anomalies: Sequence[Anomaly]) -> int:
    """The number of distinct things (`one_per`) with anomalies. A thing has the same evidence in
    all of its partitions; several in one partition count separately."""
    times = Counter(
        (
            (each.cluster, *(str(each.evidence.get(name)) for name in one_per)),
            each.topic,
            each.partition,
        )
        for each in anomalies
    )
    most: dict[tuple[str, ...], int] = {}
    for (thing, *_), count in times.items():
        most[thing] = max(count, most.get(thing, 0))
    return sum(most.values())


def allowed_in_words(anomalies: Iterable[Anomaly], checks: Mapping[str, Check]) -> str:
    """The counts of allowed anomalies, without kinds that no guarantee forbids."""
    grouped: dict[tuple[str, str, str], list[Anomaly]] = {}
    for anomaly in anomalies:
        declared = kind_of(anomaly.check, anomaly.kind, checks)
        if anomaly.allowed and not (declared is not None and declared.noted):
            grouped.setdefault((anomaly.check, anomaly.kind, anomaly.cluster), []).append(anomaly)
    clusters = {cluster for _, _, cluster in grouped}  # the same records may be on several
    words = (
        (counted(check, kind, several, checks) or f"{len(several):,} {kind}")
        + (f" on {cluster}" if len(clusters) > 1 else "")
        for (check, kind, cluster), several in grouped.items()
    )
    return ", ".join(dict.fromkeys(words))  # two checks may count the same


def _records(anomaly: Anomaly) -> int:
    records = anomaly.evidence.get("records")
    return records if isinstance(records, int) else 1


def _at(anomaly: Anomaly) -> str:
    log = f"{anomaly.topic}-{anomaly.partition}"
    return f"{log} @ {anomaly.offset}" if anomaly.offset >= 0 else log


def _named(anomaly: Anomaly) -> Mapping[str, str]:
    return {"cluster": anomaly.cluster, "source": str(anomaly.evidence.get("source", "its source"))}


def _fields(anomaly: Anomaly, names: SentenceNames) -> Mapping[str, str]:
    evidence, records = anomaly.evidence, _records(anomaly)
    name = names.record(evidence.get("uid"))
    words = {key: _said(value) for key, value in evidence.items()}
    for key in ("after_uid", "holds"):
        words |= {key: names.record(evidence[key])} if key in evidence else {}
    promoted = names.promotions.get((anomaly.cluster, anomaly.topic, anomaly.partition))
    if isinstance(before := evidence.get("before"), Mapping):
        words["was"] = ", ".join(map(_said, before.values()))
    if promoted is not None and words.get("why", "").endswith("promotion offset"):
        words["why"] += f" {promoted}"
    return {
        **words,
        "cluster": anomaly.cluster,
        "tp": f"{anomaly.topic}-{anomaly.partition}",
        "at": _at(anomaly),
        "offset": str(anomaly.offset),
        "n": f"{records:,} record{'s' if records != 1 else ''}",
        "who": name if records == 1 else f"{records:,} records ({name} and after)",
        "operation": names.operation(evidence.get("operation")),
        "users": _users(evidence, names),
        "observers": _observers(evidence, names),
        "difference": _difference(anomaly),
    }


def _said(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_said, value))
    return "nothing" if value is None else f"{value:,}" if isinstance(value, float) else str(value)


def _other_marker(anomaly: Anomaly, theirs: str, ours: str) -> str:
    source, ends = anomaly.evidence.get("source"), anomaly.evidence.get("ends")
    if not isinstance(ends, int) or ends <= 0:
        return f"{ours} where {source} has {theirs}"
    records, are = ("1 record", "is") if ends == 1 else (f"{ends:,} records", "are")
    did, comes_to = ("aborted", "visible") if ours == "COMMIT" else ("committed", "hidden")
    return (
        f"{ours} where {source} has {theirs}, so {records} that {source} {did} {are} {comes_to} on "
        f"{anomaly.cluster}"
    )


def _difference(anomaly: Anomaly) -> str:
    """The fields in which a batch differs from its source's batch; for a marker with the other
    outcome, the effect on its transaction.
    """
    evidence = anomaly.evidence
    fields, markers = evidence.get("fields"), evidence.get("markers")
    if isinstance(markers, list) and len(markers) == 2:
        return _other_marker(anomaly, *markers)
    if isinstance(changed := evidence.get("changed"), list) and changed:
        parts = dict.fromkeys(part for each in changed for part in each.get("fields", ()))
        every = evidence.get("records")
        many = len(every) if isinstance(every, list) else len(changed)
        if list(parts) == ABSENT:
            return f"{things(many, 'record')} {'is' if many == 1 else 'are'} missing on one"
        return (
            f"{'1 record differs' if many == 1 else f'{many:,} records differ'} in "
            f"{_said(list(parts))}"
        )
    several = isinstance(fields, list) and len(fields) != 1
    return f"{_said(fields)} {'differ' if several else 'differs'}"


def _observers(evidence: Mapping[str, object], names: SentenceNames) -> str:
    """The record that each observer saw, in words."""
    seen = evidence.get("seen")
    rows = [each for each in seen if isinstance(each, Mapping)] if isinstance(seen, list) else []
    return (
        " and ".join(
            f"{_observer(each.get('by'))} saw {names.record(each.get('uid'))}" for each in rows[:2]
        )
        or "no names are kept"
    )


def _observer(names: object) -> str:
    return "the log" if names == ["log"] else _said(names)


def _users(evidence: Mapping[str, object], names: SentenceNames) -> str:
    """The owners of a producer id, in words."""
    processes = evidence.get("processes")
    two = [names.process(process) for process in processes] if isinstance(processes, list) else []
    by = evidence.get("handed_out_by")
    if len(two) == 2 and isinstance(by, list) and len(by) == 2:
        until = evidence.get("mirrored_offset")
        return f"{two[0]}, by {by[0]}, mirrored up to offset {until}, and {two[1]}, by {by[1]}"
    if len(two) == 2:
        return " and ".join(two)
    return (
        f"{evidence.get('client')}, and one whose batches were mirrored up to offset "
        f"{evidence.get('mirrored_offset')}"
    )
