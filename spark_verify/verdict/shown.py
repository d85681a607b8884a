"""Selects the anomalies that the document shows, causes before their consequences, with the cause
of each in words.

Examples are capped, counts never. For each check and kind the first EXAMPLES are shown, and the one
that names a cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from linkflap.harness.model.verdict import Anomaly, Cause, Consequence
from linkflap.spark_verify.checks.base import Check
from linkflap.spark_verify.verdict.causes import CauseGroup as Ranked
from linkflap.spark_verify.verdict.causes import rank
from linkflap.spark_verify.verdict.sentences import (
    SentenceNames,
    begin,
    counted,
    first_cause,
    sentence,
)

EXAMPLES: Final = 20
"""Anomalies in the document per check, kind and whether allowed."""
MOST_CAUSES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """`cause` is the first cause in one sentence, empty where nothing is proven."""

    cause: str
    causes: Sequence[Cause]
    anomalies: Sequence[Anomaly]
    left_out: int


def show(
    anomalies: Sequence[Anomaly],
    proven: Collection[str],
    checks: Mapping[str, Check],
    names: SentenceNames,
    upstream: Callable[[Anomaly], str] = lambda anomaly: "",
) -> Shown:
    """What the document shows. `proven` are the checks whose anomalies prove something; `upstream`
    as `rank` takes it."""
    broken = [
        anomaly for anomaly in ordered(anomalies) if anomaly.check in proven and not anomaly.allowed
    ]
    causes = rank(broken, checks, upstream)
    chosen = _chosen(anomalies, [broken[cause.first] for cause in causes])
    ranks = _ranks(causes, broken)
    # Anomalies that prove nothing come after those that do, and allowed ones at the end.
    chosen.sort(key=lambda a: (a.allowed, ranks.get(id(a), (len(causes), 0, 0))))
    numbers = {id(anomaly): number for number, anomaly in enumerate(chosen, start=1)}
    rows = [_cause(cause, broken, checks, names, numbers) for cause in causes[:MOST_CAUSES]]
    return Shown(
        cause=rows[0].sentence if rows else "",
        causes=rows,
        anomalies=[_in_words(anomaly, ranks.get(id(anomaly)), checks, names) for anomaly in chosen],
        left_out=len(anomalies) - len(chosen),
    )


def ordered(anomalies: Sequence[Anomaly]) -> Sequence[Anomaly]:
    """What is not allowed first; then by check, kind, partition and offset."""
    return sorted(
        anomalies,
        key=lambda a: (a.allowed, a.check, a.kind, a.topic, a.partition, a.cluster, a.offset),
    )


def _chosen(anomalies: Sequence[Anomaly], always: Sequence[Anomaly]) -> list[Anomaly]:
    taken: Counter[tuple[str, str, bool]] = Counter()
    chosen, wanted = list[Anomaly](), {id(anomaly) for anomaly in always}
    for anomaly in ordered(anomalies):
        key = (anomaly.check, anomaly.kind, anomaly.allowed)
        taken[key] += 1
        if taken[key] <= EXAMPLES or id(anomaly) in wanted:
            chosen.append(anomaly)
    return chosen


def _ranks(causes: Sequence[Ranked], broken: Sequence[Anomaly]) -> dict[int, tuple[int, int, int]]:
    """By anomaly: its cause, 0 for the cause itself or else which kind of consequence, and its
    turn."""
    ranks: dict[int, tuple[int, int, int]] = {}
    for number, cause in enumerate(causes):
        for kind, numbers in enumerate((cause.members, *cause.consequences.values())):
            for turn, index in enumerate(numbers):
                ranks[id(broken[index])] = (number, kind, turn)
    return ranks


def _cause(
    cause: Ranked,
    broken: Sequence[Anomaly],
    checks: Mapping[str, Check],
    names: SentenceNames,
    numbers: Mapping[int, int],
) -> Cause:
    return Cause(
        sentence=first_cause(cause, broken, checks, names),
        check=cause.check,
        kind=cause.kind,
        cluster=cause.cluster,
        anomaly=numbers[id(broken[cause.first])],
        count=len(cause.members),
        consequences=tuple(
            Consequence(
                check=check,
                kind=kind,
                count=len(found),
                said=counted(check, kind, [broken[n] for n in found], checks),
                anomaly=next((at for n in found if (at := numbers.get(id(broken[n])))), 0),
            )
            for (check, kind), found in cause.consequences.items()
        ),
    )


def _in_words(
    anomaly: Anomaly,
    rank: tuple[int, int, int] | None,
    checks: Mapping[str, Check],
    names: SentenceNames,
) -> Anomaly:
    return replace(
        anomaly, cause=rank[0] + 1 if rank else 0, sentence=begin(sentence(anomaly, checks, names))
    )
